package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/hub"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

// model is the demo model: the expensive part, made once.
var model = sync.OnceValues(func() (gateway.Model, error) {
	files, err := hub.Hub{}.OpenFS(demo.Files(), "demo")
	if err != nil {
		return gateway.Model{}, err
	}
	fam := family.Detect(family.Evidence{Template: files.Template.Source("default"), Added: files.Tokenizer.Added()})
	a, err := prompt.New(prompt.Model{Renderer: files.Template, Tokenizer: files.Tokenizer, Family: fam, StopTokens: files.StopTokens})
	return gateway.Model{
		Name: "demo", Aliases: []string{"*"}, Tokenizer: files.Tokenizer, Prompts: a, Family: fam.Name,
		TokenizerID: files.Tokenizer.Fingerprint(), TemplateID: files.Template.Fingerprint(),
	}, err
})

// world is one session, two gateways, one log and one engine.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	id     string // the session's
	log    journal.Journal
	faulty *journaltest.Faulty
	engine *fakeEngine
	gates  []*gateway.Gateway
	made   []*gateway.Gateway // all that were ever started
	counts counts

	mu     sync.Mutex // concurrent requests of one step
	ids    int
	views  [][]message.Message // histories that the agent may go on from
	given  map[string]*gateway.Answer
	closed bool
}

func newWorld(t *testing.T, log journal.Journal, seed uint64) *world {
	m, err := model()
	require.NoError(t, err)
	stop, ok := m.Tokenizer.TokenID("<|im_end|>")
	require.True(t, ok)
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), id: fmt.Sprintf("s%d", seed), log: log, given: map[string]*gateway.Answer{},
		engine: &fakeEngine{tok: m.Tokenizer, stop: stop, rng: rand.New(rand.NewPCG(seed, 11)), journal: map[string]sampled{}},
	}
	w.faulty = journaltest.NewFaulty(w.log, journaltest.Faults{
		Seed: seed, Drop: 0.05, LoseAck: 0.05, Duplicate: 0.03, Delay: 0.2, MaxDelay: 20 * time.Millisecond, Unavailable: 0.03,
	})
	w.gates = []*gateway.Gateway{w.gateway(), w.gateway()}
	w.open()
	return w
}

func (w *world) gateway() *gateway.Gateway {
	m, err := model()
	require.NoError(w.t, err)
	m.Pool = w.engine
	g, err := gateway.New(gateway.Default(), gateway.Deps{
		Journal: w.faulty, Models: gateway.NewModels(&m), Keys: gateway.NewKeys([]byte("seed"), "admin"), NewID: w.newID, Process: fmt.Sprint("gateway-", len(w.made)),
	})
	require.NoError(w.t, err)
	w.made = append(w.made, g)
	return g
}

func (w *world) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("%06d", w.ids)
}

func (w *world) open() {
	_, err := w.gates[0].Open(w.t.Context(), gateway.OpenRequest{Session: w.id, Opened: &event.SessionOpened{Group: "g"}})
	require.NoError(w.t, err)
}

func text(role message.Role, s string) message.Message {
	return message.Message{Role: role, Content: message.TextContent(s)}
}

// run makes a few steps of a random agent.
func (w *world) run() {
	w.views = [][]message.Message{{text(message.System, "You help."), text(message.User, "Begin.")}}
	for range 3 + w.rng.IntN(6) {
		switch w.rng.IntN(16) {
		case 0: // the other gateway forgets everything
			w.gates[w.rng.IntN(2)] = w.gateway()
			w.counts.restarts++
		case 1: // best of n
			view := w.view()
			w.together(view, view, view)
		case 2: // two histories at once
			w.together(w.view(), w.view())
		case 3: // compaction
			w.request(w.gate(), []message.Message{text(message.System, "You help."), text(message.User, "A summary of it all.")}, normal)
		case 4: // a sub-agent, or changed tools
			w.request(w.gate(), []message.Message{text(message.System, "You are another."), text(message.User, "Search.")}, normal)
		case 5: // the agent edits an answer of the past
			w.request(w.gate(), w.edited(), normal)
		case 6:
			w.request(w.gate(), w.view(), cut)
		case 7:
			w.request(w.gate(), w.view(), gone)
		case 8:
			view := w.view()
			w.keyed(view)
		case 9:
			if w.rng.IntN(4) == 0 {
				w.closeDuring(w.view())
			}
		default:
			w.request(w.gate(), w.views[len(w.views)-1], normal)
		}
	}
	if !w.closed {
		require.NoError(w.t, again(func() error { return w.gates[0].Close(w.t.Context(), w.id, "completed", "") }))
	}
	for _, g := range w.made {
		g.Shutdown(w.t.Context())
	}
	w.counts.faults = w.faulty.Injected()
}

