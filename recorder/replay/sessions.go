package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
)

// Range selects sessions by what the log holds of them. Zero fields select
// all; a session is folded whole if any of its events is in the range.
type Range struct {
	Run string
	// From and To bound the log's time of an event: From <= time < To.
	From, To time.Time
	// Partitions to look at; nil is all.
	Partitions []int
	// After and UpTo bound the position of an event, which only makes sense
	// within one partition: After < position <= UpTo.
	After, UpTo uint64
}

func (r Range) holds(d journal.Delivery) bool {
	return (r.Run == "" || d.Event.GetRun() == r.Run) &&
		!d.Time.Before(r.From) && (r.To.IsZero() || d.Time.Before(r.To)) &&
		d.Tip.Position > r.After && (r.UpTo == 0 || d.Tip.Position <= r.UpTo)
}

// These yields the given sessions.
func These(ids ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}
}

// Registry lists sessions.
type Registry interface {
	List(ctx context.Context, f registry.Filter) iter.Seq2[registry.Session, error]
}

// Listed yields the sessions that a registry lists.
func Listed(ctx context.Context, r Registry, f registry.Filter) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for s, err := range r.List(ctx, f) {
			if !yield(s.ID, err) {
				return
			}
		}
	}
}

// together is how many partitions are read at the same time.
const together = 16

// Logged reads the log itself and yields each session of the range once,
// partition after partition.
func Logged(ctx context.Context, turns journal.Journal, r Range) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		partitions := r.Partitions
		if partitions == nil {
			for p := range journal.Partitions {
				partitions = append(partitions, p)
			}
		}
		for some := range slices.Chunk(partitions, together) {
			found := make([][]string, len(some))
			g, ctx := errgroup.WithContext(ctx)
			for i, p := range some {
				g.Go(func() (err error) {
					found[i], err = r.partition(ctx, turns, p)
					return err
				})
			}
			if err := g.Wait(); err != nil {
				yield("", err)
				return
			}
			for _, id := range slices.Concat(found...) {
				if !yield(id, nil) {
					return
				}
			}
		}
	}
}

// partition lists the sessions of one partition, up to the end that it has now.
func (r Range) partition(ctx context.Context, turns journal.Journal, p int) ([]string, error) {
	end, err := r.end(ctx, turns, p)
	if err != nil || end <= r.After {
		return nil, err
	}
	sub, err := turns.Subscribe(ctx, p, journal.SubscribeOptions{After: r.After})
	if err != nil {
		return nil, fmt.Errorf("replay: partition %d: %w", p, err)
	}
	defer sub.Close()
	var ids []string
	seen := map[string]bool{}
	for at := uint64(0); at < end; {
		batch, err := sub.Fetch(ctx, 1000)
		if errors.Is(err, journal.ErrUnavailable) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("replay: partition %d: %w", p, err)
		}
		for _, d := range batch {
			at = max(at, d.Tip.Position)
			// What is written after the start is not part of it.
			if d.Tip.Position > end || d.Err != nil || seen[d.Session] || journal.IsRunSession(d.Session) || !r.holds(d) {
				continue
			}
			seen[d.Session] = true
			ids = append(ids, d.Session)
		}
	}
	return ids, nil
}

// end is the position of the last entry to look at.
func (r Range) end(ctx context.Context, turns journal.Journal, p int) (uint64, error) {
	for {
		end, err := turns.End(ctx, p)
		if errors.Is(err, journal.ErrUnavailable) && ctx.Err() == nil {
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return 0, err
			}
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("replay: partition %d: %w", p, err)
		}
		return end, nil
	}
}
