package worker_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/journal/mem"
)

// fill appends the logs of sessions to a journal, interleaved.
func fill(t *testing.T, j journal.Journal, sessions ...*sessiontest.Session) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	tips := map[string]journal.Tip{}
	at := map[string]int{}
	for left := slices.Clone(sessions); len(left) > 0; {
		i := rng.IntN(len(left))
		s := left[i]
		if at[s.ID] == len(s.Events) {
			left = slices.Delete(left, i, i+1)
			continue
		}
		tip, err := j.Append(t.Context(), tips[s.ID], s.Events[at[s.ID]])
		require.NoError(t, err)
		tips[s.ID] = tip
		at[s.ID]++
	}
}

func random(n int) []*sessiontest.Session {
	var out []*sessiontest.Session
	for i := range n {
		out = append(out, sessiontest.Random(fmt.Sprintf("session-%d", i), uint64(i)))
	}
	return out
}

// crowd is random sessions, most of them of one partition, so that batches of
// it are large.
func crowd(n int) (out []*sessiontest.Session) {
	for i := 0; len(out) < n; i++ {
		id := fmt.Sprintf("session-%d", i)
		if journal.PartitionOf(id) == 7 || len(out) < n/4 {
			out = append(out, sessiontest.Random(id, uint64(len(out))))
		}
	}
	return out
}

// released are sessions that are parked and released, now and then.
func released(n int) (out []*sessiontest.Session) {
	for seed := uint64(0); len(out) < n; seed++ {
		id := fmt.Sprintf("released-%d", seed)
		if s, order := sessiontest.Parked(id, seed); order >= 0 && (journal.PartitionOf(id) == 7 || len(out) < n/3) {
			out = append(out, s)
		}
	}
	return out
}

// distinct counts the events with an id of their own.
func distinct(sessions []*sessiontest.Session) int {
	n := 0
	for _, s := range sessions {
		ids := map[string]bool{}
		for _, ev := range s.Events {
			ids[ev.GetId()] = true
		}
		n += len(ids)
	}
	return n
}

// recorded is the trajectory stream: all bodies of each session.
func recorded(t *testing.T, j journal.Journal, sessions []*sessiontest.Session) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, s := range sessions {
		for e, err := range j.ReadSession(t.Context(), s.ID, journal.Tip{}) {
			require.NoError(t, err)
			out[s.ID] = append(out[s.ID], string(e.Body))
		}
	}
	return out
}

// rig is a log with a worker's surroundings. It must be made inside a synctest
// bubble.
type rig struct {
	t        *testing.T
	atOnce   bool // workers append whole batches
	sessions []*sessiontest.Session
	turns    *mem.Journal
	out      *mem.Journal
	letters  *mem.Journal
	registry *registry.Memory
	want     map[string][]string
}

func newRig(t *testing.T, sessions ...*sessiontest.Session) *rig {
	r := &rig{
		t: t, sessions: sessions,
		turns: mem.New(mem.Options{}), out: mem.New(mem.Options{}), letters: mem.New(mem.Options{}),
		registry: registry.NewMemory(),
	}
	fill(t, r.turns, sessions...)
	undisturbed := mem.New(mem.Options{})
	r.run("undisturbed", r.deps(undisturbed), nil)
	r.want = recorded(t, undisturbed, sessions)
	n := 0
	for _, bodies := range r.want {
		round := 0
		for _, body := range bodies {
			round++
			ev, err := event.Decode([]byte(body))
			require.NoError(t, err)
			for _, o := range ev.GetTrajectoryUpdate().GetOutputs() {
				if o.GetSessionRestarted() != nil {
					round = 0
				}
			}
		}
		n += round
	}
	require.Equal(t, distinct(sessions), n, "one update for each event, in the last round")
	r.registry = registry.NewMemory()
	r.letters = mem.New(mem.Options{})
	return r
}

func (r *rig) deps(out journal.Journal) worker.Deps {
	return worker.Deps{Turns: r.turns, Trajectories: out, DeadLetters: deadletter.New(r.letters), Registry: r.registry}
}

