// Package jet is the journal on NATS JetStream. It is the only package that
// knows NATS. schema/README.md has the subjects, the headers and the table of
// errors.
//
// What holds a log together here is the fence: every append says which message
// must be the last of its session, and the server refuses it otherwise. All
// else follows: an append whose outcome is unknown is sent again as it was, and
// a refusal means that either it is there already, or somebody else's event is.
// The server's own window of duplicates only saves a round trip.
package jet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"turnlog.dev/schema/journal"
)

// duplicateWindow is how long the server remembers ids. It costs memory for
// each; the guarantee is the fence.
const duplicateWindow = 2 * time.Minute

// format is raised when an older program would misread what this one writes, though
// it could decode it. Since 2, a sealed branch is its last turn and runs, and the
// answer of a text turn is written once.
const format = 2

// Keys of a stream's metadata.
const (
	metaSchema = "tl.schema" // format of what it may hold; a program that knows no such refuses it
	metaParts  = "tl.parts"  // the range of partitions that it holds
	metaEpoch  = "tl.epoch"  // random; another one is another stream of the same name
)

// Log is one log of a tenant on JetStream.
type Log struct {
	conn    *Conn
	cfg     Config
	streams []*stream
	health  health
	// troubled is when an append last had no answer, in Unix nanoseconds; 0
	// since one was acknowledged.
	troubled atomic.Int64
}

var (
	_ journal.Journal = (*Log)(nil)
	_ journal.Batcher = (*Log)(nil)
)

// stream is one of the server's streams: a range of partitions.
type stream struct {
	handle   jetstream.Stream
	name     string
	id       string // name and epoch: what positions count in
	inFlight *semaphore.Weighted
	batches  *semaphore.Weighted
}

// Open makes the log's streams, or finds them made as configured. Room and
// limits follow the configuration; everything else of an existing stream must
// agree with it.
func (c *Conn) Open(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Log{conn: c, cfg: cfg}
	for n := range cfg.Streams {
		handle, err := c.ensure(ctx, cfg.Existing, cfg.stream(n))
		if err != nil {
			return nil, err
		}
		found := handle.CachedInfo().Config
		l.streams = append(l.streams, &stream{
			handle:   handle,
			name:     found.Name,
			id:       found.Name + "@" + found.Metadata[metaEpoch],
			inFlight: semaphore.NewWeighted(cfg.InFlight),
			batches:  semaphore.NewWeighted(openBatches),
		})
	}
	return l, nil
}

// stream is the server's configuration of the nth stream.
func (c Config) stream(n int) jetstream.StreamConfig {
	each := journal.Partitions / c.Streams
	first := n * each
	subjects := []string{fmt.Sprintf("tl.%s.%s.*.*", c.Tenant, c.Kind)}
	if c.Streams > 1 {
		subjects = subjects[:0]
		for p := first; p < first+each; p++ {
			subjects = append(subjects, c.filter(p))
		}
	}
	return jetstream.StreamConfig{
		Name:         fmt.Sprintf("tl-%s-%s-%02d", c.Tenant, c.Kind, first),
		Subjects:     subjects,
		Retention:    jetstream.LimitsPolicy,
		Discard:      jetstream.DiscardNew, // a full log refuses; it never forgets
		Storage:      jetstream.FileStorage,
		Compression:  jetstream.NoCompression, // bodies are; and it has corrupted stores
		Replicas:     c.Replicas,
		MaxBytes:     c.MaxBytes / int64(c.Streams),
		MaxMsgs:      -1,
		MaxMsgSize:   int32(c.MaxEvent),
		MaxConsumers: c.MaxConsumers,
		Duplicates:   duplicateWindow,
		DenyDelete:   true,
		AllowDirect:  true,

		AllowAtomicPublish: c.Batches,
		Metadata: map[string]string{
			metaSchema: strconv.Itoa(format),
			metaParts:  fmt.Sprintf("%02d-%02d", first, first+each-1),
			metaEpoch:  epoch(),
		},
	}
}

