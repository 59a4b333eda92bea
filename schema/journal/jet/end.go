package jet

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"turnlog.dev/schema/journal"
)

// End implements journal.Journal.
func (l *Log) End(ctx context.Context, partition int) (uint64, error) {
	if partition < 0 || partition >= journal.Partitions {
		return 0, fmt.Errorf("journal: end: no partition %d", partition)
	}
	last, err := l.get(ctx, l.stream(partition), getRequest{LastBySubject: l.cfg.filter(partition)})
	switch {
	case errors.Is(err, errNoMessage):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("journal: end of partition %02d: %w", partition, err)
	}
	return last.position, nil
}

// Pending implements journal.Journal. It asks the server; a group's consumer
// counts for itself, and may hear of an append late. Zero is zero all the same:
// then the partition's end is looked at, too.
func (l *Log) Pending(ctx context.Context, partition int, group string) (uint64, error) {
	if partition < 0 || partition >= journal.Partitions {
		return 0, fmt.Errorf("journal: pending: no partition %d", partition)
	}
	s := l.stream(partition)
	consumer, err := s.handle.Consumer(ctx, consumerName(group, partition))
	if err == nil {
		info := consumer.CachedInfo()
		if n := info.NumPending + uint64(info.NumAckPending); n > 0 {
			return n, nil
		}
		end, err := l.End(ctx, partition)
		if err == nil && end > info.AckFloor.Stream {
			return 1, nil
		}
		return 0, err
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		var stream *jetstream.StreamInfo
		if stream, err = s.handle.Info(ctx, jetstream.WithSubjectFilter(l.cfg.filter(partition))); err == nil {
			n := uint64(0)
			for _, entries := range stream.State.Subjects {
				n += entries
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("journal: lag of %s in partition %02d: %w", group, partition, unavailable(err))
}

// consumerName is the server's name for a group's position in a partition.
func consumerName(group string, partition int) string {
	return fmt.Sprintf("%s-%02d", group, partition)
}