func config(group string) worker.Config {
	cfg := worker.DefaultConfig()
	cfg.Group, cfg.Batch = group, 7
	return cfg
}

// run lets a worker work until it has nothing to do, or dies.
func (r *rig) run(group string, deps worker.Deps, change func(*worker.Config)) worker.Stats {
	r.t.Helper()
	cfg := config(group)
	if r.atOnce {
		cfg.AtOnce, cfg.Batch = true, 20
	}
	if change != nil {
		change(&cfg)
	}
	w, err := worker.New(cfg, deps)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	cancel()
	err = <-done
	if err != nil {
		require.ErrorIs(r.t, err, journal.ErrClosed)
	}
	return w.Stats()
}

// lag is how many entries a group has not acknowledged.
func (r *rig) lag(group string) (n uint64) {
	for p := range journal.Partitions {
		k, err := r.turns.Pending(r.t.Context(), p, group)
		require.NoError(r.t, err)
		n += k
	}
	return n
}

func (r *rig) requireSame() {
	r.t.Helper()
	got := recorded(r.t, r.out, r.sessions)
	for _, s := range r.sessions {
		require.Len(r.t, got[s.ID], len(r.want[s.ID]), s.ID)
		for i, body := range r.want[s.ID] {
			if body != got[s.ID][i] {
				require.Fail(r.t, "other bytes", "session %s, update %d", s.ID, i)
			}
		}
	}
}

// plug is the power of a process: once it is out, no call has any effect.
type plug struct {
	mu  sync.Mutex
	out bool
}

func (p *plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = true
}

func (p *plug) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out {
		return journal.ErrClosed
	}
	return nil
}

// powered is a journal that a process with a plug uses.
type powered struct {
	journal.Journal
	plug *plug
}

func (p powered) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if err := p.plug.check(); err != nil {
		return journal.Tip{}, err
	}
	return p.Journal.Append(ctx, tip, ev)
}

func (p powered) AppendAll(ctx context.Context, partition int, list []journal.Continuation) ([]journal.Tip, error) {
	if err := p.plug.check(); err != nil {
		return nil, err
	}
	return p.Journal.(journal.Batcher).AppendAll(ctx, partition, list)
}

func (p powered) Subscribe(ctx context.Context, partition int, o journal.SubscribeOptions) (journal.Subscription, error) {
	s, err := p.Journal.Subscribe(ctx, partition, o)
	return poweredSubscription{s, p.plug}, err
}

type poweredSubscription struct {
	journal.Subscription
	plug *plug
}

func (s poweredSubscription) Fetch(ctx context.Context, n int) ([]journal.Delivery, error) {
	if err := s.plug.check(); err != nil {
		return nil, err
	}
	return s.Subscription.Fetch(ctx, n)
}

func (s poweredSubscription) Ack(ctx context.Context, d journal.Delivery) error {
	if err := s.plug.check(); err != nil {
		return err
	}
	return s.Subscription.Ack(ctx, d)
}

// poisoned is a session that cannot be folded to its end.
func poisoned() *sessiontest.Session {
	s := sessiontest.New("poisoned")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1}, Out: []uint32{3}, Edit: func(c *event.TurnCommitted) { c.Parent = "nowhere" }})
	s.Commit(sessiontest.Step{ID: "c", Parent: "a", New: []uint32{1}, Out: []uint32{3}})
	s.Close("completed")
	return s
}

func TestAWorkerKilledAtAnyPointLeavesTheSameStream(t *testing.T) {
	for _, how := range []string{"one by one", "at once"} {
		for _, point := range worker.Points {
			for nth := 1; nth <= 40; nth += 5 {
				t.Run(fmt.Sprintf("%s %s %d", how, point, nth), func(t *testing.T) {
					killedAt(t, how == "at once", point, nth)
				})
			}
		}
	}
}

