package worker

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// versions knows the numbers that runs gave to weight labels.
type versions struct {
	turns journal.Journal

	mu   sync.Mutex
	runs map[string]*runVersions
}

type runVersions struct {
	// reading is a slot: who has it may read on in the log, from the tip.
	reading chan struct{}
	tip     journal.Tip

	mu      sync.Mutex // never held while the log is read
	numbers map[string]int32
	missed  map[string]time.Time
}

func newVersions(turns journal.Journal) *versions {
	return &versions{turns: turns, runs: map[string]*runVersions{}}
}

func (v *versions) run(run string) *runVersions {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.runs[run]
	if !ok {
		r = &runVersions{reading: make(chan struct{}, 1), numbers: map[string]int32{}, missed: map[string]time.Time{}}
		v.runs[run] = r
	}
	return r
}

// lookup is fold.Aids.Version. It only looks at what learn has read.
func (v *versions) lookup(run, label string) (int32, bool) {
	return v.run(run).number(label)
}

// learn reads on in the run's log if the turn has a label without a number. A
// label that had none when the log was last read has none for a turn that was
// fetched before: it was appended earlier still.
func (v *versions) learn(ctx context.Context, run string, c *event.TurnCommitted, fetched time.Time) error {
	for _, span := range c.GetCompletion().GetVersions() {
		label := span.GetLabel()
		if _, err := strconv.ParseInt(label, 10, 32); err == nil || label == "" || run == "" {
			continue
		}
		if err := v.run(run).learn(ctx, v.turns, journal.RunSession(run), label, fetched); err != nil {
			return fmt.Errorf("versions of run %s: %w", run, err)
		}
	}
	return nil
}

func (r *runVersions) learn(ctx context.Context, turns journal.Journal, session, label string, fetched time.Time) error {
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.settled(label, fetched) {
		return nil
	}
	asked := time.Now()
	for e, err := range turns.ReadSession(ctx, session, r.tip) {
		if err != nil {
			return err
		}
		if w := e.Event.GetWeightsUpdated(); w != nil {
			r.give(w.GetLabel(), w.GetVersion())
		}
		r.tip = e.Tip
	}
	r.miss(label, asked)
	return nil
}

func (r *runVersions) number(label string) (int32, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.numbers[label]
	return n, ok
}

// settled reports whether the log need not be read for a turn that was fetched
// at a time.
func (r *runVersions) settled(label string, fetched time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.numbers[label]
	return ok || r.missed[label].After(fetched)
}

// give keeps the first number of a label: an event cannot change what turns
// before it already said.
func (r *runVersions) give(label string, n int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.numbers[label]; !ok {
		r.numbers[label] = n
	}
}

// miss notes that a label had no number when the log was read at a time.
func (r *runVersions) miss(label string, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missed, label)
	if _, ok := r.numbers[label]; !ok {
		r.missed[label] = asked
	}
}
