package replay

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"turnlog.dev/schema/journal"
)

// RunRange folds the sessions of a range again, in one pass: it follows each
// partition once, in the log's order, up to the end that it has at the start,
// and folds each session as its entries come. What a session has before the
// range or after it is read besides.
//
// A trajectory stream to compare with is followed in the same way, beside it,
// if the range has no bounds; else each session of the range is read from it.
func RunRange(ctx context.Context, turns journal.Journal, rng Range, o Options) (Report, error) {
	r, err := newRunner(turns, o)
	if err != nil {
		return Report{}, err
	}
	var passes []*pass
	for _, p := range rng.partitions() {
		end, err := rng.end(ctx, turns, p)
		if err != nil {
			return r.result(), err
		}
		if end > rng.After {
			passes = append(passes, &pass{
				r: r, rng: rng, partition: p, end: end,
				sessions: map[string]*session{}, held: map[*session]bool{},
			})
			r.total += end - rng.After
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Lanes)
	for _, p := range passes {
		g.Go(func() error { return p.run(ctx) })
	}
	err = g.Wait()
	return r.result(), err
}

// pass is a replay of one partition.
type pass struct {
	r         *runner
	rng       Range
	partition int
	end       uint64 // the last position

	stream   string // that positions count in
	sessions map[string]*session
	// held are the sessions that take memory, and touched those of them that the
	// last batch needed.
	held    map[*session]bool
	touched []*session
	batches uint64
	bytes   int

	recorded *recordedPass // nil: sessions are read one by one
}

func (p *pass) run(ctx context.Context) error {
	if p.r.o.Against != nil && p.rng.unbounded() {
		end, err := lastPosition(ctx, p.r.o.Against, p.partition)
		if err != nil {
			return err
		}
		p.recorded = newRecordedPass(ctx, p, end)
		defer p.recorded.stop()
	}
	at := p.rng.After
	for batch, err := range entries(ctx, p.r.turns, p.partition, p.rng.After, p.end) {
		if err != nil {
			return err
		}
		if err := p.fold(ctx, batch); err != nil {
			return err
		}
		reached, past := at, false
		for _, d := range batch {
			reached = max(reached, d.Tip.Position)
			past = past || !p.rng.To.IsZero() && !d.Time.Before(p.rng.To)
		}
		if p.recorded != nil {
			if err := p.recorded.follow(reached); err != nil {
				return err
			}
		}
		p.settle()
		p.r.progress(reached - at)
		if at = reached; past {
			break // the log's time does not go back
		}
	}
	if p.recorded != nil {
		if err := p.recorded.follow(all); err != nil {
			return err
		}
	}
	for _, s := range p.order() {
		if s.err == nil && !p.rng.unbounded() {
			s.err = s.readOn(ctx, all) // what comes after the range
		}
		s.finish(ctx)
		delete(p.sessions, s.id)
	}
	p.r.progress(p.end - at)
	return ctx.Err()
}

// order lists the sessions of the range by id.
func (p *pass) order() []*session {
	var list []*session
	for _, s := range p.sessions {
		if s.selected {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	return list
}

// session returns a session, which may be one that only the recorded stream has
// named so far.
func (p *pass) session(id string) *session {
	s, ok := p.sessions[id]
	if !ok {
		s = p.r.session(id)
		if p.recorded != nil {
			s.before = newSummary(id)
		}
		p.sessions[id] = s
	}
	return s
}

// begin says that another batch comes.
func (p *pass) begin() {
	p.batches++
	p.touched = p.touched[:0]
}

// touch says that the batch needs a session.
func (p *pass) touch(s *session) {
	if s.batch != p.batches {
		s.batch, p.held[s] = p.batches, true
		p.touched = append(p.touched, s)
	}
}

func (p *pass) fold(ctx context.Context, batch []journal.Delivery) error {
	p.begin()
	p.stream = batch[0].Stream
	for _, d := range batch {
		if journal.IsRunSession(d.Session) {
			continue // read when a turn needs it
		}
		if s := p.sessions[d.Session]; s == nil || !s.selected {
			if d.Err != nil || !p.rng.holds(d) {
				continue
			}
			p.session(d.Session).selected = true
		}
		if s := p.sessions[d.Session]; s.err == nil {
			p.touch(s)
			s.err = s.take(ctx, d)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// take folds the session's next entry, as it was delivered, or whatever of the
// session is missing up to it.
func (s *session) take(ctx context.Context, d journal.Delivery) error {
	if d.Err != nil {
		return d.Err
	}
	if s.made == 0 && d.Tip.Count == 1 {
		s.begin()
	}
	switch {
	case s.state == nil || d.Tip.Count > s.state.Tip().Count+1:
		return s.readOn(ctx, d.Tip.Count)
	case d.Tip.Count <= s.state.Tip().Count:
		return nil // delivered again
	case d.Prev != s.state.Tip().Chain:
		return fmt.Errorf("%w: event %d belongs to another history", journal.ErrGap, d.Tip.Count)
	}
	var known uint64
	released, err := s.step(ctx, d.Entry, &known)
	if err == nil && released {
		return s.readOn(ctx, d.Tip.Count)
	}
	return err
}

// settle compares what can be compared of the batch's sessions, and keeps within
// the memory that the partition may use.
func (p *pass) settle() {
	for _, s := range p.touched {
		s.settle()
		p.measure(s)
	}
	limit := p.r.o.CacheBytes / p.r.o.Lanes
	if p.bytes <= limit {
		return
	}
	// Those that were needed last stay, as far as half of the room goes.
	for _, s := range slices.SortedFunc(maps.Keys(p.held), func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.batch, b.batch), cmp.Compare(a.id, b.id))
	}) {
		if p.bytes <= limit/2 || s.batch == p.batches {
			return
		}
		s.forget()
		if !s.compared && s.after != nil {
			s.alone, s.before, s.after = true, nil, nil
		}
		p.measure(s)
		delete(p.held, s)
	}
}

func (p *pass) measure(s *session) {
	n := s.bytes()
	p.bytes += n - s.size
	s.size = n
}

// recordedPass follows a partition of the stream to compare with.
type recordedPass struct {
	p    *pass
	next func() ([]journal.Delivery, error, bool)
	stop func()
	// at is the last position of the turn stream whose update came.
	at   uint64
	tips map[string]journal.Tip
	// over are sessions whose record goes on beyond the end: in a later round,
	// perhaps, which begins with their first event again.
	over map[string]bool
}

func newRecordedPass(ctx context.Context, p *pass, end uint64) *recordedPass {
	next, stop := iter.Pull2(entries(ctx, p.r.o.Against, p.partition, 0, end))
	return &recordedPass{p: p, next: next, stop: stop, tips: map[string]journal.Tip{}, over: map[string]bool{}}
}

// follow takes in what is recorded of the entries up to a position of the turn
// stream, in whose order recorders append, but for a batch's.
func (f *recordedPass) follow(position uint64) error {
	for f.at < position {
		batch, err, ok := f.next()
		if err != nil || !ok {
			return err
		}
		for _, d := range batch {
			f.take(d)
		}
		// It may say much before it comes to the position.
		f.p.settle()
		f.p.begin()
	}
	return nil
}

func (f *recordedPass) take(d journal.Delivery) {
	p := f.p
	if d.Err == nil && !p.rng.ofRun(d.Event) {
		return
	}
	s := p.session(d.Session)
	if s.err != nil {
		return
	}
	p.touch(s)
	tip := f.tips[d.Session]
	switch {
	case d.Err != nil:
		s.err = fmt.Errorf("recorded session: %w", d.Err)
		return
	case d.Tip.Count <= tip.Count:
		return // delivered again
	case d.Tip.Count != tip.Count+1 || d.Prev != tip.Chain:
		s.err = fmt.Errorf("recorded session: %w: event %d stands after event %d", journal.ErrGap, d.Tip.Count, tip.Count)
		return
	}
	f.tips[d.Session] = d.Tip
	u := d.Event.GetTrajectoryUpdate()
	if in := u.GetInput(); in.GetStream() == p.stream {
		if f.over[d.Session] = f.over[d.Session] || in.GetSequence() > p.end; f.over[d.Session] {
			return // recorded since the replay began
		}
		f.at = max(f.at, in.GetSequence())
	}
	if s.before != nil {
		s.before.add(u)
	}
}
