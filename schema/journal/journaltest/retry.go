package journaltest

import (
	"context"
	"errors"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Append appends until the outcome is known or ctx ends: the same event with
// the same tip after every ErrUnavailable.
func Append(ctx context.Context, j journal.Journal, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	for {
		next, err := j.Append(ctx, tip, ev)
		if !errors.Is(err, journal.ErrUnavailable) || ctx.Err() != nil {
			return next, err
		}
	}
}

// Fetch fetches until the log answers or ctx ends.
func Fetch(ctx context.Context, s journal.Subscription, max int) ([]journal.Delivery, error) {
	for {
		list, err := s.Fetch(ctx, max)
		if !errors.Is(err, journal.ErrUnavailable) || ctx.Err() != nil {
			return list, err
		}
	}
}

// Read returns a session's entries after from: again from there after every
// ErrUnavailable, until ctx ends.
func Read(ctx context.Context, j journal.Journal, session string, from journal.Tip) ([]journal.Entry, error) {
	for {
		var list []journal.Entry
		var last error
		for e, err := range j.ReadSession(ctx, session, from) {
			if last = err; err == nil {
				list = append(list, e)
			}
		}
		if !errors.Is(last, journal.ErrUnavailable) || ctx.Err() != nil {
			return list, last
		}
	}
}
