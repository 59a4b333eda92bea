// Package stack puts turnlog's parts together: it reads nothing but a
// config.Config, makes each part with what it needs and runs them in order.
//
// The all-in-one and the split programs are the same parts: all of them talk to
// a NATS server, which in the all-in-one happens to be in the same process.
package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/natsd"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/exporter/sink/s3"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/recorder"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/journal/jet"
)

// Roles are the parts that a process runs.
type Roles struct {
	Gateway, Recorder, Exporter bool
}

// All is every role.
var All = Roles{Gateway: true, Recorder: true, Exporter: true}

// Options are what a stack gets from the program around it.
type Options struct {
	Log *slog.Logger
	// Out is for people: what listens where.
	Out     io.Writer
	Version string
	// Fault is called at named points; nil but in crash tests.
	Fault func(point string)
}

// Stack is the parts of one process.
type Stack struct {
	cfg   config.Config
	roles Roles
	opt   Options

	opened map[string]files // by the name of the model
	ready  chan struct{}
	addr   net.Addr
}

// New returns a stack that does nothing until Run.
func New(cfg config.Config, roles Roles, opt Options) (*Stack, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Out == nil {
		opt.Out = io.Discard
	}
	if opt.Fault == nil {
		opt.Fault = func(string) {}
	}
	return &Stack{cfg: cfg, roles: roles, opt: opt, opened: map[string]files{}, ready: make(chan struct{})}, nil
}

// Ready is closed when everything serves.
func (s *Stack) Ready() <-chan struct{} { return s.ready }

// Addr is where the gateway listens; valid once Ready is closed.
func (s *Stack) Addr() net.Addr { return s.addr }

// maxParts is how many parts a group can hold.
const maxParts = 16

// Run starts the parts and blocks until ctx ends, then stops them in the
// reverse order. It returns an error if a part could not start or ended by
// itself.
func (s *Stack) Run(ctx context.Context) (err error) {
	// The port first: nothing is touched if another process has it.
	var listener net.Listener
	if s.roles.Gateway {
		if listener, err = listen(s.cfg.Listen); err != nil {
			return err
		}
		defer func() { _ = listener.Close() }() // for when it was never served
		s.addr = listener.Addr()
	}
	g := newGroup(s.opt.Log, maxParts)
	defer func() { err = errors.Join(err, g.stop()) }()
	l, err := s.openLog(ctx, g)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer l.close()
	m := newMetrics(s.opt.Version)
	if s.roles.Gateway {
		if err := s.startGateway(ctx, g, l, m, listener); err != nil {
			return interrupted(ctx, err)
		}
	}
	if s.roles.Recorder {
		if err := s.startRecorder(ctx, g, l, m); err != nil {
			return interrupted(ctx, err)
		}
	}
	if s.roles.Exporter {
		if err := s.startExporter(ctx, g, l, m); err != nil {
			return interrupted(ctx, err)
		}
	}
	if s.roles == All {
		if err := l.settled(); err != nil {
			return err
		}
	}
	s.banner(l)
	close(s.ready)
	return g.wait(ctx)
}

// interrupted drops an error that only says that ctx ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// dataMarker is a file that tells our data folders from others.
const dataMarker = "turnlog-data"

// openData makes the data folder, or takes an existing one that is ours. In
// somebody else's folder nothing is touched.
func openData(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	marker := filepath.Join(dir, dataMarker)
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("data: %s holds other files (%s, ...) and no file %s: choose an empty folder with --data", dir, entries[0].Name(), dataMarker)
	}
	return os.WriteFile(marker, []byte("This folder belongs to turnlog.\n"), 0o644)
}

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use, perhaps by another turnlog: stop it, or choose another address with --listen HOST:PORT (port 0 takes any)", address)
	}
	return l, err
}

// logs are the connections to the tenant's logs. Each role has a connection of
// its own, as it would in a process of its own.
type logs struct {
	maxBytes int64
	embedded bool
	conns    []*jet.Conn
	dial     func(name string) (*jet.Conn, error)
	settled  func() error // the streams have their sizes
	synced   jet.SyncProof
	cfg      config.Config
}

