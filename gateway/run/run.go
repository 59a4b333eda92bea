package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Lease is how old a gateway's knowledge of a run may be when it lets a turn in.
// An order has reached every gateway so long after it was acknowledged.
const Lease = time.Second

const (
	// linger is how long a gateway goes on watching a run without turns.
	linger = time.Minute
	// wordEvery is how often a gateway with turns under way says so while the
	// run is held back, silence how long one may say nothing before it counts as
	// gone, and its turns with it.
	wordEvery = 5 * time.Second
	silence   = 3 * wordEvery
	// retry is the pause after a try that the log did not answer.
	retry = 20 * time.Millisecond
)

// Errors of a Run.
var (
	// ErrResumed says that turns were let in again while somebody waited for the
	// end of those under way.
	ErrResumed = errors.New("run: resumed meanwhile")
	// ErrOver is a run whose own log was trimmed: whether turns may begin, and
	// what its sessions inherit, is not known any more.
	ErrOver = errors.New("run: its log has been trimmed")
)

// Run is one run as this gateway knows it. All methods are safe for concurrent
// use. What they ask of the log fails with journal.ErrUnavailable if there is no
// answer in the store's patience.
type Run struct {
	store *Store
	name  string
	// Whoever reads the log holds a slot, and so does who says what this gateway
	// serves: one word after the other. mu is never held meanwhile.
	io, word chan struct{}

	mu      sync.Mutex // guards what follows
	state   state
	checked time.Time // when the last look at the log began
	running int       // turns under way here
	users   int       // callers of Store.Use
	last    time.Time // when running last fell to 0
	watched bool      // a goroutine looks at the log every now and then
	wordAt  time.Time // when we last said that we have turns under way
	wordOn  int64     // ... and about which order
	// parting says that our last word may be that we serve nothing any more: no
	// turn begins before another.
	parting bool
}

// Enter waits until turns may begin, and counts one in. The caller calls leave
// when the turn has ended. The error is ctx's or the log's.
func (r *Run) Enter(ctx context.Context) (leave func(), err error) {
	since := time.Now()
	for {
		fresh, held, ours := r.enter()
		switch {
		case ours && !held && fresh:
			return r.leave, nil
		case fresh && held:
			err = sleep(ctx, Lease)
			since = time.Now()
		case time.Since(since) > r.store.patience:
			err = fmt.Errorf("run %s: %w: each answer is older than %s when it comes", r.name, journal.ErrUnavailable, Lease)
		case !fresh:
			err = r.catchUp(ctx)
		default:
			// Before its turn begins: who drains the run must know of us.
			err = r.begin(ctx)
			r.watch()
		}
		if err != nil {
			return nil, err
		}
	}
}

// enter counts a turn in if it may begin, and else says what is missing.
func (r *Run) enter() (fresh, held, ours bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh = time.Since(r.checked) < Lease
	held, ours = r.state.held, r.state.serving[r.store.process] > 0 && !r.parting && r.watched
	if fresh && !held && ours {
		r.running++
	}
	return fresh, held, ours
}

func (r *Run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.last = time.Now()
}

