// Package fold turns the events of one session into training data: the pure
// heart of the recorder.
//
// A State takes the entries of a session's log in order and returns, for each
// event, one TrajectoryUpdate with everything that follows from it: verified
// and masked token spans for a turn, branch seals, the ledger and a session
// seal for a close. It has no clock and does no I/O, so that the same entries,
// policy and aids give the same updates, byte for byte: a recorder that was
// killed, its successor and a replay all agree.
//
// Nothing that it concludes depends on the order in which sibling turns stand
// in the log, because two gateways may append them in either order. What needs
// an order (branches, the newest sibling) takes it from inside the events: when
// the request was received, then the turn's id.
package fold

import (
	"errors"
	"fmt"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/tree"
)

// ErrDisagree says that a recorded update cannot have come from the entry that
// it names.
var ErrDisagree = errors.New("fold: recorded update disagrees with the log")

// Aids answer what the events of one session do not say. The same question
// must always get the same answer, or replay will differ. Every field may be
// nil.
type Aids struct {
	// Version returns the number that a run's WeightsUpdated gave to a label.
	Version func(run, label string) (int32, bool)
	// Models renders and tokenizes; without it text turns stay without ids and
	// nothing is audited.
	Models Models
}

// State is one session as the recorder knows it. It is not safe for concurrent
// use.
type State struct {
	policy Policy
	aids   Aids

	tip     journal.Tip
	tree    *tree.Tree
	turns   map[string]*verdict
	ids     int // memory of verdicts that hold ids, in bytes
	refused map[string]bool
	parked  *event.Fault
	sealed  *event.SessionSealed

	// restarted is what the trajectory begins with, nil if the session was never
	// released, and released the number of events up to the last release.
	restarted *event.SessionRestarted
	released  uint64
	// next is what would be said of this round and those before it.
	next *event.SessionRestarted

	sampled uint64
	lost    map[string]uint64
	audited map[Drift]int
}

// New returns the state of a session without events. The policy is one that
// Validate accepts.
func New(session string, policy Policy, aids Aids) *State {
	return &State{
		policy:  policy,
		aids:    aids,
		tree:    tree.New(session),
		turns:   map[string]*verdict{},
		refused: map[string]bool{},
		lost:    map[string]uint64{},
		audited: map[Drift]int{},
		next:    &event.SessionRestarted{Round: 1},
	}
}

// Tip is where the session's log ends as far as the state has seen it.
func (s *State) Tip() journal.Tip { return s.tip }

// Tree is the session's tree. It ends where the session was parked.
func (s *State) Tree() *tree.Tree { return s.tree }

// Seen reports whether the event with the given id has been folded or refused.
func (s *State) Seen(event string) bool { return s.tree.Seen(event) || s.refused[event] }

// Parked is the fault that stopped the fold of the session, or nil.
func (s *State) Parked() *event.Fault { return s.parked }

// Sealed is the session's seal, or nil while it is open.
func (s *State) Sealed() *event.SessionSealed { return s.sealed }

// Generated is the number of ids that engines sampled so far.
func (s *State) Generated() uint64 {
	n := s.sampled
	for _, k := range s.lost {
		n += k
	}
	return n
}

// Lost is the number of those that no answer carried.
func (s *State) Lost() uint64 { return s.Generated() - s.sampled }

// Bytes estimates the memory that the state holds.
func (s *State) Bytes() int {
	return s.tree.Bytes() + s.ids + 256*len(s.turns)
}

// Apply folds the next entry of the session and returns all that follows from
// it. An event whose id has been seen before gives no update. An event that
// does not belong where it stands gives a Fault and parks the session: what
// comes after it is counted, never trained.
//
// The release of a parked session gives an update that says so. Once it is
// recorded, Restart begins the next round with it.
//
// The only error is journal.ErrGap, for an entry that is not the next one; the
// state is unchanged then.
func (s *State) Apply(e journal.Entry) (*event.TrajectoryUpdate, error) {
	fresh, err := s.advance(e)
	if err != nil || !fresh {
		return nil, err
	}
	u := &event.TrajectoryUpdate{Input: input(e), Outputs: s.fold(e)}
	s.note(u)
	return u, nil
}

