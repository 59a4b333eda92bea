// Package session holds what a gateway knows of sessions: each one's tree,
// folded from its events, and an index that finds the turn which a request
// continues.
//
// A Session is a cache. Nothing here is state of its own: whatever is lost
// comes back by reading the session's events, and what another gateway
// appended is caught up with when an append is refused or a history contains
// an answer that is not known yet.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
)

// Errors of a Session.
var (
	// ErrUnknown is a session that was never opened.
	ErrUnknown = errors.New("session: unknown")
	// ErrClosed is a session that takes no more turns.
	ErrClosed = errors.New("session: closed")
	// ErrDamaged is a session whose log cannot be folded: it serves no more.
	ErrDamaged = errors.New("session: its log cannot be read")
)

// Session is one session as this gateway knows it. All methods are safe for
// concurrent use.
type Session struct {
	id      string
	journal journal.Journal

	// Whoever talks to the log holds a slot; mu is never held meanwhile.
	appending slot // one append in flight
	reading   slot // one catch-up under way

	mu       sync.Mutex // guards what follows
	tree     *tree.Tree
	nodes    map[*tree.Turn]*node
	answers  byHistory         // that ends in the answer
	prompts  byHistory         // that the turn answered
	counts   map[int]int       // how many turns there are with so many messages
	modelIDs map[string]string // by the id that the client knows
	again    map[string]bool   // undelivered turns that were given again here
	heads    map[message.Hash]*Head
	index    int // bytes of all these, about
	damaged  error
}

// What the index takes beyond the texts in it, in bytes, as measured with
// sessions of 1 to 20 turns: once there is a turn, and for each.
const (
	indexBase = 2500
	indexTurn = 2700
)

// size estimates the memory that the session takes, and says whether it was
// ever opened.
func (s *Session) size() (bytes int, opened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.Bytes() + s.index, s.tree.Opened != nil
}

func newSession(id string, j journal.Journal) *Session {
	return &Session{
		appending: newSlot(), reading: newSlot(),
		id:       id,
		journal:  j,
		tree:     tree.New(id),
		nodes:    map[*tree.Turn]*node{},
		answers:  byHistory{m: map[key][]*node{}},
		prompts:  byHistory{m: map[key][]*node{}},
		counts:   map[int]int{},
		modelIDs: map[string]string{},
		again:    map[string]bool{},
		heads:    map[message.Hash]*Head{},
	}
}

// ID is the id of the session.
func (s *Session) ID() string { return s.id }

// CatchUp folds what has been appended since the last look, by whomever.
func (s *Session) CatchUp(ctx context.Context) error {
	if err := s.reading.take(ctx); err != nil {
		return err
	}
	defer s.reading.give()
	s.mu.Lock()
	tip := s.tree.Tip
	s.mu.Unlock()
	for e, err := range s.journal.ReadSession(ctx, s.id, tip) {
		if err != nil {
			return s.over(fmt.Errorf("session %s: read: %w", s.id, err))
		}
		s.mu.Lock()
		if e.Tip.Count > s.tree.Tip.Count { // else an append was quicker
			s.apply(e, nil)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}

// over returns err, and serves no more of a session whose events have left the
// log: what is in memory is all that is left of it.
func (s *Session) over(err error) error {
	if errors.Is(err, journal.ErrTrimmed) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.damaged = err
	}
	return err
}

// slot is a lock whose waiters can give up.
type slot chan struct{}

func newSlot() slot { return make(slot, 1) }

func (t slot) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t slot) give() { <-t }

// apply folds one entry. An entry that does not fold damages the session for
// good: serving on would build on a history that nobody can rebuild. said is what
// the entry of a turn was made of, where that is known.
func (s *Session) apply(e journal.Entry, said *said) {
	n := len(s.tree.Turns)
	if err := s.tree.Apply(e); err != nil {
		s.damaged = fmt.Errorf("%w: session %s, event %d: %w", ErrDamaged, s.id, e.Ordinal(), err)
		return
	}
	for _, t := range s.tree.Turns[n:] {
		// Serving needs no logprobs, and they are half of the bytes.
		t.Committed.Completion.Logprobs = nil
		if err := s.add(t, said); err != nil {
			s.damaged = fmt.Errorf("%w: session %s: %w", ErrDamaged, s.id, err)
		}
	}
}

// View runs fn with the tree. fn must not keep it, but for its turns, and of
// those not Children.
func (s *Session) View(fn func(*tree.Tree) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fn(s.tree)
}