func (s *Stack) openLog(ctx context.Context, g *group) (*logs, error) {
	if err := openData(s.cfg.Data); err != nil {
		return nil, err
	}
	l := &logs{cfg: s.cfg, maxBytes: s.cfg.Log.MaxBytes, embedded: s.cfg.Log.URL == "", settled: func() error { return nil }}
	if len(s.cfg.Log.Monitor) > 0 {
		l.synced = jet.Monitor(&http.Client{Timeout: headerTimeout}, s.cfg.Log.Monitor...)
	}
	opt := jet.Options{URL: s.cfg.Log.URL, Credentials: s.cfg.Log.Credentials, Logger: s.opt.Log}
	if l.embedded {
		room, err := openRoom(s.cfg.Data, s.cfg.Log.MaxBytes)
		if err != nil {
			return nil, err
		}
		l.maxBytes, l.settled = room.streams, room.settled
		srv, err := natsd.New(natsd.Config{
			Mode: natsd.Mode(s.cfg.Log.Durability), Dir: filepath.Join(s.cfg.Data, "log"), Listen: s.cfg.Log.Listen, MaxBytes: room.server,
		}, s.opt.Log)
		if err != nil {
			return nil, err
		}
		if err := g.start(ctx, part{name: "log", run: srv.Run, ready: srv.Ready}); err != nil {
			return nil, err
		}
		opt.InProcess, l.synced = srv, srv.Synced
	} else if l.maxBytes == 0 {
		l.maxBytes = defaultRemoteBytes
	}
	l.dial = func(name string) (*jet.Conn, error) {
		opt := opt
		opt.Name = "turnlog " + name
		c, err := jet.Dial(opt)
		if err == nil {
			l.conns = append(l.conns, c)
		}
		return c, err
	}
	return l, nil
}

// defaultRemoteBytes is the room on a server whose disk we cannot see.
const defaultRemoteBytes = 64 << 30

// open opens one of the tenant's logs on a connection. Turns and trajectories
// share the room; a little is left for dead letters and the registry.
func (l *logs) open(ctx context.Context, c *jet.Conn, kind jet.Kind) (*jet.Log, error) {
	cfg := jet.DefaultConfig(l.cfg.Tenant, kind)
	cfg.Streams = l.cfg.Log.Streams
	if l.cfg.Log.Durability == "cluster" {
		cfg.Replicas = 3
	}
	switch kind {
	case jet.Turns:
		cfg.MaxBytes = l.maxBytes / 100 * turnsShare
	case jet.Trajectories:
		cfg.MaxBytes = l.maxBytes / 100 * trajectoriesShare
	case jet.DeadLetters:
		cfg.MaxBytes = l.maxBytes / 100 * deadLettersShare
	}
	log, err := c.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	// A log that promises more than it keeps is worse than none.
	return log, log.Verify(ctx, jet.Mode(l.cfg.Log.Durability), l.synced)
}

// Shares of the room, in percent.
const (
	turnsShare        = 49
	trajectoriesShare = 47
	deadLettersShare  = 2
	registryShare     = 2
)

