package run_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/run"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/journal/mem"
)

const patience = 30 * time.Second

// gateway is one of those that share a log.
type gateway struct {
	t     *testing.T
	store *run.Store
}

func newGateway(t *testing.T, j journal.Journal, process string) gateway {
	g := gateway{t, run.NewStore(j, process, patience,
		func(id, name string) *event.Event {
			return &event.Event{Id: id, Run: name, Session: journal.RunSession(name)}
		})}
	t.Cleanup(g.store.Close)
	return g
}

func (g gateway) use(fn func(*run.Run) error) error { return g.store.Use("r", fn) }

// enter begins a turn and returns what ends it.
func (g gateway) enter() (leave func()) {
	g.t.Helper()
	require.NoError(g.t, g.use(func(r *run.Run) (err error) { leave, err = r.Enter(g.t.Context()); return err }))
	return leave
}

func (g gateway) hold(held bool) {
	g.t.Helper()
	require.NoError(g.t, g.use(func(r *run.Run) error { return r.Hold(g.t.Context(), held) }))
}

// drain waits for the end of all turns, and returns who was not waited for.
func (g gateway) drain() (gone []string) {
	require.NoError(g.t, g.use(func(r *run.Run) (err error) { gone, err = r.Drain(g.t.Context()); return err }))
	return gone
}

// count is the number of events in the run's log.
func count(t *testing.T, j journal.Journal) (n int) {
	for _, err := range j.ReadSession(t.Context(), journal.RunSession("r"), journal.Tip{}) {
		require.NoError(t, err)
		n++
	}
	return n
}

func TestARunIsHeldBackAtEveryGatewayOnceItsHolderKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		one, two := newGateway(t, j, "one"), newGateway(t, j, "two")
		two.enter()() // it knows the run, and that it may
		one.hold(true)
		one.hold(true) // says nothing new
		entered := make(chan func(), 1)
		go func() { entered <- two.enter() }()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, entered)
		// Who gives up waiting has not begun.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := two.use(func(r *run.Run) error { _, err := r.Enter(ctx); return err })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		one.hold(false)
		time.Sleep(2 * run.Lease)
		synctest.Wait()
		require.Len(t, entered, 1)
		(<-entered)()
		// A gateway that begins now holds back as well.
		one.hold(true)
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		three := newGateway(t, j, "three")
		require.ErrorIs(t, three.use(func(r *run.Run) error { _, err := r.Enter(ctx); return err }), context.DeadlineExceeded)
	})
}

func TestADrainWaitsForTheTurnsOfEveryGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		one, two := newGateway(t, j, "one"), newGateway(t, j, "two")
		leave := []func(){one.enter(), two.enter(), two.enter()}
		drained := make(chan []string, 1)
		go func() { drained <- one.drain() }()
		for _, end := range leave {
			time.Sleep(10 * time.Minute) // a long turn is no silence
			synctest.Wait()
			require.Empty(t, drained)
			end()
		}
		time.Sleep(2 * run.Lease)
		synctest.Wait()
		require.Len(t, drained, 1)
		require.Empty(t, <-drained)
	})
}

func TestAGatewayThatWasKilledIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		one, two := newGateway(t, j, "one"), newGateway(t, j, "two")
		two.enter()
		two.store.Close() // with a turn under way: it never says that it left
		one.enter()()
		began := time.Now()
		require.Equal(t, []string{"two"}, one.drain())
		require.Less(t, time.Since(began), time.Minute)
		began = time.Now()
		require.Empty(t, one.drain(), "once is enough")
		require.LessOrEqual(t, time.Since(began), 2*run.Lease)
	})
}

func TestAResumeEndsADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		one, two := newGateway(t, j, "one"), newGateway(t, j, "two")
		leave := two.enter()
		drained := make(chan error, 1)
		go func() {
			drained <- one.use(func(r *run.Run) error { _, err := r.Drain(t.Context()); return err })
		}()
		time.Sleep(2 * run.Lease)
		two.hold(false)
		require.ErrorIs(t, <-drained, run.ErrResumed)
		leave()
	})
}

