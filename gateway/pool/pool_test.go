package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer"
)

// fake is an engine that does what its function says.
type fake struct {
	mu    sync.Mutex
	calls []string // sessions, in order
	do    func(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) error
	check func() (engine.Info, error)
	// report is what it says of an answer, besides how it ended.
	report engine.Report
	peak   int
	busy   int
}

func (f *fake) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	f.mu.Lock()
	f.calls = append(f.calls, req.Session)
	f.busy++
	f.peak = max(f.peak, f.busy)
	do, report := f.do, f.report
	report.FinishReason = "stop"
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.busy--
		f.mu.Unlock()
	}()
	if do == nil {
		return report, emit(engine.Chunk{IDs: []uint32{1}, Logprobs: []float32{-1}})
	}
	return report, do(ctx, req, emit)
}

func (f *fake) Check(context.Context, tokenizer.Tokenizer) (engine.Info, error) {
	if f.check == nil {
		return engine.Info{Kind: "sglang"}, nil
	}
	return f.check()
}

func (f *fake) set(do func(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = do
}

func (f *fake) fail(class engine.Class) {
	f.set(func(context.Context, engine.Request, func(engine.Chunk) error) error {
		return &engine.Error{Class: class, Message: "as told"}
	})
}

func (f *fake) work(d time.Duration) {
	f.set(func(ctx context.Context, _ engine.Request, _ func(engine.Chunk) error) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fake) sessions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// newPool returns a pool of n fakes named a, b, c, ...
func newPool(t *testing.T, cfg Config, n int) (*Pool, []*fake) {
	t.Helper()
	var fakes []*fake
	var replicas []Replica
	for i := range n {
		f := &fake{}
		fakes = append(fakes, f)
		replicas = append(replicas, Replica{Name: string(rune('a' + i)), Kind: "fake", Engine: f})
	}
	p, err := New(cfg, replicas...)
	require.NoError(t, err)
	t.Cleanup(func() {
		s := p.Stats()
		require.Zero(t, s.Waiting, "nobody waits when all is over")
		for _, r := range s.Replicas {
			require.Zero(t, r.InFlight, "every slot came back")
			require.Zero(t, r.Waiting)
		}
	})
	return p, fakes
}

func discard(engine.Chunk) error { return nil }

func ask(t *testing.T, p *Pool, session string) (Result, error) {
	t.Helper()
	return p.Generate(t.Context(), engine.Request{Session: session}, discard, nil)
}

func state(p *Pool, name string) ReplicaStats {
	for _, r := range p.Stats().Replicas {
		if r.Name == name {
			return r
		}
	}
	return ReplicaStats{}
}

func TestAStickySessionStaysOnItsReplicaAndSessionsSpread(t *testing.T) {
	p, fakes := newPool(t, Config{}, 3)
	for range 4 {
		for s := range 9 {
			_, err := ask(t, p, fmt.Sprint("s", s))
			require.NoError(t, err)
		}
	}
	for _, f := range fakes {
		seen := map[string]int{}
		for _, s := range f.sessions() {
			seen[s]++
		}
		require.Len(t, seen, 3)
		for _, n := range seen {
			require.Equal(t, 4, n)
		}
	}
}

func TestRoundRobinCycles(t *testing.T) {
	p, fakes := newPool(t, Config{Policy: RoundRobin}, 3)
	for range 9 {
		_, err := ask(t, p, "s")
		require.NoError(t, err)
	}
	for _, f := range fakes {
		require.Equal(t, 3, f.count())
	}
}

func TestLeastBusyTakesTheFreeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: LeastBusy}, 2)
		for _, f := range fakes {
			f.work(time.Minute)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { _, _ = ask(t, p, "s") })
			synctest.Wait()
		}
		require.Equal(t, 5, fakes[0].count())
		require.Equal(t, 5, fakes[1].count())
		wg.Wait()
	})
}

func TestAPromptGoesWhereItsBeginningWasSeenUnlessThatOneIsMuchBusier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: Prefix}, 2)
		long := make([]uint32, 4096)
		first, err := p.Generate(t.Context(), engine.Request{Prompt: long}, discard, nil)
		require.NoError(t, err)
		for range 5 {
			again, err := p.Generate(t.Context(), engine.Request{Prompt: long}, discard, nil)
			require.NoError(t, err)
			require.Equal(t, first.Backend, again.Backend)
		}
		for _, f := range fakes {
			f.work(time.Minute)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _, _ = p.Generate(t.Context(), engine.Request{Prompt: long}, discard, nil) })
			synctest.Wait()
		}
		wg.Wait()
		require.Less(t, fakes[0].count(), 14)
		require.Positive(t, min(fakes[0].count(), fakes[1].count()))
	})
}

