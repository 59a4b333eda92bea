package pool

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"turnlog.dev/gateway/engine"
)

// replica is one engine and what its outcomes say about it. The pool's lock
// guards all but name, kind, engine, listed and checking.
type replica struct {
	name   string
	kind   string
	engine engine.Engine
	listed bool // by a source, which may drop it again
	queue  fair // waiters that are pinned here

	inflight int
	draining bool
	removed  bool
	idle     chan struct{} // closed when nothing is in flight any more, or draining ends

	failures int // in a row
	// restUntil is when a resting replica may be tried; zero is healthy.
	restUntil time.Time
	rest      time.Duration // the present one
	trials    int           // requests that try it: several only where all rest
	reason    string        // why it rests
	busyUntil time.Time     // it said that it is overloaded

	// info is what its check said; nil where it has to be checked.
	info     *engine.Info
	checking chan struct{} // holds the right to check

	prefixes *prefixes
	served   uint64
	failed   uint64
}

// takes reports whether the policy may choose r.
func (r *replica) takes(now time.Time) bool {
	if r.draining || r.removed {
		return false
	}
	return r.restUntil.IsZero() || !now.Before(r.restUntil) && r.trials == 0
}

// free tells who drains r that there is nothing left to wait for.
func (r *replica) free() {
	if r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// load orders replicas by how busy they are; one that said it is overloaded
// comes last.
func (r *replica) load(now time.Time) int {
	n := r.inflight + r.queue.n
	if now.Before(r.busyUntil) {
		n += 1 << 20
	}
	return n
}

// outcome learns from the end of a request; it reports whether the replica went to
// rest.
func (p *Pool) outcome(s slot, err error) (rested bool) {
	now, r := time.Now(), s.replica
	switch engine.ClassOf(err) {
	case engine.Unreachable:
		r.failed++
		// What answers at this address later may be another server.
		r.info = nil
		return p.letRest(s, now, err)
	case engine.Failed, engine.Broken:
		r.failed++
		r.failures++
		unchecked := p.checks() && r.info == nil
		if r.failures >= p.cfg.FailuresToRest || s.trial || unchecked {
			return p.letRest(s, now, err)
		}
	case engine.Overloaded:
		r.failed++
		r.busyUntil = now.Add(time.Second)
		if e := (*engine.Error)(nil); asError(err, &e) && e.RetryAfter > 0 {
			r.busyUntil = now.Add(e.RetryAfter)
		}
	case engine.Refused, engine.TooLong:
		r.served++
		p.healed(r)
	default:
		if err == nil {
			r.served++
			p.healed(r)
		}
		// Canceled: nothing was learned.
	}
	return false
}

func (p *Pool) letRest(s slot, now time.Time, err error) bool {
	r := s.replica
	switch {
	case r.restUntil.IsZero():
		r.rest = p.cfg.Cooldown
		p.cfg.Logger.Warn("a replica rests", slog.String("pool", p.cfg.Name), slog.String("backend", r.name),
			slog.Duration("for", r.rest), slog.Any("error", err))
	case s.trial:
		r.rest = min(2*r.rest, p.cfg.MaxCooldown)
	}
	r.reason = err.Error()
	r.restUntil = now.Add(r.rest)
	// Whoever waits when the rest is over is the trial.
	time.AfterFunc(r.rest, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.serve(r)
	})
	return true
}

func (p *Pool) healed(r *replica) {
	if !r.restUntil.IsZero() {
		p.cfg.Logger.Info("a replica is back", slog.String("pool", p.cfg.Name), slog.String("backend", r.name))
	}
	r.failures, r.restUntil, r.rest, r.reason, r.busyUntil = 0, time.Time{}, 0, "", time.Time{}
}

// verify checks a replica before it is used for the first time and after it
// was unreachable. Requests that come meanwhile wait for the same check.
func (p *Pool) verify(ctx context.Context, r *replica) error {
	if !p.checks() {
		return nil
	}
	select {
	case r.checking <- struct{}{}:
		defer func() { <-r.checking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	known := r.info != nil
	p.mu.Unlock()
	if known {
		return nil
	}
	info, err := r.engine.Check(ctx, p.cfg.Tokenizer)
	if err != nil {
		if engine.ClassOf(err) == engine.Refused {
			// The replica is at fault, not the request.
			err = &engine.Error{Class: engine.Broken, Err: err, Message: "it cannot be used"}
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.info == nil {
		p.info = &info
	}
	if info.TextOnly != p.info.TextOnly {
		return &engine.Error{Class: engine.Broken, Message: fmt.Sprintf(
			"backend %s is %s, the pool is %s: a pool has one class of evidence; put it into a pool of its own", r.name, class(&info), class(p.info))}
	}
	r.info = &info
	return nil
}

func (p *Pool) checks() bool { return p.cfg.Check || p.cfg.Tokenizer != nil }

func (p *Pool) kindOf(r *replica) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.kindNow()
}

// kindNow is the configured kind, or what the check said.
func (r *replica) kindNow() string {
	if r.kind == "" && r.info != nil {
		return r.info.Kind
	}
	return r.kind
}

func class(i *engine.Info) string {
	if i.TextOnly {
		return i.Kind + " with text in"
	}
	return i.Kind + " with token ids in"
}
