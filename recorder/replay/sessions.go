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
	// Idle is how long a partition must give nothing to have been read to its
	// end; 0 is a second.
	Idle time.Duration
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

// skew is how far the log's clock may be ahead of this process's.
const skew = 10 * time.Second

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

// partition lists the sessions of one partition.
func (r Range) partition(ctx context.Context, turns journal.Journal, p int) ([]string, error) {
	idle := r.Idle
	if idle == 0 {
		idle = time.Second
	}
	started := time.Now()
	sub, err := turns.Subscribe(ctx, p, journal.SubscribeOptions{After: r.After})
	if err != nil {
		return nil, fmt.Errorf("replay: partition %d: %w", p, err)
	}
	defer sub.Close()
	var ids []string
	seen := map[string]bool{}
	for {
		wait, cancel := context.WithTimeout(ctx, idle)
		batch, err := sub.Fetch(wait, 1000)
		ended := wait.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && ended:
			return ids, nil // nothing more is there
		case errors.Is(err, journal.ErrUnavailable):
			continue
		case err != nil:
			return nil, fmt.Errorf("replay: partition %d: %w", p, err)
		}
		for _, d := range batch {
			if d.Err == nil && (d.Time.After(started.Add(skew)) || r.UpTo != 0 && d.Tip.Position > r.UpTo) {
				return ids, nil // what is being written now is not part of it
			}
			if d.Err != nil || seen[d.Session] || journal.IsRunSession(d.Session) || !r.holds(d) {
				continue
			}
			seen[d.Session] = true
			ids = append(ids, d.Session)
		}
	}
}
