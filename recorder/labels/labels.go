// Package labels knows the numbers that runs gave to the labels of their
// weights (WeightsUpdated), as far as somebody asked.
package labels

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Labels reads the logs of runs. Its methods are safe for concurrent use.
type Labels struct {
	turns journal.Journal

	mu   sync.Mutex
	runs map[string]*run
}

type run struct {
	// reading is a slot: who has it may read on in the log, from the tip.
	reading chan struct{}
	tip     journal.Tip

	mu      sync.Mutex // never held while the log is read
	numbers map[string]int32
	missed  map[string]time.Time
}

// New returns labels that have read nothing of the turn log.
func New(turns journal.Journal) *Labels {
	return &Labels{turns: turns, runs: map[string]*run{}}
}

func (l *Labels) run(id string) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.runs[id]
	if !ok {
		r = &run{reading: make(chan struct{}, 1), numbers: map[string]int32{}, missed: map[string]time.Time{}}
		l.runs[id] = r
	}
	return r
}

// Version is fold.Aids.Version. It only looks at what Learn has read.
func (l *Labels) Version(run, label string) (int32, bool) {
	return l.run(run).number(label)
}

// Learn reads on in the run's log if the turn has a label without a number. A
// label that had none when the log was last read has none for a turn that was
// fetched before: it was appended earlier still.
func (l *Labels) Learn(ctx context.Context, run string, c *event.TurnCommitted, fetched time.Time) error {
	for _, span := range c.GetCompletion().GetVersions() {
		label := span.GetLabel()
		if _, err := strconv.ParseInt(label, 10, 32); err == nil || label == "" || run == "" {
			continue
		}
		if err := l.run(run).learn(ctx, l.turns, journal.RunSession(run), label, fetched); err != nil {
			return fmt.Errorf("versions of run %s: %w", run, err)
		}
	}
	return nil
}

func (r *run) learn(ctx context.Context, turns journal.Journal, session, label string, fetched time.Time) error {
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

func (r *run) number(label string) (int32, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.numbers[label]
	return n, ok
}

// settled reports whether the log need not be read for a turn that was fetched
// at a time.
func (r *run) settled(label string, fetched time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.numbers[label]
	return ok || r.missed[label].After(fetched)
}

// give keeps the first number of a label: an event cannot change what turns
// before it already said.
func (r *run) give(label string, n int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.numbers[label]; !ok {
		r.numbers[label] = n
	}
}

// miss notes that a label had no number when the log was read at a time.
func (r *run) miss(label string, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missed, label)
	if _, ok := r.numbers[label]; !ok {
		r.missed[label] = asked
	}
}