func TestWhatDidNotReachAnybodyGoesOnToAnotherReplicaAndIsReported(t *testing.T) {
	p, fakes := newPool(t, Config{Policy: RoundRobin}, 2)
	for _, f := range fakes {
		f.set(func(_ context.Context, req engine.Request, emit func(engine.Chunk) error) error {
			if err := emit(engine.Chunk{IDs: []uint32{7, 8}, Logprobs: []float32{-0.5, -0.25}}); err != nil {
				return err
			}
			if f == fakes[0] {
				return &engine.Error{Class: engine.Unreachable, Message: "cut"}
			}
			return nil
		})
	}
	for range 2 {
		var got []uint32
		res, err := p.Generate(t.Context(), engine.Request{Session: "s"},
			func(c engine.Chunk) error { got = append(got, c.IDs...); return nil },
			func() bool { got = nil; return true })
		require.NoError(t, err)
		require.Equal(t, "b", res.Backend)
		require.Equal(t, "fake", res.Engine)
		require.Equal(t, []uint32{7, 8}, got)
		if fakes[0].count() == 0 {
			continue
		}
		require.Len(t, res.Attempts, 1)
		require.Equal(t, "a", res.Attempts[0].Backend)
		require.Contains(t, res.Attempts[0].Error, "cut")
		require.Equal(t, []uint32{7, 8}, event.IDs(nil, res.Attempts[0].Ids))
		require.Equal(t, []float32{-0.5, -0.25}, event.Floats(nil, res.Attempts[0].Logprobs))
		return
	}
	t.Fatal("the failing replica was never tried")
}

func TestWhatReachedSomebodyIsNotTriedAgain(t *testing.T) {
	p, fakes := newPool(t, Config{}, 2)
	for _, f := range fakes {
		f.set(func(_ context.Context, _ engine.Request, emit func(engine.Chunk) error) error {
			_ = emit(engine.Chunk{IDs: []uint32{7}, Logprobs: []float32{-0.5}})
			return &engine.Error{Class: engine.Unreachable, Message: "cut"}
		})
	}
	res, err := ask(t, p, "s")
	require.Equal(t, engine.Unreachable, engine.ClassOf(err))
	require.Empty(t, res.Attempts)
	require.Equal(t, 1, fakes[0].count()+fakes[1].count())

	_, err = p.Generate(t.Context(), engine.Request{}, discard, func() bool { return false })
	require.Equal(t, engine.Unreachable, engine.ClassOf(err))
}

func TestARequestAtFaultIsNotTriedAgainAndSaysNothingAboutTheReplica(t *testing.T) {
	for _, class := range []engine.Class{engine.Refused, engine.TooLong} {
		p, fakes := newPool(t, Config{}, 2)
		fakes[0].fail(class)
		fakes[1].fail(class)
		for range 5 {
			_, err := ask(t, p, "s")
			require.Equal(t, class, engine.ClassOf(err))
		}
		require.Equal(t, 5, fakes[0].count()+fakes[1].count())
		require.Equal(t, "up", state(p, "a").State)
		require.Equal(t, "up", state(p, "b").State)
	}
}

func TestWithoutConnectionAReplicaRestsAtOnceAndTheSessionMovesForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Cooldown: 30 * time.Second}, 2)
		first, err := ask(t, p, "s")
		require.NoError(t, err)
		home, other := fakes[0], fakes[1]
		if first.Backend == "b" {
			home, other = other, home
		}
		home.fail(engine.Unreachable)
		second, err := ask(t, p, "s")
		require.NoError(t, err)
		require.NotEqual(t, first.Backend, second.Backend)
		require.Equal(t, "resting", state(p, first.Backend).State)
		require.Contains(t, state(p, first.Backend).Reason, "as told")

		home.set(nil)
		time.Sleep(31 * time.Second)
		for range 3 {
			third, err := ask(t, p, "s")
			require.NoError(t, err)
			require.Equal(t, second.Backend, third.Backend)
		}
		require.Equal(t, 4, other.count())
	})
}

