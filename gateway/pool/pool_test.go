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
	peak  int
	busy  int
}

func (f *fake) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	f.mu.Lock()
	f.calls = append(f.calls, req.Session)
	f.busy++
	f.peak = max(f.peak, f.busy)
	do := f.do
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.busy--
		f.mu.Unlock()
	}()
	if do == nil {
		return engine.Report{FinishReason: "stop"}, emit(engine.Chunk{IDs: []uint32{1}, Logprobs: []float32{-1}})
	}
	return engine.Report{FinishReason: "stop"}, do(ctx, req, emit)
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
	synctest.Test(t, func(t *testing.T) {
		p, fakes := newPool(t, Config{Policy: LeastBusy}, 2)
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
	})
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
		cancel()
		synctest.Wait()
		require.Zero(t, p.Stats().Waiting)
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
		fakes[0].fail(engine.Unreachable)
		_, err := ask(t, p, "s")
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
	_, err := p.Check(t.Context())
	require.ErrorContains(t, err, "backend a")
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
