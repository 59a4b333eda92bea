package journaltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"turnlog.dev/schema/journal"
)

type faultySubscription struct {
	journal.Subscription
	faulty    *Faulty
	partition int
	group     string

	mu sync.Mutex
	// given holds what was handed out and is not yet acknowledged by all that
	// stands before it, in the order in which it was handed out.
	given []journal.Delivery
	// done holds those of them that were acknowledged early: their like may
	// only be acknowledged to the log once all before them are.
	done map[uint64]journal.Delivery
}

// Fetch implements journal.Subscription.
func (s *faultySubscription) Fetch(ctx context.Context, max int) ([]journal.Delivery, error) {
	faults := s.faulty.faults
	luck := s.faulty.luck("fetch", strconv.Itoa(s.partition), s.group)
	if ctx.Err() == nil && luck.strikes(faults.Unavailable) {
		return nil, fmt.Errorf("%w: on purpose", journal.ErrUnavailable)
	}
	if err := luck.delay(ctx); err != nil {
		return nil, err
	}
	list, err := s.Subscription.Fetch(ctx, max)
	if err != nil {
		return nil, err
	}
	if luck.strikes(faults.Reorder) {
		list = interleave(luck.rand, list)
	}
	if len(list) < max && luck.strikes(faults.Duplicate) {
		i := luck.rand.IntN(len(list))
		list = slices.Insert(list, i, list[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = append(s.given, list...)
	return list, nil
}

// interleave shuffles deliveries and keeps each session in order.
func interleave(r *rand.Rand, list []journal.Delivery) []journal.Delivery {
	queues := map[string][]journal.Delivery{}
	order := make([]string, 0, len(list))
	for _, d := range list {
		queues[d.Session] = append(queues[d.Session], d)
		order = append(order, d.Session)
	}
	r.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	mixed := make([]journal.Delivery, 0, len(list))
	for _, session := range order {
		mixed = append(mixed, queues[session][0])
		queues[session] = queues[session][1:]
	}
	return mixed
}

// Ack implements journal.Subscription. The caller is done with all that it was
// given up to d; the log may only hear of positions below which nothing is
// left to do.
func (s *faultySubscription) Ack(ctx context.Context, d journal.Delivery) error {
	safe, ok := s.settle(d)
	if !ok {
		return nil
	}
	return s.Subscription.Ack(ctx, safe)
}

func (s *faultySubscription) settle(d journal.Delivery) (safe journal.Delivery, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = map[uint64]journal.Delivery{}
	}
	last := -1
	for i, g := range s.given {
		if g.Tip.Position == d.Tip.Position {
			last = i
		}
	}
	for _, g := range s.given[:last+1] {
		s.done[g.Tip.Position] = g
	}
	s.given = s.given[last+1:]
	for _, candidate := range s.done {
		if candidate.Tip.Position <= safe.Tip.Position {
			continue
		}
		open := slices.ContainsFunc(s.given, func(g journal.Delivery) bool { return g.Tip.Position < candidate.Tip.Position })
		if !open {
			safe, ok = candidate, true
		}
	}
	for p := range s.done {
		if p <= safe.Tip.Position {
			delete(s.done, p)
		}
	}
	return safe, ok
}