func TestAfterItsRestOneRequestTriesAReplicaAndAFailureDoublesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: RoundRobin, Cooldown: 10 * time.Second, MaxCooldown: 25 * time.Second}, 2)
		fakes[0].fail(engine.Unreachable)
		burst := func(n int) {
			for range n {
				_, err := ask(t, p, "s")
				require.NoError(t, err)
			}
		}
		burst(6)
		require.Equal(t, 1, fakes[0].count())
		for i, rest := range []time.Duration{10, 20, 25, 25} {
			time.Sleep(rest*time.Second - time.Millisecond)
			burst(4)
			require.Equal(t, 1+i, fakes[0].count(), "before the rest is over")
			time.Sleep(2 * time.Millisecond)
			burst(4)
			require.Equal(t, 2+i, fakes[0].count(), "one trial")
		}
		fakes[0].set(nil)
		time.Sleep(26 * time.Second)
		burst(8)
		require.Equal(t, "up", state(p, "a").State)
		require.Greater(t, fakes[0].count(), 8)
	})
}

func TestWhileATrialRunsNoOtherRequestJoinsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: LeastBusy, Cooldown: time.Second}, 2)
		fakes[0].fail(engine.Unreachable)
		for range 2 {
			_, _ = ask(t, p, "s")
		}
		fakes[0].work(time.Minute)
		fakes[1].work(time.Minute)
		time.Sleep(2 * time.Second)
		before := fakes[0].count()
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() { _, _ = ask(t, p, "s") })
		}
		synctest.Wait()
		require.Equal(t, before+1, fakes[0].count())
		require.Equal(t, "trial", state(p, "a").State)
		wg.Wait()
		require.Equal(t, "up", state(p, "a").State)
	})
}

func TestAStreakOfFailuresLetsAReplicaRestAndASuccessEndsTheStreak(t *testing.T) {
	for _, class := range []engine.Class{engine.Failed, engine.Broken} {
		p, fakes := newPool(t, Config{FailuresToRest: 3}, 1)
		for range 2 {
			fakes[0].fail(class)
			for range 2 {
				_, err := ask(t, p, "s")
				require.Equal(t, class, engine.ClassOf(err))
				require.Equal(t, "up", state(p, "a").State)
			}
			fakes[0].set(nil)
			_, err := ask(t, p, "s")
			require.NoError(t, err)
		}
		require.Equal(t, "up", state(p, "a").State)
		fakes[0].fail(class)
		for range 3 {
			_, _ = ask(t, p, "s")
		}
		require.Equal(t, "resting", state(p, "a").State)
	}
}

func TestASlowGenerationAndACanceledOneAreNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{}, 1)
		fakes[0].work(20 * time.Minute)
		_, err := ask(t, p, "s")
		require.NoError(t, err)
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = p.Generate(ctx, engine.Request{}, discard, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		require.Equal(t, "up", state(p, "a").State)
		require.Zero(t, state(p, "a").InFlight)
	})
}

func TestWhereAllRestAllAreTriedAndTheFirstSuccessBringsOneBack(t *testing.T) {
	p, fakes := newPool(t, Config{Policy: RoundRobin}, 2)
	for _, f := range fakes {
		f.fail(engine.Unreachable)
	}
	res, err := ask(t, p, "s")
	require.Equal(t, engine.Unreachable, engine.ClassOf(err))
	require.Len(t, res.Attempts, 1)
	fakes[0].set(nil)
	fakes[1].set(nil)
	_, err = ask(t, p, "s")
	require.NoError(t, err)
	_, err = ask(t, p, "s")
	require.NoError(t, err)
}

func TestAnOverloadedReplicaIsAvoidedForAsLongAsItAsked(t *testing.T) {
	for _, policy := range []Policy{LeastBusy, RoundRobin} {
		synctest.Test(t, func(t *testing.T) { overloaded(t, policy) })
	}
}

func overloaded(t *testing.T, policy Policy) {
	p, fakes := newPool(t, Config{Policy: policy}, 2)
	fakes[0].set(func(context.Context, engine.Request, func(engine.Chunk) error) error {
		return &engine.Error{Class: engine.Overloaded, RetryAfter: 10 * time.Second}
	})
	for range 2 {
		_, err := ask(t, p, "s")
		require.NoError(t, err)
	}
	require.Equal(t, 1, fakes[0].count())
	time.Sleep(9 * time.Second)
	for range 4 {
		_, _ = ask(t, p, "s")
	}
	require.Equal(t, 1, fakes[0].count())
	time.Sleep(2 * time.Second)
	for range 2 {
		_, _ = ask(t, p, "s")
	}
	require.Equal(t, 2, fakes[0].count())
	require.Equal(t, "up", state(p, "a").State)
}

