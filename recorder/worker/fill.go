package worker

import (
	"context"
	"errors"
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
	recorded := map[string]*event.TrajectoryUpdate{}
	for e, err := range s.w.deps.Trajectories.ReadSession(ctx, s.id, journal.Tip{}) {
		if err != nil {
			return err
		}
		recorded[e.Event.GetId()] = e.Event.GetTrajectoryUpdate()
	}
	s.state = fold.New(s.id, fold.DefaultPolicy(), fold.Aids{}) // judges nothing
	for e, err := range s.w.deps.Turns.ReadSession(ctx, s.id, journal.Tip{}) {
		if errors.Is(err, event.ErrMalformed) || errors.Is(err, event.ErrMajor) {
			if u, ok := recorded[fold.UnreadableID]; ok {
				s.state.Park(u.GetOutputs()[0].GetFault())
			}
			return nil
		}
		if err != nil {
			return err
		}
		u, ok := recorded[fold.UpdateID(e.Event.GetId())]
		if !ok {
			return nil // a worker will come to it
		}
		if err := s.state.Adopt(e, u); err != nil {
			return err
		}
	}
	return nil
}
