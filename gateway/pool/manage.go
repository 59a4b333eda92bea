package pool

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"turnlog.dev/gateway/engine"
)

var prefixSeed = maphash.MakeSeed()

// Add takes a replica in. The error is ErrDuplicate.
func (p *Pool) Add(r Replica) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.find(r.Name) != nil {
		return fmt.Errorf("%w: %s", ErrDuplicate, r.Name)
	}
	added := &replica{
		name: r.Name, kind: r.Kind, engine: r.Engine, listed: r.listed,
		checking: make(chan struct{}, 1), prefixes: newPrefixes(prefixSeed),
	}
	p.replicas = append(p.replicas, added)
	p.serve(added)
	return nil
}

func (p *Pool) find(name string) *replica {
	for _, r := range p.replicas {
		if r.name == name {
			return r
		}
	}
	return nil
}

// Drain gives a replica no more requests and returns when those that it has
// are done, or ctx ends. Sessions that were pinned to it move on. The error is
// ErrUnknown, ErrResumed or ctx's.
func (p *Pool) Drain(ctx context.Context, name string) error {
	r, idle, err := p.stop(name, func(r *replica) { r.draining = true })
	if err != nil {
		return err
	}
	select {
	case <-idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.draining {
		return fmt.Errorf("%w: %s", ErrResumed, name)
	}
	return nil
}

// Resume ends the draining of a replica, and the wait of who drains it. The error
// is ErrUnknown.
func (p *Pool) Resume(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.find(name)
	if r == nil {
		return fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	r.draining = false
	r.free()
	p.serve(r)
	return nil
}

// Remove drops a replica; requests that it works on go on. The error is
// ErrUnknown.
func (p *Pool) Remove(name string) error {
	_, _, err := p.stop(name, func(r *replica) { r.removed = true })
	return err
}

// stop marks a replica that is to get no more requests, and returns it with what is
// closed when it has none.
func (p *Pool) stop(name string, mark func(*replica)) (*replica, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.find(name)
	if r == nil {
		return nil, nil, fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	mark(r)
	if r.removed {
		kept := p.replicas[:0:0]
		for _, other := range p.replicas {
			if other != r {
				kept = append(kept, other)
			}
		}
		p.replicas = kept
	}
	p.replace(r)
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	if r.inflight == 0 {
		r.free()
	}
	return r, idle, nil
}

// Check compares every replica with the tokenizer and says what the pool is.
// Replicas that cannot be reached rest, and are checked again before they are
// used. The error joins the faults of all replicas; with an Info of kind "" no
// replica can be used.
func (p *Pool) Check(ctx context.Context) (engine.Info, error) {
	p.mu.Lock()
	replicas := p.replicas
	p.mu.Unlock()
	var faults []error
	for _, r := range replicas {
		err := p.verify(ctx, r)
		if err == nil {
			continue
		}
		faults = append(faults, fmt.Errorf("backend %s: %w", r.name, err))
		p.mu.Lock()
		if ctx.Err() == nil {
			p.letRest(slot{replica: r}, time.Now(), err)
			p.replace(r)
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var info engine.Info
	if p.info != nil {
		info = *p.info
	}
	return info, errors.Join(faults...)
}

// Stats is the state of a pool at one moment.
type Stats struct {
	Name     string         `json:"name"`
	Waiting  int            `json:"waiting"`
	Pins     int            `json:"pins"`
	Replicas []ReplicaStats `json:"replicas"`
	// Queued requests had to wait since the start; Positions is the sum of their
	// places in the queue when they came, 1 being the first.
	Queued    uint64 `json:"queued"`
	Positions uint64 `json:"positions"`
}

// ReplicaStats is the state of one replica.
type ReplicaStats struct {
	Name     string `json:"name"`
	Engine   string `json:"engine"`
	State    string `json:"state"`            // up, resting, trial, draining
	Reason   string `json:"reason,omitempty"` // why it rests
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"` // pinned to it
	Served   uint64 `json:"served"`  // answered, also that a request is at fault
	Failed   uint64 `json:"failed"`  // not answered; a request that was canceled is neither
}

// Stats says how the pool is doing, for metrics and people.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Name: p.cfg.Name, Waiting: p.waiting, Pins: p.pins.order.Len(), Queued: p.queued, Positions: p.positions}
	for _, r := range p.replicas {
		state := "up"
		switch {
		case r.draining:
			state = "draining"
		case r.trials > 0:
			state = "trial"
		case !r.restUntil.IsZero():
			state = "resting"
		}
		s.Replicas = append(s.Replicas, ReplicaStats{
			Name: r.name, Engine: r.kindNow(), State: state, Reason: r.reason,
			InFlight: r.inflight, Waiting: r.queue.n, Served: r.served, Failed: r.failed,
		})
	}
	return s
}