func TestAReplicaNeverHasMoreRequestsThanItsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 2}, 2)
		for _, f := range fakes {
			f.work(time.Second)
		}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				_, err := ask(t, p, fmt.Sprint("s", i%10))
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		require.Equal(t, 36, p.Stats().Waiting)
		wg.Wait()
		require.Equal(t, 2, fakes[0].peak)
		require.Equal(t, 2, fakes[1].peak)
		require.Zero(t, p.Stats().Waiting)
	})
}

func TestASessionWithManyRequestsDoesNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1}, 1)
		fakes[0].work(time.Second)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _ = ask(t, p, "greedy") })
		}
		synctest.Wait()
		for i := range 5 {
			wg.Go(func() { _, _ = ask(t, p, fmt.Sprint("modest", i)) })
		}
		synctest.Wait()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		modest := 0
		for _, s := range fakes[0].sessions() {
			if s != "greedy" {
				modest++
			}
		}
		require.Equal(t, 5, modest)
		wg.Wait()
	})
}

func TestSessionsThatWaitTakeTurns(t *testing.T) {
	for _, policy := range []Policy{Sticky, LeastBusy} {
		synctest.Test(t, func(t *testing.T) {
			p, fakes := newPool(t, Config{Concurrency: 1, Policy: policy}, 1)
			fakes[0].work(time.Second)
			var wg sync.WaitGroup
			for _, s := range []string{"first", "a", "a", "a", "b", "b", "b", "c", "c", "c"} {
				wg.Go(func() { _, _ = ask(t, p, s) })
				synctest.Wait()
			}
			wg.Wait()
			require.Equal(t, []string{"first", "a", "b", "c", "a", "b", "c", "a", "b", "c"}, fakes[0].sessions())
		})
	}
}

func TestNewSessionsWaitWhereFewestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1}, 2)
		for _, f := range fakes {
			f.work(time.Second)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { _, _ = ask(t, p, fmt.Sprint("s", i)) })
			synctest.Wait()
		}
		require.Equal(t, 3, state(p, "a").Waiting)
		require.Equal(t, 3, state(p, "b").Waiting)
		wg.Wait()
	})
}

func TestAnOverloadedReplicaThatDoesNotSayForHowLongIsAvoidedForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: RoundRobin}, 2)
		fakes[0].fail(engine.Overloaded)
		burst := func() {
			for range 4 {
				_, err := ask(t, p, "s")
				require.NoError(t, err)
			}
		}
		burst()
		require.Equal(t, 1, fakes[0].count())
		time.Sleep(2 * time.Second)
		burst()
		require.Equal(t, 2, fakes[0].count())
	})
}

func TestAFullQueueRefusesAndAWaiterThatLeavesMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1, Queue: 1}, 1)
		fakes[0].work(time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = ask(t, p, "s") })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := p.Generate(ctx, engine.Request{}, discard, nil)
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		_, err := ask(t, p, "s")
		require.Equal(t, engine.Overloaded, engine.ClassOf(err))
		require.Equal(t, 1, state(p, "a").Waiting)
		cancel()
		synctest.Wait()
		require.Zero(t, p.Stats().Waiting)
		require.Zero(t, state(p, "a").Waiting)
		res, err := ask(t, p, "s")
		require.NoError(t, err)
		require.Equal(t, time.Minute, res.Queued)
		wg.Wait()
	})
}

func TestDrainingWaitsForWhatRunsAndMovesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1}, 2)
		first, err := ask(t, p, "s")
		require.NoError(t, err)
		home, other := fakes[0], fakes[1]
		if first.Backend == "b" {
			home, other = other, home
		}
		home.work(time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = ask(t, p, "s") })
		synctest.Wait()
		wg.Go(func() {
			res, err := ask(t, p, "s")
			require.NoError(t, err)
			require.NotEqual(t, first.Backend, res.Backend)
		})
		synctest.Wait()
		start := time.Now()
		require.NoError(t, p.Drain(t.Context(), first.Backend))
		require.Equal(t, time.Minute, time.Since(start))
		wg.Wait()
		require.Equal(t, 1, other.count())
		require.Equal(t, "draining", state(p, first.Backend).State)
		require.NoError(t, p.Resume(first.Backend))
		require.Equal(t, "up", state(p, first.Backend).State)
		require.ErrorIs(t, p.Drain(t.Context(), "nobody"), ErrUnknown)
		require.ErrorIs(t, p.Resume("nobody"), ErrUnknown)
	})
}

func TestADrainThatIsGivenUpCanBeMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{}, 1)
		require.NoError(t, p.Drain(t.Context(), "a"), "there is nothing to wait for")
		require.NoError(t, p.Drain(t.Context(), "a"))
		_, err := ask(t, p, "s")
		require.ErrorIs(t, err, ErrEmpty)
		require.NoError(t, p.Resume("a"))

		fakes[0].work(time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = ask(t, p, "s") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Drain(ctx, "a"), context.DeadlineExceeded)
		var drains sync.WaitGroup
		for range 2 { // all who wait are told
			drains.Go(func() { require.ErrorIs(t, p.Drain(t.Context(), "a"), ErrResumed) })
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, p.Resume("a"))
		drains.Wait()
		require.Zero(t, time.Since(start), "at once, not when the replica is idle")
		wg.Wait()
		start = time.Now()
		require.NoError(t, p.Drain(t.Context(), "a"))
		require.Zero(t, time.Since(start))
	})
}

// TestADrainingReplicaGetsNothingThoughAllOthersRest: an operator took it out.
func TestADrainingReplicaGetsNothingThoughAllOthersRest(t *testing.T) {
	for _, policy := range []Policy{Sticky, RoundRobin, LeastBusy, Prefix} {
		p, fakes := newPool(t, Config{Policy: policy}, 3)
		require.NoError(t, p.Drain(t.Context(), "a"))
		fakes[1].fail(engine.Unreachable)
		fakes[2].fail(engine.Unreachable)
		for i := range 8 {
			_, err := ask(t, p, fmt.Sprint("s", i))
			require.Equal(t, engine.Unreachable, engine.ClassOf(err))
		}
		require.Zero(t, fakes[0].count(), policy)
	}
}

func TestAReplicaThatIsResumedServesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1, Policy: LeastBusy}, 2)
		require.NoError(t, p.Drain(t.Context(), "b"))
		fakes[0].work(time.Hour)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = ask(t, p, "s") })
		}
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Waiting)
		require.NoError(t, p.Resume("b"))
		synctest.Wait()
		require.Equal(t, 1, fakes[1].count())
		wg.Wait()
	})
}

// TestThoseWhoWaitWhenTheLastReplicaGoesAreTold: they do not wait for ever.
func TestThoseWhoWaitWhenTheLastReplicaGoesAreTold(t *testing.T) {
	for _, policy := range []Policy{Sticky, LeastBusy} {
		synctest.Test(t, func(t *testing.T) {
			p, fakes := newPool(t, Config{Concurrency: 1, Policy: policy}, 1)
			fakes[0].work(time.Hour)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = ask(t, p, "s") })
			synctest.Wait()
			wg.Go(func() {
				start := time.Now()
				_, err := ask(t, p, "s")
				require.ErrorIs(t, err, ErrEmpty)
				require.Zero(t, time.Since(start))
			})
			synctest.Wait()
			require.NoError(t, p.Remove("a"))
			wg.Wait()
		})
	}
}

// TestASlotThatComesAsItsRequestIsCanceledIsGivenBack: both can be true at once.
func TestASlotThatComesAsItsRequestIsCanceledIsGivenBack(t *testing.T) {
	p, _ := newPool(t, Config{Concurrency: 1}, 1)
	canceled := 0
	for range 64 {
		s, err := p.acquire(&late{Context: t.Context()}, &engine.Request{}, nil)
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			canceled++
			continue
		}
		p.release(s, nil)
	}
	require.Positive(t, canceled)
}

// late is a context that ends once somebody has seen that it has not.
type late struct {
	context.Context
	seen bool
}

func (l *late) Err() error {
	if !l.seen {
		l.seen = true
		return nil
	}
	return context.Canceled
}

func (l *late) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// TestAFailureGoesOnToAReplicaThatWasNotTried: it is not the same one again, be it
// that the request has to wait for another.
func TestAFailureGoesOnToAReplicaThatWasNotTried(t *testing.T) {
	for _, policy := range []Policy{Sticky, RoundRobin, LeastBusy, Prefix} {
		synctest.Test(t, func(t *testing.T) {
			p, fakes := newPool(t, Config{Policy: policy, Concurrency: 1, FailuresToRest: 100}, 2)
			for _, f := range fakes {
				f.fail(engine.Failed)
			}
			res, err := ask(t, p, "s")
			require.Equal(t, engine.Failed, engine.ClassOf(err))
			require.Len(t, res.Attempts, 1)
			require.Equal(t, 1, fakes[0].count())
			require.Equal(t, 1, fakes[1].count())

			// One is busy: who failed at the other waits for it, and lets others pass.
			fakes[1].work(time.Minute)
			var wg sync.WaitGroup
			for fakes[1].count() == 1 {
				wg.Go(func() { _, _ = ask(t, p, fmt.Sprint("busy", fakes[0].count())) })
				synctest.Wait()
			}
			fakes[0].fail(engine.Failed)
			wg.Go(func() {
				res, err := ask(t, p, "")
				require.NoError(t, err)
				require.Equal(t, "b", res.Backend)
			})
			synctest.Wait()
			fakes[0].set(nil)
			if policy != Sticky { // there, sessions are spread by who waits
				for range 3 {
					res, err := ask(t, p, "other")
					require.NoError(t, err)
					require.Equal(t, "a", res.Backend)
					require.Zero(t, res.Queued)
				}
			}
			wg.Wait()
		})
	}
}

