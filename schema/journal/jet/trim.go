package jet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"turnlog.dev/schema/journal"
)

// trimRecord is what a stream has given up on purpose, so that Intact can tell
// it from what a disk has lost, and followers what they have missed. It stands
// in a bucket under the stream's name and is written before anything goes:
// whoever dies in between leaves Going behind, which the next one takes up.
type trimRecord struct {
	// Stream is the name and epoch that this is about.
	Stream string `json:"stream"`
	// Gone counts the events that were trimmed.
	Gone uint64 `json:"gone"`
	// Going are sessions whose beginnings may be there, or not any more.
	Going []going `json:"going,omitempty"`
	// Last is the highest position of each partition that was ever in Going.
	Last map[int]uint64 `json:"last,omitempty"`
}

// going is the beginning of a session, up to a position.
type going struct {
	Session  string `json:"session"`
	Position uint64 `json:"position"`
	Events   uint64 `json:"events"`
}

// most is how many events may be missing.
func (r trimRecord) most() uint64 {
	n := r.Gone
	for _, g := range r.Going {
		n += g.Events
	}
	return n
}

const (
	// TrimsBucket has the records of a tenant's streams, each under the stream's
	// name.
	TrimsBucket = "trims"
	// TrimsBytes is the room that the bucket needs besides the logs, whatever was
	// trimmed.
	TrimsBytes = 2 << 20
	// trimAtOnce is how many sessions a record can have in Going.
	trimAtOnce = 256
)

// trims reads what a stream has given up, and its revision. No record, or one of
// another stream of that name, is nothing.
func (l *Log) trims(ctx context.Context, s *stream) (trimRecord, uint64, error) {
	none := trimRecord{Stream: s.id, Last: map[int]uint64{}}
	bucket, err := l.trimsBucket(ctx, ReadOnly)
	if errors.Is(err, ErrNoLog) {
		return none, 0, nil
	}
	if err != nil {
		return none, 0, err
	}
	raw, revision, err := bucket.Get(ctx, s.name)
	if err != nil {
		return none, 0, unavailable(err)
	}
	if revision == 0 {
		return none, 0, nil
	}
	var found trimRecord
	if err := json.Unmarshal(raw, &found); err != nil {
		return none, 0, fmt.Errorf("journal: what stream %s was trimmed to: %w", s.name, err)
	}
	if found.Stream != s.id {
		return none, revision, nil
	}
	if found.Last == nil {
		found.Last = map[int]uint64{}
	}
	return found, revision, nil
}

func (l *Log) trimsBucket(ctx context.Context, existing Existing) (*Bucket, error) {
	b, err := l.conn.OpenBucket(ctx, BucketConfig{
		Tenant: l.cfg.Tenant, Name: TrimsBucket, Replicas: l.cfg.Replicas, MaxBytes: TrimsBytes, Existing: existing,
	})
	if err != nil && !errors.Is(err, ErrNoLog) {
		err = unavailable(err)
	}
	return b, err
}

// Trim implements journal.Journal. The server takes a session's messages out of
// the middle of the stream and gives their room back at once; the numbers of
// those that stay do not change.
func (l *Log) Trim(ctx context.Context, through map[string]journal.Tip) error {
	sessions := map[*stream][]string{}
	for _, id := range slices.Sorted(maps.Keys(through)) {
		if !journal.ValidSession(id) {
			return fmt.Errorf("journal: trim: %w: session %q", journal.ErrInvalid, id)
		}
		s := l.stream(journal.PartitionOf(id))
		sessions[s] = append(sessions[s], id)
	}
	for _, s := range l.streams {
		for some := range slices.Chunk(sessions[s], trimAtOnce) {
			if err := l.trim(ctx, s, some, through); err != nil {
				return fmt.Errorf("journal: trim %s: %w", s.name, err)
			}
		}
	}
	return nil
}