// killedAt kills workers at a point, again and again.
func killedAt(t *testing.T, atOnce bool, point worker.Point, nth int) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slices.Concat(crowd(12), []*sessiontest.Session{poisoned()}, released(3))...)
		r.atOnce = atOnce
		for kills := range 60 {
			p := &plug{}
			deps := r.deps(powered{r.out, p})
			deps.Turns = powered{r.turns, p}
			var mu sync.Mutex
			passed := 0
			deps.Fault = func(at worker.Point) {
				mu.Lock()
				defer mu.Unlock()
				if passed++; at == point && passed >= nth+kills {
					p.pull()
				}
			}
			r.run("recorder", deps, nil)
			if p.check() == nil {
				break
			}
		}
		// The last one lives.
		r.run("recorder", r.deps(r.out), nil)
		r.requireSame()
		require.Zero(t, r.lag("recorder"))
	})
}

func TestAZombieChangesNothing(t *testing.T) {
	for n, point := range slices.Repeat([]worker.Point{worker.PointFetched, worker.PointFolded, worker.PointAppended}, 2) {
		atOnce := n >= 3
		t.Run(fmt.Sprint(point, " at once ", atOnce), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, append(crowd(8), released(3)...)...)
				r.atOnce = atOnce
				cfg := config("recorder")
				if cfg.AtOnce = atOnce; atOnce {
					cfg.Batch = 20
				}
				ctx, cancel := context.WithCancel(t.Context())
				// The first worker freezes at the point, in every lane.
				frozen := make(chan struct{})
				var once sync.Once
				deps := r.deps(r.out)
				subs := &handover{Journal: r.turns}
				deps.Turns = subs
				deps.Fault = func(at worker.Point) {
					if at == point {
						<-frozen
					}
				}
				zombie, err := worker.New(cfg, deps)
				require.NoError(t, err)
				done := make(chan error, 1)
				go func() { done <- zombie.Run(ctx) }()
				synctest.Wait()
				// The log gives its partitions to another, who does it all.
				subs.closeAll()
				r.run("recorder", r.deps(r.out), nil)
				r.requireSame()
				// It wakes up and goes on where it was.
				once.Do(func() { close(frozen) })
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					require.ErrorIs(t, err, journal.ErrClosed)
				}
				r.requireSame()
			})
		})
	}
}

// relay lets a worker freeze over all entries, another do some of them and
// die, and the first go on.
func (r *rig) relay(after int, second fold.Policy) {
	t := r.t
	frozen := make(chan struct{})
	deps := r.deps(r.out)
	subs := &handover{Journal: r.turns}
	deps.Turns = subs
	deps.Fault = func(at worker.Point) {
		if at == worker.PointFolded {
			<-frozen
		}
	}
	cfg := config("recorder")
	cfg.Batch = 1000
	zombie, err := worker.New(cfg, deps)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- zombie.Run(t.Context()) }()
	synctest.Wait()
	subs.closeAll()

	p := &plug{}
	successor := r.deps(powered{r.out, p})
	successor.Turns = powered{r.turns, p}
	var mu sync.Mutex
	passed := 0
	successor.Fault = func(at worker.Point) {
		mu.Lock()
		defer mu.Unlock()
		if at == worker.PointAppended {
			if passed++; passed == after {
				p.pull()
			}
		}
	}
	r.run("recorder", successor, func(c *worker.Config) { c.Policy = second })
	require.ErrorIs(t, p.check(), journal.ErrClosed)

	// It holds all entries, and nobody else will see to them.
	close(frozen)
	require.ErrorIs(t, <-done, journal.ErrClosed)
}

func TestAZombieGoesOnWhereItsSuccessorDied(t *testing.T) {
	for after := 1; after < 80; after += 11 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, random(8)...)
				r.relay(after, fold.DefaultPolicy())
				r.requireSame()
			})
		})
	}
}

func TestAZombieAdoptsWhatItsSuccessorJudgedOtherwise(t *testing.T) {
	other := fold.DefaultPolicy()
	other.Classes = map[string]fold.Use{fold.ClassSide: fold.Train}
	for after := 1; after < 80; after += 11 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, random(8)...)
				r.relay(after, other)
				var ids []string
				for _, s := range r.sessions {
					ids = append(ids, s.ID)
				}
				report, err := verify.Run(t.Context(), r.turns, r.out, replay.These(ids...), verify.Options{})
				require.NoError(t, err)
				require.Empty(t, report.Findings)
				require.Equal(t, uint64(distinct(r.sessions)), report.Events)
			})
		})
	}
}