func TestAnEngineThatIsStoppedBecauseItIsEnoughHasServed(t *testing.T) {
	p, fakes := newPool(t, Config{FailuresToRest: 1}, 1)
	fakes[0].set(func(_ context.Context, _ engine.Request, emit func(engine.Chunk) error) error {
		return emit(engine.Chunk{IDs: []uint32{1}, Logprobs: []float32{-1}})
	})
	res, err := p.Generate(t.Context(), engine.Request{}, func(engine.Chunk) error { return engine.ErrEnough }, nil)
	require.NoError(t, err)
	require.Equal(t, "stop", res.FinishReason)
	require.Empty(t, res.Attempts)
	require.Equal(t, uint64(1), state(p, "a").Served)
}

// TestWhatAnAttemptLacksIsNotInvented: an attempt of which some logprobs never came
// has none, and ids that were left out are an attempt of their own.
func TestWhatAnAttemptLacksIsNotInvented(t *testing.T) {
	p, fakes := newPool(t, Config{Policy: RoundRobin}, 2)
	for i, f := range fakes {
		f.report.Discarded = []uint32{uint32(10 + i)}
		f.set(func(_ context.Context, _ engine.Request, emit func(engine.Chunk) error) error {
			_ = emit(engine.Chunk{IDs: []uint32{7}, Logprobs: []float32{-0.5}})
			_ = emit(engine.Chunk{IDs: []uint32{8}})
			return &engine.Error{Class: engine.Failed}
		})
	}
	res, err := p.Generate(t.Context(), engine.Request{}, discard, func() bool { return true })
	require.Equal(t, engine.Failed, engine.ClassOf(err))
	require.Len(t, res.Attempts, 3)
	require.Equal(t, discarded, res.Attempts[0].Error)
	require.Len(t, event.IDs(nil, res.Attempts[0].Ids), 1)
	require.Equal(t, []uint32{7, 8}, event.IDs(nil, res.Attempts[1].Ids))
	require.Empty(t, res.Attempts[1].Logprobs)
	require.Equal(t, discarded, res.Attempts[2].Error)
}

func TestWaitingIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1}, 1)
		fakes[0].work(time.Second)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { _, _ = ask(t, p, fmt.Sprint("s", i)) })
			synctest.Wait()
		}
		s := p.Stats()
		require.Equal(t, 3, s.Waiting)
		require.Equal(t, uint64(3), s.Queued)
		require.Equal(t, uint64(1+2+3), s.Positions)
		require.Equal(t, 1, s.Replicas[0].InFlight)
		wg.Wait()
		require.Equal(t, uint64(4), state(p, "a").Served)
	})
}

// TestServedAndFailedSayWhatBecameOfRequests: one that was canceled is neither, one
// at fault was answered.
func TestServedAndFailedSayWhatBecameOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{FailuresToRest: 100}, 1)
		_, err := ask(t, p, "s")
		require.NoError(t, err)
		for _, class := range []engine.Class{engine.Refused, engine.TooLong, engine.Failed, engine.Broken, engine.Overloaded} {
			fakes[0].fail(class)
			_, err := ask(t, p, "s")
			require.Equal(t, class, engine.ClassOf(err))
		}
		fakes[0].work(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Generate(ctx, engine.Request{}, discard, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, uint64(3), state(p, "a").Served)
		require.Equal(t, uint64(3), state(p, "a").Failed)
		fakes[0].fail(engine.Unreachable)
		_, _ = ask(t, p, "s")
		require.Equal(t, uint64(4), state(p, "a").Failed)
	})
}