// note takes down what a later round has to say of this one.
func (s *State) note(u *event.TrajectoryUpdate) {
	for _, o := range u.GetOutputs() {
		switch o.GetOutput().(type) {
		case *event.Output_SessionStarted:
			s.next.Started = true
		case *event.Output_SessionSealed:
			s.next.Sealed = s.next.Sealed || s.parked == nil
		}
	}
}

// Restart begins the next round if the update says that the session was
// released: the state is that of a session without events again, and wants them
// from the first one on.
func (s *State) Restart(u *event.TrajectoryUpdate) bool {
	for _, o := range u.GetOutputs() {
		if again := o.GetSessionRestarted(); again != nil {
			fresh := New(s.tree.Session, s.policy, s.aids)
			fresh.restarted, fresh.released = again, u.GetInput().GetOrdinal()+1
			fresh.next = &event.SessionRestarted{Round: again.GetRound() + 1, Started: again.GetStarted(), Sealed: again.GetSealed()}
			*s = *fresh
			return true
		}
	}
	return false
}

// Round counts the releases of the session.
func (s *State) Round() uint32 { return s.restarted.GetRound() }

// Adopt is Apply where the update is already known because it was recorded: its
// verdicts are taken over, not made again, so that a seal never contradicts
// what the trajectory stream already says. The error is journal.ErrGap or
// ErrDisagree.
func (s *State) Adopt(e journal.Entry, recorded *event.TrajectoryUpdate) error {
	if recorded.GetInput().GetEvent() != e.Event.GetId() {
		return fmt.Errorf("%w: it was made from event %s, not %s", ErrDisagree, recorded.GetInput().GetEvent(), e.Event.GetId())
	}
	fresh, err := s.advance(e)
	if err != nil || !fresh {
		return err
	}
	fault := faultOf(recorded)
	switch {
	case fault != nil:
		s.park(e.Event.GetId(), fault)
	case s.parked != nil:
		s.refused[e.Event.GetId()] = true
	default:
		if err := s.tree.Apply(e); err != nil {
			return fmt.Errorf("%w: %w", ErrDisagree, err)
		}
	}
	for _, o := range recorded.GetOutputs() {
		switch o := o.GetOutput().(type) {
		case *event.Output_TurnSpans:
			n := s.tree.Turn(o.TurnSpans.GetTurn())
			if n == nil {
				return fmt.Errorf("%w: no turn %s", ErrDisagree, o.TurnSpans.GetTurn())
			}
			spans, err := o.TurnSpans.Tokens()
			if sampled := event.Count(n.Committed.GetCompletion().GetIds()); err == nil && spans.End-spans.Start != sampled {
				err = fmt.Errorf("%d ids were sampled, not %d", sampled, spans.End-spans.Start)
			}
			if err != nil {
				return fmt.Errorf("%w: turn %s: %w", ErrDisagree, n.ID, err)
			}
			s.keep(n, spans)
		case *event.Output_TurnLost:
			s.lost[o.TurnLost.GetReason()] += o.TurnLost.GetIds()
		case *event.Output_SessionSealed:
			s.sealed = o.SessionSealed
		}
	}
	s.note(recorded)
	return nil
}

// AdoptUnreadable is Adopt for an entry that could not be read when it was
// recorded: the session was parked there.
func (s *State) AdoptUnreadable(e journal.Entry, recorded *event.TrajectoryUpdate) error {
	fresh, err := s.advance(e)
	if err == nil && fresh {
		s.refused[e.Event.GetId()] = true
		s.AdoptPark(recorded)
	}
	return err
}

// AdoptPark takes over the update of an entry that nobody could read.
func (s *State) AdoptPark(recorded *event.TrajectoryUpdate) {
	if s.parked == nil {
		s.parked = faultOf(recorded)
	}
	for _, o := range recorded.GetOutputs() {
		if o.GetSessionSealed() != nil {
			s.sealed = o.GetSessionSealed()
		}
	}
}

// AdoptUnread is Adopt for an update of a parked session whose entry is out of
// reach, behind one that cannot be read.
func (s *State) AdoptUnread(recorded *event.TrajectoryUpdate) {
	in := recorded.GetInput()
	if s.Seen(in.GetEvent()) {
		return
	}
	s.refused[in.GetEvent()] = true
	if count := in.GetOrdinal() + 1; count > s.tip.Count {
		s.tip = journal.Tip{Position: in.GetSequence(), Count: count}
	}
	for _, o := range recorded.GetOutputs() {
		switch o := o.GetOutput().(type) {
		case *event.Output_TurnLost:
			s.lost[o.TurnLost.GetReason()] += o.TurnLost.GetIds()
		case *event.Output_SessionSealed:
			s.sealed = o.SessionSealed
		}
	}
	s.note(recorded)
}

