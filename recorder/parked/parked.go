// Package parked is what an operator sees of parked sessions, and the order to
// fold them again.
package parked

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Errors of Release.
var (
	// ErrUnknown says that the log has no event of the session.
	ErrUnknown = errors.New("parked: no such session")
	// ErrUnreadable says that this program cannot read the session's log
	// either, so that neither can its recorder.
	ErrUnreadable = errors.New("parked: this program cannot read the session's log either; release the session with a newer one")
	// ErrArchived says that the session has left the log.
	ErrArchived = errors.New("parked: the session is in the archive, where none is that is parked")
)

// Event is an event for which a session is parked.
type Event struct {
	deadletter.Letter
	Run string `json:"run,omitempty"`
}

// Registry lists sessions.
type Registry interface {
	List(ctx context.Context, f registry.Filter) iter.Seq2[registry.Session, error]
}

// List yields the events for which the sessions of a run are parked now, session
// by session; no run is all of them. What earlier rounds of a session failed for
// is not among them.
func List(ctx context.Context, sessions Registry, letters *deadletter.Box, run string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for s, err := range sessions.List(ctx, registry.Filter{Run: run, State: registry.Parked}) {
			var all []deadletter.Letter
			if err == nil {
				all, err = letters.Read(ctx, s.ID)
			}
			if err != nil {
				yield(Event{}, fmt.Errorf("parked: %w", err))
				return
			}
			for _, l := range current(all) {
				if !yield(Event{l, s.Run}, nil) {
					return
				}
			}
		}
	}
}

// current are the letters of the last round, and those behind them that say that
// the session is broken: who cannot read it does not know the round.
func current(letters []deadletter.Letter) []deadletter.Letter {
	last, end := uint32(0), 0
	for i, l := range letters {
		if l.Round >= last {
			last, end = l.Round, i
		}
	}
	var list []deadletter.Letter
	for i, l := range letters {
		if l.Round == last || i > end && l.Reason == fold.FaultBroken {
			list = append(list, l)
		}
	}
	return list
}

// pause is between two tries of an append whose outcome is unknown.
const pause = 100 * time.Millisecond

// Release appends the order to fold a session again, should it be parked. at is
// the caller's clock, detail says why, for people.
func Release(ctx context.Context, turns journal.Journal, session, detail string, at time.Time) error {
	if journal.IsRunSession(session) || !journal.ValidSession(session) {
		return fmt.Errorf("%w: %q", ErrUnknown, session)
	}
	var tip journal.Tip
	var last *event.Event
	for {
		for e, err := range turns.ReadSession(ctx, session, tip) {
			switch {
			case errors.Is(err, event.ErrMalformed), errors.Is(err, event.ErrMajor):
				return fmt.Errorf("%w: event %d: %w", ErrUnreadable, tip.Count, err)
			case err != nil:
				return fmt.Errorf("parked: release %s: %w", session, err)
			}
			tip, last = e.Tip, e.Event
		}
		if last == nil {
			return fmt.Errorf("%w: %q", ErrUnknown, session)
		}
		switch err := appendOrder(ctx, turns, tip, &event.Event{
			Id:       fmt.Sprintf("release:%d", tip.Count),
			Tenant:   last.GetTenant(),
			Run:      last.GetRun(),
			Session:  session,
			TimeUs:   at.UnixMicro(),
			Producer: "operator",
			Body:     &event.Event_SessionReleased{SessionReleased: &event.SessionReleased{Detail: detail}},
		}); {
		case err == nil:
			return nil
		case errors.Is(err, journal.ErrTrimmed):
			return fmt.Errorf("%w: %s", ErrArchived, session)
		case !errors.Is(err, journal.ErrConflict) && !errors.Is(err, journal.ErrIdentity):
			return fmt.Errorf("parked: release %s: %w", session, err)
		}
		// The session has moved on: the order goes behind what came.
	}
}

// appendOrder appends an event, again as long as nobody knows whether it is
// there.
func appendOrder(ctx context.Context, turns journal.Journal, tip journal.Tip, ev *event.Event) error {
	for {
		_, err := turns.Append(ctx, tip, ev)
		if !errors.Is(err, journal.ErrUnavailable) {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}
