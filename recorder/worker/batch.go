package worker

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// worthwhile is the smallest batch that is appended at once: the log makes a
// store for each, which a few appends side by side do not cost.
const worthwhile = 8

// errSingly says that a session's part of a batch takes more than appends.
var errSingly = errors.New("recorder: not in a batch")

// gathered are a session's updates of one batch, before they are appended.
type gathered struct {
	events  []*event.Event
	updates []*event.TrajectoryUpdate
}

// together folds a batch and appends all that follows from it at once. It
// returns the sessions that are left to be done one by one, as if nothing had
// been tried: a batch that was refused, or whose outcome is unknown, is settled
// by the single appends, which find what is there.
func (p *partition) together(ctx context.Context, order []*session, lanes map[string][]journal.Delivery) (left []*session) {
	var g errgroup.Group
	failed := make([]bool, len(order))
	for i, s := range order {
		p.w.lanes <- struct{}{}
		g.Go(func() error {
			defer func() { <-p.w.lanes }()
			failed[i] = s.gather(ctx, lanes[s.id]) != nil
			return nil
		})
	}
	_ = g.Wait()
	var ready []*session
	for i, s := range order {
		switch {
		case failed[i]:
			s.drop()
			left = append(left, s)
		case len(s.gathered.events) > 0:
			ready = append(ready, s)
		}
	}
	left = append(left, p.appendAll(ctx, ready)...)
	for _, s := range order {
		s.gathered = nil
	}
	return left
}

// gather folds a session's part of a batch.
func (s *session) gather(ctx context.Context, batch []journal.Delivery) error {
	s.gathered = &gathered{}
	for _, d := range batch {
		if s.broken != nil {
			return errSingly
		}
		if err := s.deliver(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// appendAll appends what sessions have gathered, and returns those for which
// that failed. A batch that is too large is appended in halves.
func (p *partition) appendAll(ctx context.Context, ready []*session) []*session {
	if len(ready) == 0 {
		return nil
	}
	list := make([]journal.Continuation, len(ready))
	for i, s := range ready {
		list[i] = journal.Continuation{Tip: s.out, Events: s.gathered.events}
	}
	tips, err := p.w.batcher.AppendAll(ctx, p.id, list)
	if errors.Is(err, journal.ErrTooLarge) && len(ready) > 1 {
		half := len(ready) / 2
		return append(p.appendAll(ctx, ready[:half]), p.appendAll(ctx, ready[half:])...)
	}
	if err != nil {
		p.w.meter.add(func(st *Stats) { st.Splits++ })
		for _, s := range ready {
			s.drop()
		}
		return ready
	}
	p.w.meter.add(func(st *Stats) { st.Batches++ })
	for i, s := range ready {
		s.out = tips[i]
		for _, u := range s.gathered.updates {
			s.appended(u)
		}
	}
	return nil
}