func epoch() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ensure returns the stream, made if missing.
func (c *Conn) ensure(ctx context.Context, how Existing, want jetstream.StreamConfig) (jetstream.Stream, error) {
	found, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if how == ReadOnly {
			return nil, fmt.Errorf("%w: no stream %s", ErrNoLog, want.Name)
		}
		found, err = c.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made by another, just now
			found, err = c.js.Stream(ctx, want.Name)
		}
	}
	if noRoom(err) {
		return nil, fmt.Errorf("%w for stream %s of %d bytes: %w", ErrNoRoom, want.Name, want.MaxBytes, err)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: open stream %s: %w", want.Name, unavailable(err))
	}
	have := found.CachedInfo().Config
	if err := agree(have, want); err != nil {
		return nil, fmt.Errorf("journal: stream %s is not as configured: %w", want.Name, err)
	}
	set := have
	if how == SetLimits {
		set.MaxBytes, set.MaxConsumers, set.MaxMsgSize = want.MaxBytes, want.MaxConsumers, want.MaxMsgSize
	}
	if how != ReadOnly {
		set.AllowAtomicPublish = have.AllowAtomicPublish || want.AllowAtomicPublish
		// What is written from now on, a program that knows only the old format
		// would misread.
		set.Metadata = maps.Clone(have.Metadata)
		set.Metadata[metaSchema] = want.Metadata[metaSchema]
	}
	if set.MaxBytes == have.MaxBytes && set.MaxConsumers == have.MaxConsumers && set.MaxMsgSize == have.MaxMsgSize &&
		set.AllowAtomicPublish == have.AllowAtomicPublish && set.Metadata[metaSchema] == have.Metadata[metaSchema] {
		return found, nil
	}
	found, err = c.js.UpdateStream(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("journal: change limits or format of stream %s: %w", want.Name, unavailable(err))
	}
	return found, nil
}

// noRoom reports refusals of a server that has promised its storage to others.
func noRoom(err error) bool {
	const insufficientResources, insufficientStorage = 10023, 10047
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == insufficientResources || api.ErrorCode == insufficientStorage)
}

// agree reports in what an existing stream differs so that it must not be
// written to.
func agree(have, want jetstream.StreamConfig) error {
	var errs []error
	differ := func(what string, have, want any) {
		if have != want {
			errs = append(errs, fmt.Errorf("%s is %v, not %v", what, have, want))
		}
	}
	if n, _ := strconv.Atoi(have.Metadata[metaSchema]); n < 1 || n > format {
		errs = append(errs, fmt.Errorf("its format is %q, this program knows up to %d", have.Metadata[metaSchema], format))
	}
	if !slices.Equal(have.Subjects, want.Subjects) {
		errs = append(errs, fmt.Errorf("it has %d subjects from %q on, not %d from %q on", len(have.Subjects), have.Subjects[0], len(want.Subjects), want.Subjects[0]))
	}
	differ("its range of partitions", have.Metadata[metaParts], want.Metadata[metaParts])
	differ("its retention", have.Retention, want.Retention)
	differ("its discard policy", have.Discard, want.Discard)
	differ("its storage", have.Storage, want.Storage)
	differ("its compression", have.Compression, want.Compression)
	differ("its number of replicas", have.Replicas, want.Replicas)
	differ("its denial of deletes", have.DenyDelete, want.DenyDelete)
	differ("its direct reading", have.AllowDirect, want.AllowDirect)
	differ("its age limit", have.MaxAge, want.MaxAge)
	return errors.Join(errs...)
}

// stream returns the stream that holds a partition.
func (l *Log) stream(partition int) *stream {
	return l.streams[partition/(journal.Partitions/len(l.streams))]
}

// Stream names the stream that positions of a partition count in. Another name
// after a restart is another log.
func (l *Log) Stream(partition int) string { return l.stream(partition).id }

// filter matches all sessions of a partition.
func (c Config) filter(partition int) string {
	return fmt.Sprintf("tl.%s.%s.%02d.*", c.Tenant, c.Kind, partition)
}

// subject is where a session's events are.
func (c Config) subject(session string, partition int) string {
	b := make([]byte, 0, len("tl....00")+len(c.Tenant)+len(c.Kind)+len(session))
	b = append(append(b, "tl."...), c.Tenant...)
	b = append(append(b, '.'), c.Kind...)
	b = append(b, '.', byte('0'+partition/10), byte('0'+partition%10), '.')
	return string(append(b, session...))
}

// unavailable marks an error of the connection or the server as one that may
// pass. What the context says stays what it is.
func unavailable(err error) error {
	if err == nil || errors.Is(err, journal.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
}