// Unreadable parks the session for an entry that is no event of this version, and
// returns the update that says so. Later entries may then follow with a hole before
// them. The update names the place in the log, since the event's id is unknown.
//
// It seals the session, unless that was closed before: the log may hold no close
// that can be read, and nobody can append one behind an entry that he cannot read.
func (s *State) Unreadable(at journal.Entry, fault *event.Fault) *event.TrajectoryUpdate {
	out := []*event.Output{{Output: &event.Output_Fault{Fault: fault}}}
	s.parked = fault
	if s.sealed == nil {
		out = append(out, s.sealParked(at)...)
	}
	return &event.TrajectoryUpdate{
		Input: &event.Input{
			Kind:     string(event.KindUnknown),
			Sequence: at.Tip.Position,
			Stream:   at.Stream,
			TimeUs:   at.Time.UnixMicro(),
		},
		Outputs: out,
	}
}

// Refuse is the update for an event that Apply should not, or could not, fold:
// one that it was given, or was about to be. A state that adopts it is parked;
// the receiver is not to be used any more.
func (s *State) Refuse(e journal.Entry, fault *event.Fault) *event.TrajectoryUpdate {
	aside := State{lost: map[string]uint64{}}
	out := aside.faulty(e, fault)
	if e.Event.GetSessionClosed() != nil {
		out = append(out, s.sealParked(e)...) // its group waits for one
	}
	return &event.TrajectoryUpdate{Input: input(e), Outputs: out}
}

// faulty is what follows from an event that is not folded: the fault, and where
// the ids that the event holds went.
func (s *State) faulty(e journal.Entry, fault *event.Fault) []*event.Output {
	out := []*event.Output{{Output: &event.Output_Fault{Fault: fault}}}
	if c := e.Event.GetTurnCommitted(); c != nil {
		return append(out, s.unfolded(c)...)
	}
	if e.Event.GetTurnAborted() != nil {
		return append(out, s.foldAside(e.Event)...)
	}
	return out
}

// advance moves the tip over e and reports whether its event is new.
func (s *State) advance(e journal.Entry) (bool, error) {
	// A session that was parked by an unreadable entry has a hole there.
	if e.Tip.Count != s.tip.Count+1 && (s.parked == nil || e.Tip.Count <= s.tip.Count) {
		return false, fmt.Errorf("fold: event %d after %d: %w", e.Tip.Count, s.tip.Count, journal.ErrGap)
	}
	s.tip = e.Tip
	id := e.Event.GetId()
	if s.parked == nil && s.tree.Seen(id) {
		return false, s.tree.Apply(e) // moves its tip
	}
	return !s.Seen(id), nil
}

func (s *State) park(id string, fault *event.Fault) {
	s.refused[id] = true
	if s.parked == nil {
		s.parked = fault
	}
}

func (s *State) fold(e journal.Entry) []*event.Output {
	if s.parked != nil {
		s.refused[e.Event.GetId()] = true
		return s.foldParked(e)
	}
	if err := s.tree.Apply(e); err != nil {
		fault := &event.Fault{Reason: FaultIllegal, Detail: err.Error()}
		s.park(e.Event.GetId(), fault)
		return s.faulty(e, fault)
	}
	switch b := e.Event.GetBody().(type) {
	case *event.Event_SessionOpened:
		return []*event.Output{s.started(b.SessionOpened)}
	case *event.Event_TurnCommitted:
		return s.foldTurn(s.tree.Turn(b.TurnCommitted.GetTurn()))
	case *event.Event_SessionClosed:
		return s.seal()
	default:
		return s.foldAside(e.Event)
	}
}