func TestARowThatCouldNotBeWrittenIsWrittenByTheSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Close("completed")
		r := newRig(t, s)
		deps := r.deps(r.out)
		deps.Registry = down{}
		r.run("recorder", deps, nil)
		r.requireSame()
		r.run("recorder", r.deps(r.out), nil)
		row, ok, err := r.registry.Get(t.Context(), "s1")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, registry.Closed, row.State)
	})
}

// down is a registry that is away.
type down struct{}

func (down) Put(context.Context, registry.Session) error { return journal.ErrUnavailable }
func (down) Get(context.Context, string) (registry.Session, bool, error) {
	return registry.Session{}, false, journal.ErrUnavailable
}

// A session whose log is damaged cannot be folded; it is listed all the same.
func TestABrokenSessionIsListedWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		for i := range 6 {
			s.Commit(sessiontest.Step{ID: fmt.Sprint("t", i), New: []uint32{1}, Out: []uint32{2}})
		}
		turns := mem.New(mem.Options{})
		fill(t, turns, s)
		r := &rig{t: t, turns: turns, out: mem.New(mem.Options{}), letters: mem.New(mem.Options{}), registry: registry.NewMemory()}
		var third journal.Tip
		for e, err := range turns.ReadSession(t.Context(), "s1", journal.Tip{}) {
			require.NoError(t, err)
			if e.Tip.Count == 3 {
				third = e.Tip
			}
		}
		require.NoError(t, turns.Trim(t.Context(), map[string]journal.Tip{"s1": third}))
		r.run("recorder", r.deps(r.out), nil)
		row, ok, err := r.registry.Get(t.Context(), "s1")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, registry.Parked, row.State)
		require.Equal(t, fold.FaultBroken, row.Reason)
		require.Equal(t, s.Events[0].GetRun(), row.Run)
		letters, err := deadletter.New(r.letters).Read(t.Context(), "s1")
		require.NoError(t, err)
		require.Len(t, letters, len(s.Events)-3)
		require.Zero(t, r.lag("recorder"))
	})
}

// What a run says of a label counts for all turns that are appended later,
// however soon.
func TestANumberCountsFromTheMomentItIsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labelled := func(s *sessiontest.Session, id string) {
			s.Commit(sessiontest.Step{ID: id, New: []uint32{1}, Out: []uint32{3}, Edit: func(c *event.TurnCommitted) { c.Completion.Versions[0].Label = "step-9" }})
		}
		early, late := sessiontest.New("early"), sessiontest.New("late")
		labelled(early, "a")
		labelled(late, "a")
		r := &rig{t: t, turns: mem.New(mem.Options{}), out: mem.New(mem.Options{}), letters: mem.New(mem.Options{}), registry: registry.NewMemory()}
		fill(t, r.turns, early)
		w, err := worker.New(config("recorder"), r.deps(r.out))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		_, err = r.turns.Append(t.Context(), journal.Tip{}, &event.Event{
			Id: "w", Session: journal.RunSession("run1"),
			Body: &event.Event_WeightsUpdated{WeightsUpdated: &event.WeightsUpdated{Version: 9, Label: "step-9"}},
		})
		require.NoError(t, err)
		time.Sleep(time.Nanosecond) // the bubble's clock stands still otherwise
		fill(t, r.turns, late)
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		for id, want := range map[string]int32{"early": -1, "late": 9} {
			for e, err := range r.out.ReadSession(t.Context(), id, journal.Tip{}) {
				require.NoError(t, err)
				for _, o := range e.Event.GetTrajectoryUpdate().GetOutputs() {
					if o.GetTurnSpans() != nil {
						spans, err := o.GetTurnSpans().Tokens()
						require.NoError(t, err)
						require.Equal(t, []int32{-1, want}, spans.AppendVersions(nil), id)
					}
				}
			}
		}
	})
}

// handover is a log that can take its partitions away.
type handover struct {
	journal.Journal
	mu   sync.Mutex
	subs []journal.Subscription
}