// TestWhenARestEndsWhoeverWaitsIsTheTrial: nobody has to come for it.
func TestWhenARestEndsWhoeverWaitsIsTheTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: LeastBusy, Concurrency: 1, Cooldown: time.Minute}, 2)
		fakes[0].fail(engine.Unreachable)
		for range 2 {
			_, _ = ask(t, p, "s")
		}
		require.Equal(t, "resting", state(p, "a").State)
		fakes[0].set(nil)
		fakes[1].work(time.Hour)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = ask(t, p, "s") })
		synctest.Wait()
		wg.Go(func() {
			res, err := ask(t, p, "s")
			require.NoError(t, err)
			require.Equal(t, "a", res.Backend)
			require.Equal(t, time.Minute, res.Queued)
		})
		wg.Wait()
	})
}

// TestOnlyTheTrialDecidesAboutTheRest: what had begun before the rest says nothing
// about whether it is over, and no second trial joins the first.
func TestOnlyTheTrialDecidesAboutTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: LeastBusy, Cooldown: time.Second}, 2)
		fakes[1].work(time.Hour) // never the less busy one for long
		fakes[0].work(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = p.Generate(ctx, engine.Request{}, discard, nil) })
			synctest.Wait()
		}
		require.Equal(t, 1, state(p, "a").InFlight)
		fakes[0].fail(engine.Unreachable)
		for state(p, "a").State == "up" {
			wg.Go(func() { _, _ = ask(t, p, "s") })
			synctest.Wait()
		}
		fakes[0].work(time.Minute)
		time.Sleep(2 * time.Second)
		for state(p, "a").State != "trial" {
			wg.Go(func() { _, _ = ask(t, p, "s") })
			synctest.Wait()
		}
		cancel() // the old ones end
		synctest.Wait()
		require.Equal(t, "trial", state(p, "a").State)
		trials := fakes[0].count()
		for range 4 {
			wg.Go(func() { _, _ = ask(t, p, "s") })
		}
		synctest.Wait()
		require.Equal(t, trials, fakes[0].count())
		wg.Wait()
		require.Equal(t, "up", state(p, "a").State)
	})
}

func TestAnAddedReplicaServesThoseWhoWaitAndARemovedOneGetsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1, Policy: LeastBusy}, 1)
		fakes[0].work(time.Hour)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = ask(t, p, "s") })
		}
		synctest.Wait()
		added := &fake{}
		require.NoError(t, p.Add(Replica{Name: "z", Engine: added}))
		synctest.Wait()
		require.Equal(t, 1, added.count())
		require.ErrorIs(t, p.Add(Replica{Name: "z", Engine: added}), ErrDuplicate)
		require.NoError(t, p.Remove("a"))
		require.NoError(t, p.Remove("z"))
		require.ErrorIs(t, p.Remove("z"), ErrUnknown)
		_, err := ask(t, p, "s")
		require.ErrorIs(t, err, ErrEmpty)
		wg.Wait()
	})
}

func TestThoseWhoWaitForAReplicaThatFailsGoElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Concurrency: 1}, 2)
		first, _ := ask(t, p, "s")
		home := fakes[0]
		if first.Backend == "b" {
			home = fakes[1]
		}
		home.set(func(context.Context, engine.Request, func(engine.Chunk) error) error {
			time.Sleep(time.Second)
			return &engine.Error{Class: engine.Unreachable}
		})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := ask(t, p, "s")
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 2, home.count())
	})
}

func TestPinsAreBoundedAndForgotten(t *testing.T) {
	p, _ := newPool(t, Config{Pins: 4}, 2)
	home := map[string]string{}
	for i := range 10 {
		s := fmt.Sprint("s", i)
		res, err := ask(t, p, s)
		require.NoError(t, err)
		home[s] = res.Backend
	}
	require.Equal(t, 4, p.Stats().Pins)
	for i := 6; i < 10; i++ {
		s := fmt.Sprint("s", i)
		res, err := ask(t, p, s)
		require.NoError(t, err)
		require.Equal(t, home[s], res.Backend)
	}
	// The most recently used ones stay: s6 was used last but for s7, s8 and s9.
	_, err := ask(t, p, "s6")
	require.NoError(t, err)
	for _, s := range []string{"t1", "t2", "t3"} {
		_, err := ask(t, p, s)
		require.NoError(t, err)
	}
	require.NotNil(t, p.pins.get("s6"))
	require.Nil(t, p.pins.get("s9"))
	_, err = ask(t, p, "s9")
	require.NoError(t, err)
	p.Forget("s9")
	require.Equal(t, 3, p.Stats().Pins)
}