// Opened is what the run was opened with, nil if it was not.
func (r *Run) Opened(ctx context.Context) (*event.RunOpened, error) {
	r.mu.Lock()
	fresh, opened := time.Since(r.checked) < Lease, r.state.opened
	r.mu.Unlock()
	if fresh {
		return opened, nil
	}
	if err := r.catchUp(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.opened, nil
}

// Hold holds turns back, or lets them in again, at every gateway. It returns
// once none goes by an older order. Turns under way go on.
func (r *Run) Hold(ctx context.Context, held bool) error {
	err := r.append(ctx, func(s *state) *event.Event {
		if s.held == held {
			return nil
		}
		order := s.order + 1
		ev := r.store.event(fmt.Sprintf("order-%d", order), r.name)
		ev.Body = &event.Event_RunFenced{RunFenced: &event.RunFenced{Order: order, Held: held}}
		return ev
	})
	if err != nil || !held {
		return err
	}
	return sleep(ctx, Lease)
}

// Drain holds turns back and waits until none is under way at any gateway. It
// returns the gateways that were taken for gone, since they said nothing.
func (r *Run) Drain(ctx context.Context) (gone []string, err error) {
	if err := r.Hold(ctx, true); err != nil {
		return nil, err
	}
	heard := map[string]uint64{} // the last word of each gateway
	since := map[string]time.Time{}
	for {
		if err := r.catchUp(ctx); err != nil {
			return gone, err
		}
		r.mu.Lock()
		held, serving := r.state.held, maps.Clone(r.state.serving)
		r.mu.Unlock()
		switch {
		case !held:
			return gone, ErrResumed
		case len(serving) == 0:
			return gone, nil
		}
		for _, g := range slices.Sorted(maps.Keys(serving)) {
			if heard[g] != serving[g] {
				heard[g], since[g] = serving[g], time.Now()
			}
			if g != r.store.process && time.Since(since[g]) > silence {
				if err := r.say(ctx, g, false); err != nil {
					return gone, err
				}
				gone = append(gone, g)
			}
		}
		if err := sleep(ctx, Lease/4); err != nil {
			return gone, err
		}
		r.watch() // our own word may be what is waited for
	}
}

// watch has a goroutine look at the log for as long as this gateway serves the
// run.
func (r *Run) watch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.watched && r.state.serving[r.store.process] > 0 {
		r.watched, r.last = true, time.Now()
		r.users++
		r.store.watchers.Go(func() {
			r.watching(r.store.closing)
			r.store.release(r)
		})
	}
}

// watching keeps what is known of the run fresh, and says what others must know
// of this gateway, until there has been nothing to serve for a while.
func (r *Run) watching(ctx context.Context) {
	var failing time.Time // since when
	for {
		stopping := sleep(ctx, Lease/2) != nil
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), wordEvery)
		err := r.catchUp(asking)
		if err == nil {
			err = r.report(asking, stopping)
		}
		cancel()
		if err == nil {
			failing = time.Time{}
		} else if failing.IsZero() {
			failing = time.Now()
		}
		r.mu.Lock()
		// Whoever cannot reach the log for so long is taken for gone by others.
		lost := stopping || !failing.IsZero() && time.Since(failing) > linger && r.running == 0
		if lost || r.running == 0 && r.state.serving[r.store.process] == 0 {
			r.watched = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

// begin says that this gateway serves the run, unless that is known.
func (r *Run) begin(ctx context.Context) error {
	return r.patiently(ctx, func(ctx context.Context) error {
		return r.inTurn(ctx, func() error {
			r.mu.Lock()
			known := r.state.serving[r.store.process] > 0 && !r.parting
			r.mu.Unlock()
			if known {
				return nil
			}
			return r.say(ctx, r.store.process, true)
		})
	})
}

// report says that this gateway has turns under way, where somebody may wait for
// their end, or that it has none.
func (r *Run) report(ctx context.Context, stopping bool) error {
	return r.inTurn(ctx, func() error {
		r.mu.Lock()
		ours, s := r.state.serving[r.store.process] > 0, &r.state
		idle := r.running == 0 && (s.held || stopping || time.Since(r.last) > linger)
		again := r.running > 0 && (!ours || s.held && (r.wordOn != s.order || time.Since(r.wordAt) > wordEvery))
		if again {
			r.wordOn, r.wordAt = s.order, time.Now()
		}
		r.mu.Unlock()
		switch {
		case again:
			return r.say(ctx, r.store.process, true)
		case idle && ours:
			return r.say(ctx, r.store.process, false)
		}
		return nil
	})
}

// inTurn runs fn while nobody else says what this gateway serves.
func (r *Run) inTurn(ctx context.Context, fn func() error) error {
	select {
	case r.word <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.word }()
	return fn()
}

// say appends what a gateway serves. For this gateway's own words the caller is
// inTurn.
func (r *Run) say(ctx context.Context, gateway string, serving bool) error {
	own := gateway == r.store.process
	ev := r.store.event(fmt.Sprintf("served-%s-%d", r.store.process, r.store.words.Add(1)), r.name)
	ev.Body = &event.Event_RunServed{RunServed: &event.RunServed{Gateway: gateway, Serving: serving}}
	x := r.expect(ev.GetId())
	defer r.forget(x)
	err := r.append(ctx, func(*state) *event.Event {
		switch {
		case x.seen, own && !serving && r.running > 0: // a turn began meanwhile
			return nil
		case own && !serving:
			r.parting = true
		}
		return ev
	})
	if own && err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.parting = false
	}
	return err
}

