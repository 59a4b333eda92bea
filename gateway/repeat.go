package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/parse"
)

// A request may be a repeat: the client's connection broke, or its patience.
// It is one when it carries the key of an earlier request (an idempotency key,
// or a request id with the same body), or when its body is that of a turn whose
// answer is known not to have arrived. A repeat joins the turn that is under
// way, or gets the answer that was committed. Everything else is a new sample:
// best-of-n sends equal bodies legally.

// flights are the keyed turns under way.
type flights struct {
	mu      sync.Mutex
	m       map[string]*flight
	running sync.WaitGroup
}

type flight struct {
	body   []byte // hash of the request's body
	takers int    // who waits for the answer
	done   chan struct{}
	answer *Answer
	err    error
}

// join returns the flight of a key, and whether the caller is the first.
func (f *flights) join(key string, body []byte) (fl *flight, leader bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl = f.m[key]; fl == nil {
		if f.m == nil {
			f.m = map[string]*flight{}
		}
		fl, leader = &flight{body: body, done: make(chan struct{})}, true
		f.m[key] = fl
	}
	fl.takers++
	return fl, leader
}

// leave says that one who waited does so no more.
func (f *flights) leave(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.takers--
}

// land gives the answer to all who wait, and returns how many they are.
func (f *flights) land(key string, fl *flight, a *Answer, err error) (takers int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, key)
	fl.answer, fl.err = a, err
	close(fl.done)
	return fl.takers
}

// key identifies a request among the repeats of its session; empty if it
// carries nothing that would.
func (r Request) key() string {
	switch {
	case r.IdempotencyKey != "":
		return r.Session + "\x00k" + r.IdempotencyKey
	case r.RequestID != "":
		return r.Session + "\x00r" + r.RequestID + "\x00" + string(r.BodyHash)
	}
	return ""
}

// once runs fn, or waits for the same request that is under way already. A
// request with a key runs to its end when its client goes away: the client will
// ask again, and the answer is waiting for it then.
func (g *Gateway) once(ctx context.Context, req Request, early func(parse.Delta) error, fn func(context.Context, Request, func(parse.Delta) error) (*Answer, error)) (*Answer, error) {
	key := req.key()
	if key == "" {
		return fn(ctx, req, early)
	}
	fl, leader := g.flights.join(key, req.BodyHash)
	if !bytes.Equal(fl.body, req.BodyHash) {
		g.flights.leave(fl)
		return nil, errOtherRequest
	}
	var own leading
	if leader {
		own = leading{begun: req.Begun, early: early, pause: req.Pause}
		g.flights.running.Add(1)
		go g.lead(context.WithoutCancel(ctx), key, fl, req, &own, fn)
	}
	select {
	case <-fl.done:
	case <-ctx.Done():
		own.stop()
		g.flights.leave(fl)
		return nil, ctx.Err()
	}
	if leader || fl.err != nil {
		return fl.answer, fl.err
	}
	return fl.answer, replay(fl.answer, req, early)
}

// lead runs the turn of a flight. If nobody is left to take the answer, that is
// recorded, as for every answer that did not arrive.
func (g *Gateway) lead(ctx context.Context, key string, fl *flight, req Request, own *leading, fn func(context.Context, Request, func(parse.Delta) error) (*Answer, error)) {
	defer g.flights.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.closing, cancel)()
	var a *Answer
	err := error(&Error{Kind: InternalFault, Message: "internal error; see the gateway's log"})
	defer func() {
		if r := recover(); r != nil {
			g.deps.Log.ErrorContext(ctx, "panic in a turn", "session", req.Session, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
		if takers := g.flights.land(key, fl, a, err); takers == 0 && err == nil {
			g.DeliveryFailed(ctx, req.Session, a.Turn, errNobody)
		}
	}()
	req.Begun, req.Pause = own.begin, own.rest
	a, err = fn(ctx, req, own.pass)
}

// Shutdown waits for turns whose clients have gone. When ctx ends they are
// aborted, and recorded as such. Nobody may call Complete any more.
func (g *Gateway) Shutdown(ctx context.Context) {
	defer context.AfterFunc(ctx, g.abort)()
	g.flights.running.Wait()
	g.runs.Close()
}

var (
	errNobody       = errors.New("the client went away")
	errOtherRequest = &Error{
		Kind: Conflict, Param: "idempotency-key", Message: "the idempotency key was used for another request of this session",
	}
)

// leading passes on what may leave early, until the leader's client goes away.
// After stop nothing is called any more.
type leading struct {
	mu    sync.Mutex
	begun func(turn string, promptTokens int)
	early func(parse.Delta) error
	pause func() error
}

func (l *leading) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.early, l.pause = nil, nil, nil
}