// again repeats what failed because the log did not answer.
func again(do func() error) error {
	for {
		if err := do(); !errors.Is(err, journal.ErrUnavailable) {
			return err
		}
	}
}

func (w *world) gate() *gateway.Gateway { return w.gates[w.rng.IntN(2)] }

// view is any history, more often a late one.
func (w *world) view() []message.Message {
	if w.rng.IntN(2) == 0 {
		return w.views[len(w.views)-1]
	}
	return w.views[w.rng.IntN(len(w.views))]
}

// edited is a history in which the agent changed what the model said.
func (w *world) edited() []message.Message {
	view := slices.Clone(w.view())
	for i, m := range view {
		if m.Role == message.Assistant && len(m.Calls) == 0 {
			view[i].Content = message.TextContent("Something else, says the agent.")
			break
		}
	}
	return view
}

// How a request ends from the agent's side.
const (
	normal = iota
	cut    // the write to the client fails
	gone   // the client's context ends
)

func (w *world) together(views ...[]message.Message) {
	var wg sync.WaitGroup
	for _, v := range views {
		g := w.gate()
		wg.Go(func() { w.request(g, v, normal) })
	}
	wg.Wait()
}

// keyed sends one request several times under one key, at once and afterwards,
// to either gateway.
func (w *world) keyed(view []message.Message) {
	key := w.newID()
	answers := make([]*gateway.Answer, 3)
	var wg sync.WaitGroup
	for i := range 2 {
		g := w.gate()
		how := []int{normal, cut, gone}[w.rng.IntN(3)]
		wg.Go(func() { answers[i] = w.send(g, view, how, key) })
	}
	wg.Wait()
	answers[2] = w.send(w.gate(), view, normal, key)
	var first *gateway.Answer
	for _, a := range answers {
		switch {
		case a == nil:
		case first == nil:
			first = a
		default:
			require.Equal(w.t, first.Turn, a.Turn, "one key, one answer")
			w.counts.repeated++
		}
	}
}

func (w *world) closeDuring(view []message.Message) {
	var wg sync.WaitGroup
	g := w.gate()
	wg.Go(func() { w.request(g, view, normal) })
	err := again(func() error { return w.gates[0].Close(w.t.Context(), w.id, "completed", "") })
	require.NoError(w.t, err)
	wg.Wait()
	w.closed = true
}

func (w *world) request(g *gateway.Gateway, view []message.Message, how int) {
	w.send(g, view, how, "")
}

// send makes one call and notes what came of it.
func (w *world) send(g *gateway.Gateway, view []message.Message, how int, key string) *gateway.Answer {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	seen := 0
	early := func(d parse.Delta) error {
		require.Contains(w.t, []parse.Kind{parse.Reasoning, parse.Content}, d.Kind, "a call left before the acknowledgement")
		if seen++; seen == 2 {
			switch how {
			case cut:
				return errors.New("broken pipe")
			case gone:
				cancel()
			}
		}
		return nil
	}
	body := fmt.Sprint(len(view), key)
	a, err := g.Complete(ctx, gateway.Request{
		Session: w.id, Conversation: message.Split(slices.Clone(view), nil), IdempotencyKey: key, BodyHash: []byte(body),
	}, early)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.requests++
	if err != nil {
		w.refused(err, how)
		return nil
	}
	require.True(w.t, w.holds(a.Turn), "turn %s was given before it was in the log", a.Turn)
	w.counts.given++
	if was := w.given[a.Turn]; was != nil {
		require.Equal(w.t, was.Message, a.Message)
		require.NotEmpty(w.t, key, "one turn was given to two requests")
	}
	w.given[a.Turn] = a
	next := append(slices.Clone(view), a.Message)
	for _, c := range a.Message.Calls {
		next = append(next, message.Message{Role: message.Tool, CallID: c.ID, Content: message.TextContent("result")})
	}
	if len(a.Message.Calls) == 0 {
		next = append(next, text(message.User, fmt.Sprint("Go on ", len(w.views))))
	}
	w.views = append(w.views, next)
	return a
}