// registry opens the table of the tenant's sessions.
func (l *logs) registry(ctx context.Context, c *jet.Conn) (*registry.Stored, error) {
	cfg := jet.BucketConfig{Tenant: l.cfg.Tenant, Name: "sessions", Replicas: 1, MaxBytes: l.maxBytes / 100 * registryShare}
	if l.cfg.Log.Durability == "cluster" {
		cfg.Replicas = 3
	}
	b, err := c.OpenBucket(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return registry.NewStored(b), nil
}

func (l *logs) close() {
	for _, c := range l.conns {
		c.Close()
	}
}

func (s *Stack) startGateway(ctx context.Context, g *group, l *logs, m *metrics, listener net.Listener) error {
	conn, err := l.dial("gateway")
	if err != nil {
		return err
	}
	turns, err := l.open(ctx, conn, jet.Turns)
	if err != nil {
		return err
	}
	trajectories, err1 := l.open(ctx, conn, jet.Trajectories)
	sessions, err2 := l.registry(ctx, conn)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	k, err := keys(s.cfg.AdminFile(), s.cfg.SeedFile())
	if err != nil {
		return err
	}
	models, err := s.models(ctx, g, m)
	if err != nil {
		return err
	}
	gw, err := gateway.New(gateway.Config{
		Tenant: s.cfg.Tenant, Instance: s.cfg.Gateway.Instance, CacheBytes: s.cfg.Gateway.CacheBytes,
		AppendTimeout: s.cfg.Gateway.AppendTimeout, GenerateTimeout: s.cfg.Gateway.GenerateTimeout,
		DefaultMaxTokens: s.cfg.Gateway.DefaultMaxTokens,
	}, gateway.Deps{
		Journal: turns, Models: models, Keys: k, Healthy: turns.Health, Log: s.opt.Log, Fault: s.opt.Fault,
	})
	if err != nil {
		return err
	}
	m.gateway(gw.Stats)
	handler, err := httpapi.New(httpapi.Config{MaxBody: s.cfg.Gateway.MaxBody, PingEvery: s.cfg.Gateway.PingEvery}, httpapi.Deps{
		Gateway: gw, Ready: turns.Health, Sessions: listing{sessions}, Trajectories: trajectories, Metrics: m.handler(), Log: s.opt.Log, Fault: s.opt.Fault,
	})
	if err != nil {
		return err
	}
	return g.start(ctx, part{name: "gateway", run: func(ctx context.Context) error { return serve(ctx, handler, listener) }})
}

// listing is the registry as the gateway shows it.
type listing struct{ registry *registry.Stored }

// List implements httpapi.Sessions.
func (l listing) List(ctx context.Context, run, group, state string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for s, err := range l.registry.List(ctx, registry.Filter{Run: run, Group: group, State: registry.State(state)}) {
			var row []byte
			if err == nil {
				row, err = json.Marshal(s)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// Limits of the HTTP server. A turn may take long; a header may not.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 15 * time.Second
)

// serve answers requests until ctx ends, then waits for those under way.
func serve(ctx context.Context, h http.Handler, l net.Listener) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		return srv.Close() // turns that are still under way are aborted
	}
	return nil
}

func (s *Stack) startRecorder(ctx context.Context, g *group, l *logs, m *metrics) error {
	conn, err := l.dial("recorder")
	if err != nil {
		return err
	}
	turns, err1 := l.open(ctx, conn, jet.Turns)
	trajectories, err2 := l.open(ctx, conn, jet.Trajectories)
	dead, err3 := l.open(ctx, conn, jet.DeadLetters)
	sessions, err4 := l.registry(ctx, conn)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	cfg := recorder.DefaultConfig()
	cfg.Worker.CacheBytes = s.cfg.Recorder.CacheBytes
	if text := s.cfg.Recorder.Policy; text != "" {
		if err := json.Unmarshal([]byte(text), &cfg.Worker.Policy); err != nil {
			return fmt.Errorf("recorder.policy: %w", err)
		}
	}
	files, err := s.recorderModels(ctx)
	if err != nil {
		return err
	}
	rec, err := recorder.New(cfg, recorder.Deps{
		Models: files,
		Turns:  turns, Trajectories: trajectories, DeadLetters: dead, Registry: sessions,
		Now:    func(context.Context) (time.Time, error) { return time.Now(), nil },
		Logger: s.opt.Log, Fault: func(p worker.Point) { s.opt.Fault("recorder." + string(p)) },
	})
	if err != nil {
		return err
	}
	m.recorder(rec.Stats)
	return g.start(ctx, part{name: "recorder", run: rec.Run})
}

func (s *Stack) startExporter(ctx context.Context, g *group, l *logs, m *metrics) error {
	exp, err := s.exporter(ctx, l)
	if err != nil {
		return err
	}
	m.exporter(exp.Stats)
	return g.start(ctx, part{name: "exporter", run: exp.Run})
}

func (s *Stack) exporter(ctx context.Context, l *logs) (*exporter.Exporter, error) {
	conn, err := l.dial("exporter")
	if err != nil {
		return nil, err
	}
	trajectories, err := l.open(ctx, conn, jet.Trajectories)
	if err != nil {
		return nil, err
	}
	out, err := OpenShards(s.cfg)
	if err != nil {
		return nil, err
	}
	cfg := exporter.DefaultConfig()
	cfg.Classes, cfg.KeepTail, cfg.FileTokens = s.cfg.Exporter.Classes, s.cfg.Exporter.KeepTail, s.cfg.Exporter.FileTokens
	cfg.MinTokens, cfg.MaxTokens = s.cfg.Exporter.MinTokens, s.cfg.Exporter.MaxTokens
	cfg.Tenant = s.cfg.Tenant
	cfg.Flush = s.cfg.Exporter.Flush
	cfg.RewardWait, cfg.GroupWait = s.cfg.Exporter.RewardDeadline, s.cfg.Exporter.GroupDeadline
	cfg.Partial, cfg.Grades = s.cfg.Exporter.Partial, s.cfg.Exporter.Grades
	return exporter.New(cfg, exporter.Deps{
		Journal: trajectories, Sink: out, Log: s.opt.Log,
		Fault: func(step string) { s.opt.Fault("exporter." + step) },
	})
}

// OpenShards opens the sink that shards are in.
func OpenShards(cfg config.Config) (sink.Sink, error) {
	c := cfg.Exporter.S3
	if c.Endpoint == "" {
		return local.New(cfg.Shards())
	}
	return s3.New(s3.Config{
		Endpoint: c.Endpoint, Bucket: c.Bucket, Prefix: c.Prefix, Region: c.Region, PathStyle: c.PathStyle, Insecure: c.Insecure,
	})
}

// Export exports what is ready and returns. The log must be one of its own, or
// an embedded one that no other process has open.
func (s *Stack) Export(ctx context.Context) (sum exporter.Summary, err error) {
	g := newGroup(s.opt.Log, maxParts)
	defer func() { err = errors.Join(err, g.stop()) }()
	l, err := s.openLog(ctx, g)
	if err != nil {
		return sum, err
	}
	defer l.close()
	exp, err := s.exporter(ctx, l)
	if err != nil {
		return sum, err
	}
	return exp.Once(ctx)
}