// foldAside folds what is legal at any time and changes no turn.
func (s *State) foldAside(ev *event.Event) []*event.Output {
	switch b := ev.GetBody().(type) {
	case *event.Event_TurnAborted:
		a := b.TurnAborted
		out := s.attempts(a.GetPartial())
		return append(out, s.lose(abortedTurn(a), a.GetReason(), event.Count(a.GetPartial().GetCompletion().GetIds()))...)
	case *event.Event_RewardAssigned:
		return []*event.Output{rewarded(b.RewardAssigned)}
	case *event.Event_Annotated:
		return []*event.Output{annotated(b.Annotated)}
	default:
		return nil
	}
}

// foldParked goes on with a session whose log cannot be followed any more: its
// ids are accounted for and its close is passed on, so that nobody waits for
// it for ever.
func (s *State) foldParked(e journal.Entry) []*event.Output {
	switch b := e.Event.GetBody().(type) {
	case *event.Event_TurnCommitted:
		return s.unfolded(b.TurnCommitted)
	case *event.Event_SessionClosed:
		if s.sealed != nil {
			return nil
		}
		return s.sealParked(e)
	case *event.Event_SessionReleased:
		if e.Tip.Count <= s.released {
			return nil // it has begun this round, or one before
		}
		return []*event.Output{{Output: &event.Output_SessionRestarted{SessionRestarted: s.next}}}
	default:
		return s.foldAside(e.Event)
	}
}

// unfolded accounts for the ids of a turn that is in the log but not in the
// tree.
func (s *State) unfolded(c *event.TurnCommitted) []*event.Output {
	out := s.attempts(c)
	return append(out, s.lose(c.GetTurn(), LostParked, event.Count(c.GetCompletion().GetIds()))...)
}

// attempts accounts for the ids of tries that failed before the one that
// answered.
func (s *State) attempts(c *event.TurnCommitted) []*event.Output {
	var out []*event.Output
	for _, a := range c.GetGeneration().GetAttempts() {
		out = append(out, s.lose(c.GetTurn(), LostAttempt, event.Count(a.GetIds()))...)
	}
	return out
}

func (s *State) lose(turn, reason string, ids int) []*event.Output {
	if ids == 0 {
		return nil
	}
	if reason == "" {
		reason = LostUnknown
	}
	s.lost[reason] += uint64(ids)
	return []*event.Output{{Output: &event.Output_TurnLost{TurnLost: &event.TurnLost{
		Turn: turn, Reason: reason, Ids: uint64(ids),
	}}}}
}

func abortedTurn(a *event.TurnAborted) string {
	if a.GetTurn() != "" {
		return a.GetTurn()
	}
	return a.GetPartial().GetTurn()
}

func faultOf(u *event.TrajectoryUpdate) *event.Fault {
	for _, o := range u.GetOutputs() {
		if f := o.GetFault(); f != nil {
			return f
		}
	}
	return nil
}

func input(e journal.Entry) *event.Input {
	return &event.Input{
		Event:    e.Event.GetId(),
		Ordinal:  e.Ordinal(),
		Kind:     string(e.Event.Kind()),
		Sequence: e.Tip.Position,
		Stream:   e.Stream,
		TimeUs:   e.Time.UnixMicro(),
	}
}

func (s *State) started(o *event.SessionOpened) *event.Output {
	return &event.Output{Output: &event.Output_SessionStarted{SessionStarted: &event.SessionStarted{
		Group:      o.GetGroup(),
		Index:      o.GetIndex(),
		Attempt:    o.GetAttempt(),
		GroupSize:  o.GetGroupSize(),
		Task:       o.GetTask(),
		DataSource: o.GetDataSource(),
		Split:      o.GetSplit(),
		Metadata:   o.GetMetadata(),
		Restarted:  s.restarted,
	}}}
}

func rewarded(r *event.RewardAssigned) *event.Output {
	return &event.Output{Output: &event.Output_RewardRecorded{RewardRecorded: &event.RewardRecorded{
		Reward:     r.GetReward(),
		Components: r.GetComponents(),
		Turn:       r.GetTurn(),
		Revision:   r.GetRevision(),
		Source:     r.GetSource(),
	}}}
}

func annotated(a *event.Annotated) *event.Output {
	return &event.Output{Output: &event.Output_AnnotationRecorded{AnnotationRecorded: &event.AnnotationRecorded{
		Name:     a.GetName(),
		Value:    a.GetValue(),
		Turn:     a.GetTurn(),
		Branch:   a.GetBranch(),
		Revision: a.GetRevision(),
		Source:   a.GetSource(),
	}}}
}
