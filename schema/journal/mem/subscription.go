package mem

import (
	"context"
	"fmt"
	"math"

	"turnlog.dev/schema/journal"
)

type groupKey struct {
	name      string
	partition int
}

// group is the position that subscriptions share, one of which is active.
type group struct {
	acked    uint64
	attempts map[uint64]int // deliveries of the positions after acked
	active   *subscription
}

type subscription struct {
	journal   *Journal
	partition int
	group     *group
	closed    bool
	next      uint64 // the position to look at next, once active
}

// Pending implements journal.Journal.
func (j *Journal) Pending(_ context.Context, partition int, group string) (n uint64, err error) {
	if partition < 0 || partition >= journal.Partitions {
		return 0, fmt.Errorf("journal: pending: no partition %d", partition)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	acked := j.front
	if g, ok := j.groups[groupKey{group, partition}]; ok {
		acked = max(acked, g.acked)
	}
	for _, r := range j.records[min(acked-j.front, uint64(len(j.records))):] {
		if !r.gone && journal.PartitionOf(r.session) == partition {
			n++
		}
	}
	return n, nil
}

// Floor implements journal.Journal.
func (j *Journal) Floor(_ context.Context, partition int) (uint64, error) {
	if partition < 0 || partition >= journal.Partitions {
		return 0, fmt.Errorf("journal: floor: no partition %d", partition)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	floor := uint64(math.MaxUint64)
	for key, g := range j.groups {
		if key.partition == partition {
			floor = min(floor, g.acked)
		}
	}
	return floor, nil
}

// Subscribe implements journal.Journal.
func (j *Journal) Subscribe(_ context.Context, partition int, options journal.SubscribeOptions) (journal.Subscription, error) {
	if partition < 0 || partition >= journal.Partitions {
		return nil, fmt.Errorf("journal: subscribe: no partition %d", partition)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	g, known := j.groups[groupKey{options.Group, partition}]
	if !known && !options.Remaining && options.After > 0 && options.After < j.trimmed[partition] {
		return nil, fmt.Errorf("%w: entries after position %d are trimmed", journal.ErrGap, options.After)
	}
	if !known {
		g = &group{acked: options.After, attempts: map[uint64]int{}}
	}
	if options.Group != "" {
		j.groups[groupKey{options.Group, partition}] = g
	}
	return &subscription{journal: j, partition: partition, group: g}, nil
}

// Fetch implements journal.Subscription.
func (s *subscription) Fetch(ctx context.Context, max int) ([]journal.Delivery, error) {
	for {
		list, grown, err := s.take(max)
		if err != nil || len(list) > 0 {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("journal: fetch: %w", ctx.Err())
		case <-grown:
		}
	}
}

// take returns what is there, or a channel that closes when that may have
// changed.
func (s *subscription) take(max int) ([]journal.Delivery, <-chan struct{}, error) {
	j, g := s.journal, s.group
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.closed {
		return nil, nil, journal.ErrClosed
	}
	if g.active == nil {
		g.active = s
		s.next = g.acked + 1
	}
	if g.active != s {
		return nil, j.grown, nil
	}
	var list []journal.Delivery
	if s.next <= j.front {
		s.next = j.front + 1
	}
	for ; len(list) < max && s.next <= j.front+uint64(len(j.records)); s.next++ {
		r := j.at(s.next)
		if r.gone || journal.PartitionOf(r.session) != s.partition {
			continue
		}
		g.attempts[s.next]++
		list = append(list, r.delivery(g.attempts[s.next]))
	}
	return list, j.grown, nil
}

func (r record) delivery(attempt int) journal.Delivery {
	d := journal.Delivery{Session: r.session, Attempt: attempt}
	d.Entry, d.Err = r.entry()
	if d.Err != nil {
		d.Raw = r.body
		d.Tip.Position, d.Time, d.Stream = r.tip.Position, r.time, Stream
	} else {
		d.Prev = r.prev
	}
	return d
}

// Ack implements journal.Subscription.
func (s *subscription) Ack(_ context.Context, d journal.Delivery) error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	if s.closed {
		return journal.ErrClosed
	}
	if g := s.group; d.Tip.Position > g.acked {
		g.acked = d.Tip.Position
		for p := range g.attempts {
			if p <= g.acked {
				delete(g.attempts, p)
			}
		}
	}
	return nil
}

// Close implements journal.Subscription.
func (s *subscription) Close() error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.group.active == s {
		s.group.active = nil
	}
	s.journal.wake()
	return nil
}
