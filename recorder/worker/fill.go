package worker

import (
	"context"
	"fmt"
	"iter"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Fill writes the rows of sessions into a registry that does not have them,
// from what the log and the trajectory stream hold. It writes neither of them,
// and may run beside any worker. A session that cannot be read gets no row.
func Fill(ctx context.Context, deps Deps, sessions iter.Seq2[string, error]) error {
	w := &Worker{deps: deps, meter: newMeter()}
	for id, err := range sessions {
		if err != nil {
			return fmt.Errorf("recorder: fill registry: %w", err)
		}
		s := &session{w: w, id: id}
		if err := s.look(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if deps.Logger != nil {
				deps.Logger.Warn("session has no row", "session", id, "error", err)
			}
			continue
		}
		if err := deps.Registry.Put(ctx, row(s)); err != nil {
			return fmt.Errorf("recorder: fill registry: %w", err)
		}
	}
	return ctx.Err()
}

// look brings the state up to what is recorded.
func (s *session) look(ctx context.Context) error {
	s.state = fold.New(s.id, fold.DefaultPolicy(), fold.Aids{}) // judges nothing
	recorded := map[string]*event.TrajectoryUpdate{}
	for e, err := range s.w.deps.Trajectories.ReadSession(ctx, s.id, journal.Tip{}) {
		if err != nil {
			return err
		}
		u := e.Event.GetTrajectoryUpdate()
		recorded[e.Event.GetId()] = u
		if s.state.Restart(u) {
			clear(recorded)
		}
	}
	for e, err := range s.w.deps.Turns.ReadSession(ctx, s.id, journal.Tip{}) {
		if isUnreadable(err) {
			if u, ok := recorded[s.state.UnreadableID()]; ok {
				s.state.AdoptPark(u)
			}
			if s.state.Parked() != nil {
				for _, u := range recorded {
					s.state.AdoptUnread(u)
				}
			}
			return nil
		}
		if err != nil {
			return err
		}
		u, ok := recorded[s.state.UpdateID(e.Event.GetId())]
		if !ok {
			bad, ok := recorded[s.state.UnreadableID()]
			if !ok || s.state.Parked() != nil {
				return nil // a worker will come to it
			}
			if err := s.state.AdoptUnreadable(e, bad); err != nil {
				return err
			}
			continue
		}
		if err := s.state.Adopt(e, u); err != nil {
			return err
		}
	}
	return nil
}
