package rows

import (
	"errors"
	"fmt"
	"math"

	"turnlog.dev/schema/event"
)

// ErrMalformed says that a session's updates contradict each other. Nothing of
// such a session is exported.
var ErrMalformed = errors.New("rows: malformed session")

// Session collects the updates of one session.
type Session struct {
	tenant, run, id string

	started     *event.SessionStarted
	turns       map[string]*turn
	branches    []*event.BranchSealed
	sealed      *event.SessionSealed
	rewards     []reward
	annotations []annotation
	definitions map[string][]byte
	parked      bool
}

// turn is a TurnSpans and where its event stands in the turn stream.
type turn struct {
	event.Tokens
	// whole is the length of its sequence, what it keeps of its parent's included.
	whole    int
	stream   string
	sequence uint64
}

// reward is a reward and the position of the update that brought it.
type reward struct {
	*event.RewardRecorded
	position uint64
	timeUS   int64
}

// annotation is an annotation and the position of the update that brought it.
type annotation struct {
	*event.AnnotationRecorded
	position uint64
	timeUS   int64
}

// NewSession returns a session without updates.
func NewSession(id string) *Session {
	return &Session{
		id:          id,
		turns:       make(map[string]*turn),
		definitions: make(map[string][]byte),
	}
}

// Add takes the next event of the session's trajectory stream, which stands at
// position. It keeps parts of ev. The error wraps ErrMalformed.
func (s *Session) Add(ev *event.Event, position uint64) error {
	update := ev.GetTrajectoryUpdate()
	if update == nil || ev.Session != s.id {
		return fmt.Errorf("%w: %s has a %s of %s", ErrMalformed, s.id, ev.Kind(), ev.Session)
	}
	s.tenant, s.run = ev.Tenant, ev.Run
	for _, o := range update.Outputs {
		if err := s.add(o, update.Input, position); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) add(o *event.Output, in *event.Input, position uint64) error {
	switch o := o.Output.(type) {
	case *event.Output_SessionStarted:
		s.started = o.SessionStarted
	case *event.Output_TurnSpans:
		return s.addTurn(o.TurnSpans, in)
	case *event.Output_BranchSealed:
		s.branches = append(s.branches, o.BranchSealed)
	case *event.Output_SessionSealed:
		s.sealed = o.SessionSealed
	case *event.Output_RewardRecorded:
		s.rewards = append(s.rewards, reward{o.RewardRecorded, position, in.GetTimeUs()})
	case *event.Output_AnnotationRecorded:
		s.annotations = append(s.annotations, annotation{o.AnnotationRecorded, position, in.GetTimeUs()})
	case *event.Output_Fault:
		s.parked = true
	case *event.Output_SessionRestarted:
		// What stands before it is void.
		fresh := NewSession(s.id)
		fresh.tenant, fresh.run = s.tenant, s.run
		*s = *fresh
	}
	return nil
}

func (s *Session) addTurn(t *event.TurnSpans, in *event.Input) error {
	tokens, err := t.Tokens()
	if err != nil {
		return fmt.Errorf("%w: session %s, turn %s: %w", ErrMalformed, s.id, t.Turn, err)
	}
	if s.turns[t.Turn] != nil {
		return fmt.Errorf("%w: session %s has two turns %s", ErrMalformed, s.id, t.Turn)
	}
	kept := 0
	if t.Parent != "" {
		parent := s.turns[t.Parent]
		if parent == nil {
			return fmt.Errorf("%w: session %s, turn %s: its parent %s is missing", ErrMalformed, s.id, t.Turn, t.Parent)
		}
		kept = parent.whole
	}
	if int(t.Keep) > kept {
		return fmt.Errorf("%w: session %s: turn %s keeps %d of %d ids", ErrMalformed, s.id, t.Turn, t.Keep, kept)
	}
	s.turns[t.Turn] = &turn{tokens, int(t.Keep) + tokens.Len, in.GetStream(), in.GetSequence()}
	for _, d := range t.GetConversation().GetDefinitions() {
		s.definitions[string(d.Hash)] = d.Content
	}
	return nil
}

// reward returns the one of highest revision for a turn, or for the session
// when turn is empty; of equal ones the last. nil is none.
func (s *Session) reward(turn string) *event.RewardRecorded {
	return s.rewardAt(turn, math.MaxUint64).RewardRecorded
}

// rewardAt is the reward that counts once a position was read.
func (s *Session) rewardAt(turn string, position uint64) (best reward) {
	for _, r := range s.rewards {
		if r.position <= position && r.Turn == turn && (best.RewardRecorded == nil || r.Revision >= best.Revision) {
			best = r
		}
	}
	return best
}

// annotation returns the value of highest revision that is attached to the
// branch, or else to the session; of equal ones the last. nil is none.
func (s *Session) annotation(name, branch string) []byte {
	return s.annotationAt(name, "", branch, math.MaxUint64).GetValue()
}

// annotationAt is the annotation that counts on a branch once a position was
// read.
func (s *Session) annotationAt(name, turn, branch string, position uint64) (best annotation) {
	for _, a := range s.annotations {
		if a.position > position || a.Name != name || a.Turn != turn || a.Branch != "" && a.Branch != branch {
			continue
		}
		if best.AnnotationRecorded == nil || best.Branch == "" && a.Branch != "" ||
			best.Branch == a.Branch && a.Revision >= best.Revision {
			best = a
		}
	}
	return best
}
