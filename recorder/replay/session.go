package replay

import (
	"context"
	"fmt"
	"math"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// all is more than the entries of any session.
const all = math.MaxUint64

// session is one session that is folded again. One goroutine at a time uses it.
type session struct {
	r  *runner
	id string

	// state is nil before the first entry, and once it was forgotten.
	state *fold.State
	// made counts the updates so far, of all rounds: whoever folds a forgotten
	// session once more passes over as many.
	made uint64
	into journal.Tip
	// folded is what the report counts of the session.
	folded  Progress
	audited map[fold.Drift]int
	err     error

	// before and after are what is compared: nil when nothing is, and when they
	// were given up for the memory that they take (alone).
	before, after *summary
	// batch needed the session last, and size is what it was measured to hold.
	batch uint64
	size  int
	// selected says that it is in the range.
	selected bool
	// alone sessions are compared at the end, by themselves.
	alone bool
	// compared says that turns and branches are, differs that something did.
	compared, differs bool
}

func (r *runner) session(id string) *session {
	s := &session{r: r, id: id}
	if r.o.Against != nil {
		s.after = newSummary(id)
	}
	return s
}

func (s *session) begin() {
	s.state = fold.New(s.id, s.r.o.Policy, fold.Aids{Version: s.r.labels.Version, Models: s.r.o.Models})
}

// readOn reads the session's log and folds its entries up to a count, or as far
// as there are any.
func (s *session) readOn(ctx context.Context, upTo uint64) error {
	known := uint64(0)
	if s.state == nil {
		s.begin()
		known = s.made
	}
	for released := true; released; {
		released = false
		for e, err := range s.r.turns.ReadSession(ctx, s.id, s.state.Tip()) {
			if err != nil {
				return err
			}
			if e.Tip.Count > upTo {
				break
			}
			if released, err = s.step(ctx, e, &known); err != nil {
				return err
			}
			if released {
				break
			}
		}
	}
	return nil
}

// step folds the session's next entry. Of the first known updates nothing
// follows any more. It reports a release, after which the session wants its
// entries from the first one on.
func (s *session) step(ctx context.Context, e journal.Entry, known *uint64) (released bool, err error) {
	if c := e.Event.GetTurnCommitted(); c != nil {
		// A replay knows what was said later, which a recorder may not have known
		// in time.
		if err := s.r.labels.Learn(ctx, e.Event.GetRun(), c, s.r.started); err != nil {
			return false, err
		}
	}
	u, err := s.state.Apply(e)
	if err != nil || u == nil {
		return false, err
	}
	if *known > 0 {
		*known--
		return s.state.Restart(u), nil
	}
	s.made++
	if s.after != nil {
		s.after.add(u)
	}
	if s.r.o.Into != nil {
		if s.into, err = appendOnce(ctx, s.r.o.Into, s.into, s.state.Event(s.state.UpdateID(e.Event.GetId()), e, u)); err != nil {
			return false, err
		}
	}
	if s.state.Restart(u) {
		s.uncount() // it is folded again from its first event
		return true, nil
	}
	s.count(u)
	return false, nil
}

func (s *session) count(u *event.TrajectoryUpdate) {
	one := Progress{Events: 1}
	for _, o := range u.GetOutputs() {
		if t := o.GetTurnSpans(); t != nil {
			one.Turns++
			one.Tokens += uint64(t.Count())
		}
	}
	s.folded.add(one)
	s.r.count(func(r *Report) { r.add(one) })
}

func (s *session) uncount() {
	s.r.count(func(r *Report) {
		r.Events -= s.folded.Events
		r.Turns -= s.folded.Turns
		r.Tokens -= s.folded.Tokens
	})
	s.folded = Progress{}
}

func (p *Progress) add(o Progress) {
	p.Events += o.Events
	p.Turns += o.Turns
	p.Tokens += o.Tokens
}

// forget gives up the state.
func (s *session) forget() {
	if s.state != nil {
		s.audited, s.state = s.state.Audited(), nil
	}
}

// bytes estimates the memory that the session holds.
func (s *session) bytes() int {
	n := 512
	if s.state != nil {
		n += s.state.Bytes()
	}
	return n + s.before.bytes() + s.after.bytes()
}

// settle compares the turns and branches of a session that is sealed, as far as
// both summaries know, and lets go of them.
func (s *session) settle() {
	if s.compared || !s.before.sealed() || !s.after.sealed() {
		return
	}
	s.report(s.before.details(s.after))
	s.compared = true
	s.before.letGo()
	s.after.letGo()
}

func (s *session) report(changes []Change) {
	s.differs = s.differs || len(changes) > 0
	s.r.changed(changes)
}

// finish compares what is left to compare, and counts the session.
func (s *session) finish(ctx context.Context) {
	if s.err == nil && s.r.o.Against != nil {
		s.err = s.compare(ctx)
	}
	if s.err != nil {
		s.err = fmt.Errorf("replay: session %s: %w", s.id, s.err)
		s.uncount()
	}
	if ctx.Err() != nil {
		return
	}
	s.forget()
	s.r.count(func(r *Report) {
		if s.err != nil {
			r.Failed++
			if len(r.Failures) < 100 {
				r.Failures = append(r.Failures, s.err)
			}
			return
		}
		r.Sessions++
		if s.differs {
			r.Changed++
		}
		for drift, n := range s.audited {
			r.Audited[drift] += int64(n)
		}
	})
}

func (s *session) compare(ctx context.Context) error {
	if s.alone {
		again := s.r.session(s.id)
		again.r = &runner{turns: s.r.turns, o: s.r.o, started: s.r.started, labels: s.r.labels}
		again.r.o.Into = nil
		if err := again.readOn(ctx, all); err != nil {
			return err
		}
		s.after, s.before = again.after, nil
	}
	if s.before == nil {
		var err error
		if s.before, err = recorded(ctx, s.r.o.Against, s.id); err != nil {
			return err
		}
	}
	if !s.compared {
		s.report(s.before.details(s.after))
	}
	s.report(s.before.overall(s.after))
	return nil
}