// refused checks that a request failed for a reason that is not its history.
func (w *world) refused(err error, how int) {
	switch e := gateway.AsError(err); e.Kind {
	case gateway.EngineFault:
		require.ErrorIs(w.t, err, errEngine)
	case gateway.Interrupted:
		require.NotEqual(w.t, normal, how, "%v", err)
	case gateway.Overloaded:
		require.ErrorContains(w.t, err, "another gateway answered this request")
	case gateway.Closed:
		w.counts.closed++
	case gateway.LogDown:
		w.counts.unavailable++
	default:
		require.NoError(w.t, err, "kind %s", e.Kind)
	}
}

// holds reports whether the log has a turn, now.
func (w *world) holds(turn string) bool {
	for e, err := range w.log.ReadSession(w.t.Context(), w.id, journal.Tip{}) {
		require.NoError(w.t, err)
		if e.Event.GetTurnCommitted().GetTurn() == turn {
			return true
		}
	}
	return false
}

// check compares the log with the oracle.
func (w *world) check() {
	t := w.t
	tr := tree.New(w.id)
	rec := fold.New(w.id, fold.DefaultPolicy(), fold.Aids{})
	var sealed *event.SessionSealed
	late := 0
	for e, err := range w.log.ReadSession(t.Context(), w.id, journal.Tip{}) {
		require.NoError(t, err)
		require.NoError(t, tr.Apply(e))
		u, err := rec.Apply(e)
		require.NoError(t, err)
		for _, o := range u.GetOutputs() {
			require.Nil(t, o.GetFault(), "the recorder parks the session: %v", o.GetFault())
			if s := o.GetSessionSealed(); s != nil {
				sealed = s
			} else if sealed != nil {
				late += int(o.GetTurnLost().GetIds()) // a turn that was under way at the close
			}
		}
	}
	generated := 0
	keys := map[string]bool{}
	for _, n := range tr.Turns {
		c := n.Committed
		if key := c.GetRequest().GetIdempotencyKey(); key != "" {
			require.False(t, keys[key], "two turns answer one key")
			keys[key] = true
		}
		s, ok := w.engine.journal[n.ID]
		require.True(t, ok, "the engine never sampled turn %s", n.ID)
		require.Equal(t, s.ids, event.IDs(nil, c.GetCompletion().GetIds()), "sampled ids are stored as they are")
		require.Equal(t, s.logprobs, event.Floats(nil, c.GetCompletion().GetLogprobs()))
		require.Equal(t, s.prompt, n.PromptIDs(nil), "the prompt in the log is the one that the engine got")
		generated += len(s.ids)
		switch c.GetMatch().GetDecision() {
		case "extend":
			w.counts.extends++
		case "branch":
			w.counts.branches++
		default:
			w.counts.roots++
		}
		if n.Parent != nil {
			require.Equal(t, n.Parent.Len, n.Keep, "the demo's family trims nothing: all ids of the parent stay")
			require.Equal(t, n.Parent.IDs(nil, n.Keep), n.PromptIDs(nil)[:n.Keep], "a prompt begins with its parent's ids")
		}
	}
	w.counts.roots-- // one is needed
	for _, a := range tr.Aborted {
		w.counts.aborted++
		ids := event.IDs(nil, a.GetPartial().GetCompletion().GetIds())
		require.Equal(t, w.engine.journal[a.GetTurn()].ids, append([]uint32(nil), ids...), "an aborted turn has the ids that were received")
		generated += len(ids)
	}
	for turn := range w.given {
		require.NotNil(t, tr.Turn(turn), "turn %s was given and is not in the log", turn)
	}
	require.NotNil(t, sealed)
	l := sealed.GetLedger()
	sum := l.GetTrainable()
	for _, m := range []map[string]uint64{l.GetMasked(), l.GetLost()} {
		for _, n := range m {
			sum += n
		}
	}
	require.Equal(t, l.GetGenerated(), sum, "the ledger balances")
	require.Equal(t, generated, int(l.GetGenerated())+late, "the ledger counts what the engine sampled")
}
