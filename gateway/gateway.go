// Package gateway serves model calls of agents: it finds the turn that a call
// continues, makes the exact prompt ids, has an engine sample, appends the turn
// to the log and only then gives the answer.
//
// This root package is the way of one turn (Complete) and the life of a
// session (Open, Close, Reward). What surrounds it is in subpackages: dialect/*
// translates clients' protocols, session places calls in the tree, engine/*
// and pool reach the servers, httpapi is the HTTP surface.
package gateway

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/gateway/run"
	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Config is what an operator decides about a gateway.
type Config struct {
	Tenant string
	// Instance names this process in the log.
	Instance string
	// CacheBytes bounds the sessions held in memory.
	CacheBytes int
	// AppendTimeout bounds the wait for the log's acknowledgement of a turn.
	AppendTimeout time.Duration
	// GenerateTimeout bounds one generation, waiting for a free replica
	// included.
	GenerateTimeout time.Duration
	// DefaultMaxTokens is the length of an answer when the client names none
	// and the engine's context is unknown.
	DefaultMaxTokens int
}

// Default returns the configuration that is used for what is not said.
func Default() Config {
	return Config{
		Tenant:           "default",
		Instance:         "gateway",
		CacheBytes:       512 << 20,
		AppendTimeout:    30 * time.Second,
		GenerateTimeout:  30 * time.Minute,
		DefaultMaxTokens: 4096,
	}
}

// Validate reports all faults at once.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, fault string) {
		if !ok {
			faults = append(faults, errors.New("gateway: "+fault))
		}
	}
	check(ValidName(c.Tenant), "tenant must be 1 to 64 of A-Z, a-z, 0-9, _ and -")
	check(c.CacheBytes > 0, "cache_bytes must be positive")
	check(c.AppendTimeout > 0, "append_timeout must be positive")
	check(c.GenerateTimeout > 0, "generate_timeout must be positive")
	check(c.DefaultMaxTokens > 0, "default_max_tokens must be positive")
	return errors.Join(faults...)
}

// ValidName reports whether s can name a tenant, a run or a session.
func ValidName(s string) bool {
	return journal.ValidSession(s) && !journal.IsRunSession(s)
}

// Deps is what a gateway works with.
type Deps struct {
	// Journal is the turn stream.
	Journal journal.Journal
	Models  *Models
	Keys    *Keys
	// Blobs keeps the experts that turns refer to; needed where a model has
	// RoutedExperts.
	Blobs Blobs
	// Existed says whether a session of which the log holds nothing was there
	// once; nil knows of none.
	Existed func(ctx context.Context, session string) (bool, error)
	// Archive is the turn stream together with the sessions that were moved out
	// of it, which are shown from there; nil shows none of those.
	Archive journal.Journal
	// Healthy says whether an append can be expected to succeed: asked before
	// an engine is.
	Healthy func(context.Context) error
	Log     *slog.Logger
	// Process names this process among all gateways, and is new with each start:
	// empty is a random name.
	Process string
	// Now and NewID are time.Now and random ids but in tests.
	Now   func() time.Time
	NewID func() string
	// Fault is called at named points on the way of a turn; nil but in crash
	// tests.
	Fault func(point string)
}

// Gateway serves turns. All methods are safe for concurrent use.
type Gateway struct {
	cfg      Config
	deps     Deps
	sessions *session.Store
	flights  flights
	closing  context.Context // ends the turns that outlive their requests
	abort    context.CancelFunc
	runs     *run.Store
	stats    stats
}

// New returns a gateway; it does nothing until it is called.
func New(cfg Config, deps Deps) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Journal == nil || deps.Models == nil || deps.Keys == nil {
		return nil, errors.New("gateway: journal, models and keys are needed")
	}
	if deps.Blobs == nil && slices.ContainsFunc(deps.Models.List(), func(m *Model) bool { return m.RoutedExperts }) {
		return nil, errors.New("gateway: a model's routed experts need a place for blobs")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.NewID == nil {
		deps.NewID = NewID
	}
	if deps.Process == "" {
		deps.Process = cfg.Instance + "-" + NewID()
	}
	if deps.Healthy == nil {
		deps.Healthy = func(context.Context) error { return nil }
	}
	if deps.Fault == nil {
		deps.Fault = func(string) {}
	}
	g := &Gateway{cfg: cfg, deps: deps, sessions: session.NewStore(deps.Journal, cfg.CacheBytes, deps.Existed)}
	g.runs = run.NewStore(deps.Journal, deps.Process, cfg.AppendTimeout, func(id, name string) *event.Event {
		return g.event(id, name, journal.RunSession(name))
	})
	g.closing, g.abort = context.WithCancel(context.Background())
	return g, nil
}

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns 100 random bits as 20 characters.
func NewID() string {
	var b [13]byte
	rand.Read(b[:])
	return encoding.EncodeToString(b[:])[:20]
}

// Models are the models that a gateway serves. It is safe for concurrent use.
type Models struct{ list atomic.Pointer[[]*Model] }

// NewModels returns the given models.
func NewModels(list ...*Model) *Models {
	m := &Models{}
	m.Set(list...)
	return m
}

// Set replaces the models. Turns under way end with the model that they began
// with.
func (m *Models) Set(list ...*Model) { m.list.Store(&list) }

// List returns the models in the order of configuration.
func (m *Models) List() []*Model { return *m.list.Load() }

// Resolve finds the model for the name that a client asked for: by name, else
// by an alias with more than a star, else the session's model, else one that
// takes every name. In an alias * stands for any text.
func (m *Models) Resolve(asked, policy string) (*Model, error) {
	const any = "*"
	list := m.List()
	for _, fits := range []func(*Model) bool{
		func(c *Model) bool { return c.Name == asked },
		func(c *Model) bool {
			return slices.ContainsFunc(c.Aliases, func(p string) bool { return p != any && glob(p, asked) })
		},
		func(c *Model) bool { return policy != "" && c.Name == policy },
		func(c *Model) bool { return slices.Contains(c.Aliases, any) },
	} {
		if i := slices.IndexFunc(list, fits); i >= 0 {
			return list[i], nil
		}
	}
	return nil, unknown(list, asked)
}

// Named finds the model with exactly this name.
func (m *Models) Named(name string) (*Model, error) {
	list := m.List()
	if i := slices.IndexFunc(list, func(c *Model) bool { return c.Name == name }); i >= 0 {
		return list[i], nil
	}
	return nil, unknown(list, name)
}

func unknown(list []*Model, name string) error {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	return &Error{Kind: UnknownModel, Param: "model", Message: fmt.Sprintf("the model %q does not exist; known models: %s", name, strings.Join(names, ", "))}
}

// glob matches a pattern in which * stands for any text.
func glob(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for i := 0; i <= len(s); i++ {
		if glob(rest, s[i:]) {
			return true
		}
	}
	return false
}

// event returns an event of this gateway about a session.
func (g *Gateway) event(id, run, sess string) *event.Event {
	return &event.Event{
		Id: id, Tenant: g.cfg.Tenant, Run: run, Session: sess,
		TimeUs: g.deps.Now().UnixMicro(), Producer: g.cfg.Instance,
	}
}

// Stats are counters since the start.
type Stats struct {
	Turns, Aborted, Failed  int64
	PromptTokens, NewTokens int64
	Sessions, CachedBytes   int
}

// Pool is the replicas that serve one model; see pool.Pool.
type Pool interface {
	Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error, restart func() bool) (pool.Result, error)
}
