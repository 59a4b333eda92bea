package pool

import (
	"context"
	"errors"
	"time"

	"turnlog.dev/gateway/engine"
)

func asError(err error, target **engine.Error) bool { return errors.As(err, target) }

// slot is a request's place at a replica.
type slot struct {
	*replica
	// trial says that the replica rested, and this request tries it.
	trial bool
}

// acquire waits for a slot on a replica that was not tried.
func (p *Pool) acquire(ctx context.Context, req *engine.Request, tried map[*replica]bool) (slot, error) {
	if err := ctx.Err(); err != nil {
		return slot{}, err
	}
	p.mu.Lock()
	w := &waiter{session: req.Session, tried: tried, granted: make(chan slot, 1)}
	if p.cfg.Policy == Prefix {
		w.prompt = req.Prompt
	}
	if p.waiting >= p.cfg.Queue {
		p.mu.Unlock()
		return slot{}, &engine.Error{Class: engine.Overloaded, RetryAfter: time.Second, Message: "the queue of the pool is full"}
	}
	p.waiting++
	p.place(w)
	if len(w.granted) == 0 {
		p.queued++
		p.positions += uint64(p.waiting)
	}
	p.mu.Unlock()

	select {
	case s := <-w.granted:
		if s.replica == nil {
			return s, ErrEmpty
		}
		return s, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case s := <-w.granted: // both at once: give the slot back
		if s.replica != nil {
			p.free(s)
		}
	default:
		w.leave()
		p.waiting--
	}
	return slot{}, ctx.Err()
}

// place gives a waiter a slot, or a place in a queue: that of its replica with
// Sticky, so that the sessions of one replica take turns, otherwise the one
// that any replica serves.
func (p *Pool) place(w *waiter) {
	now := time.Now()
	sticky := p.cfg.Policy == Sticky
	if sticky {
		if r := p.pins.get(w.session); r != nil && r.takes(now) && !w.tried[r] {
			p.enter(r, w)
			return
		}
	}
	candidates := p.candidates(w.tried, now)
	if len(candidates) == 0 {
		p.waiting--
		w.granted <- slot{}
		return
	}
	r := p.choose(candidates, w, now, sticky)
	switch {
	case sticky:
		p.pins.set(w.session, r)
		p.enter(r, w)
	case r != nil && p.shared.first(r) == nil:
		p.grant(r, w)
	default:
		p.shared.push(w)
		if r != nil { // free, but others wait for it, too
			p.serve(r)
		}
	}
}

// enter gives w a slot of r or a place in its queue.
func (p *Pool) enter(r *replica, w *waiter) {
	if p.hasSlot(r) && r.queue.first(r) == nil {
		p.grant(r, w)
	} else {
		r.queue.push(w)
	}
}

// candidates are the replicas that may serve, the healthy ones; where all rest,
// all of them: an engine may be back, and the request fails anyway.
func (p *Pool) candidates(tried map[*replica]bool, now time.Time) []*replica {
	var healthy, all []*replica
	for _, r := range p.replicas {
		if tried[r] || r.draining || r.removed {
			continue
		}
		all = append(all, r)
		if r.takes(now) {
			healthy = append(healthy, r)
		}
	}
	if len(healthy) > 0 {
		return healthy
	}
	return all
}

// choose returns a replica by the policy: one with a free slot or nil, or also
// one where the request has to wait.
func (p *Pool) choose(candidates []*replica, w *waiter, now time.Time, wait bool) *replica {
	var best *replica
	bestScore := 0
	p.next++
	for i := range candidates {
		r := candidates[(p.next+i)%len(candidates)]
		if !wait && !p.hasSlot(r) {
			continue
		}
		score := -r.load(now)
		switch p.cfg.Policy {
		case RoundRobin:
			if now.Before(r.busyUntil) {
				score = -1
			} else {
				score = 0
			}
		case Prefix:
			score += r.prefixes.score(w.prompt)
		}
		if best == nil || score > bestScore {
			best, bestScore = r, score
		}
	}
	return best
}

func (p *Pool) hasSlot(r *replica) bool { return r.inflight < p.cfg.Concurrency }

// grant gives w a slot of r.
func (p *Pool) grant(r *replica, w *waiter) {
	p.waiting--
	r.inflight++
	s := slot{r, !r.restUntil.IsZero()}
	if s.trial {
		r.trials++
	}
	if p.cfg.Policy == Prefix {
		r.prefixes.add(w.prompt)
	}
	w.granted <- s
}

// release ends a request and lets the next one in.
func (p *Pool) release(s slot, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rested := p.outcome(s, err)
	p.free(s)
	if rested {
		p.replace(s.replica)
	}
}

// free gives a slot back.
func (p *Pool) free(s slot) {
	r := s.replica
	r.inflight--
	if s.trial {
		r.trials--
	}
	if r.inflight == 0 {
		r.free()
	}
	p.serve(r)
}

// serve lets waiters in while r has slots: those that wait for it, or for any.
func (p *Pool) serve(r *replica) {
	queue := &p.shared
	if p.cfg.Policy == Sticky {
		queue = &r.queue
	}
	for p.hasSlot(r) && p.usable(r) {
		w := queue.first(r)
		if w == nil {
			return
		}
		queue.take(w)
		p.grant(r, w)
	}
}

// usable reports whether r may work: it takes requests, or all others rest,
// too.
func (p *Pool) usable(r *replica) bool {
	now := time.Now()
	return r.takes(now) || !r.draining && !r.removed && !p.anyTakes(now)
}

func (p *Pool) anyTakes(now time.Time) bool {
	for _, r := range p.replicas {
		if r.takes(now) {
			return true
		}
	}
	return false
}

// replace finds other places for those who wait for a replica that does not
// serve any more; where none is left that does, for all who wait.
func (p *Pool) replace(r *replica) {
	moved := r.queue.drain()
	if !p.anyTakes(time.Now()) {
		moved = append(moved, p.shared.drain()...)
	}
	for _, w := range moved {
		p.place(w)
	}
}

// untried reports whether a healthy replica is left that was not tried: a request
// that failed does not go on to replicas that rest.
func (p *Pool) untried(tried map[*replica]bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, r := range p.replicas {
		if !tried[r] && r.takes(now) {
			return true
		}
	}
	return false
}