// trim goes on until nothing is left of what should go. Each step is written
// down before or after it, against those who trim at the same time.
func (l *Log) trim(ctx context.Context, s *stream, sessions []string, through map[string]journal.Tip) error {
	bucket, err := l.trimsBucket(ctx, KeepLimits)
	if err != nil {
		return err
	}
	for {
		record, revision, err := l.trims(ctx, s)
		if err != nil {
			return err
		}
		if len(record.Going) > 0 { // ours by now, or another's who may be dead
			for _, g := range record.Going {
				if err := l.purge(ctx, s, g); err != nil {
					return err
				}
			}
			record.Gone, record.Going = record.most(), nil
		} else {
			again := false
			for _, id := range sessions {
				g, err := l.leaving(ctx, s, id, through[id])
				if errors.Is(err, errLeaving) {
					again = true
					break
				}
				if err != nil {
					return err
				}
				if g.Events > 0 {
					record.Going = append(record.Going, g)
					record.Last[journal.PartitionOf(id)] = max(record.Last[journal.PartitionOf(id)], g.Position)
				}
			}
			if again {
				continue
			}
			if len(record.Going) == 0 {
				return nil
			}
		}
		raw, err := json.Marshal(record)
		if err != nil {
			return err
		}
		// Not put, another was first: look again.
		if _, err := bucket.Put(ctx, s.name, raw, revision); err != nil {
			return unavailable(err)
		}
	}
}

// errLeaving says that somebody else trims the session just now.
var errLeaving = errors.New("leaving")

// leaving counts what is there of the beginning of a session.
func (l *Log) leaving(ctx context.Context, s *stream, session string, through journal.Tip) (going, error) {
	subject := l.cfg.subject(session, journal.PartitionOf(session))
	first, err := l.get(ctx, s, getRequest{Seq: 1, NextBySubject: subject})
	if errors.Is(err, errNoMessage) || err == nil && first.position > through.Position {
		return going{}, nil
	}
	if err != nil {
		return going{}, err
	}
	from, err := first.entry()
	if err != nil {
		return going{}, err
	}
	last, err := l.get(ctx, s, getRequest{Seq: through.Position})
	if err != nil && !errors.Is(err, errNoMessage) {
		return going{}, err
	}
	if err == nil && last.subject == subject {
		if e, err := last.entry(); err == nil && e.Tip == through {
			return going{session, through.Position, through.Count - from.Ordinal()}, nil
		}
	}
	still, err := l.get(ctx, s, getRequest{Seq: 1, NextBySubject: subject})
	if errors.Is(err, errNoMessage) || err == nil && still.position != first.position {
		return going{}, errLeaving
	}
	if err != nil {
		return going{}, err
	}
	return going{}, fmt.Errorf("%w: no event %d of session %s at %d", journal.ErrGap, through.Count, session, through.Position)
}

func (l *Log) purge(ctx context.Context, s *stream, g going) error {
	subject := l.cfg.subject(g.Session, journal.PartitionOf(g.Session))
	err := s.handle.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(g.Position+1))
	return unavailable(err)
}

// Floor implements journal.Journal. Every durable consumer of the partition
// counts, whoever made it. Each is asked by itself: a cluster's list of all
// leaves out those that did not answer in time.
func (l *Log) Floor(ctx context.Context, partition int) (uint64, error) {
	if partition < 0 || partition >= journal.Partitions {
		return 0, fmt.Errorf("journal: floor: no partition %d", partition)
	}
	fault := func(err error) (uint64, error) {
		return 0, fmt.Errorf("journal: floor of partition %02d: %w", partition, unavailable(err))
	}
	stream, floor := l.stream(partition).handle, uint64(math.MaxUint64)
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		if !strings.HasSuffix(name, consumerName("", partition)) {
			continue
		}
		c, err := stream.Consumer(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
		case err != nil:
			return fault(err)
		default:
			floor = min(floor, c.CachedInfo().AckFloor.Stream)
		}
	}
	if err := names.Err(); err != nil {
		return fault(err)
	}
	return floor, nil
}