// ModelID returns the id that the model itself wrote for a call, or "" where
// its format has none or the call is not of this session.
func (s *Session) ModelID(call string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modelIDs[call]
}

// Repeated returns the turn that answered a request with the same idempotency
// key or, where there is none, with the same request id and body; nil for a new
// request.
func (s *Session) Repeated(idempotencyKey, requestID string, body []byte) *tree.Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if idempotencyKey != "" {
		return s.tree.WithKey(idempotencyKey)
	}
	return s.tree.WithRequest(requestID, body)
}

// TakeUndelivered returns a turn that answered a request with the same body and
// whose answer did not arrive, and gives each only once: who asks again after
// that wants a new sample. An answer that was cut or empty is not given again:
// the client may have repeated the request because of it.
func (s *Session) TakeUndelivered(body []byte) *tree.Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.tree.WithBody(body)
	for i := len(same) - 1; i >= 0; i-- {
		t := same[i]
		complete := t.Committed.GetCompletion().GetFinishReason() != "length" && t.Len > t.PromptLen
		if s.tree.Undelivered[t.ID] && len(t.Children) == 0 && complete && !s.again[t.ID] {
			s.again[t.ID] = true
			return t
		}
	}
	return nil
}

// Append appends the event that build returns. Where the session has moved on,
// it catches up and asks build again, with the tree as it is then: build
// decides what is still legal. build may return the same event each time; it
// must, where the event has an identity. A nil event appends nothing.
//
// An append whose outcome is unknown is made again, the same, until ctx ends.
// The error is build's, the journal's or ctx's; in the latter case the outcome
// is unknown until the next catch-up.
func (s *Session) Append(ctx context.Context, build func(*tree.Tree) (*event.Event, error)) error {
	return s.append(ctx, nil, build)
}

// AppendTurn is Append for an event of a turn, the conversation of which was made
// of the messages that m added and of answer. The event is the session's from then
// on, but not the memory of its messages.
func (s *Session) AppendTurn(ctx context.Context, m Match, answer message.Message, build func(*tree.Tree) (*event.Event, error)) error {
	return s.append(ctx, &said{m, answer}, build)
}

func (s *Session) append(ctx context.Context, said *said, build func(*tree.Tree) (*event.Event, error)) error {
	if err := s.appending.take(ctx); err != nil {
		return err
	}
	defer s.appending.give()
	return patiently(ctx, func() error { return s.tryAppend(ctx, said, build) })
}

// patiently runs fn until the log answers, or ctx ends.
func patiently(ctx context.Context, fn func() error) error {
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		err := fn()
		if !errors.Is(err, journal.ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Pauses between two tries.
const (
	retryMin = 5 * time.Millisecond
	retryMax = 500 * time.Millisecond
)

func (s *Session) tryAppend(ctx context.Context, said *said, build func(*tree.Tree) (*event.Event, error)) error {
	for {
		s.mu.Lock()
		ev, err := build(s.tree)
		tip := s.tree.Tip
		seen := ev != nil && s.tree.Seen(ev.GetId())
		s.mu.Unlock()
		if err != nil || ev == nil || seen {
			return err
		}
		next, err := s.journal.Append(ctx, tip, ev)
		switch {
		case err == nil:
			return s.folded(ctx, tip, next, ev, said)
		case errors.Is(err, journal.ErrConflict), errors.Is(err, journal.ErrIdentity):
			// The latter: somebody, perhaps we before a crash, said the same
			// thing in other words. The fold knows it by its id.
			if err := s.CatchUp(ctx); err != nil {
				return err
			}
		default:
			return s.over(fmt.Errorf("session %s: append %s: %w", s.id, ev.Kind(), err))
		}
	}
}

// folded takes over an event that has just been acknowledged. If it went where
// we thought, it is folded from memory, as a reader of the log would have it;
// only its time is not the log's, which the next rebuild knows.
func (s *Session) folded(ctx context.Context, tip, next journal.Tip, ev *event.Event, said *said) error {
	s.mu.Lock()
	if s.tree.Tip == tip && next.Count == tip.Count+1 {
		defer s.mu.Unlock()
		if said == nil || ev.GetTurnCommitted() == nil {
			ev = event.Clone(ev)
		}
		s.apply(journal.Entry{Event: ev, Tip: next, Time: eventTime(ev)}, said)
		return s.damaged
	}
	s.mu.Unlock()
	return s.CatchUp(ctx)
}
