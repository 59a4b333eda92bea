// Package tree folds the events of one session into the tree of its turns.
//
// The fold is the only way in which the state of a session comes to be: a
// gateway that served the session, one that has just started and the recorder
// all call Apply with the same entries and hold the same tree. It is pure: no
// clock, no I/O, and the same entries always give the same tree.
package tree

import (
	"errors"
	"fmt"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// ErrIllegal wraps the reason why an entry does not belong where it stands.
// Apply leaves the tree as it was, except for the tip.
var ErrIllegal = errors.New("tree: illegal event")

// Tree is the state of one session. It is not safe for concurrent use.
type Tree struct {
	Tenant, Session, Run string

	// Opened is nil until the session's first event, Closed while it is open.
	Opened             *event.SessionOpened
	Closed             *event.SessionClosed
	OpenedAt, ClosedAt time.Time
	// LastAt is the log's time of the last event.
	LastAt time.Time

	// Turns in the order of the log. The list only grows, and nothing of a turn
	// but Children changes: what is there may be read while Apply goes on.
	Turns []*Turn
	// Roots are the turns without a parent.
	Roots []*Turn
	// Aborted are the calls that gave no answer, in the order of the log.
	Aborted []*event.TurnAborted
	// Undelivered are the turns whose answer could not be written.
	Undelivered map[string]bool
	// Rewards and Annotations as assigned; see Reward for the one that counts.
	Rewards     []*event.RewardAssigned
	Annotations []*event.Annotated

	// Tip is where the next append goes.
	Tip journal.Tip

	seen        map[string]bool
	asked       asked
	turns       map[string]*Turn
	definitions map[event.Hash][]byte
	bytes       int
	newIDs      int
}

// New returns the tree of a session without events.
func New(session string) *Tree {
	return &Tree{
		Session:     session,
		Undelivered: map[string]bool{},
		seen:        map[string]bool{},
		turns:       map[string]*Turn{},
		definitions: map[event.Hash][]byte{},
		asked:       newAsked(),
	}
}

// Turn returns the turn with the given id, or nil.
func (t *Tree) Turn(id string) *Turn { return t.turns[id] }

// Seen reports whether the event with the given id has been applied.
func (t *Tree) Seen(id string) bool { return t.seen[id] }

// Definition returns the content that a hash in a turn refers to.
func (t *Tree) Definition(hash []byte) ([]byte, bool) {
	if len(hash) != len(event.Hash{}) {
		return nil, false
	}
	c, ok := t.definitions[event.Hash(hash)]
	return c, ok
}

// NewIDs is the number of ids that the turns added, each counted once.
func (t *Tree) NewIDs() int { return t.newIDs }

// Bytes estimates the memory that the tree holds.
func (t *Tree) Bytes() int { return 1<<10 + t.bytes }

// Reward returns the reward of the session as a whole: the one of the highest
// revision, the later one where revisions are equal.
func (t *Tree) Reward() *event.RewardAssigned {
	var best *event.RewardAssigned
	for _, r := range t.Rewards {
		if r.Turn == "" && (best == nil || r.Revision >= best.Revision) {
			best = r
		}
	}
	return best
}

// Apply folds the next entry of the session. Entries must come in order and
// without gaps: the tip says where. An event whose id has been seen before
// changes nothing but the tip. The error wraps ErrIllegal, or journal.ErrGap
// for an entry that is not the next one.
func (t *Tree) Apply(e journal.Entry) error {
	if e.Tip.Count != t.Tip.Count+1 {
		return fmt.Errorf("tree: event %d after %d: %w", e.Tip.Count, t.Tip.Count, journal.ErrGap)
	}
	t.Tip = e.Tip
	ev := e.Event
	switch {
	case ev.GetSession() != t.Session:
		return fmt.Errorf("%w: it belongs to session %q", ErrIllegal, ev.GetSession())
	case t.seen[ev.GetId()]:
		return nil
	}
	if err := t.apply(e); err != nil {
		return err
	}
	t.seen[ev.GetId()] = true
	t.LastAt = e.Time
	t.bytes += weight(ev)
	return nil
}

// weight estimates the memory that an event takes, in bytes. What a turn holds
// but texts and ids is about the same for all.
func weight(ev *event.Event) int {
	c := ev.GetTurnCommitted()
	if c == nil {
		return event.Size(ev) + 96
	}
	n := 1<<10 + 4*c.NewIDs() + len(c.GetConversation().GetAnswer()) + len(c.GetCompletion().GetText())
	for _, m := range c.GetConversation().GetMessages() {
		n += len(m)
	}
	for _, d := range c.GetConversation().GetDefinitions() {
		n += len(d.GetContent())
	}
	return n
}

func (t *Tree) apply(e journal.Entry) error {
	ev := e.Event
	if t.Opened == nil && ev.GetSessionOpened() == nil {
		return fmt.Errorf("%w: %s before session_opened", ErrIllegal, ev.Kind())
	}
	if t.Closed != nil && !legalAfterClose(ev.Kind()) {
		return fmt.Errorf("%w: %s after session_closed", ErrIllegal, ev.Kind())
	}
	switch b := ev.GetBody().(type) {
	case *event.Event_SessionOpened:
		if t.Opened != nil {
			return fmt.Errorf("%w: opened twice", ErrIllegal)
		}
		t.Tenant, t.Run = ev.GetTenant(), ev.GetRun()
		t.Opened, t.OpenedAt = b.SessionOpened, e.Time
	case *event.Event_TurnCommitted:
		return t.commit(e, b.TurnCommitted)
	case *event.Event_TurnAborted:
		t.Aborted = append(t.Aborted, b.TurnAborted)
	case *event.Event_DeliveryFailed:
		t.Undelivered[b.DeliveryFailed.GetTurn()] = true
	case *event.Event_RewardAssigned:
		t.Rewards = append(t.Rewards, b.RewardAssigned)
	case *event.Event_Annotated:
		t.Annotations = append(t.Annotations, b.Annotated)
	case *event.Event_SessionClosed:
		t.Closed, t.ClosedAt = b.SessionClosed, e.Time
	case *event.Event_SessionReleased: // recorders' business
	default:
		return fmt.Errorf("%w: %s in a session", ErrIllegal, ev.Kind())
	}
	return nil
}

// legalAfterClose says what may still be appended to a closed session.
func legalAfterClose(k event.Kind) bool {
	switch k {
	case event.KindRewardAssigned, event.KindAnnotated, event.KindTurnAborted, event.KindDeliveryFailed, event.KindSessionReleased:
		return true
	}
	return false
}

func (t *Tree) commit(e journal.Entry, c *event.TurnCommitted) error {
	if c.GetTurn() == "" || t.turns[c.GetTurn()] != nil {
		return fmt.Errorf("%w: turn %q is not new", ErrIllegal, c.GetTurn())
	}
	n := &Turn{ID: c.GetTurn(), Ordinal: e.Ordinal(), At: e.Time, Committed: c}
	var err error
	if n.Parent, n.Keep, err = t.resolve("parent", c.GetParent(), c.GetParentKeep()); err != nil {
		return err
	}
	if n.base, n.baseKeep, err = t.resolve("base", c.GetBase().GetTurn(), c.GetBase().GetKeep()); err != nil {
		return err
	}
	n.PromptLen = n.baseKeep
	for _, s := range c.GetSegments() {
		if err := event.CheckArray("segment", s.GetIds()); err != nil {
			return fmt.Errorf("%w: %w", ErrIllegal, err)
		}
		n.PromptLen += event.Count(s.GetIds())
	}
	if err := event.CheckArray("completion", c.GetCompletion().GetIds()); err != nil {
		return fmt.Errorf("%w: %w", ErrIllegal, err)
	}
	n.Len = n.PromptLen + event.Count(c.GetCompletion().GetIds())
	if n.Keep > n.PromptLen {
		return fmt.Errorf("%w: turn %s keeps %d ids of its parent but has a prompt of %d", ErrIllegal, n.ID, n.Keep, n.PromptLen)
	}
	conv := c.GetConversation()
	n.messages = int(conv.GetKeep()) + len(conv.GetMessages())
	if n.Parent != nil && int(conv.GetKeep()) > n.Parent.messages+1 || n.Parent == nil && conv.GetKeep() != 0 {
		return fmt.Errorf("%w: turn %s keeps %d messages, more than its parent has", ErrIllegal, n.ID, conv.GetKeep())
	}
	for _, d := range conv.GetDefinitions() {
		if len(d.GetHash()) == len(event.Hash{}) {
			t.definitions[event.Hash(d.GetHash())] = d.GetContent()
		}
	}

	t.asked.add(n)
	t.newIDs += c.NewIDs()
	t.turns[n.ID] = n
	t.Turns = append(t.Turns, n)
	if n.Parent != nil {
		n.Parent.Children = append(n.Parent.Children, n)
	} else {
		t.Roots = append(t.Roots, n)
	}
	return nil
}

// resolve finds the turn that a new one builds on and checks how much of it is
// kept.
func (t *Tree) resolve(what, id string, keep uint32) (*Turn, int, error) {
	if id == "" {
		if keep != 0 {
			return nil, 0, fmt.Errorf("%w: %d ids of no %s", ErrIllegal, keep, what)
		}
		return nil, 0, nil
	}
	n := t.turns[id]
	if n == nil {
		return nil, 0, fmt.Errorf("%w: %s %q is unknown", ErrIllegal, what, id)
	}
	if int(keep) > n.Len {
		return nil, 0, fmt.Errorf("%w: %d ids of the %s, which has %d", ErrIllegal, keep, what, n.Len)
	}
	return n, int(keep), nil
}
