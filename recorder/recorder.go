// Package recorder turns the turn stream into the trajectory stream: verified,
// masked and graded token spans, and seals.
//
// It is composed of small parts: recorder/fold is the pure function from events
// to outputs, recorder/worker the shell that runs it over the partitions of a
// log, recorder/registry the projection of all sessions, recorder/reaper what
// ends sessions past their limits, recorder/deadletter what keeps the events
// that nobody could fold. recorder/replay folds again what was recorded, and
// recorder/verify checks it.
package recorder

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/reaper"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/journal"
)

// Config is how a recorder runs. See the README for what each value means to a
// trainer.
type Config struct {
	Worker worker.Config
	Reaper reaper.Config
}

// DefaultConfig follows all partitions with the default policy.
func DefaultConfig() Config {
	return Config{Worker: worker.DefaultConfig(), Reaper: reaper.DefaultConfig()}
}

// Validate reports all faults of the configuration at once.
func (c Config) Validate() error {
	return errors.Join(c.Worker.Validate(), c.Reaper.Validate())
}

// Registry is the projection that the recorder keeps. registry.Memory and
// registry.Stored implement it.
type Registry interface {
	worker.Registry
	reaper.Registry
}

// Deps are what a recorder works with. All journals and the registry are
// required.
type Deps struct {
	// Turns is read; the reaper appends closes to it.
	Turns journal.Journal
	// Trajectories gets one update for each event of Turns.
	Trajectories journal.Journal
	// DeadLetters keeps what could not be folded.
	DeadLetters journal.Journal
	Registry    Registry
	// Tombstones yields the rows of sessions that have left the log: for a
	// registry that does not outlive the process. Nil is none.
	Tombstones func(ctx context.Context) iter.Seq2[registry.Session, error]
	// Now is the log server's clock; see reaper.Deps.
	Now func(ctx context.Context) (time.Time, error)
	// Models renders and tokenizes; nil leaves text turns without ids.
	Models fold.Models
	Logger *slog.Logger
	// Fault is for kill tests; nil in production.
	Fault func(worker.Point)
}

// Recorder is a worker and a reaper. Any number of recorders may run on one
// log.
type Recorder struct {
	worker *worker.Worker
	reaper *reaper.Reaper
	fill   func(context.Context)
}

// New returns a recorder that does nothing until Run.
func New(cfg Config, deps Deps) (*Recorder, error) {
	if deps.DeadLetters == nil || deps.Registry == nil {
		return nil, errors.New("recorder: needs a journal of dead letters and a registry")
	}
	w, err := worker.New(cfg.Worker, worker.Deps{
		Turns:        deps.Turns,
		Trajectories: deps.Trajectories,
		DeadLetters:  deadletter.New(deps.DeadLetters),
		Registry:     deps.Registry,
		Models:       deps.Models,
		Logger:       deps.Logger,
		Fault:        deps.Fault,
	})
	if err != nil {
		return nil, err
	}
	r, err := reaper.New(cfg.Reaper, reaper.Deps{
		Turns: deps.Turns, Registry: deps.Registry, Now: deps.Now, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	rec := &Recorder{worker: w, reaper: r, fill: func(context.Context) {}}
	if v, ok := deps.Registry.(interface{ Volatile() bool }); ok && v.Volatile() {
		rec.fill = func(ctx context.Context) {
			err := worker.Fill(ctx, worker.Deps{
				Turns: deps.Turns, Trajectories: deps.Trajectories, Registry: deps.Registry, Logger: deps.Logger,
			}, replay.Logged(ctx, deps.Turns, replay.Range{Partitions: cfg.Worker.Partitions}))
			if err == nil && deps.Tombstones != nil {
				err = bury(ctx, deps)
			}
			if err != nil && ctx.Err() == nil && deps.Logger != nil {
				// Rows of sessions from before are missing; recording goes on.
				deps.Logger.Error("registry not filled", "error", err)
			}
		}
	}
	return rec, nil
}

// bury puts the rows of sessions that have left the log into the registry.
func bury(ctx context.Context, deps Deps) error {
	for row, err := range deps.Tombstones(ctx) {
		if err == nil {
			err = deps.Registry.Put(ctx, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Run records until ctx is done, then finishes what it has begun and returns
// nil. A registry that does not outlive the process is filled from the log in
// the meantime, so that sessions from before are listed, and ended in time.
func (r *Recorder) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.worker.Run(ctx) })
	g.Go(func() error { return r.reaper.Run(ctx) })
	g.Go(func() error { r.fill(ctx); return nil })
	return g.Wait()
}

// Stats returns what the recorder has done so far.
func (r *Recorder) Stats() Stats {
	return Stats{Stats: r.worker.Stats(), Reaped: r.reaper.Closed()}
}

// Stats are those of the worker, and how many sessions were closed for being
// past a limit.
type Stats struct {
	worker.Stats
	Reaped uint64
}