func (h *handover) Subscribe(ctx context.Context, p int, o journal.SubscribeOptions) (journal.Subscription, error) {
	s, err := h.Journal.Subscribe(ctx, p, o)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs = append(h.subs, s)
	return s, err
}

func (h *handover) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subs {
		s.Close()
	}
}

func TestEverythingDeliveredAgainIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, append(random(12), poisoned())...)
		r.run("recorder", r.deps(r.out), nil)
		r.requireSame()
		r.run("another-group-from-the-start", r.deps(r.out), nil)
		r.requireSame()
	})
}

func TestABatchIsAppendedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, crowd(12)...)
		r.atOnce = true
		counted := &counting{Journal: r.out}
		stats := r.run("recorder", r.deps(counted), func(c *worker.Config) { c.Batch = 1000 })
		r.requireSame()
		require.NotZero(t, stats.Batches)
		require.Zero(t, stats.Splits)
		require.Less(t, counted.singles, uint64(20), "what a batch holds is not appended by itself")
		require.Equal(t, uint64(distinct(r.sessions)), stats.Updates)
	})
}

// A batch that the log finds too large is halved until it fits.
func TestABatchThatIsTooLargeIsHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, crowd(12)...)
		r.atOnce = true
		counted := &counting{Journal: r.out, most: 3}
		stats := r.run("recorder", r.deps(counted), func(c *worker.Config) { c.Batch = 1000 })
		r.requireSame()
		require.Greater(t, stats.Batches, uint64(3))
	})
}

// counting counts appends, and takes no batch of more sessions than most.
type counting struct {
	*mem.Journal
	most    int
	singles uint64
	mu      sync.Mutex
}

func (c *counting) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	c.mu.Lock()
	c.singles++
	c.mu.Unlock()
	return c.Journal.Append(ctx, tip, ev)
}

func (c *counting) AppendAll(ctx context.Context, p int, list []journal.Continuation) ([]journal.Tip, error) {
	if c.most > 0 && len(list) > c.most {
		return nil, journal.ErrTooLarge
	}
	return c.Journal.AppendAll(ctx, p, list)
}

func TestAWorkerWithoutMemoryReadsSessionsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions []*sessiontest.Session
		for i := 0; len(sessions) < 6; i++ {
			if id := fmt.Sprintf("s%d", i); journal.PartitionOf(id) == 7 {
				sessions = append(sessions, sessiontest.Random(id, uint64(i)))
			}
		}
		r := newRig(t, sessions...)
		stats := r.run("recorder", r.deps(r.out), func(c *worker.Config) { c.CacheBytes, c.Batch = 0, 1 })
		r.requireSame()
		require.Greater(t, stats.Rebuilds, uint64(12))
		require.LessOrEqual(t, stats.Cached, 1)
	})
}

func TestABrokenLogIsWaitedFor(t *testing.T) {
	splits := uint64(0)
	defer func() { require.NotZero(t, splits, "no batch was ever lost") }()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, append(crowd(12), poisoned())...)
				cfg := config("recorder")
				if cfg.AtOnce = seed%2 == 1; cfg.AtOnce {
					cfg.Batch = 20
				}
				faults := journaltest.Faults{
					Seed: seed, Drop: .1, LoseAck: .1, Duplicate: .1, Reorder: .3, Unavailable: .1,
					Delay: .3, MaxDelay: 50 * time.Millisecond,
				}
				deps := r.deps(journaltest.NewFaulty(r.out, faults))
				deps.Turns = journaltest.NewFaulty(r.turns, faults)
				deps.DeadLetters = deadletter.New(journaltest.NewFaulty(r.letters, faults))
				w, err := worker.New(cfg, deps)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				for r.lag("recorder") > 0 {
					time.Sleep(time.Second) // the bubble's
				}
				synctest.Wait()
				cancel()
				require.NoError(t, <-done)
				r.requireSame()
				require.NotZero(t, w.Stats().Retries)
				if cfg.AtOnce {
					require.NotZero(t, w.Stats().Batches)
					splits += w.Stats().Splits
				}
			})
		})
	}
}

