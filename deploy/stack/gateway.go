package stack

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/parked"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

func (s *Stack) startGateway(ctx context.Context, g *group, l *logs, m *metrics, listener net.Listener) error {
	conn, err := l.dial("gateway")
	if err != nil {
		return err
	}
	turns, err := l.open(ctx, conn, jet.Turns)
	if err != nil {
		return err
	}
	trajectories, err1 := l.open(ctx, conn, l.trajectories())
	sessions, err2 := l.registry(ctx, conn)
	dead, err3 := l.open(ctx, conn, jet.DeadLetters)
	kept, err4 := l.openArchive(ctx, conn)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	k, err := keys(s.cfg.AdminFile(), s.cfg.SeedFile())
	if err != nil {
		return err
	}
	if err := s.serveModels(ctx, g, m); err != nil {
		return err
	}
	large, err := openBlobs(s.cfg)
	if err != nil {
		return err
	}
	gw, err := gateway.New(gatewayConfig(s.cfg), gateway.Deps{
		Blobs: large, Journal: turns, Models: s.served.models, Keys: k, Healthy: turns.Health, Log: s.opt.Log, Fault: s.opt.Fault,
		Existed: func(ctx context.Context, session string) (bool, error) {
			_, known, err := sessions.Get(ctx, session)
			if err != nil || known || kept == nil {
				return known, err
			}
			return kept.Holds(ctx, session)
		},
		Archive: kept.reader(turns),
	})
	if err != nil {
		return err
	}
	m.gateway(gw.Stats)
	handler, err := httpapi.New(httpConfig(s.cfg), httpapi.Deps{
		Gateway: gw, Ready: turns.Health, Sessions: listing{sessions}, Parked: aside{turns, sessions, deadletter.New(dead), s.cfg.Gateway.AppendTimeout}, Trajectories: kept.trajectories(trajectories, l.trajectories()), Metrics: m.handler(), Log: s.opt.Log, Fault: s.opt.Fault,
	})
	if err != nil {
		return err
	}
	return g.start(ctx, part{name: "gateway", run: func(ctx context.Context) error { return serve(ctx, handler, gw, listener, s.opt.Log) }})
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

// aside are the parked sessions as the gateway shows them.
type aside struct {
	turns    journal.Journal
	registry *registry.Stored
	letters  *deadletter.Box
	patience time.Duration // with a log that does not answer
}

// List implements httpapi.Parked.
func (a aside) List(ctx context.Context, run string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for e, err := range parked.List(ctx, a.registry, a.letters, run) {
			var row []byte
			if err == nil {
				row, err = json.Marshal(e)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// Release implements httpapi.Parked.
func (a aside) Release(ctx context.Context, session, detail string) error {
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	err := parked.Release(ctx, a.turns, session, detail, time.Now())
	switch {
	case errors.Is(err, parked.ErrUnknown):
		return &gateway.Error{Kind: gateway.UnknownThing, Param: "session", Message: "no such session", Err: err}
	case errors.Is(err, parked.ErrUnreadable):
		return &gateway.Error{Kind: gateway.Damaged, Message: err.Error(), Err: err}
	}
	return err
}

// Limits of the HTTP server. A turn may take long; a header may not.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// drainTimeout is how long turns under way may still take at the end;
	// abortTimeout how long it may take to record those that did not.
	drainTimeout = 15 * time.Second
	abortTimeout = 10 * time.Second
)

// serve answers requests until ctx ends, then waits for those under way. What
// is not done in time is aborted, and recorded as such.
func serve(ctx context.Context, h http.Handler, gw *gateway.Gateway, l net.Listener, log *slog.Logger) error {
	base, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	var running sync.WaitGroup
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		h.ServeHTTP(w, r)
	})
	srv := &http.Server{
		Handler: counted, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(base, drainTimeout)
	defer cancel()
	if srv.Shutdown(drain) == nil {
		gw.Shutdown(drain)
		return nil
	}
	log.Warn("turns under way are aborted", "after", drainTimeout.String())
	abort()
	idle := make(chan struct{})
	go func() { running.Wait(); gw.Shutdown(base); close(idle) }()
	select {
	case <-idle:
	case <-time.After(abortTimeout):
		log.Error("some turns did not end and may not be recorded", "after", abortTimeout.String())
	}
	return srv.Close()
}
