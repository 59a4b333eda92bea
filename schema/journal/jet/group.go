package jet

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"turnlog.dev/schema/journal"
)

// attach makes or finds the consumer, and takes care of what a member that is
// gone has left.
func (s *subscription) attach(ctx context.Context) error {
	if s.group == "" {
		return s.attachFollower(ctx)
	}
	consumer := consumerName(s.group, s.partition)
	_, err := s.stream.handle.Consumer(ctx, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		after := max(s.after, s.acked)
		if err := s.notTrimmed(ctx, after); err != nil {
			return err
		}
		_, err = s.stream.handle.CreateConsumer(ctx, s.groupConfig(consumer, after))
		if errors.Is(err, jetstream.ErrConsumerExists) { // made by another member, just now
			err = nil
		}
	}
	if err != nil {
		return unavailable(err)
	}
	s.consumer = consumer
	return s.inspect(ctx)
}

// attachFollower makes a consumer. One that is made again passes over what has
// been trimmed meanwhile, as the first one would have.
func (s *subscription) attachFollower(ctx context.Context) error {
	made, err := s.stream.handle.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       s.delivered + 1,
		FilterSubject:     s.log.cfg.filter(s.partition),
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: inactive,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return unavailable(err)
	}
	s.consumer, s.sequence = made.CachedInfo().Name, 0
	return nil
}

func (s *subscription) groupConfig(consumer string, after uint64) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        consumer,
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    after + 1,
		FilterSubject:  s.log.cfg.filter(s.partition),
		AckPolicy:      jetstream.AckAllPolicy,
		AckWait:        ackWait,
		MaxAckPending:  -1, // a limit would stop the group when a full member dies
		PriorityPolicy: jetstream.PriorityPolicyPinned,
		PriorityGroups: []string{priorityGroup},
		PinnedTTL:      s.log.cfg.Takeover,
	}
}

// notTrimmed refuses a position after which entries are gone, unless the
// subscriber wants those that are left. From the start means from what is there.
func (s *subscription) notTrimmed(ctx context.Context, after uint64) error {
	if after == 0 || s.remaining {
		return nil
	}
	record, _, err := s.log.trims(ctx, s.stream)
	if err != nil {
		return err
	}
	if last := record.Last[s.partition]; after < last {
		return fmt.Errorf("%w: entries after position %d are trimmed, the last one at %d", journal.ErrGap, after, last)
	}
	return nil
}

// inspect looks at the consumer when nothing has come for a while: what a dead
// member holds must come to the living, and a consumer that has stopped must be
// set going again.
func (s *subscription) inspect(ctx context.Context) error {
	consumer, err := s.stream.handle.Consumer(ctx, s.consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		s.forget()
		return nil
	}
	if err != nil {
		return unavailable(err)
	}
	info := consumer.CachedInfo()
	pinned := ""
	for _, g := range info.PriorityGroups {
		pinned = g.PinnedClientID
	}
	if s.group != "" && pinned == "" && info.NumAckPending > 0 && info.Delivered.Stream > s.delivered {
		return s.rewind(ctx, info.Delivered.Stream)
	}
	if info.NumPending == 0 || pinned != s.pin {
		s.stalls = 0
		return nil
	}
	if s.stalls++; s.stalls < patience {
		return nil
	}
	s.stalls = 0
	s.log.conn.logger.WarnContext(ctx, "partition stalled, starting again", "consumer", s.consumer, "pending", info.NumPending)
	return s.resume(ctx)
}

// forget begins anew with a consumer that is gone.
func (s *subscription) forget() {
	s.drop()
	s.consumer, s.sequence, s.pin = "", lost, ""
}

// takeOver begins a time as the group's active member. The first message has
// shown that we are; it will come again.
func (s *subscription) takeOver(ctx context.Context, pin string, first *nats.MsgMetadata) error {
	s.drop() // the server must not send more before it has rewound
	s.pin, s.sequence = pin, lost
	consumer, err := s.stream.handle.Consumer(ctx, s.consumer)
	if err != nil {
		return unavailable(err)
	}
	left := first.Sequence.Consumer - 1 - consumer.CachedInfo().AckFloor.Consumer
	s.acking.Lock()
	own := uint64(len(s.outstanding))
	s.acking.Unlock()
	if left <= own {
		return s.rewind(ctx, 0) // nobody else has left anything
	}
	return s.rewind(ctx, first.Sequence.Stream-1)
}

// resume goes on after a loss between the server and here.
func (s *subscription) resume(ctx context.Context) error {
	s.drop()
	if s.group == "" {
		s.consumer = "" // a new one, from what was delivered
		return nil
	}
	s.sequence = lost
	return s.rewind(ctx, 0)
}

// rewind sets the consumer back to the group's position. Entries up to given
// were delivered before, to another member or to the caller that is leaving; 0
// is none.
func (s *subscription) rewind(ctx context.Context, given uint64) error {
	reset, err := s.log.conn.js.ResetConsumer(ctx, s.stream.name, s.consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		s.forget()
	}
	if err != nil {
		return unavailable(err)
	}
	s.sequence = 0
	position := reset.ResetSeq - 1
	s.delivered = max(s.delivered, position)
	s.acking.Lock()
	s.acked = max(s.acked, position)
	s.acking.Unlock()

	config := reset.Config
	now := readAttempts(config.Metadata)
	s.attempts = now.next(position, given)
	if s.attempts == now {
		return nil
	}
	if config.Metadata == nil {
		config.Metadata = map[string]string{}
	}
	s.attempts.write(config.Metadata)
	if _, err := s.stream.handle.UpdateConsumer(ctx, config); err != nil {
		return unavailable(err)
	}
	return nil
}