func TestAPoisonedSessionIsParkedAndThePartitionGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := poisoned()
		var good *sessiontest.Session
		for i := 0; good == nil; i++ {
			if id := fmt.Sprintf("good-%d", i); journal.PartitionOf(id) == journal.PartitionOf(bad.ID) {
				good = sessiontest.Random(id, 5)
			}
		}
		r := newRig(t, bad, good)
		stats := r.run("recorder", r.deps(r.out), nil)
		r.requireSame()
		require.Equal(t, uint64(1), stats.Faults)

		row, ok, err := r.registry.Get(t.Context(), bad.ID)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, registry.Parked, row.State)
		require.Equal(t, "illegal", row.Reason)
		letters, err := deadletter.New(r.letters).Read(t.Context(), bad.ID)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "turn-b", letters[0].Event)
	})
}

func TestAnUnreadableEntryParksItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
		turns, out, letters, rows := mem.New(mem.Options{}), mem.New(mem.Options{}), mem.New(mem.Options{}), registry.NewMemory()
		fill(t, turns, s)
		turns.AppendRaw("s1", []byte("no event"))
		r := &rig{t: t, turns: turns, out: out, letters: letters, registry: rows}
		stats := r.run("recorder", r.deps(out), nil)
		require.Equal(t, uint64(1), stats.Faults)
		row, _, _ := rows.Get(t.Context(), "s1")
		require.Equal(t, registry.Parked, row.State)
		require.Equal(t, "failed", row.Status, "it has ended: its group waits no longer")
		require.NotZero(t, row.ClosedAt, "the reaper has nothing to do")
		seal := sealOf(t, out, "s1")
		require.Equal(t, "parked", seal.GetReason())
		require.Equal(t, map[string]uint64{"parked": 1}, seal.GetLedger().GetMasked())
		found, err := deadletter.New(letters).Read(t.Context(), "s1")
		require.NoError(t, err)
		require.Equal(t, []byte("no event"), found[0].Raw)

		// What comes after it is counted, by this worker and by its successors.
		tip := last(t, turns, "s1").Tip
		s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1, 2}, Out: []uint32{3}})
		tip, err = turns.Append(t.Context(), tip, s.Events[len(s.Events)-1])
		require.NoError(t, err)
		_, err = turns.Append(t.Context(), tip, s.Close("completed"))
		require.NoError(t, err)
		r.run("recorder", r.deps(out), nil)
		before := recorded(t, out, []*sessiontest.Session{s})
		require.Len(t, before["s1"], 5)
		report, err := verify.Run(t.Context(), turns, out, replay.These("s1"), verify.Options{})
		require.NoError(t, err)
		require.Len(t, report.Findings, 1, "the ids behind what cannot be read are accounted for, too")
		require.Equal(t, verify.Readable, report.Findings[0].Promise)
		r.run("from-the-start", r.deps(out), nil)
		require.Equal(t, before, recorded(t, out, []*sessiontest.Session{s}))
	})
}

// sealOf is the only seal of a session.
func sealOf(t *testing.T, out journal.Journal, session string) (seal *event.SessionSealed) {
	t.Helper()
	for e, err := range out.ReadSession(t.Context(), session, journal.Tip{}) {
		require.NoError(t, err)
		for _, o := range e.Event.GetTrajectoryUpdate().GetOutputs() {
			if o.GetSessionSealed() != nil {
				require.Nil(t, seal, "sealed twice")
				seal = o.GetSessionSealed()
			}
		}
	}
	require.NotNil(t, seal)
	return seal
}

func TestASessionThatWasClosedBeforeAnUnreadableEntryIsSealedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Close("completed")
		r := newRig(t, s)
		r.turns.AppendRaw("s1", []byte("no event"))
		r.run("recorder", r.deps(r.out), nil)
		require.Equal(t, "completed", sealOf(t, r.out, "s1").GetStatus())
		row, _, _ := r.registry.Get(t.Context(), "s1")
		require.Equal(t, registry.Parked, row.State)
	})
}

