// Package replay folds recorded sessions again: under another mask or grading
// policy, with another tokenizer or template, or with a newer recorder. It
// writes a new trajectory stream, or compares with the recorded one and says
// what would change and why, or both.
//
// Same log, same policy and same aids give the same bytes: a replay that
// changes nothing finds nothing.
package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/labels"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Options say how to fold again.
type Options struct {
	Policy fold.Policy
	Models fold.Models
	// Into gets the new updates; nil writes nothing. A session that it holds
	// already must hold the same, so that a replay can be started again.
	Into journal.Journal
	// Against is the trajectory stream to compare with; nil compares nothing.
	Against journal.Journal
	// Change is called for each difference, one at a time: a session's turns and
	// branches when it is sealed, what differs of the session itself at the end.
	Change func(Change)
	// Progress is called now and then, one at a time, and at the end.
	Progress func(Progress)
	// Lanes is how many sessions, or partitions of a range, are folded at the
	// same time; 0 is 4.
	Lanes int
	// CacheBytes bounds the memory of sessions while a range is folded, besides
	// those of each partition's last batch; 0 is 256 MiB. What falls out is read
	// again when it is needed.
	CacheBytes int
}

// Progress is how far a replay is.
type Progress struct {
	// Sessions counts those that are done, Failed those that could not be.
	Sessions, Failed uint64
	// Events, Turns and Tokens count what was folded.
	Events, Turns, Tokens uint64
	Elapsed               time.Duration
	// Share of the range's positions that is done, from 0 to 1; 0 for a list of
	// sessions, whose length only the caller knows.
	Share float64
}

// Rate is the speed so far, in turns a second.
func (p Progress) Rate() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Turns) / p.Elapsed.Seconds()
}

// Left estimates how long the rest takes when a share of the work is done.
func (p Progress) Left(share float64) time.Duration {
	if share <= 0 || share >= 1 {
		return 0
	}
	return time.Duration(float64(p.Elapsed) / share * (1 - share))
}

// Report sums up a replay.
type Report struct {
	Progress
	// Changed counts sessions with a difference, the others the branches that
	// are rows (see Exportable) now, were before, or are otherwise.
	Changed                             uint64
	RowsAdded, RowsRemoved, RowsChanged uint64
	// Why counts the turns that changed, by the name of what did.
	Why map[string]int64
	// Audited counts the turns that were audited (Policy.Audit), by how a fresh
	// render differs from what was recorded.
	Audited map[fold.Drift]int64
	// Failures says why sessions failed, for at most the first hundred.
	Failures []error
}

// ErrDiffers says that a session is in the new stream already, made otherwise.
var ErrDiffers = errors.New("replay: the new stream holds another fold of the session")

// Run folds the given sessions again, each by itself: for a few of them. A
// session that cannot be read is counted and does not stop the others; the error
// is for what stops them all.
func Run(ctx context.Context, turns journal.Journal, sessions iter.Seq2[string, error], o Options) (Report, error) {
	r, err := newRunner(turns, o)
	if err != nil {
		return Report{}, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Lanes)
	var listing error
	for id, err := range sessions {
		if err != nil {
			listing = fmt.Errorf("replay: list sessions: %w", err)
			break
		}
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			s := r.session(id)
			s.err = s.readOn(ctx, all)
			s.finish(ctx)
			r.progress(0)
			return ctx.Err()
		})
	}
	err = errors.Join(g.Wait(), listing)
	return r.result(), err
}

// runner is what all lanes share.
type runner struct {
	turns   journal.Journal
	o       Options
	started time.Time
	labels  *labels.Labels

	mu     sync.Mutex
	report Report
	done   uint64 // positions of the range, of total
	total  uint64
}

func newRunner(turns journal.Journal, o Options) (*runner, error) {
	if err := o.Policy.Validate(); err != nil {
		return nil, err
	}
	if o.Lanes <= 0 {
		o.Lanes = 4
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = 256 << 20
	}
	r := &runner{turns: turns, o: o, started: time.Now(), labels: labels.New(turns)}
	r.report.Why, r.report.Audited = map[string]int64{}, map[fold.Drift]int64{}
	return r, nil
}

// count changes the report.
func (r *runner) count(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
}

// changed reports differences.
func (r *runner) changed(changes []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if c.What == "turn" {
			for _, f := range c.Fields {
				r.report.Why[f.Name]++
			}
		}
		switch c.Row {
		case RowAdded:
			r.report.RowsAdded++
		case RowRemoved:
			r.report.RowsRemoved++
		case RowChanged:
			r.report.RowsChanged++
		}
		if r.o.Change != nil {
			r.o.Change(c)
		}
	}
}

// progress takes note of positions that are done.
func (r *runner) progress(positions uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done += positions; r.total > 0 {
		r.report.Share = float64(r.done) / float64(r.total)
	}
	r.report.Elapsed = time.Since(r.started)
	if r.o.Progress != nil {
		r.o.Progress(r.report.Progress)
	}
}

func (r *runner) result() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Elapsed = time.Since(r.started)
	return r.report
}

// appendOnce appends the next update, or finds that it is there.
func appendOnce(ctx context.Context, j journal.Journal, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	for {
		next, err := j.Append(ctx, tip, ev)
		switch {
		case errors.Is(err, journal.ErrUnavailable):
			if err := ctx.Err(); err != nil {
				return tip, err
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return tip, err
			}
			continue
		case errors.Is(err, journal.ErrConflict), errors.Is(err, journal.ErrIdentity):
			return resume(ctx, j, tip, ev)
		case err != nil:
			return tip, err
		case next.Count != tip.Count+1:
			return resume(ctx, j, tip, ev)
		}
		return next, nil
	}
}

// resume finds the update in what an earlier run of the replay has written.
func resume(ctx context.Context, j journal.Journal, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	body, err := event.Encode(ev)
	if err != nil {
		return tip, err
	}
	for e, err := range j.ReadSession(ctx, ev.GetSession(), tip) {
		switch {
		case err != nil:
			return tip, err
		case event.Sum(e.Body) != event.Sum(body):
			return tip, fmt.Errorf("%w: event %s where %s should be", ErrDiffers, e.Event.GetId(), ev.GetId())
		}
		return e.Tip, nil
	}
	return tip, fmt.Errorf("%w: %s is not there", ErrDiffers, ev.GetId())
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
