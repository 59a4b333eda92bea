package exporter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/schema/journal"
)

const (
	// fetchMax bounds what a partition's reader holds; entries have their ids.
	fetchMax     = 32
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// follower reads all partitions from the cursor on. Its fields but batches
// belong to the goroutine that runs it.
type follower struct {
	*Exporter
	state   *manifest.State
	tracker *tracker
	summary Summary

	// bounded is for a follower that wants to know when partitions are quiet.
	bounded bool
	batches chan batch
	cancel  context.CancelFunc
	readers sync.WaitGroup
}

// batch is what one partition's reader has to say.
type batch struct {
	partition  int
	deliveries []journal.Delivery
	// quiet says that nothing came for a while.
	quiet bool
	err   error
}

// follow loads the manifests, executes an interrupted plan, and begins to read.
// The caller stops the follower.
func (e *Exporter) follow(ctx context.Context, bounded bool) (*follower, error) {
	var f *follower
	err := e.retry(ctx, "load", func() error {
		state, err := e.log.Load(ctx)
		if err == nil {
			f = e.newFollower(state, bounded)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for found := true; found; {
		if found, err = f.resume(ctx); err != nil {
			return nil, err
		}
	}
	f.subscribe(ctx)
	return f, nil
}

func (e *Exporter) newFollower(state *manifest.State, bounded bool) *follower {
	return &follower{
		Exporter: e, state: state, tracker: newTracker(e.cfg, state),
		bounded: bounded, batches: make(chan batch),
	}
}

// subscribe starts a reader per partition. stop ends them.
func (f *follower) subscribe(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	for i := range journal.Partitions {
		after := f.tracker.parts[i].after
		f.readers.Go(func() { f.read(ctx, i, after) })
	}
}

func (f *follower) stop() {
	f.cancel()
	f.readers.Wait()
}

// read sends what comes on a partition until ctx ends or reading fails for
// good.
func (f *follower) read(ctx context.Context, partition int, after uint64) {
	send := func(b batch) {
		b.partition = partition
		select {
		case f.batches <- b:
		case <-ctx.Done():
		}
	}
	err := f.retry(ctx, "read", func() error {
		sub, err := f.deps.Journal.Subscribe(ctx, partition, journal.SubscribeOptions{After: after})
		if err != nil {
			return err
		}
		defer sub.Close()
		for {
			list, err := f.fetch(ctx, sub)
			switch {
			case len(list) > 0:
				after = list[len(list)-1].Tip.Position
				send(batch{deliveries: list})
			case err == nil || ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
				send(batch{quiet: true})
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				return err
			}
		}
	})
	if err != nil && ctx.Err() == nil {
		send(batch{err: fmt.Errorf("exporter: read partition %d: %w", partition, err)})
	}
}

func (f *follower) fetch(ctx context.Context, sub journal.Subscription) ([]journal.Delivery, error) {
	if f.bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.cfg.Quiet)
		defer cancel()
	}
	return sub.Fetch(ctx, fetchMax)
}

// observe takes a batch into account.
func (f *follower) observe(b batch) error {
	if b.err != nil {
		return b.err
	}
	for _, d := range b.deliveries {
		if d.Err != nil {
			f.deps.Log.Error("entry cannot be read; its session is not exported",
				"session", d.Session, "partition", b.partition, "position", d.Tip.Position, "error", d.Err)
		}
		if err := f.tracker.observe(b.partition, d); err != nil {
			return err
		}
	}
	return nil
}

// catchUp observes until every partition has been quiet.
func (f *follower) catchUp(ctx context.Context) error {
	silent := make(map[int]bool)
	for len(silent) < journal.Partitions {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-f.batches:
			if err := f.observe(b); err != nil {
				return err
			}
			if b.quiet {
				silent[b.partition] = true
			} else {
				delete(silent, b.partition)
			}
		}
	}
	return nil
}

// flush exports what is ready.
func (f *follower) flush(ctx context.Context) error {
	for {
		plan := f.plan()
		if plan == nil {
			f.stats.update(func(s *Stats) { s.Waiting, s.Open = f.tracker.waiting() })
			return nil
		}
		var exists bool
		err := f.retry(ctx, "plan", func() error {
			f.deps.Fault("plan")
			_, err := f.log.PutPlan(ctx, plan)
			exists = errors.Is(err, sink.ErrExists)
			if exists {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		if exists {
			f.deps.Log.Info("another plan was first", "plan", plan.ID)
		}
		if _, err := f.resume(ctx); err != nil {
			return err
		}
	}
}

// resume executes the plan after the state's manifest, if there is one, or
// takes over its manifest.
func (f *follower) resume(ctx context.Context) (found bool, err error) {
	next := f.state.ID + 1
	err = f.retry(ctx, "execute", func() error {
		m, err := f.log.Manifest(ctx, next)
		if errors.Is(err, sink.ErrNotFound) {
			plan, hash, perr := f.log.Plan(ctx, next)
			if errors.Is(perr, sink.ErrNotFound) {
				return nil
			} else if perr != nil {
				return perr
			}
			m, err = f.commit(ctx, plan, hash)
		}
		if err != nil {
			return err
		}
		found = true
		return f.apply(ctx, m)
	})
	return found, err
}

// apply takes a published manifest into the state.
func (f *follower) apply(ctx context.Context, m *manifest.Manifest) error {
	if f.state.ID < m.ID { // else only the snapshot failed
		if err := f.state.Apply(m); err != nil {
			return err
		}
		f.tracker.settle(f.state)
		f.summary.Written++
		f.summary.Files = append(f.summary.Files, m.Files...)
		f.summary.Counts.Add(m.Counts)
	}
	if m.ID%manifest.SnapshotEvery != 0 {
		return nil
	}
	f.deps.Fault("snapshot")
	return f.log.PutSnapshot(ctx, f.state)
}

// retry repeats what fails because the log or the sink is away.
func (e *Exporter) retry(ctx context.Context, what string, do func() error) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := do()
		if err == nil || permanent(err) || ctx.Err() != nil {
			return err
		}
		e.stats.update(func(s *Stats) { s.Retries++ })
		e.deps.Log.Warn("will try again", "step", what, "after", wait, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// permanent reports errors that trying again does not help.
func permanent(err error) bool {
	for _, target := range []error{
		ErrForeignLog, ErrDiffers,
		manifest.ErrFormat, manifest.ErrMalformed, manifest.ErrGap,
		rows.ErrMalformed, parquet.ErrCorrupt, sink.ErrKey,
		journal.ErrGap, journal.ErrClosed,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
