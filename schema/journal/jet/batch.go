package jet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Headers of the messages of a batch. The server keeps a batch to itself until
// the message that commits it, and then stores all of it or nothing.
const (
	headerBatch       = "Nats-Batch-Id"
	headerBatchPlace  = "Nats-Batch-Sequence" // from 1
	headerBatchCommit = "Nats-Batch-Commit"   // 1 in the last message
)

const (
	// openBatches is how many batches may be on their way to one stream. Each
	// costs the server a store of its own, and it takes 50.
	openBatches = 4
	// The server takes 1,000 messages in a batch; bytes are our own bound.
	batchEvents = 1000
	batchRoom   = 16 << 20
)

// AppendAll implements journal.Batcher. What an unknown outcome has left is found
// by appending the events one by one; only a batch that reached no server is tried
// again, for a moment: a stream that is new to a cluster, or between two leaders.
//
// Each session's first event has the fence. The server takes none on the
// others: that the session goes on with them follows from all being stored
// together.
func (l *Log) AppendAll(ctx context.Context, partition int, list []journal.Continuation) ([]journal.Tip, error) {
	if err := journal.CheckBatch(partition, list); err != nil || len(list) == 0 {
		return nil, err
	}
	tips, err := l.appendAll(ctx, partition, list)
	if err != nil {
		return nil, fmt.Errorf("journal: append a batch to partition %02d: %w", partition, err)
	}
	return tips, nil
}

func (l *Log) appendAll(ctx context.Context, partition int, list []journal.Continuation) ([]journal.Tip, error) {
	stream := l.stream(partition)
	messages, tips, err := l.packAll(partition, list)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	for _, m := range messages {
		size += int64(len(m.Data) + headerRoom)
	}
	if len(messages) > batchEvents || size > min(batchRoom, l.cfg.InFlight) {
		return nil, fmt.Errorf("%w: %d events, %d bytes", journal.ErrTooLarge, len(messages), size)
	}
	if err := stream.batches.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer stream.batches.Release(1)
	if err := stream.inFlight.Acquire(ctx, size); err != nil {
		return nil, err
	}
	defer stream.inFlight.Release(size)
	last, err := l.commit(ctx, messages)
	for wait := firstWait; errors.Is(err, nats.ErrNoResponders) && wait < lastWait; wait *= 2 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		last, err = l.commit(ctx, messages)
	}
	if err != nil {
		return nil, err
	}
	position := last - uint64(len(messages))
	for i, c := range list {
		position += uint64(len(c.Events))
		tips[i].Position = position
	}
	return tips, nil
}

// packAll returns the messages of a batch, and the tips that they lead to but
// for their positions.
func (l *Log) packAll(partition int, list []journal.Continuation) (messages []*nats.Msg, tips []journal.Tip, err error) {
	for _, c := range list {
		tip := c.Tip
		for i, ev := range c.Events {
			m, sum, _, err := l.pack(partition, tip, ev)
			if err != nil {
				return nil, nil, err
			}
			if i > 0 {
				m.Header.Del(headerExpect)
			}
			messages = append(messages, m)
			tip = journal.Tip{Count: tip.Count + 1, Chain: event.Chain(tip.Chain, sum)}
		}
		tips = append(tips, tip)
	}
	return messages, tips, nil
}

// commit publishes a batch and returns the position of its last message.
func (l *Log) commit(ctx context.Context, messages []*nats.Msg) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var id [12]byte
	_, _ = rand.Read(id[:]) // never fails
	name := hex.EncodeToString(id[:])
	for i, m := range messages {
		m.Header[headerBatch] = []string{name}
		m.Header[headerBatchPlace] = []string{strconv.Itoa(i + 1)}
	}
	final := messages[len(messages)-1]
	final.Header[headerBatchCommit] = []string{"1"}
	for _, m := range messages[:len(messages)-1] {
		if err := l.conn.nc.PublishMsg(m); err != nil {
			return 0, unavailable(err)
		}
	}
	answer, err := l.request(ctx, final)
	var refused *serverError
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return 0, fmt.Errorf("%w: %w", journal.ErrClosed, err)
	case err != nil && !errors.As(err, &refused):
		return 0, unavailable(err)
	case err != nil:
		return 0, refused.ofBatch()
	}
	// All or nothing: anything else is not the answer to a batch.
	if n, err := number(answer, "count"); err != nil || n != uint64(len(messages)) {
		return 0, unavailable(fmt.Errorf("answer of the server: %.200q", answer))
	}
	return number(answer, "seq")
}

// ofBatch says what a refusal means for a batch, none of which was stored.
func (e *serverError) ofBatch() error {
	switch e.code {
	case codeWrongLast, codeWrongLastInFlight, codeDuplicateInFlight, codeBatchDuplicate:
		return fmt.Errorf("%w: %w", journal.ErrConflict, e)
	case codeStoreFailed, codeNoStorage, codeNoResources:
		return fmt.Errorf("%w: %w", journal.ErrFull, e)
	case codeTooLarge, codeBatchTooLarge:
		return fmt.Errorf("%w: %w", journal.ErrTooLarge, e)
	default: // not allowed on the stream, too many at once, ...
		return unavailable(e)
	}
}
