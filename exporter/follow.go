package exporter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
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

// follower reads partitions from the cursor on. Its fields but batches belong to
// the goroutine that runs it.
type follower struct {
	*Exporter
	state   *manifest.State
	tracker *tracker
	summary Summary

	batches chan batch
}

// batch is what one partition's reader has to say.
type batch struct {
	partition  int
	deliveries []journal.Delivery
	err        error
}

// begin loads the manifests and executes an interrupted plan.
func (e *Exporter) begin(ctx context.Context) (*follower, error) {
	var f *follower
	err := e.retry(ctx, "load", func() error {
		state, err := e.log.Load(ctx)
		if err == nil {
			f = e.newFollower(state)
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
	return f, nil
}

func (e *Exporter) newFollower(state *manifest.State) *follower {
	return &follower{Exporter: e, state: state, tracker: newTracker(e.cfg, state), batches: make(chan batch)}
}

// subscribe starts a reader for each of the partitions. The returned function
// ends them.
func (f *follower) subscribe(ctx context.Context, partitions iter.Seq[int]) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	for i := range partitions {
		after := f.tracker.parts[i].after
		readers.Go(func() { f.read(ctx, i, after) })
	}
	return func() {
		cancel()
		readers.Wait()
	}
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
			list, err := sub.Fetch(ctx, fetchMax)
			if len(list) > 0 {
				after = list[len(list)-1].Tip.Position
				send(batch{deliveries: list})
			}
			if err != nil {
				return err
			}
		}
	})
	if err != nil && ctx.Err() == nil {
		send(batch{err: fmt.Errorf("exporter: read partition %d: %w", partition, err)})
	}
}

// observe takes a batch into account.
func (f *follower) observe(b batch) error {
	if b.err != nil {
		return b.err
	}
	f.stats.update(func(s *Stats) { s.Observed += int64(len(b.deliveries)) })
	for _, d := range b.deliveries {
		if d.Err != nil {
			f.deps.Log.Error("entry cannot be read; its session is not exported",
				"session", d.Session, "partition", b.partition, "position", d.Tip.Position, "error", d.Err)
		}
		before := f.tracker.tooLate
		if err := f.tracker.observe(b.partition, d); err != nil {
			return err
		}
		if f.tracker.tooLate > before {
			f.stats.update(func(s *Stats) { s.ReleasedTooLate++ })
			f.deps.Log.Warn("a released session is not exported: it, or its group, was settled before", "session", d.Session)
		}
	}
	return nil
}

// catchUp observes what the log holds at this moment, and no more than comes
// with it.
func (f *follower) catchUp(ctx context.Context) error {
	behind, err := f.behind(ctx)
	if err != nil {
		return err
	}
	defer f.subscribe(ctx, maps.Keys(maps.Clone(behind)))()
	for len(behind) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-f.batches:
			if err := f.observe(b); err != nil {
				return err
			}
			if end, ok := behind[b.partition]; ok && f.tracker.parts[b.partition].seen >= end {
				delete(behind, b.partition)
			}
		}
	}
	return nil
}

// behind returns the partitions that have more than the cursor says, and where
// they end now. A log that ends before the cursor is not the one that was
// followed, or has lost its end: what it gets from now on would be taken for
// exported.
func (f *follower) behind(ctx context.Context) (map[int]uint64, error) {
	behind := make(map[int]uint64)
	for i := range journal.Partitions {
		var end uint64
		err := f.retry(ctx, "end", func() (err error) {
			end, err = f.deps.Journal.End(ctx, i)
			return err
		})
		after := f.tracker.parts[i].after
		switch {
		case err != nil:
			return nil, fmt.Errorf("exporter: end of partition %d: %w", i, err)
		case 0 < end && end < after:
			return nil, fmt.Errorf("%w: partition %d ends at %d, %d was exported already: export to another folder, or bring the log back",
				ErrForeignLog, i, end, after)
		case after < end:
			behind[i] = end
		}
	}
	return behind, nil
}

// flush exports what is ready.
func (f *follower) flush(ctx context.Context) error {
	for {
		plan := f.plan(planGroups)
		if plan == nil {
			held := f.tracker.held(f.deps.Now())
			f.stats.update(func(s *Stats) { s.Held = held })
			return nil
		}
		if err := f.publishPlan(ctx, plan); err != nil {
			return err
		}
		if _, err := f.resume(ctx); err != nil {
			return err
		}
	}
}

// publishPlan publishes a plan, unless another one has its number.
func (f *follower) publishPlan(ctx context.Context, plan *manifest.Plan) error {
	return f.retry(ctx, "plan", func() error {
		f.deps.Fault("plan")
		_, err := f.log.PutPlan(ctx, plan)
		if errors.Is(err, sink.ErrExists) {
			f.deps.Log.Info("another plan was first", "plan", plan.ID)
			return nil
		}
		return err
	})
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
