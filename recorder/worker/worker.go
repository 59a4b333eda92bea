// Package worker is the shell around the fold: it follows the turn stream by
// partition, folds each entry, and appends what follows from it to the
// trajectory stream.
//
// Exactly once. For each input event there is one output event, whose id is
// made from the input's and whose append is fenced by the end of the output
// session. A worker that died, one that was frozen and thinks that it still
// owns the partition, and a redelivery all come to the same append: it is
// there already, and is skipped. Acknowledging entries only saves work.
//
// State is a cache. A session that is not in memory is read again: first what
// was recorded, then the log, where recorded verdicts are adopted rather than
// made again.
//
// One goroutine owns a partition and its cache. It hands each session of a
// batch to a lane of its own, so that their appends overlap, and waits for all
// of them before it takes the next batch.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/labels"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
)

// Worker follows partitions. Its methods are safe for concurrent use.
type Worker struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	meter   *meter
	labels  *labels.Labels
	batcher journal.Batcher // nil: appends go one by one
	lanes   chan struct{}
	cached  atomic.Int64 // bytes held by all partitions
}

// New returns a worker that does nothing until Run.
func New(cfg Config, deps Deps) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Turns == nil || deps.Trajectories == nil || deps.DeadLetters == nil {
		return nil, errors.New("recorder: worker needs turns, trajectories and dead letters")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Fault == nil {
		deps.Fault = func(Point) {}
	}
	var batcher journal.Batcher
	if cfg.AtOnce {
		batcher, _ = deps.Trajectories.(journal.Batcher)
	}
	return &Worker{
		batcher: batcher,
		cfg:     cfg,
		deps:    deps,
		log:     deps.Logger,
		meter:   newMeter(),
		labels:  labels.New(deps.Turns),
		lanes:   make(chan struct{}, cfg.Lanes),
	}, nil
}

// Stats returns what the worker has done so far.
func (w *Worker) Stats() Stats { return w.meter.snapshot() }

// Run follows the partitions until ctx is done, then finishes what it has
// begun within Config.Drain and returns nil. It returns an error only when the
// log says that it is closed.
func (w *Worker) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range w.cfg.Partitions {
		g.Go(func() error {
			if err := newPartition(w, p).run(ctx); err != nil {
				return fmt.Errorf("recorder: partition %d: %w", p, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// drain returns a context that outlives ctx by Config.Drain.
func (w *Worker) drain(ctx context.Context) (context.Context, func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(w.cfg.Drain)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() { stop(); cancel() }
}

// retry calls f until it succeeds or fails for good. An outage of the log is
// waited for, however long: whoever cannot write does not read on.
func (w *Worker) retry(ctx context.Context, what string, f func() error) error {
	pause := w.cfg.RetryMin
	for first := true; ; first = false {
		err := f()
		if err == nil || !transient(err) || ctx.Err() != nil {
			if err == nil && !first {
				w.log.Info("recorder goes on", "call", what)
			}
			return err
		}
		w.meter.add(func(s *Stats) { s.Retries++ })
		if first {
			w.log.Warn("recorder waits", "call", what, "error", err)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, w.cfg.RetryMax)
	}
}

func transient(err error) bool {
	return errors.Is(err, journal.ErrUnavailable) || errors.Is(err, journal.ErrFull) ||
		errors.Is(err, context.DeadlineExceeded)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Worker) aids() fold.Aids {
	return fold.Aids{Version: w.labels.Version, Models: w.deps.Models}
}

// row is the session as the registry shows it.
func row(s *session) registry.Session {
	st := s.state
	t := st.Tree()
	r := registry.Session{
		ID: s.id, Tenant: t.Tenant, Run: t.Run,
		State: registry.Open,
		// Counted in the log, so that a zombie never overwrites its successor.
		Events:    st.Tip().Count,
		Turns:     len(t.Turns),
		Generated: st.Generated(),
		Lost:      st.Lost(),
		OpenedAt:  t.OpenedAt, LastAt: t.LastAt, ClosedAt: t.ClosedAt,
	}
	if o := t.Opened; o != nil {
		r.Group, r.Index, r.Attempt, r.GroupSize, r.Task = o.GetGroup(), o.GetIndex(), o.GetAttempt(), o.GetGroupSize(), o.GetTask()
		r.WallSeconds, r.IdleSeconds = o.GetLimits().GetWallSeconds(), o.GetLimits().GetIdleSeconds()
	}
	if reward := t.Reward(); reward != nil {
		v := reward.GetReward()
		r.Reward = &v
	}
	if sealed := st.Sealed(); sealed != nil {
		r.State, r.Status, r.Reason = registry.Closed, sealed.GetStatus(), sealed.GetReason()
		r.Trainable, r.Branches = sealed.GetLedger().GetTrainable(), int(sealed.GetBranches())
		r.ClosedAt = time.UnixMicro(sealed.GetClosedUs()).UTC()
	}
	if f := st.Parked(); f != nil {
		r.State, r.Reason = registry.Parked, f.GetReason()
	}
	return r
}
