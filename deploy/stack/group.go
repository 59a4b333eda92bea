package stack

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stopTimeout bounds how long one part may take to stop: more than the gateway
// needs to drain.
const stopTimeout = drainTimeout + abortTimeout + 10*time.Second

// part is something that runs until its context ends.
type part struct {
	name string
	run  func(context.Context) error
	// ready blocks until the part serves; nil is at once.
	ready func(context.Context) error
}

// group runs parts: started in order, each when the one before is ready, and
// stopped in the reverse order, each when the one after has ended.
type group struct {
	running []*running
	ended   chan *running // by itself; buffered for the first, which is all that counts
}

type running struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	told   bool // its error has been returned
}

func newGroup() *group { return &group{ended: make(chan *running, 1)} }

// within returns a group that is stopped by itself. Where one of its parts ends,
// that is as if one of g had.
func (g *group) within() *group { return &group{ended: g.ended} }

// start runs a part and waits until it is ready, or has ended.
func (g *group) start(ctx context.Context, p part) error {
	// Parts stop when they are told to, in order; not all at once with ctx.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{name: p.name, cancel: cancel, done: make(chan struct{})}
	g.running = append(g.running, r)
	go func() {
		r.err = p.run(own)
		close(r.done)
		if own.Err() != nil {
			return
		}
		select {
		case g.ended <- r:
		default:
		}
	}()
	if p.ready == nil {
		return nil
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-r.done:
			stop()
		case <-waiting.Done():
		}
	}()
	err := p.ready(waiting)
	select {
	case <-r.done:
		return r.failure()
	default:
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return ctx.Err()
}

func (r *running) failure() error {
	r.told = true
	if r.err == nil {
		return fmt.Errorf("%s: ended by itself", r.name)
	}
	return fmt.Errorf("%s: %w", r.name, r.err)
}

// wait blocks until ctx ends or a part does.
func (g *group) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case r := <-g.ended:
		return r.failure()
	}
}

// stop ends all parts, the last started first, and returns what they say.
func (g *group) stop() error {
	var errs []error
	for i := len(g.running) - 1; i >= 0; i-- {
		r := g.running[i]
		r.cancel()
		select {
		case <-r.done:
			if r.err != nil && !r.told && !errors.Is(r.err, context.Canceled) {
				errs = append(errs, r.failure())
			}
		case <-time.After(stopTimeout):
			errs = append(errs, fmt.Errorf("%s: did not stop within %s", r.name, stopTimeout))
		}
	}
	return errors.Join(errs...)
}