func TestAReplicaIsCheckedBeforeItsFirstRequestAndAfterItWasUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Tokenizer: anyTokenizer{}, Cooldown: time.Second}, 1)
		checks := 0
		fakes[0].check = func() (engine.Info, error) { checks++; return engine.Info{Kind: "sglang"}, nil }
		for range 3 {
			_, err := ask(t, p, "s")
			require.NoError(t, err)
		}
		require.Equal(t, 1, checks)
		fakes[0].fail(engine.Failed)
		_, err := ask(t, p, "s")
		require.Error(t, err)
		require.Equal(t, "up", state(p, "a").State, "one failure of an engine that was found right is one")
		fakes[0].fail(engine.Unreachable)
		_, err = ask(t, p, "s")
		require.Error(t, err)
		fakes[0].set(nil)
		time.Sleep(2 * time.Second)
		_, err = ask(t, p, "s")
		require.NoError(t, err)
		require.Equal(t, 2, checks)
	})
}

func TestAReplicaThatTakesTextIsCheckedWhereThatIsAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		p, fakes := newPool(t, Config{Check: asked}, 1)
		checks := 0
		fakes[0].check = func() (engine.Info, error) { checks++; return engine.Info{Kind: "openai", TextOnly: true}, nil }
		info, err := p.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, asked, info.TextOnly)
		_, err = ask(t, p, "s")
		require.NoError(t, err)
		require.Equal(t, map[bool]int{true: 1}[asked], checks)
	}
}

func TestAReplicaWithAnotherTokenizerIsNeverUsed(t *testing.T) {
	p, fakes := newPool(t, Config{Tokenizer: anyTokenizer{}, Policy: RoundRobin}, 2)
	fakes[0].check = func() (engine.Info, error) {
		return engine.Info{}, &engine.Error{Class: engine.Refused, Message: "token 3 of the probe text is 1 here and 2 there"}
	}
	for range 6 {
		res, err := ask(t, p, "s")
		require.NoError(t, err)
		require.Equal(t, "b", res.Backend)
	}
	require.Zero(t, fakes[0].count())
	require.Contains(t, state(p, "a").Reason, "1 here and 2 there")
}

// TestACheckLetsAReplicaRestThatCannotBeUsed: no request has to find out.
func TestACheckLetsAReplicaRestThatCannotBeUsed(t *testing.T) {
	p, fakes := newPool(t, Config{Check: true}, 2)
	fakes[0].check = func() (engine.Info, error) { return engine.Info{}, &engine.Error{Class: engine.Unreachable} }
	_, err := p.Check(t.Context())
	require.ErrorContains(t, err, "backend a")
	require.Equal(t, "resting", state(p, "a").State)
	require.Equal(t, "up", state(p, "b").State)
	for range 4 {
		res, err := ask(t, p, "")
		require.NoError(t, err)
		require.Equal(t, "b", res.Backend)
		require.Empty(t, res.Attempts)
	}

	q, fakes := newPool(t, Config{Check: true}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	fakes[0].check = func() (engine.Info, error) { cancel(); return engine.Info{}, context.Canceled }
	_, err = q.Check(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "up", state(q, "a").State, "nothing was learned")
}

func TestAPoolHasOneClassOfEvidence(t *testing.T) {
	p, fakes := newPool(t, Config{Tokenizer: anyTokenizer{}}, 2)
	fakes[1].check = func() (engine.Info, error) { return engine.Info{Kind: "openai", TextOnly: true}, nil }
	info, err := p.Check(t.Context())
	require.ErrorContains(t, err, "one class of evidence")
	require.Equal(t, "sglang", info.Kind)
	for range 4 {
		res, err := ask(t, p, "")
		require.NoError(t, err)
		require.Equal(t, "a", res.Backend)
	}
}

func TestAnErrorOfTheReceiverEndsTheRequest(t *testing.T) {
	p, fakes := newPool(t, Config{}, 2)
	gone := errors.New("the client is gone")
	_, err := p.Generate(t.Context(), engine.Request{}, func(engine.Chunk) error { return gone }, func() bool { return true })
	require.ErrorIs(t, err, gone)
	require.Equal(t, 1, fakes[0].count()+fakes[1].count())
}

func TestAllFaultsOfAConfigurationAreReportedAtOnce(t *testing.T) {
	_, err := New(Config{Name: "p", Policy: "random", Pins: -1, Cooldown: -1})
	require.ErrorContains(t, err, "policy")
	require.ErrorContains(t, err, "pins")
	require.ErrorContains(t, err, "cooldown")
}

// anyTokenizer stands for one where only its presence matters.
type anyTokenizer struct{ tokenizer.Tokenizer }
