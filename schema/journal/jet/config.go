package jet

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"turnlog.dev/schema/journal"
)

// Kind is one of a tenant's logs, as it stands in subjects.
type Kind string

// The logs of a tenant.
const (
	// Turns is what gateways append.
	Turns Kind = "s"
	// Trajectories is what recorders append; see Named for others of the sort.
	Trajectories Kind = "ev"
	// DeadLetters refers to what could not be folded.
	DeadLetters Kind = "dlq"
)

// Config describes one log.
type Config struct {
	Tenant string
	Kind   Kind
	// Streams is how many streams share the partitions in equal ranges: a power
	// of two up to journal.Partitions. Each has a leader of its own.
	Streams int
	// Replicas of each stream.
	Replicas int
	// MaxBytes is the room for all streams together. The log is full beyond it.
	MaxBytes int64
	// Existing says what becomes of streams that are there with other limits.
	Existing Existing
	// MaxEvent is the largest message in bytes: a packed body and its headers.
	MaxEvent int
	// MaxConsumers bounds the positions and followers of each stream.
	MaxConsumers int
	// Batches lets events be appended many at once; see AppendAll.
	Batches bool
	// InFlight bounds the bytes that wait for an acknowledgement from each
	// stream. The server drops appends above 128 MiB.
	InFlight int64
	// Takeover is how long the active member of a group may be silent before
	// another takes its place.
	Takeover time.Duration
}

// Existing says how Open treats a log that exists.
type Existing string

// What Open does. In all cases everything but the limits must agree.
const (
	// SetLimits gives its streams the limits of the configuration.
	SetLimits Existing = ""
	// KeepLimits leaves the limits as they are, and makes what is missing.
	KeepLimits Existing = "keep"
	// ReadOnly changes nothing, and fails with ErrNoLog where nothing is.
	ReadOnly Existing = "read_only"
)

// ErrNoRoom says that the server has no storage left to promise to a stream.
var ErrNoRoom = errors.New("journal: the server has no room")

// ErrNoLog says that there is no log to read.
var ErrNoLog = errors.New("journal: there is no log")

// DefaultConfig is one stream on one server, for a tenant's log of a kind.
func DefaultConfig(tenant string, kind Kind) Config {
	return Config{
		Tenant: tenant, Kind: kind,
		Streams: 1, Replicas: 1,
		MaxBytes:     10 << 30,
		MaxEvent:     1 << 20,
		MaxConsumers: 1000,
		Batches:      kind != Turns && kind != DeadLetters,
		InFlight:     64 << 20,
		Takeover:     10 * time.Second,
	}
}

var name = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Validate reports all faults of a configuration.
func (c Config) Validate() error {
	var errs []error
	fault := func(bad bool, format string, v ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("journal: "+format, v...))
		}
	}
	fault(!name.MatchString(c.Tenant), "tenant %q: not 1 to 64 letters, digits, _ or -", c.Tenant)
	fault(!c.Kind.known(), "kind %q: unknown, or not named by 1 to 64 letters, digits, _ or -", c.Kind)
	fault(c.Streams < 1 || c.Streams > journal.Partitions || c.Streams&(c.Streams-1) != 0,
		"streams %d: not a power of two from 1 to %d", c.Streams, journal.Partitions)
	fault(c.Replicas < 1 || c.Replicas > 5, "replicas %d: not 1 to 5", c.Replicas)
	fault(c.MaxBytes <= 0, "max bytes %d: a log must have a limit", c.MaxBytes)
	fault(c.MaxEvent < 1<<10 || c.MaxEvent > 8<<20, "max event %d: not from 1 KiB to 8 MiB", c.MaxEvent)
	fault(c.MaxConsumers < 1, "max consumers %d: a stream must have a limit", c.MaxConsumers)
	fault(c.InFlight < max(1, int64(c.MaxEvent)) || c.InFlight > 128<<20, "in flight %d: not from max event to 128 MiB", c.InFlight)
	fault(c.Takeover < 100*time.Millisecond, "takeover %s: less than 100ms", c.Takeover)
	return errors.Join(errs...)
}
