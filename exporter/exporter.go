// Package exporter follows the trajectory stream and writes what is ready as
// Parquet shards with manifests.
//
// A group of sessions is ready when each is sealed and rewarded, or past its
// deadline. What is ready becomes a plan, which is published before anything is
// written; the plan is then executed: rows are read from the log again, staged,
// verified by another decoder, and published under names that follow from the
// plan; the manifest of the same number makes them count. At whatever step an
// exporter dies, the next one finds the plan and writes the same bytes, so that
// no row is lost and none stands in two shards. Any number of exporters may run
// on one sink: of two that publish a plan one wins, and both execute it.
//
// In memory is one small record per open session; token ids only while a plan
// is executed.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/schema/journal"
)

// Errors of Run and Once, found with errors.Is, besides those of packages
// manifest and journal. None of them goes away by trying again.
var (
	// ErrForeignLog says that the manifests were made from another log than the
	// one that is followed.
	ErrForeignLog = errors.New("exporter: the manifests belong to another log")
	// ErrDiffers says that a shard exists under a name that follows from the
	// plan, with other rows than the plan gives.
	ErrDiffers = errors.New("exporter: a published shard differs from its plan")
)

// Folders of the sink, relative to its root.
const (
	// TrajFolder has the shards, and the manifests in manifest.Folder.
	TrajFolder = "schema=traj.v1"
	// RewardsFolder has rewards that came after their rows were exported.
	RewardsFolder = "aux=rewards"
)

// Deps are what an exporter works on.
type Deps struct {
	// Journal is the tenant's trajectory stream.
	Journal journal.Journal
	Sink    sink.Sink
	// Log is slog.Default when nil.
	Log *slog.Logger
	// Now is time.Now when nil. Deadlines are compared with the log's times.
	Now func() time.Time
	// Fault is called with the name of each step of a commit, for tests that
	// stop there. Nil in production.
	Fault func(step string)
}

// Exporter exports one tenant's trajectories. Run, Once and DryRun may be
// called one at a time; Stats at any time.
type Exporter struct {
	cfg   Config
	deps  Deps
	log   *manifest.Log
	stats stats
}

// New returns an exporter. It touches nothing yet. The error joins all faults
// of the configuration.
func New(cfg Config, deps Deps) (*Exporter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Journal == nil || deps.Sink == nil {
		return nil, errors.New("exporter: a journal and a sink are needed")
	}
	if deps.Log == nil {
		deps.Log = slog.Default()
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Fault == nil {
		deps.Fault = func(string) {}
	}
	return &Exporter{cfg: cfg, deps: deps, log: Manifests(deps.Sink)}, nil
}

// Manifests is the log of manifests in a sink.
func Manifests(s sink.Sink) *manifest.Log { return manifest.NewLog(s, TrajFolder) }

// Run exports until ctx ends, and then returns nil. It waits out a log or sink
// that is away; any other error ends it.
func (e *Exporter) Run(ctx context.Context) error {
	f, err := e.follow(ctx, false)
	if err != nil {
		return ended(ctx, err)
	}
	defer f.stop()
	tick := time.NewTicker(e.cfg.Flush)
	defer tick.Stop()
	collect := time.NewTicker(collectEvery)
	defer collect.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-f.batches:
			if err := f.observe(b); err != nil {
				return err
			}
			if f.tracker.readyTokens() < e.cfg.FlushTokens {
				continue
			}
			tick.Reset(e.cfg.Flush)
		case <-tick.C:
		case <-collect.C:
			if err := e.retry(ctx, "collect", func() error { return e.collect(ctx) }); err != nil {
				return ended(ctx, err)
			}
			continue
		}
		if err := f.flush(ctx); err != nil {
			return ended(ctx, err)
		}
	}
}

const collectEvery = time.Hour

// ended turns an error that is due to the end of ctx into none.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Summary is what Once has done.
type Summary struct {
	// Manifests that were written, and the last one there is.
	Written int
	Last    int64
	// Files that were added.
	Files []manifest.File
	// Counts sums the manifests that were written.
	Counts manifest.Counts
	// Waiting is the number of groups that are not ready, Open the number of
	// sessions that are not sealed.
	Waiting, Open int
}

// Once reads the log up to its end, exports what is ready, and returns. An
// interrupted plan is executed first.
func (e *Exporter) Once(ctx context.Context) (Summary, error) {
	f, err := e.follow(ctx, true)
	if err != nil {
		return Summary{}, err
	}
	defer f.stop()
	if err := f.catchUp(ctx); err != nil {
		return Summary{}, err
	}
	if err := f.flush(ctx); err != nil {
		return Summary{}, err
	}
	s := f.summary
	s.Last = f.state.ID
	s.Waiting, s.Open = f.tracker.waiting()
	return s, nil
}

// DryRun reads the log up to its end and returns the plan that Once would
// execute next; nil when nothing is ready. Nothing is written: an interrupted
// plan is returned as it is.
func (e *Exporter) DryRun(ctx context.Context) (*manifest.Plan, error) {
	state, err := e.log.Load(ctx)
	if err != nil {
		return nil, err
	}
	if plan, _, err := e.log.Plan(ctx, state.ID+1); !errors.Is(err, sink.ErrNotFound) {
		return plan, err
	}
	f := e.newFollower(state, true)
	f.subscribe(ctx)
	defer f.stop()
	if err := f.catchUp(ctx); err != nil {
		return nil, err
	}
	return f.plan(), nil
}

// Preview returns the rows of a sealed session as they would be exported now,
// whatever its group does.
func (e *Exporter) Preview(ctx context.Context, session string) (rows.Result, error) {
	s, err := e.readSession(ctx, session, whole)
	if err != nil {
		return rows.Result{}, err
	}
	return s.Rows(policy(e.cfg.planned()))
}

// collect deletes files that no manifest lists.
func (e *Exporter) collect(ctx context.Context) error {
	if e.cfg.CollectAfter == 0 {
		return nil
	}
	orphans, err := e.log.Orphans(ctx, []string{TrajFolder, RewardsFolder}, e.deps.Now().Add(-e.cfg.CollectAfter))
	if err != nil {
		return err
	}
	for _, o := range orphans {
		if err := e.deps.Sink.Delete(ctx, o.Key); err != nil {
			return fmt.Errorf("exporter: collect: %w", err)
		}
		e.deps.Log.Info("orphan deleted", "file", path.Base(o.Key), "bytes", o.Size)
	}
	return nil
}

// Collect deletes the files that CollectAfter is about, now.
func (e *Exporter) Collect(ctx context.Context) error { return e.collect(ctx) }
