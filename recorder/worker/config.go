package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
)

// Config is how a worker runs.
type Config struct {
	// Group names the position that all workers share.
	Group string
	// Partitions to follow. Any number of workers may follow the same ones:
	// the log gives each to one at a time.
	Partitions []int
	// Batch is the most entries taken at once from a partition.
	Batch int
	// Lanes is how many sessions are folded and appended at the same time.
	Lanes int
	// AtOnce appends what follows from a batch of entries at once, if the
	// trajectory journal is a journal.Batcher: many times faster where every
	// append waits for a disk, slower where none does.
	AtOnce bool
	// CacheBytes bounds the memory of sessions besides those of each
	// partition's last batch. What falls out is read again when it is needed.
	CacheBytes int
	// RetryMin and RetryMax bound the pause before a failed call is made
	// again.
	RetryMin, RetryMax time.Duration
	// StallAfter is how long a partition may give nothing before the worker
	// asks whether it should have, and how long a batch may take before that
	// is logged.
	StallAfter time.Duration
	// RegistryEvery is how often the rows of open sessions are written.
	RegistryEvery time.Duration
	// Drain is how long a batch may still run after Run was told to stop.
	Drain time.Duration
	// Policy decides what is trained.
	Policy fold.Policy
}

// DefaultConfig follows all partitions.
func DefaultConfig() Config {
	c := Config{
		Group:         "recorder",
		Batch:         256,
		Lanes:         32,
		CacheBytes:    256 << 20,
		RetryMin:      10 * time.Millisecond,
		RetryMax:      5 * time.Second,
		StallAfter:    15 * time.Second,
		RegistryEvery: time.Second,
		Drain:         5 * time.Second,
		Policy:        fold.DefaultPolicy(),
	}
	for p := range journal.Partitions {
		c.Partitions = append(c.Partitions, p)
	}
	return c
}

// Validate reports all faults of the configuration at once.
func (c Config) Validate() error {
	var faults []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			faults = append(faults, fmt.Errorf("recorder: "+format, args...))
		}
	}
	bad(c.Group == "", "group is empty")
	bad(len(c.Partitions) == 0, "no partitions")
	for _, p := range c.Partitions {
		bad(p < 0 || p >= journal.Partitions, "partition %d is not in 0..%d", p, journal.Partitions-1)
	}
	bad(c.Batch < 1, "batch is %d, not positive", c.Batch)
	bad(c.Lanes < 1, "lanes is %d, not positive", c.Lanes)
	bad(c.CacheBytes < 0, "cache_bytes is negative")
	bad(c.RetryMin <= 0 || c.RetryMax < c.RetryMin, "retry_min %s and retry_max %s are no range", c.RetryMin, c.RetryMax)
	bad(c.StallAfter <= 0, "stall_after is not positive")
	bad(c.RegistryEvery <= 0, "registry_every is not positive")
	bad(c.Drain < 0, "drain is negative")
	return errors.Join(append(faults, c.Policy.Validate())...)
}

// Registry takes the rows of sessions. It must be safe for concurrent use and
// keep the row with more Events of two.
type Registry interface {
	Put(ctx context.Context, s registry.Session) error
	// Get returns the row of a session, and whether there is one.
	Get(ctx context.Context, id string) (registry.Session, bool, error)
}

// DeadLetters takes what could not be folded. Put must be safe for concurrent
// use, durable when it returns, and without effect for a letter that it has.
type DeadLetters interface {
	Put(ctx context.Context, l deadletter.Letter) error
}

// Deps are what a worker works with. Turns, Trajectories and DeadLetters are
// required.
type Deps struct {
	Turns        journal.Journal
	Trajectories journal.Journal
	DeadLetters  DeadLetters
	Registry     Registry
	Models       fold.Models
	Logger       *slog.Logger
	// Fault is called at the points where a crash is interesting; nil in
	// production.
	Fault func(point Point)
}

// Point is a place where a test may kill a worker.
type Point string

// The points, in the order in which an entry passes them.
const (
	PointFetched    Point = "fetched"
	PointFolded     Point = "folded"
	PointAppended   Point = "appended"
	PointDeadLetter Point = "dead_letter"
	PointRegistered Point = "registered"
	PointAcked      Point = "acked"
)

// Points lists all points.
var Points = []Point{PointFetched, PointFolded, PointAppended, PointDeadLetter, PointRegistered, PointAcked}
