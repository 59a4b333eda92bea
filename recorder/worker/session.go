package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// errMoved says that the output session does not end where it was thought to.
var errMoved = errors.New("recorder: the trajectory has moved on")

// errNewer says that another recorder has read what this one cannot: it must
// not judge.
var errNewer = errors.New("recorder: a newer recorder has folded the session beyond an event that this one cannot read; update this one")

// session is one session in the cache. One lane at a time uses it.
type session struct {
	w  *Worker
	id string

	// state is nil until the session is read.
	state *fold.State
	// out is the end of the output session.
	out journal.Tip
	// recorded are the updates that were found there and not adopted yet, by
	// their own id.
	recorded map[string]*event.Event
	// hole is set once the state is parked for an entry that cannot be read:
	// later ones are folded as they are delivered.
	hole bool
	// broken sessions cannot be read or written any more; their entries go to
	// the dead letters.
	broken error
	// brokenAt is the last entry that was not recorded for that.
	brokenAt journal.Entry
	// fetched is when the entries that are handled now were.
	fetched time.Time

	// gathered is set while the updates of a batch are appended at once.
	gathered *gathered

	// reread is set once the state has been dropped: there is a record.
	reread bool

	bytes            int
	changed, notable bool
}

// measure updates the estimate of the memory held and returns the difference.
func (s *session) measure() int {
	n := 512
	if s.state != nil {
		n += s.state.Bytes()
	}
	d := n - s.bytes
	s.bytes = n
	return d
}

// handle brings the output session up to the last of the deliveries.
func (s *session) handle(ctx context.Context, batch []journal.Delivery) error {
	for _, d := range batch {
		if s.broken != nil && d.Event.GetSessionReleased() != nil {
			s.broken = nil
		}
		if s.broken != nil {
			if err := s.refuseBroken(ctx, d); err != nil {
				return err
			}
			continue
		}
		err := s.overtake(ctx, d)
		if err == nil {
			continue
		}
		s.drop()
		if ctx.Err() != nil || errors.Is(err, journal.ErrClosed) {
			return err
		}
		// No other session must wait for this one.
		s.broken = err
		s.w.log.Error("session cannot be recorded", "session", s.id, "error", err)
		if err := s.refuseBroken(ctx, d); err != nil {
			return err
		}
	}
	if s.state == nil && s.broken == nil {
		// Refused at the end of the batch: the registry should know.
		return s.deliver(ctx, batch[len(batch)-1])
	}
	return nil
}

// overtake delivers, again for as long as another worker is faster: it sees what
// that one wrote and goes on from there. Each time there is more of it, and there
// is one update for an event, so it ends. A log that refuses at the same place
// again and again shows something else to its readers than to its writers, for a
// moment (a replica that lags) or for good: then the session cannot be recorded.
func (s *session) overtake(ctx context.Context, d journal.Delivery) error {
	end, still := uint64(0), 0
	pause := s.w.cfg.RetryMin
	for {
		err := s.deliver(ctx, d)
		if !errors.Is(err, errMoved) {
			return err
		}
		s.w.meter.add(func(st *Stats) { st.Conflicts++ })
		if s.out.Count > end {
			end, still, pause = s.out.Count, 0, s.w.cfg.RetryMin
		} else if still++; still > stillTries {
			return fmt.Errorf("%w, and after %d updates nothing more can be read of it: compare the replicas of its stream, then release the session", err, end)
		} else if still > 1 {
			if err := sleep(ctx, pause); err != nil {
				return err
			}
			pause = min(2*pause, s.w.cfg.RetryMax)
		}
		s.drop()
	}
}

// stillTries is how often an append is tried again that is refused at the same
// place: about a minute with the pauses of the default configuration.
const stillTries = 20

// refuseBroken puts an entry of a broken session aside.
func (s *session) refuseBroken(ctx context.Context, d journal.Delivery) error {
	s.brokenAt, s.changed, s.notable = d.Entry, true, true
	return s.deadLetter(ctx, s.letter(d, fold.FaultBroken, s.broken))
}

// drop forgets everything but the session's name.
func (s *session) drop() {
	s.state, s.out, s.recorded, s.hole, s.reread = nil, journal.Tip{}, nil, false, true
}