// Open appends what the run is opened with, unless it was opened.
func (r *Run) Open(ctx context.Context, ev *event.Event) error {
	return r.append(ctx, func(s *state) *event.Event {
		if s.opened != nil {
			return nil
		}
		return ev
	})
}

// Append appends an event to the run's log, unless one of its id is there. It
// looks through the whole log for that: what a run takes in memory must not grow
// with its weight updates.
func (r *Run) Append(ctx context.Context, ev *event.Event) error {
	x := r.expect(ev.GetId()) // before the search: what comes after it is folded
	defer r.forget(x)
	there, err := r.holds(ctx, ev.GetId())
	if there || err != nil {
		return err
	}
	return r.append(ctx, func(*state) *event.Event {
		if x.seen {
			return nil
		}
		return ev
	})
}

// holds looks for an event in the run's log.
func (r *Run) holds(ctx context.Context, id string) (there bool, err error) {
	err = r.patiently(ctx, func(ctx context.Context) error {
		for e, err := range r.store.journal.ReadSession(ctx, journal.RunSession(r.name), journal.Tip{}) {
			if err != nil {
				return r.unread(err)
			}
			if e.Event.GetId() == id {
				there = true
				return nil
			}
		}
		return nil
	})
	return there, err
}

// append appends what build returns for the state as it is; nil is nothing.
// build runs under mu, and again after each try that had no success or none that
// is known: it must see by the state that its event is in the log.
func (r *Run) append(ctx context.Context, build func(*state) *event.Event) error {
	return r.patiently(ctx, func(ctx context.Context) error {
		for {
			if err := r.catchUp(ctx); err != nil {
				return err
			}
			r.mu.Lock()
			ev, tip := build(&r.state), r.state.tip
			r.mu.Unlock()
			if ev == nil {
				return nil
			}
			_, err := r.store.journal.Append(ctx, tip, ev)
			switch {
			case err == nil:
				return r.catchUp(ctx)
			case errors.Is(err, journal.ErrUnavailable):
				return err
			case errors.Is(err, journal.ErrConflict), errors.Is(err, journal.ErrIdentity):
				// Somebody was quicker: with the same id, perhaps, and other words.
			default:
				return fmt.Errorf("run %s: append %s: %w", r.name, ev.Kind(), err)
			}
		}
	})
}

func (r *Run) expect(id string) *expected {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.expect(id)
}

func (r *Run) forget(x *expected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.forget(x)
}

// catchUp folds what is new in the run's log.
func (r *Run) catchUp(ctx context.Context) error { return r.patiently(ctx, r.read) }

// patiently runs fn until the log answers, for as long as the store's patience
// lasts.
func (r *Run) patiently(ctx context.Context, fn func(context.Context) error) error {
	asking, cancel := context.WithTimeout(ctx, r.store.patience)
	defer cancel()
	for {
		err := fn(asking)
		if err == nil || !errors.Is(err, journal.ErrUnavailable) && (asking.Err() == nil || ctx.Err() != nil) {
			return err
		}
		if e := sleep(asking, retry); e != nil {
			return fmt.Errorf("run %s: %w: %w: %w", r.name, journal.ErrUnavailable, err, e)
		}
	}
}

func (r *Run) read(ctx context.Context) error {
	select {
	case r.io <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.io }()
	began := time.Now()
	r.mu.Lock()
	tip := r.state.tip
	r.mu.Unlock()
	for e, err := range r.store.journal.ReadSession(ctx, journal.RunSession(r.name), tip) {
		if err != nil {
			return r.unread(err)
		}
		r.mu.Lock()
		r.state.apply(e)
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = began
	return nil
}

// unread says that the run's log could not be read.
func (r *Run) unread(err error) error {
	if errors.Is(err, journal.ErrTrimmed) {
		return fmt.Errorf("%w: run %s: %w", ErrOver, r.name, err)
	}
	return fmt.Errorf("run %s: read: %w", r.name, err)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
