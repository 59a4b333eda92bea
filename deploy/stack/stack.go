// Package stack puts turnlog's parts together: it reads nothing but a
// config.Config, makes each part with what it needs and runs them in order.
//
// The all-in-one and the split programs are the same parts: all of them talk to
// a NATS server, which in the all-in-one happens to be in the same process.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
	"turnlog.dev/recorder/render"
	"turnlog.dev/tokenizer/hub"
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
	// Download is told how downloads of model files go on; nil for nobody.
	Download func(hub.Progress)
	// Fault is called at named points; nil but in crash tests.
	Fault func(point string)
}

// Stack is the parts of one process.
type Stack struct {
	cfg   config.Config
	roles Roles
	opt   Options

	opened map[string]files // by what of a model's configuration decides them
	// served are the models that the gateway serves, rendered those that the
	// recorder knows: complete when ready, nil without the role.
	served   *served
	rendered *render.Models
	ready    chan struct{}
	addr     net.Addr
}

// New returns a stack that does nothing until Run. The error lists all faults
// of the configuration.
func New(cfg config.Config, roles Roles, opt Options) (*Stack, error) {
	if err := Check(cfg); err != nil {
		return nil, err
	}
	if roles.Recorder && cfg.Log.Trajectories != "" {
		return nil, errors.New("config: log.trajectories: a recorder writes the tenant's own trajectory stream: leave it empty here, and give it to the command that reads")
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

// Run starts the parts and blocks until ctx ends, then stops them in the
// reverse order: the gateway first, which gives the answers under way, the log
// last. It returns an error if a part could not start or ended by itself.
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
	g := newGroup()
	defer func() { err = errors.Join(err, g.stop()) }()
	l, err := s.openLogs(ctx, g, writing)
	if err != nil {
		return interrupted(ctx, err)
	}
	m := newMetrics(s.opt.Version)
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
	if s.roles.Gateway {
		if err := s.startGateway(ctx, g, l, m, listener); err != nil {
			return interrupted(ctx, err)
		}
	}
	if err := l.settled(s.roles); err != nil {
		return err
	}
	s.banner(l)
	close(s.ready)
	return g.wait(ctx)
}

// WithExporter lets do use an exporter that is not running.
func (s *Stack) WithExporter(ctx context.Context, do func(*exporter.Exporter) error) (err error) {
	g := newGroup()
	defer func() { err = errors.Join(err, g.stop()) }()
	l, err := s.openLogs(ctx, g, reading)
	if err != nil {
		return err
	}
	exp, err := s.exporter(ctx, l)
	if err != nil {
		return err
	}
	return do(exp)
}

// interrupted drops an error that only says that ctx ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use, perhaps by another turnlog: stop it, or choose another address with --listen HOST:PORT (port 0 takes any)", address)
	}
	return l, err
}
