package worker

import (
	"container/list"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
)

// rowsAtOnce is how many rows a partition writes at the same time.
const rowsAtOnce = 16

// partition follows one partition. Its goroutine owns every field.
type partition struct {
	w  *Worker
	id int

	sessions map[string]*list.Element // of *session, in recent
	recent   *list.List               // the front was used last
	bytes    int
	active   map[*session]bool // in the last batch

	// dirty are the sessions whose row is to be written, must those without
	// whose row no entry is acknowledged.
	dirty     map[string]*session
	must      bool
	flushedAt time.Time
	askedAt   time.Time // how many entries wait
	waiting   uint64    // the last answer
	heardAt   time.Time // the last batch; zero before the subscription's first
	// done is the last entry that was handled but not acknowledged.
	done *journal.Delivery
}

func newPartition(w *Worker, id int) *partition {
	return &partition{
		w:        w,
		id:       id,
		sessions: map[string]*list.Element{},
		recent:   list.New(),
		active:   map[*session]bool{},
		dirty:    map[string]*session{},
	}
}

// run subscribes, and again whenever the subscription has stalled.
func (p *partition) run(ctx context.Context) error {
	work, stop := p.w.drain(ctx)
	defer stop()
	defer p.forget()
	for ctx.Err() == nil {
		var sub journal.Subscription
		err := p.w.retry(ctx, "subscribe", func() (err error) {
			sub, err = p.w.deps.Turns.Subscribe(ctx, p.id, journal.SubscribeOptions{Group: p.w.cfg.Group})
			return err
		})
		if err == nil {
			err = p.follow(ctx, work, sub)
			sub.Close()
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// follow handles batch after batch. It returns nil when ctx is done or the
// subscription should be replaced.
func (p *partition) follow(ctx, work context.Context, sub journal.Subscription) error {
	// Another worker may have gone on with the partition since the last
	// subscription; the fence would find out, one conflict a session.
	p.forget()
	for ctx.Err() == nil {
		batch, err := p.fetch(ctx, sub)
		if err != nil {
			return err
		}
		if batch == nil {
			if p.stalled(ctx) {
				return nil
			}
		} else if err := p.handle(work, batch); err != nil {
			return err
		}
		if err := p.settle(work, sub); err != nil {
			return err
		}
		p.evict()
		p.measure(ctx)
	}
	return nil
}

// fetch returns the next batch, or nil when there was none for a while.
func (p *partition) fetch(ctx context.Context, sub journal.Subscription) (batch []journal.Delivery, err error) {
	patience := p.w.cfg.StallAfter
	if len(p.dirty) > 0 || p.waiting > 0 {
		patience = min(patience, p.w.cfg.RegistryEvery)
	}
	err = p.w.retry(ctx, "fetch", func() error {
		wait, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		batch, err = sub.Fetch(wait, p.w.cfg.Batch)
		if err != nil && wait.Err() != nil {
			return nil
		}
		return err
	})
	if ctx.Err() != nil {
		return nil, nil
	}
	if len(batch) > 0 {
		p.heardAt = time.Now()
		p.w.deps.Fault(PointFetched)
	}
	return batch, err
}

// handle folds a batch, each session in a lane of its own, and appends what
// follows: at once, or event by event.
func (p *partition) handle(ctx context.Context, batch []journal.Delivery) error {
	slow := time.AfterFunc(p.w.cfg.StallAfter, func() {
		p.w.log.Warn("batch takes long", "partition", p.id, "entries", len(batch))
	})
	defer slow.Stop()

	lanes := map[string][]journal.Delivery{}
	var order []*session
	for _, d := range batch {
		if journal.IsRunSession(d.Session) {
			continue // read when a turn needs it
		}
		if lanes[d.Session] == nil {
			s := p.session(d.Session)
			s.fetched = p.heardAt
			order = append(order, s)
		}
		lanes[d.Session] = append(lanes[d.Session], d)
	}
	left := order
	if p.w.batcher != nil && len(batch) >= worthwhile {
		left = p.together(ctx, order, lanes)
	}
	var g errgroup.Group
	for _, s := range left {
		p.w.lanes <- struct{}{}
		g.Go(func() error {
			defer func() { <-p.w.lanes }()
			return s.handle(ctx, lanes[s.id])
		})
	}
	err := g.Wait()
	clear(p.active)
	for _, s := range order {
		p.active[s] = true
		p.grow(s.measure())
		if s.changed {
			p.dirty[s.id] = s
			p.must = p.must || s.notable
			s.changed, s.notable = false, false
		}
	}
	if err != nil {
		return err
	}
	p.done = &batch[len(batch)-1]
	return nil
}

// settle writes the rows that are due and acknowledges what is done.
func (p *partition) settle(ctx context.Context, sub journal.Subscription) error {
	now := time.Now()
	if len(p.dirty) > 0 && (p.must || now.Sub(p.flushedAt) >= p.w.cfg.RegistryEvery) {
		p.flushedAt = now
		if err := p.flush(ctx); err != nil {
			p.w.log.Warn("registry not written", "partition", p.id, "error", err)
			if p.must {
				return nil // not acknowledged either
			}
		}
	}
	if p.done == nil {
		return nil
	}
	err := sub.Ack(ctx, *p.done)
	switch {
	case err == nil:
		p.w.deps.Fault(PointAcked)
		p.note(*p.done)
		p.done = nil
	case errors.Is(err, journal.ErrClosed):
		return err
	default:
		// The next one covers it.
		p.w.meter.add(func(s *Stats) { s.Retries++ })
	}
	return nil
}

func (p *partition) flush(ctx context.Context) error {
	if p.w.deps.Registry == nil {
		clear(p.dirty)
		p.must = false
		return nil
	}
	// Written or not, whoever comes next writes all of them again.
	var g errgroup.Group
	g.SetLimit(rowsAtOnce)
	for _, s := range p.dirty {
		switch {
		case s.broken != nil:
			g.Go(func() error { return p.putBroken(ctx, s) })
		case s.state != nil:
			g.Go(func() error { return p.w.deps.Registry.Put(ctx, row(s)) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	clear(p.dirty)
	p.must = false
	p.w.deps.Fault(PointRegistered)
	return nil
}

// putBroken lists a session that cannot be read or written any more: what was
// known of it, and that it is parked.
func (p *partition) putBroken(ctx context.Context, s *session) error {
	r, _, err := p.w.deps.Registry.Get(ctx, s.id)
	if err != nil {
		return err
	}
	r.ID, r.State, r.Reason = s.id, registry.Parked, fold.FaultBroken
	// An entry that cannot be read does not say which one it is.
	r.Events, r.LastAt = max(r.Events, s.brokenAt.Tip.Count), s.brokenAt.Time
	if ev := s.brokenAt.Event; ev != nil && r.Run == "" {
		r.Tenant, r.Run = ev.GetTenant(), ev.GetRun()
	}
	return p.w.deps.Registry.Put(ctx, r)
}

// session returns the session from the cache, or an empty one.
func (p *partition) session(id string) *session {
	if e, ok := p.sessions[id]; ok {
		p.recent.MoveToFront(e)
		return e.Value.(*session)
	}
	s := &session{w: p.w, id: id}
	p.sessions[id] = p.recent.PushFront(s)
	return s
}

// evict forgets the sessions that were not used for longest, while all
// partitions together hold too much. Those of the last batch stay: they are
// likely to be in the next one.
func (p *partition) evict() {
	for e := p.recent.Back(); e != nil && p.w.cached.Load() > int64(p.w.cfg.CacheBytes); {
		s, before := e.Value.(*session), e.Prev()
		if p.dirty[s.id] == nil && !p.active[s] {
			p.recent.Remove(e)
			delete(p.sessions, s.id)
			p.grow(-s.bytes)
		}
		e = before
	}
}

// grow accounts for memory.
func (p *partition) grow(bytes int) {
	p.bytes += bytes
	p.w.cached.Add(int64(bytes))
}

func (p *partition) forget() {
	clear(p.sessions)
	clear(p.dirty)
	clear(p.active)
	p.recent.Init()
	p.grow(-p.bytes)
	p.must, p.done, p.heardAt = false, nil, time.Time{}
}

// stalled reports a subscription that gave entries once, and gives none now
// although some wait. One that has never given any may belong to a member whom
// the log has given nothing.
func (p *partition) stalled(ctx context.Context) bool {
	if p.heardAt.IsZero() || p.done != nil || time.Since(p.heardAt) < p.w.cfg.StallAfter {
		return false
	}
	n, err := p.w.deps.Turns.Pending(ctx, p.id, p.w.cfg.Group)
	if err != nil || n == 0 {
		return false
	}
	p.w.meter.add(func(s *Stats) { s.Stalls++ })
	p.w.log.Warn("subscription stalled", "partition", p.id, "pending", n)
	return true
}

// note remembers how far the partition is.
func (p *partition) note(d journal.Delivery) {
	lag := max(time.Since(d.Time), 0)
	p.w.meter.add(func(s *Stats) {
		at := s.Partitions[p.id]
		at.Position, at.Time, at.Lag = d.Tip.Position, d.Time, lag
		s.Partitions[p.id] = at
	})
}

// measure updates what Stats says of the partition.
func (p *partition) measure(ctx context.Context) {
	if time.Since(p.askedAt) >= p.w.cfg.RegistryEvery {
		p.askedAt = time.Now()
		if n, err := p.w.deps.Turns.Pending(ctx, p.id, p.w.cfg.Group); err == nil {
			p.waiting = n
		}
	}
	p.w.meter.add(func(s *Stats) {
		at := s.Partitions[p.id]
		at.Pending = p.waiting
		at.cached, at.cachedBytes = p.recent.Len(), p.bytes
		s.Partitions[p.id] = at
	})
}