func (s *session) deliver(ctx context.Context, d journal.Delivery) error {
	for {
		if err := s.load(ctx, d); err != nil {
			return err
		}
		whole, err := s.catchUp(ctx, d)
		if err == nil && whole && d.Err != nil {
			err = s.unreadable(ctx, d)
		}
		switch {
		case errors.Is(err, errNewer) && s.covered(d):
			s.drop()
			return nil
		case err != nil || d.Err != nil && whole:
			return err
		case !whole:
			continue
		}
		if err := s.step(ctx, d.Entry); err != nil {
			return err
		}
		if s.state == nil || s.state.Tip().Count >= d.Tip.Count {
			return nil
		}
		// The entry released the session: all of it is folded again.
	}
}

// load reads what was recorded of the session. A session that has just begun
// is assumed to have no record: the fence will tell if it has.
func (s *session) load(ctx context.Context, d journal.Delivery) error {
	if s.state != nil {
		return nil
	}
	state := fold.New(s.id, s.w.cfg.Policy, s.w.aids())
	if s.reread || d.Err != nil || d.Tip.Count > 1 || d.Attempt > 1 {
		recorded := map[string]*event.Event{}
		var out journal.Tip
		err := s.w.retry(ctx, "read trajectory", func() error {
			for e, err := range s.w.deps.Trajectories.ReadSession(ctx, s.id, out) {
				if err != nil {
					return err
				}
				recorded[e.Event.GetId()] = e.Event
				if state.Restart(e.Event.GetTrajectoryUpdate()) {
					clear(recorded) // void
				}
				out = e.Tip
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("recorder: read trajectory: %w", err)
		}
		s.recorded, s.out = recorded, out
		s.w.meter.add(func(st *Stats) { st.Rebuilds++ })
	}
	s.state = state
	return nil
}

// catchUp folds the entries before d, and reports whether it came to its end:
// what is not whole is to be loaded, or caught up with, once more.
func (s *session) catchUp(ctx context.Context, d journal.Delivery) (whole bool, err error) {
	if d.Err == nil && d.Tip.Count <= s.state.Tip().Count+1 || s.hole {
		return true, nil
	}
	err = s.w.retry(ctx, "read session", func() error {
		for e, err := range s.w.deps.Turns.ReadSession(ctx, s.id, s.state.Tip()) {
			switch {
			case isUnreadable(err):
				whole = true
				if d.Err != nil {
					return nil
				}
				// The delivery of that entry parked the session.
				return s.park(ctx, journal.Delivery{Session: s.id, Err: err, Entry: journal.Entry{Time: d.Time, Stream: d.Stream}})
			case err != nil:
				return err
			case d.Err == nil && e.Tip.Count >= d.Tip.Count, d.Err != nil && e.Tip.Position >= d.Tip.Position:
				whole = true
				return nil
			}
			if err := s.step(ctx, e); err != nil {
				return err
			}
			if s.state == nil || s.state.Tip().Count < e.Tip.Count {
				return nil
			}
		}
		whole = true
		return nil
	})
	return whole, err
}

// isUnreadable reports errors of an entry that is no event of this version.
func isUnreadable(err error) bool {
	return errors.Is(err, event.ErrMalformed) || errors.Is(err, event.ErrMajor)
}

// step folds one entry, or adopts what was recorded for it.
func (s *session) step(ctx context.Context, e journal.Entry) error {
	if e.Tip.Count <= s.state.Tip().Count {
		s.w.meter.add(func(st *Stats) { st.Skipped++ })
		s.changed = true
		return nil
	}
	id := s.state.UpdateID(e.Event.GetId())
	if r, ok := s.recorded[id]; ok {
		delete(s.recorded, id)
		s.changed, s.notable = true, true
		s.w.meter.add(func(st *Stats) { st.Skipped++ })
		return s.state.Adopt(e, r.GetTrajectoryUpdate())
	}
	if r, ok := s.recorded[s.state.UnreadableID()]; ok && s.state.Parked() == nil && !s.state.Seen(e.Event.GetId()) {
		delete(s.recorded, s.state.UnreadableID())
		return s.state.AdoptUnreadable(e, r.GetTrajectoryUpdate())
	}
	if c := e.Event.GetTurnCommitted(); c != nil {
		if err := s.w.retry(ctx, "read run", func() error { return s.w.labels.Learn(ctx, e.Event.GetRun(), c, s.fetched) }); err != nil {
			return fmt.Errorf("recorder: %w", err)
		}
	}
	if e.Event.GetSessionReleased() != nil && s.state.Parked() != nil {
		if fault, err := s.unreleasable(ctx, e); err != nil {
			return err
		} else if fault != nil {
			return s.refuse(ctx, e, fault)
		}
	}
	wasParked := s.state.Parked()
	update, fault, err := s.apply(e)
	if err != nil {
		return err
	}
	if fault != nil {
		return s.refuse(ctx, e, fault)
	}
	if update == nil {
		return nil
	}
	s.w.deps.Fault(PointFolded)
	if f := s.state.Parked(); f != nil && wasParked == nil {
		if err := s.deadLetter(ctx, s.entryLetter(e, f)); err != nil {
			return err
		}
	}
	err = s.append(ctx, id, e, update)
	if errors.Is(err, journal.ErrTooLarge) {
		return s.refuse(ctx, e, &event.Fault{Reason: fold.FaultTooLarge, Detail: err.Error()})
	}
	if err == nil && s.gathered == nil && s.state.Restart(update) {
		// What the old round still had to adopt is void.
		s.recorded, s.hole = nil, false
	}
	return err
}

// unreleasable says why a parked session cannot be folded again: this program,
// too, cannot read its log up to the release.
func (s *session) unreleasable(ctx context.Context, release journal.Entry) (fault *event.Fault, err error) {
	if s.gathered != nil {
		return nil, errSingly
	}
	err = s.w.retry(ctx, "read session", func() error {
		var read journal.Tip
		for e, err := range s.w.deps.Turns.ReadSession(ctx, s.id, journal.Tip{}) {
			if isUnreadable(err) {
				fault = &event.Fault{Reason: fold.FaultUnreadable, Detail: fmt.Sprintf("the session stays parked; event %d: %v", read.Count, err)}
				return nil
			}
			if err != nil || e.Tip.Count >= release.Tip.Count {
				return err
			}
			read = e.Tip
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("recorder: read session: %w", err)
	}
	return fault, nil
}

// apply is State.Apply, where a panic is a fault of the event and not the end
// of the process.
func (s *session) apply(e journal.Entry) (u *event.TrajectoryUpdate, fault *event.Fault, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.w.log.Error("fold panicked", "session", s.id, "event", e.Event.GetId(), "stack", string(debug.Stack()))
			u, fault, err = nil, &event.Fault{Reason: fold.FaultPanic, Detail: fmt.Sprintf("%T", r)}, nil
		}
	}()
	u, err = s.state.Apply(e)
	return u, nil, err
}

// refuse parks the session for an event whose update cannot be made or kept.
func (s *session) refuse(ctx context.Context, e journal.Entry, fault *event.Fault) error {
	if err := s.deadLetter(ctx, s.entryLetter(e, fault)); err != nil {
		return err
	}
	if err := s.append(ctx, s.state.UpdateID(e.Event.GetId()), e, s.state.Refuse(e, fault)); err != nil {
		return err
	}
	// The state has folded what the record refuses: read both again.
	s.drop()
	return nil
}

// newer reports whether another recorder has read what this one cannot: an
// entry that nothing was recorded for, with others recorded after it.
func (s *session) newer() bool {
	return s.state.Parked() == nil && len(s.recorded) > 0 && s.recorded[s.state.UnreadableID()] == nil
}

// covered reports whether something was recorded for the entry, or one after it.
func (s *session) covered(d journal.Delivery) bool {
	for _, r := range s.recorded {
		if in := r.GetTrajectoryUpdate().GetInput(); in.GetStream() == d.Stream && in.GetSequence() >= d.Tip.Position {
			return true
		}
	}
	return false
}

// unreadable parks the session for an entry that is no event.
func (s *session) unreadable(ctx context.Context, d journal.Delivery) error {
	if s.newer() {
		return errNewer
	}
	if err := s.deadLetter(ctx, s.letter(d, fold.FaultUnreadable, d.Err)); err != nil {
		return err
	}
	return s.park(ctx, d)
}

func (s *session) park(ctx context.Context, d journal.Delivery) error {
	if s.hole {
		return nil
	}
	if s.newer() {
		return errNewer
	}
	id := s.state.UnreadableID()
	if r, ok := s.recorded[id]; ok {
		delete(s.recorded, id)
		s.state.AdoptPark(r.GetTrajectoryUpdate())
	} else if s.state.Parked() == nil {
		fault := &event.Fault{Reason: fold.FaultUnreadable, Detail: d.Err.Error()}
		if err := s.append(ctx, id, d.Entry, s.state.Unreadable(d.Entry, fault)); err != nil {
			return err
		}
	}
	// The log cannot be read beyond it; the record can.
	for _, r := range s.recorded {
		s.state.AdoptUnread(r.GetTrajectoryUpdate())
	}
	s.recorded, s.hole = nil, true
	return nil
}

// append adds an update to the output session. It fails with errMoved if that
// session does not end where it should.
func (s *session) append(ctx context.Context, id string, e journal.Entry, u *event.TrajectoryUpdate) error {
	ev := s.state.Event(id, e, u)
	if s.gathered != nil {
		s.gathered.events = append(s.gathered.events, ev)
		s.gathered.updates = append(s.gathered.updates, u)
		return nil
	}
	var tip journal.Tip
	err := s.w.retry(ctx, "append trajectory", func() (err error) {
		tip, err = s.w.deps.Trajectories.Append(ctx, s.out, ev)
		return err
	})
	switch {
	case errors.Is(err, journal.ErrConflict), errors.Is(err, journal.ErrIdentity):
		return errMoved
	case err != nil:
		return fmt.Errorf("recorder: append: %w", err)
	case tip.Count != s.out.Count+1:
		// It was there, but not where this state would put it.
		return errMoved
	}
	s.out = tip
	s.appended(u)
	return nil
}

// appended takes note of an update that is in the log.
func (s *session) appended(u *event.TrajectoryUpdate) {
	s.changed = true
	s.notable = s.notable || notable(u)
	s.w.meter.count(u)
	s.w.deps.Fault(PointAppended)
}

// notable updates change what the registry must not miss.
func notable(u *event.TrajectoryUpdate) bool {
	for _, o := range u.GetOutputs() {
		switch o.GetOutput().(type) {
		case *event.Output_SessionStarted, *event.Output_SessionSealed, *event.Output_Fault, *event.Output_SessionRestarted:
			return true
		}
	}
	return false
}

func (s *session) deadLetter(ctx context.Context, l deadletter.Letter) error {
	if s.gathered != nil {
		return errSingly
	}
	err := s.w.retry(ctx, "dead letter", func() error { return s.w.deps.DeadLetters.Put(ctx, l) })
	if err != nil {
		return fmt.Errorf("recorder: %w", err)
	}
	s.w.log.Error("session parked", "session", s.id, "event", l.Event, "position", l.Position, "reason", l.Reason)
	s.w.deps.Fault(PointDeadLetter)
	return nil
}

// round counts the releases of the session, as far as is known.
func (s *session) round() uint32 {
	if s.state == nil {
		return 0
	}
	return s.state.Round()
}

func (s *session) entryLetter(e journal.Entry, f *event.Fault) deadletter.Letter {
	return deadletter.Letter{
		Round:   s.round(),
		Session: e.Event.GetSession(), Event: e.Event.GetId(), Kind: string(e.Event.Kind()),
		Stream: e.Stream, Position: e.Tip.Position, Time: e.Time,
		Reason: f.GetReason(), Detail: f.GetDetail(),
	}
}

func (s *session) letter(d journal.Delivery, reason string, err error) deadletter.Letter {
	l := deadletter.Letter{
		Round:   s.round(),
		Session: d.Session, Stream: d.Stream, Position: d.Tip.Position, Time: d.Time,
		Reason: reason, Detail: err.Error(), Raw: d.Raw,
	}
	if d.Err == nil {
		l.Event, l.Kind = d.Event.GetId(), string(d.Event.Kind())
	}
	return l
}