// A run costs two events for each time that a gateway serves it, however many
// turns that are, and nothing goes on when it is left alone.
func TestAGatewayThatServesSaysSoOnceAndThenThatItHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		g := newGateway(t, j, "one")
		for range 2 {
			for range 100 {
				leave := g.enter()
				time.Sleep(time.Second)
				leave()
			}
			time.Sleep(5 * time.Minute)
		}
		synctest.Wait()
		require.Equal(t, 4, count(t, j))
	}) // synctest fails if a goroutine is left
}

func TestClosingSaysThatNothingIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		one, two := newGateway(t, j, "one"), newGateway(t, j, "two")
		one.enter()()
		one.store.Close()
		began := time.Now()
		require.Empty(t, two.drain())
		require.LessOrEqual(t, time.Since(began), 2*run.Lease)
	})
}

// slow is a log whose answers take a while, or do not come at all.
type slow struct {
	journal.Journal
	pause atomic.Int64
}

func (s *slow) wait(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(s.pause.Load())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slow) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	next, err := s.Journal.Append(ctx, tip, ev)
	if err == nil {
		err = s.wait(ctx)
	}
	return next, err
}

func (s *slow) ReadSession(ctx context.Context, session string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	if err := s.wait(ctx); err != nil {
		return func(yield func(journal.Entry, error) bool) { yield(journal.Entry{}, err) }
	}
	return s.Journal.ReadSession(ctx, session, from)
}

func TestALogThatDoesNotAnswerIsAnErrorWithinThePatience(t *testing.T) {
	for _, pause := range []time.Duration{time.Hour, 2 * run.Lease} {
		synctest.Test(t, func(t *testing.T) {
			j := &slow{Journal: mem.New(mem.Options{})}
			g := newGateway(t, j, "one")
			g.enter()()
			time.Sleep(10 * time.Minute) // what it knew is old
			j.pause.Store(int64(pause))
			var all sync.WaitGroup
			for range 20 { // those that wait for each other wait no longer
				all.Go(func() {
					began := time.Now()
					err := g.use(func(r *run.Run) error { _, err := r.Enter(t.Context()); return err })
					require.ErrorIs(t, err, journal.ErrUnavailable)
					require.LessOrEqual(t, time.Since(began), 2*patience)
				})
			}
			all.Wait()
			j.pause.Store(0)
			g.enter()()
		})
	}
}

func TestARunWhoseLogWasTrimmedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		g := newGateway(t, j, "one")
		g.enter()()
		var end journal.Tip
		for e, err := range j.ReadSession(t.Context(), journal.RunSession("r"), journal.Tip{}) {
			require.NoError(t, err)
			end = e.Tip
		}
		time.Sleep(10 * time.Minute)
		require.Greater(t, count(t, j), 1)
		require.NoError(t, j.Trim(t.Context(), map[string]journal.Tip{journal.RunSession("r"): end}))
		g.enter()() // it has read all that was there
		two := newGateway(t, j, "two")
		require.ErrorIs(t, two.use(func(r *run.Run) error { _, err := r.Enter(t.Context()); return err }), run.ErrOver)
	})
}

func TestAnEventIsAppendedOnceWhoeverSaysIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journaltest.NewFaulty(mem.New(mem.Options{}), journaltest.Faults{Seed: 1, LoseAck: 0.3, Delay: 0.5, MaxDelay: 50 * time.Millisecond})
		gates := []gateway{newGateway(t, j, "one"), newGateway(t, j, "two")}
		for round := range 10 {
			var all sync.WaitGroup
			for i, g := range slices.Concat(gates, gates) {
				all.Go(func() {
					ev := &event.Event{
						Id: fmt.Sprint("weights-", round), Run: "r", Session: journal.RunSession("r"), Producer: fmt.Sprint(i),
						Body: &event.Event_WeightsUpdated{WeightsUpdated: &event.WeightsUpdated{Version: int32(round)}},
					}
					require.NoError(t, g.use(func(r *run.Run) error { return r.Append(t.Context(), ev) }))
				})
			}
			all.Wait()
			require.Equal(t, round+1, count(t, j))
		}
	})
}

func TestTurnsThatBeginAtOnceSayItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &slow{Journal: mem.New(mem.Options{})}
		j.pause.Store(int64(10 * time.Millisecond))
		g := newGateway(t, j, "one")
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { g.enter()() })
		}
		all.Wait()
		require.Equal(t, 1, count(t, j))
	})
}

// parting is a log whose answer to "nothing is served any more" is late.
type parting struct {
	journal.Journal
	said, answer chan struct{}
}

func (p parting) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	next, err := p.Journal.Append(ctx, tip, ev)
	if w := ev.GetRunServed(); w != nil && !w.GetServing() {
		p.said <- struct{}{}
		<-p.answer
	}
	return next, err
}

func TestADrainMissesNoTurnOfAGatewayThatIsTakingLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New(mem.Options{})
		p := parting{j, make(chan struct{}), make(chan struct{})}
		one, two := newGateway(t, j, "one"), newGateway(t, p, "two")
		two.enter()()
		<-p.said
		entered, drained := make(chan func(), 1), make(chan []string, 1)
		go func() { entered <- two.enter() }()
		synctest.Wait()
		go func() { drained <- one.drain() }()
		time.Sleep(3 * run.Lease)
		synctest.Wait()
		require.Len(t, drained, 1)
		require.Empty(t, entered, "drained, with a turn under way")
		close(p.answer)
		one.hold(false)
		leave := <-entered
		go func() { drained <- one.drain() }()
		<-drained
		time.Sleep(10 * run.Lease)
		synctest.Wait()
		require.Empty(t, drained)
		leave()
		<-p.said
		require.Empty(t, <-drained)
	})
}

// Random turns and orders of three gateways on a log with faults: between the
// return of a hold and the next resume no turn begins, and when a drain has
// returned none is under way.
func TestNoTurnBeginsWhileItsRunIsHeld(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			j := journaltest.NewFaulty(mem.New(mem.Options{}), journaltest.Faults{
				Seed: seed, Drop: 0.1, LoseAck: 0.1, Duplicate: 0.05, Delay: 0.5, MaxDelay: 200 * time.Millisecond, Unavailable: 0.05,
			})
			var mu sync.Mutex
			held, running, turns := false, 0, 0
			var all sync.WaitGroup
			over := time.Now().Add(5 * time.Minute)
			gates := []gateway{newGateway(t, j, "one"), newGateway(t, j, "two"), newGateway(t, j, "three")}
			for w := range 6 {
				rng := rand.New(rand.NewPCG(seed, uint64(w)))
				all.Go(func() {
					for time.Now().Before(over) {
						leave := gates[w%3].enter()
						mu.Lock()
						require.False(t, held, "seed %d: a turn began", seed)
						running++
						turns++
						mu.Unlock()
						time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Second))))
						mu.Lock()
						running--
						mu.Unlock()
						leave()
						time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
					}
				})
			}
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 99))
				for time.Now().Before(over) {
					time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Second))))
					g := gates[rng.IntN(3)]
					drains := rng.IntN(2) == 0
					if drains {
						require.Empty(t, g.drain())
					} else {
						g.hold(true)
					}
					mu.Lock()
					held = true
					require.False(t, drains && running > 0, "seed %d: %d turns after a drain", seed, running)
					mu.Unlock()
					time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Second))))
					mu.Lock()
					held = false
					mu.Unlock()
					gates[rng.IntN(3)].hold(false)
				}
			})
			all.Wait()
			require.Greater(t, turns, 30)
		})
	}
}
