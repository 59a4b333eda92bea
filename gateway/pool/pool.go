// Package pool is the replicas that serve one model: which of them gets a
// request, what happens when it fails, and who waits when all are busy.
//
// A request goes to one replica, chosen by the policy among those that are
// healthy. Health comes from outcomes alone: an engine that cannot be reached
// or fails several times in a row rests for a while, then one request tries
// it. A slow generation is no failure. While nothing was given to the agent a
// failed request goes on to another replica, and every attempt is reported
// with the ids that it had produced.
package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer"
)

// Policy says which replica a request goes to.
type Policy string

// The policies.
const (
	// Sticky keeps a session on its replica, where its prefix is cached.
	Sticky Policy = "sticky"
	// RoundRobin takes one after the other.
	RoundRobin Policy = "round_robin"
	// LeastBusy takes the one with the fewest requests.
	LeastBusy Policy = "least_busy"
	// Prefix takes the one that saw the longest beginning of the prompt, unless
	// it is much busier than the others.
	Prefix Policy = "prefix"
)

// Config is how a pool behaves. The zero value is usable.
type Config struct {
	Name   string
	Policy Policy // default Sticky
	// Concurrency is how many requests a replica works on at once; default 256.
	Concurrency int
	// Queue is how many requests may wait; default 4096. One more is refused
	// as overloaded.
	Queue int
	// Attempts is how many replicas one request may try; default 3.
	Attempts int
	// FailuresToRest is how many failures in a row, other than no connection,
	// let a replica rest; default 3. No connection does so at once.
	FailuresToRest int
	// Cooldown is the first rest, doubled with every failed trial up to
	// MaxCooldown; defaults 30 s and 5 min.
	Cooldown, MaxCooldown time.Duration
	// Pins bounds how many sessions are remembered by Sticky; default 10,000.
	Pins int
	// Tokenizer, where set, is compared with every replica's before it is used,
	// at the start and after it was unreachable.
	Tokenizer tokenizer.Tokenizer
	// Check has replicas asked what they are before they are used without a
	// Tokenizer, too: one that takes text is compared with none.
	Check  bool
	Logger *slog.Logger
}

// Validate reports all faults of cfg at once.
func (cfg Config) Validate() error {
	var faults []error
	switch cfg.Policy {
	case "", Sticky, RoundRobin, LeastBusy, Prefix:
	default:
		faults = append(faults, fmt.Errorf("policy %q is none of sticky, round_robin, least_busy, prefix", cfg.Policy))
	}
	for name, n := range map[string]int{
		"concurrency": cfg.Concurrency, "queue": cfg.Queue, "attempts": cfg.Attempts,
		"failures_to_rest": cfg.FailuresToRest, "pins": cfg.Pins,
	} {
		if n < 0 {
			faults = append(faults, fmt.Errorf("%s is %d, below 0", name, n))
		}
	}
	if cfg.Cooldown < 0 || cfg.MaxCooldown < 0 {
		faults = append(faults, errors.New("a cooldown is negative"))
	}
	if len(faults) > 0 {
		return fmt.Errorf("pool %q: %w", cfg.Name, errors.Join(faults...))
	}
	return nil
}