// torn is a log that refuses a session's appends although its readers see nothing
// more of it.
type torn struct {
	journal.Journal
	session string
	times   int // that are left; negative is for ever
}

func (l *torn) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if ev.GetSession() == l.session && tip.Count == 1 && l.times != 0 {
		l.times--
		return journal.Tip{}, journal.ErrConflict
	}
	return l.Journal.Append(ctx, tip, ev)
}

func TestAWorkerDoesNotTryForEverWhereReadersAndWritersOfTheLogDisagree(t *testing.T) {
	for times, parked := range map[int]bool{20: false, -1: true} {
		synctest.Test(t, func(t *testing.T) {
			s := sessiontest.New("s1")
			s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
			s.Close("completed")
			other := sessiontest.New("s2")
			other.Close("completed")
			r := newRig(t, s, other)
			w, err := worker.New(config("second"), r.deps(&torn{r.out, "s1", times}))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			require.NoError(t, w.Run(ctx))
			require.Zero(t, r.lag("second"))
			letters, err := deadletter.New(r.letters).Read(t.Context(), "s1")
			require.NoError(t, err)
			if parked {
				require.Len(t, letters, 2, "the turn and the close")
				require.Equal(t, "broken", letters[0].Reason)
				require.Contains(t, letters[0].Detail, "compare the replicas")
			} else {
				require.Empty(t, letters)
				r.requireSame()
			}
			row, _, _ := r.registry.Get(t.Context(), "s2")
			require.Equal(t, registry.Closed, row.State, "nobody waits for it")
		})
	}
}

// last returns the last entry of a session, however it reads.
func last(t *testing.T, j *mem.Journal, session string) journal.Delivery {
	t.Helper()
	sub, err := j.Subscribe(t.Context(), journal.PartitionOf(session), journal.SubscribeOptions{})
	require.NoError(t, err)
	defer sub.Close()
	batch, err := sub.Fetch(t.Context(), 1000)
	require.NoError(t, err)
	return batch[len(batch)-1]
}

func TestAnUpdateThatIsTooLargeParksTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Commit(sessiontest.Step{ID: "a", New: make([]uint32, 1000), Out: []uint32{3}})
		s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1}, Out: []uint32{3}})
		s.Close("completed")
		turns := mem.New(mem.Options{})
		fill(t, turns, s)
		out := mem.New(mem.Options{MaxEvent: 1000})
		r := &rig{t: t, turns: turns, out: out, letters: mem.New(mem.Options{}), registry: registry.NewMemory()}
		r.run("recorder", r.deps(out), nil)
		before := recorded(t, out, []*sessiontest.Session{s})
		require.Len(t, before["s1"], 4)
		row, _, _ := r.registry.Get(t.Context(), "s1")
		require.Equal(t, registry.Parked, row.State)
		require.Equal(t, "too_large", row.Reason)
		r.run("from-the-start", r.deps(out), nil)
		require.Equal(t, before, recorded(t, out, []*sessiontest.Session{s}))
	})
}

func TestTheRegistryShowsWhatTheLogSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := sessiontest.New("open", func(o *event.SessionOpened) {
			o.Limits = &event.Limits{IdleSeconds: 60, WallSeconds: 600}
		})
		open.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
		open.Reward(0.5, 1)
		done := sessiontest.New("done")
		done.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3, 4}})
		done.Abort("x", "engine", 1)
		done.Close("completed")
		r := newRig(t, open, done)
		r.run("recorder", r.deps(r.out), nil)

		row, _, _ := r.registry.Get(t.Context(), "open")
		require.Equal(t, registry.Open, row.State)
		require.Equal(t, 1, row.Turns)
		require.InDelta(t, 0.5, *row.Reward, 0)
		require.Equal(t, int64(60), row.IdleSeconds)
		require.Equal(t, "g1", row.Group)
		row, _, _ = r.registry.Get(t.Context(), "done")
		require.Equal(t, registry.Closed, row.State)
		require.Equal(t, "completed", row.Status)
		require.Equal(t, uint64(3), row.Generated)
		require.Equal(t, uint64(2), row.Trainable)
		require.Equal(t, uint64(1), row.Lost)
		require.Equal(t, 1, row.Branches)
	})
}

func TestLabelsGetTheirNumbersFromTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}, Edit: func(c *event.TurnCommitted) { c.Completion.Versions[0].Label = "step-9" }})
		turns := mem.New(mem.Options{})
		_, err := turns.Append(t.Context(), journal.Tip{}, &event.Event{
			Id: "w", Session: journal.RunSession("run1"),
			Body: &event.Event_WeightsUpdated{WeightsUpdated: &event.WeightsUpdated{Version: 9, Label: "step-9"}},
		})
		require.NoError(t, err)
		fill(t, turns, s)
		out := mem.New(mem.Options{})
		r := &rig{t: t, turns: turns, out: out, letters: mem.New(mem.Options{}), registry: registry.NewMemory()}
		r.run("recorder", r.deps(out), nil)
		for e, err := range out.ReadSession(t.Context(), "s1", journal.Tip{}) {
			require.NoError(t, err)
			for _, o := range e.Event.GetTrajectoryUpdate().GetOutputs() {
				if o.GetTurnSpans() != nil {
					spans, err := o.GetTurnSpans().Tokens()
					require.NoError(t, err)
					require.Equal(t, []int32{-1, -1, 9}, spans.AppendVersions(nil))
				}
			}
		}
	})
}

func TestStatsAddUpTheLedgersAndShowHowFarEachPartitionIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, random(12)...)
		stats := r.run("recorder", r.deps(r.out), nil)
		l := stats.Ledger
		sum := l.Trainable
		for n := range maps.Values(l.Masked) {
			sum += n
		}
		for n := range maps.Values(l.Lost) {
			sum += n
		}
		require.Equal(t, l.Generated, sum)
		require.Zero(t, stats.Unbalanced)
		require.NotZero(t, stats.Tokens)
		require.Equal(t, uint64(distinct(r.sessions)), stats.Updates)
		for _, s := range r.sessions {
			p := stats.Partitions[journal.PartitionOf(s.ID)]
			require.NotZero(t, p.Position)
		}
	})
}

// deaf is a subscription that gives nothing after its first batch.
type deaf struct {
	journal.Subscription
	heard bool
}

func (d *deaf) Fetch(ctx context.Context, n int) ([]journal.Delivery, error) {
	if d.heard {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.heard = true
	return d.Subscription.Fetch(ctx, n)
}

type deafJournal struct{ journal.Journal }

func (j deafJournal) Subscribe(ctx context.Context, p int, o journal.SubscribeOptions) (journal.Subscription, error) {
	s, err := j.Journal.Subscribe(ctx, p, o)
	return &deaf{Subscription: s}, err
}

func TestASubscriptionThatStallsIsReplacedAndLagIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		for i := range 20 {
			s.Commit(sessiontest.Step{ID: fmt.Sprint("t", i), New: []uint32{1}, Out: []uint32{2}})
		}
		r := newRig(t, s)
		deps := r.deps(r.out)
		deps.Turns = deafJournal{r.turns}
		w, err := worker.New(config("recorder"), deps) // batches of 7
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		at := func() worker.PartitionStats { return w.Stats().Partitions[journal.PartitionOf("s1")] }
		require.Equal(t, uint64(len(s.Events)-7), at().Pending)
		time.Sleep(3 * worker.DefaultConfig().StallAfter) // the bubble's time
		cancel()
		require.NoError(t, <-done)
		r.requireSame()
		require.Equal(t, uint64(2), w.Stats().Stalls)
		require.Zero(t, at().Pending)
	})
}

func TestAConfigurationThatMakesNoSenseIsRefusedWithAllItsFaults(t *testing.T) {
	cfg := worker.DefaultConfig()
	require.NoError(t, cfg.Validate())
	cfg.Batch, cfg.Lanes, cfg.Partitions, cfg.Policy.CutOff = 0, 0, []int{64}, "x"
	err := cfg.Validate()
	for _, name := range []string{"batch", "lanes", "partition 64", "cut_off"} {
		require.ErrorContains(t, err, name)
	}
}
