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
	// Change is called for each difference, one at a time.
	Change func(Change)
	// Progress is called after each session, one at a time.
	Progress func(Progress)
	// Lanes is how many sessions are folded at the same time; 0 is 4.
	Lanes int
}

// Progress is how far a replay is.
type Progress struct {
	// Sessions counts those that are done, Failed those that could not be.
	Sessions, Failed, Events, Turns, Tokens uint64
	Elapsed                                 time.Duration
}

// Rate is the speed so far, in turns a second.
func (p Progress) Rate() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Turns) / p.Elapsed.Seconds()
}

// Left estimates how long the rest of so many sessions takes.
func (p Progress) Left(sessions int) time.Duration {
	done := p.Sessions + p.Failed
	if done == 0 || uint64(sessions) <= done {
		return 0
	}
	return time.Duration(float64(p.Elapsed) / float64(done) * float64(uint64(sessions)-done))
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

// Run folds the given sessions again. A session that cannot be read is counted
// and does not stop the others; the error is for what stops them all.
func Run(ctx context.Context, turns journal.Journal, sessions iter.Seq2[string, error], o Options) (Report, error) {
	if err := o.Policy.Validate(); err != nil {
		return Report{}, err
	}
	if o.Lanes <= 0 {
		o.Lanes = 4
	}
	r := &runner{turns: turns, o: o, started: time.Now(), versions: newVersions(turns)}
	r.report.Why, r.report.Audited = map[string]int64{}, map[fold.Drift]int64{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.Lanes)
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
			one, err := r.session(ctx, id)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.add(one, err)
			return nil
		})
	}
	err := errors.Join(g.Wait(), listing)
	r.report.Elapsed = time.Since(r.started)
	return r.report, err
}

type runner struct {
	turns    journal.Journal
	o        Options
	started  time.Time
	versions *versions

	mu     sync.Mutex
	report Report
}

// replayed is the outcome for one session.
type replayed struct {
	Progress
	changes []Change
	audited map[fold.Drift]int
}

func (r *runner) add(one replayed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.report
	p.Elapsed = time.Since(r.started)
	if r.o.Progress != nil {
		defer func() { r.o.Progress(p.Progress) }()
	}
	if err != nil {
		p.Failed++
		if len(p.Failures) < 100 {
			p.Failures = append(p.Failures, err)
		}
		return
	}
	p.Sessions++
	p.Events += one.Events
	p.Turns += one.Turns
	p.Tokens += one.Tokens
	if len(one.changes) > 0 {
		p.Changed++
	}
	for drift, n := range one.audited {
		p.Audited[drift] += int64(n)
	}
	for _, c := range one.changes {
		if c.What == "turn" {
			for _, f := range c.Fields {
				p.Why[f.Name]++
			}
		}
		switch c.Row {
		case RowAdded:
			p.RowsAdded++
		case RowRemoved:
			p.RowsRemoved++
		case RowChanged:
			p.RowsChanged++
		}
		if r.o.Change != nil {
			r.o.Change(c)
		}
	}
}

// session folds one session from its first event.
func (r *runner) session(ctx context.Context, id string) (replayed, error) {
	var out replayed
	st := fold.New(id, r.o.Policy, fold.Aids{Version: r.versions.lookup, Models: r.o.Models})
	var after *Summary
	if r.o.Against != nil {
		after = NewSummary(id)
	}
	var tip journal.Tip
	for whole := false; !whole; {
		whole = true
		for e, err := range r.turns.ReadSession(ctx, id, st.Tip()) {
			if err != nil {
				return out, fmt.Errorf("replay: session %s: %w", id, err)
			}
			if err := r.versions.learn(ctx, e.Event); err != nil {
				return out, fmt.Errorf("replay: session %s: %w", id, err)
			}
			u, err := st.Apply(e)
			if err != nil {
				return out, fmt.Errorf("replay: session %s: %w", id, err)
			}
			if u == nil {
				continue
			}
			if after != nil {
				after.Add(u)
			}
			if r.o.Into != nil {
				if tip, err = appendOnce(ctx, r.o.Into, tip, st.Event(st.UpdateID(e.Event.GetId()), e, u)); err != nil {
					return out, fmt.Errorf("replay: session %s: %w", id, err)
				}
			}
			if st.Restart(u) {
				// Released: it is folded again from its first event.
				whole, out = false, replayed{}
				break
			}
			out.count(u)
		}
	}
	out.audited = st.Audited()
	if after == nil {
		return out, nil
	}
	before, err := Recorded(ctx, r.o.Against, id)
	if err != nil {
		return out, err
	}
	out.changes = Diff(before, after)
	return out, nil
}

func (p *replayed) count(u *event.TrajectoryUpdate) {
	p.Events++
	for _, o := range u.GetOutputs() {
		if s := o.GetTurnSpans(); s != nil {
			p.Turns++
			p.Tokens += uint64(s.Count())
		}
	}
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