func (cfg *Config) setDefaults() {
	def(&cfg.Policy, Sticky)
	def(&cfg.Concurrency, 256)
	def(&cfg.Queue, 4096)
	def(&cfg.Attempts, 3)
	def(&cfg.FailuresToRest, 3)
	def(&cfg.Cooldown, 30*time.Second)
	def(&cfg.MaxCooldown, max(5*time.Minute, cfg.Cooldown))
	def(&cfg.Pins, 10_000)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Errors of the pool itself. What an engine reports is an *engine.Error.
var (
	// ErrEmpty is a pool without a replica that takes requests.
	ErrEmpty = errors.New("pool: no replica takes requests; add one or end the draining")
	// ErrResumed is what Drain returns when Resume came before its end.
	ErrResumed = errors.New("pool: the replica was resumed while it was drained")
	// ErrDuplicate and ErrUnknown are about names given to Add, Drain, Remove.
	ErrDuplicate = errors.New("pool: a replica of this name exists")
	ErrUnknown   = errors.New("pool: no replica of this name")
)

// Replica is one engine under the name that turns are recorded with.
type Replica struct {
	Name string
	// Kind is the engine's, for the record: sglang, vllm, ... Where it is empty,
	// what the check says is recorded.
	Kind   string
	Engine engine.Engine
	// listed: a source said so.
	listed bool
}

// Pool is the replicas of one model. It is safe for concurrent use.
type Pool struct {
	cfg Config

	mu       sync.Mutex
	replicas []*replica
	next     int // round robin
	pins     *pins
	shared   fair // waiters that any replica may serve; with Sticky there are none
	waiting  int
	// queued requests had to wait; positions is the sum of their places in the
	// queue when they came.
	queued, positions uint64
	// info is what the first replica that was checked said; all others must be
	// of its evidence class.
	info *engine.Info
}

// New returns a pool of these replicas; it does not connect.
func New(cfg Config, replicas ...Replica) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	p := &Pool{cfg: cfg, pins: newPins(cfg.Pins)}
	for _, r := range replicas {
		if err := p.Add(r); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Result is what came of a request, and how.
type Result struct {
	engine.Report
	// Backend and Engine name the replica of the last attempt.
	Backend string
	Engine  string
	// Attempts failed before it, in order, with the ids that each had produced.
	Attempts []*event.Attempt
	// Queued is how long the request waited for its turn, all attempts
	// together.
	Queued time.Duration
}

// Generate sends req to a replica and passes its chunks to emit, from the
// calling goroutine.
//
// Where an attempt fails after chunks were emitted, restart is asked whether
// they can be taken back: true means that the receiver has given nothing of
// them away and has forgotten them. A nil restart says no. What the last
// attempt emitted is not in Result.Attempts, whatever came of it.
//
// The error is one that engine.Engine's Generate returns, or ErrEmpty.
func (p *Pool) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error, restart func() bool) (Result, error) {
	var res Result
	var last error
	tried := map[*replica]bool{}
	for {
		start := time.Now()
		r, err := p.acquire(ctx, &req, tried)
		res.Queued += time.Since(start)
		if err != nil {
			if last != nil && errors.Is(err, ErrEmpty) {
				err = last
			}
			return res, err
		}
		tried[r.replica] = true
		res.Backend, res.Engine = r.name, r.kind
		var got event.Attempt
		if err = p.verify(ctx, r.replica); err == nil {
			res.Engine = p.kindOf(r.replica)
			res.Report, err = r.engine.Generate(ctx, req, func(c engine.Chunk) error {
				got.Ids = event.AppendIDs(got.Ids, c.IDs)
				got.Logprobs = event.AppendFloats(got.Logprobs, c.Logprobs)
				return emit(c)
			})
			if errors.Is(err, engine.ErrEnough) {
				res.FinishReason, err = "stop", nil
			}
			if ids := res.Discarded; len(ids) > 0 {
				res.Attempts = append(res.Attempts, &event.Attempt{Backend: r.name, Ids: event.AppendIDs(nil, ids), Error: discarded})
			}
		}
		p.release(r, err)
		if err == nil || !another(err) || len(tried) >= p.cfg.Attempts || !p.untried(tried) {
			return res, err
		}
		if len(got.Ids) > 0 && (restart == nil || !restart()) {
			return res, err
		}
		if len(got.Logprobs) != len(got.Ids) {
			got.Logprobs = nil // some never came
		}
		got.Backend, got.Error = r.name, err.Error()
		res.Attempts = append(res.Attempts, &got)
		res.Report, last = engine.Report{}, err
	}
}

// discarded is the fault of an attempt whose ids are not all known.
const discarded = "the engine left out tokens that ended inside a character; what followed was sampled again"

// another reports whether another replica may do better.
func another(err error) bool {
	switch engine.ClassOf(err) {
	case engine.Unreachable, engine.Overloaded, engine.Failed, engine.Broken:
		return true
	}
	return false
}

// Forget drops the pin of a session that is over.
func (p *Pool) Forget(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins.forget(session)
}
