package gateway

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
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
	mu sync.Mutex
	m  map[string]*flight
}

type flight struct {
	done   chan struct{}
	answer *Answer
	err    error
}

// join returns the flight of a key, and whether the caller is its leader, who
// must call land.
func (f *flights) join(key string) (fl *flight, leader bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl = f.m[key]; fl != nil {
		return fl, false
	}
	if f.m == nil {
		f.m = map[string]*flight{}
	}
	fl = &flight{done: make(chan struct{})}
	f.m[key] = fl
	return fl, true
}

func (f *flights) land(key string, fl *flight, a *Answer, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, key)
	fl.answer, fl.err = a, err
	close(fl.done)
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
// leader that failed because its own client went away leaves the turn to the
// next.
func (g *Gateway) once(ctx context.Context, req Request, early func(parse.Delta) error, fn func() (*Answer, error)) (*Answer, error) {
	key := req.key()
	if key == "" {
		return fn()
	}
	for {
		fl, leader := g.flights.join(key)
		if leader {
			a, err := fn()
			g.flights.land(key, fl, a, err)
			return a, err
		}
		select {
		case <-fl.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if fl.err == nil {
			return fl.answer, replay(fl.answer, req, early)
		}
		if !errors.Is(fl.err, context.Canceled) {
			return nil, fl.err
		}
	}
}

// repeated returns the committed answer that a request asks for again, or nil.
func (g *Gateway) repeated(s *session.Session, req Request) (a *Answer, err error) {
	turn := s.Repeated(req.IdempotencyKey, req.RequestID, req.BodyHash)
	if turn == nil {
		return nil, nil
	}
	if !bytes.Equal(turn.Committed.GetRequest().GetBodyHash(), req.BodyHash) {
		return nil, &Error{Kind: Conflict, Param: "idempotency-key", Message: "the idempotency key was used for another request of this session"}
	}
	return g.recorded(turn)
}

// recorded makes the answer of a turn from the log. Its logprobs are not in
// the gateway's memory: the answer has none.
func (g *Gateway) recorded(t *tree.Turn) (*Answer, error) {
	c := t.Committed
	m, err := message.Parse(c.GetConversation().GetAnswer())
	if err != nil {
		return nil, err
	}
	ids := event.IDs(nil, c.GetCompletion().GetIds())
	return &Answer{
		Turn: t.ID, Message: m, FinishReason: c.GetCompletion().GetFinishReason(),
		MatchedStop: c.GetCompletion().GetMatchedStop(), Model: c.GetRequest().GetModel(),
		PromptTokens: t.PromptLen, CachedTokens: int(c.GetGeneration().GetCachedTokens()),
		CompletionTokens: len(ids), IDs: ids, Repeated: true,
		Tokens: func(uint32) []byte { return nil },
	}, nil
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
