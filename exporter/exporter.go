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
	"io"
	"log/slog"
	"math"
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
	// RewardsFolder has rewards that came after their rows were exported,
	// AnnotationsFolder annotations that no column holds, and BlobsFolder
	// references to arrays along a turn's tokens.
	RewardsFolder     = "aux=rewards"
	AnnotationsFolder = "aux=annotations"
	BlobsFolder       = "aux=blobs"
)

var dataFolders = []string{TrajFolder, RewardsFolder, AnnotationsFolder, BlobsFolder}

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
	stats *stats
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
	return &Exporter{cfg: cfg, deps: deps, log: Manifests(deps.Sink), stats: new(stats)}, nil
}

// Manifests is the log of manifests in a sink.
func Manifests(s sink.Sink) *manifest.Log { return manifest.NewLog(s, TrajFolder) }

// Run exports until ctx ends, and then returns nil. It waits out a log or sink
// that is away; any other error ends it.
func (e *Exporter) Run(ctx context.Context) error {
	f, err := e.begin(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	if _, err := f.behind(ctx); err != nil {
		return ended(ctx, err)
	}
	defer f.subscribe(ctx, all)()
	tick := time.NewTicker(e.cfg.Flush)
	defer tick.Stop()
	housekeeping := time.NewTicker(e.housekeepingEvery())
	defer housekeeping.Stop()
	merging := false
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
		case <-housekeeping.C:
			if err := e.retry(ctx, "collect", func() error { return e.Collect(ctx) }); err != nil {
				return ended(ctx, err)
			}
			merging = e.cfg.CompactEvery > 0
			continue
		}
		if err := f.flush(ctx); err != nil {
			return ended(ctx, err)
		}
		// One merge at a time, so that what becomes ready does not wait long.
		if merging {
			if merging, err = f.rewrite(ctx, manifest.Replace, f.worthMerging); err != nil {
				return ended(ctx, err)
			}
		}
	}
}

// all are the partitions.
func all(yield func(int) bool) {
	for i := range journal.Partitions {
		if !yield(i) {
			return
		}
	}
}

func (e *Exporter) housekeepingEvery() time.Duration {
	if e.cfg.CompactEvery > 0 {
		return e.cfg.CompactEvery
	}
	return time.Hour
}

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
	// Held is what is not exported yet.
	Held Held
}

// Once reads the log up to the end that it has now, exports what is ready, and returns. An
// interrupted plan is executed first.
func (e *Exporter) Once(ctx context.Context) (Summary, error) {
	f, err := e.begin(ctx)
	if err != nil {
		return Summary{}, err
	}
	if err := f.catchUp(ctx); err != nil {
		return Summary{}, err
	}
	if err := f.flush(ctx); err != nil {
		return Summary{}, err
	}
	s := f.summary
	s.Last = f.state.ID
	s.Held = f.tracker.held(e.deps.Now())
	return s, nil
}

// DryRun reads the log up to the end that it has now and returns what Once would do: the files
// are those that it would write, with their sizes and hashes, unless more
// becomes ready until then. Nothing is written. A plan that was interrupted is
// executed first by Once, and not looked behind here.
func (e *Exporter) DryRun(ctx context.Context) (Summary, error) {
	state, err := e.log.Load(ctx)
	if err != nil {
		return Summary{}, err
	}
	dry := &Exporter{cfg: e.cfg, deps: e.deps, log: e.log, stats: e.stats}
	dry.deps.Sink = unwritten{e.deps.Sink}
	f := dry.newFollower(state)
	if err := f.catchUp(ctx); err != nil {
		return Summary{}, err
	}
	s := Summary{Last: state.ID, Held: f.tracker.held(e.deps.Now())}
	plan, hash, err := e.log.Plan(ctx, state.ID+1)
	if errors.Is(err, sink.ErrNotFound) {
		if plan = f.plan(math.MaxInt); plan == nil {
			return s, nil
		}
		hash = plan.Hash()
	} else if err != nil {
		return Summary{}, err
	}
	m, err := f.execute(ctx, plan, hash, state.Files)
	if err != nil {
		return Summary{}, err
	}
	s.Written, s.Files, s.Counts = 1, m.Files, m.Counts
	return s, nil
}

// unwritten is a sink on which what is put is lost.
type unwritten struct{ sink.Sink }

func (unwritten) PutExclusive(_ context.Context, _ string, body io.Reader, _ int64) error {
	_, err := io.Copy(io.Discard, body)
	return err
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

// Collect deletes the files that nobody has needed for CollectAfter. Run does it
// by itself.
func (e *Exporter) Collect(ctx context.Context) error {
	if e.cfg.CollectAfter == 0 {
		return nil
	}
	orphans, err := e.log.Orphans(ctx, dataFolders, e.deps.Now().Add(-e.cfg.CollectAfter))
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