func (l *leading) begin(turn string, promptTokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun != nil {
		l.begun(turn, promptTokens)
	}
}

// pass never fails: the turn goes on without a client.
func (l *leading) pass(d parse.Delta) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.early != nil && l.early(d) != nil {
		l.early, l.pause = nil, nil
	}
	return nil
}

// rest is Request.Pause, and never fails either.
func (l *leading) rest() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pause != nil && l.pause() != nil {
		l.early, l.pause = nil, nil
	}
	return nil
}

// repeated returns the committed answer that a request asks for again, or nil.
func (g *Gateway) repeated(ctx context.Context, s *session.Session, req Request) (a *Answer, err error) {
	if req.key() != "" {
		// Another gateway may have answered it.
		if err := s.CatchUp(ctx); err != nil {
			return nil, err
		}
	}
	turn := s.Repeated(req.IdempotencyKey, req.RequestID, req.BodyHash)
	if turn == nil {
		turn = s.TakeUndelivered(req.BodyHash)
	}
	if turn == nil {
		return nil, nil
	}
	if !bytes.Equal(turn.Committed.GetRequest().GetBodyHash(), req.BodyHash) {
		return nil, errOtherRequest
	}
	return g.recorded(turn), nil
}

// recorded makes the answer of a turn from the log. Its logprobs are not in
// the gateway's memory: the answer has none.
func (g *Gateway) recorded(t *tree.Turn) *Answer {
	c := t.Committed
	ids := event.IDs(nil, c.GetCompletion().GetIds())
	tokens := func(uint32) []byte { return nil }
	if model, err := g.deps.Models.Resolve(c.GetRequest().GetModel(), ""); err == nil {
		tokens = model.bytes
	}
	return &Answer{
		Turn: t.ID, Message: t.Answer, FinishReason: c.GetCompletion().GetFinishReason(),
		MatchedStop: c.GetCompletion().GetMatchedStop(), Model: c.GetRequest().GetModel(),
		PromptTokens: t.PromptLen, CachedTokens: min(int(c.GetGeneration().GetCachedTokens()), t.PromptLen),
		CompletionTokens: len(ids), IDs: ids, Repeated: true,
		Tokens: tokens,
	}
}

// replay gives what may leave early of an answer that is complete.
func replay(a *Answer, req Request, early func(parse.Delta) error) error {
	req.begun(a.Turn, a.PromptTokens)
	for _, d := range []parse.Delta{
		{Kind: parse.Reasoning, Text: a.Message.Reasoning},
		{Kind: parse.Content, Text: a.Message.Content.String()},
	} {
		if err := release(d, early); err != nil {
			return err
		}
	}
	return nil
}

// winner returns the turn that answered the same keyed request already: another
// gateway was quicker.
func (t *turn) winner(in *tree.Tree) *tree.Turn {
	switch {
	case t.req.IdempotencyKey != "":
		return in.WithKey(t.req.IdempotencyKey)
	case t.req.RequestID != "":
		return in.WithRequest(t.req.RequestID, t.req.BodyHash)
	}
	return nil
}
