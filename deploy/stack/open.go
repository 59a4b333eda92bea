package stack

import (
	"context"
	"errors"
	"log/slog"

	"turnlog.dev/deploy/config"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

// Logs are a tenant's logs and registry, for programs that look at them.
type Logs struct {
	Turns, Trajectories journal.Journal
	Registry            *registry.Stored
}

// WithLogs opens the logs of a configuration for as long as fn takes. An
// embedded log can be open in one process at a time: stop the other, or give it
// an address with log.listen and use that as log.url.
func WithLogs(ctx context.Context, cfg config.Config, log *slog.Logger, fn func(Logs) error) (err error) {
	s, err := New(cfg, Roles{}, Options{Log: log})
	if err != nil {
		return err
	}
	g := newGroup(s.opt.Log, maxParts)
	defer func() { err = errors.Join(err, g.stop()) }()
	l, err := s.openLog(ctx, g)
	if err != nil {
		return err
	}
	defer l.close()
	conn, err := l.dial("reader")
	if err != nil {
		return err
	}
	turns, err1 := l.open(ctx, conn, jet.Turns)
	trajectories, err2 := l.open(ctx, conn, jet.Trajectories)
	sessions, err3 := l.registry(ctx, conn)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return fn(Logs{Turns: turns, Trajectories: trajectories, Registry: sessions})
}
