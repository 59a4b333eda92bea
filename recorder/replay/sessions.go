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
	"turnlog.dev/schema/event"
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
	return r.ofRun(d.Event) && !d.Time.Before(r.From) && (r.To.IsZero() || d.Time.Before(r.To)) &&
		d.Tip.Position > r.After && (r.UpTo == 0 || d.Tip.Position <= r.UpTo)
}

func (r Range) ofRun(ev *event.Event) bool { return r.Run == "" || ev.GetRun() == r.Run }

// unbounded reports whether sessions are in the range from their first event to
// their last.
func (r Range) unbounded() bool {
	return r.From.IsZero() && r.To.IsZero() && r.After == 0 && r.UpTo == 0
}

func (r Range) partitions() []int {
	if r.Partitions != nil {
		return r.Partitions
	}
	all := make([]int, journal.Partitions)
	for p := range all {
		all[p] = p
	}
	return all
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
		for some := range slices.Chunk(r.partitions(), together) {
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
	if err != nil {
		return nil, err
	}
	var ids []string
	seen := map[string]bool{}
	for batch, err := range entries(ctx, turns, p, r.After, end) {
		if err != nil {
			return nil, err
		}
		for _, d := range batch {
			if d.Err != nil || seen[d.Session] || journal.IsRunSession(d.Session) || !r.holds(d) {
				continue
			}
			seen[d.Session] = true
			ids = append(ids, d.Session)
		}
	}
	return ids, nil
}

// end is the last position of the range in a partition as it is now.
func (r Range) end(ctx context.Context, turns journal.Journal, p int) (uint64, error) {
	end, err := lastPosition(ctx, turns, p)
	if r.UpTo > 0 {
		end = min(end, r.UpTo)
	}
	return end, err
}

// entries yields a partition's entries after a position and up to another, where
// one is, as they come.
func entries(ctx context.Context, j journal.Journal, partition int, after, end uint64) iter.Seq2[[]journal.Delivery, error] {
	return func(yield func([]journal.Delivery, error) bool) {
		if end <= after {
			return
		}
		sub, err := j.Subscribe(ctx, partition, journal.SubscribeOptions{After: after})
		if err != nil {
			yield(nil, fmt.Errorf("replay: partition %d: %w", partition, err))
			return
		}
		defer sub.Close()
		for at := after; at < end; {
			batch, err := sub.Fetch(ctx, 1000)
			if errors.Is(err, journal.ErrUnavailable) && ctx.Err() == nil {
				continue
			}
			if err != nil {
				yield(nil, fmt.Errorf("replay: partition %d: %w", partition, err))
				return
			}
			for _, d := range batch {
				at = max(at, d.Tip.Position)
			}
			// What is written after the start is not part of it.
			batch = slices.DeleteFunc(batch, func(d journal.Delivery) bool { return d.Tip.Position > end })
			if len(batch) > 0 && !yield(batch, nil) {
				return
			}
		}
	}
}

// lastPosition is that of a partition's last entry.
func lastPosition(ctx context.Context, j journal.Journal, p int) (uint64, error) {
	for {
		end, err := j.End(ctx, p)
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
