package worker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"

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
	"turnlog.dev/schema/journal/mem"
)

// purblind is the turn stream as a program sees it that cannot read one event.
type purblind struct {
	journal.Journal
	event string
}

var errUnread = fmt.Errorf("%w: of a newer version", event.ErrMalformed)

func (j purblind) ReadSession(ctx context.Context, id string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for e, err := range j.Journal.ReadSession(ctx, id, from) {
			if err == nil && e.Event.GetId() == j.event {
				yield(journal.Entry{}, errUnread)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (j purblind) Subscribe(ctx context.Context, p int, o journal.SubscribeOptions) (journal.Subscription, error) {
	s, err := j.Journal.Subscribe(ctx, p, o)
	return purblindSubscription{s, j.event}, err
}

type purblindSubscription struct {
	journal.Subscription
	event string
}

func (s purblindSubscription) Fetch(ctx context.Context, n int) ([]journal.Delivery, error) {
	batch, err := s.Subscription.Fetch(ctx, n)
	for i, d := range batch {
		if d.Event.GetId() == s.event {
			batch[i].Entry = journal.Entry{Tip: journal.Tip{Position: d.Tip.Position}, Time: d.Time, Stream: d.Stream}
			batch[i].Err = errUnread
		}
	}
	return batch, err
}

// narrow is a trajectory stream that takes no update of one event.
type narrow struct {
	journal.Journal
	event string
}

func (j narrow) takes(ev *event.Event) error {
	u := ev.GetTrajectoryUpdate()
	if u.GetInput().GetEvent() == j.event && u.GetOutputs()[0].GetFault() == nil {
		return fmt.Errorf("%w: of its event", journal.ErrTooLarge)
	}
	return nil
}

func (j narrow) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if err := j.takes(ev); err != nil {
		return journal.Tip{}, err
	}
	return j.Journal.Append(ctx, tip, ev)
}

func (j narrow) AppendAll(ctx context.Context, p int, list []journal.Continuation) ([]journal.Tip, error) {
	for _, c := range list {
		for _, ev := range c.Events {
			if err := j.takes(ev); err != nil {
				return nil, err
			}
		}
	}
	return j.Journal.(journal.Batcher).AppendAll(ctx, p, list)
}

// defect are the models of a program that panics when it opens them.
type defect struct{}

func (defect) Open(fold.ModelRef) (fold.Model, error) { panic("a defect") }

// sound are models that there are none of.
type sound struct{}

func (sound) Open(fold.ModelRef) (fold.Model, error) { return nil, errors.New("no models") }

// faults are ways in which a program cannot fold an event, until it is
// repaired.
var faults = map[string]struct {
	event  string
	breaks func(worker.Deps) worker.Deps
}{
	"unreadable":      {"turn-b", func(d worker.Deps) worker.Deps { d.Turns = purblind{d.Turns, "turn-b"}; return d }},
	"the first event": {"open", func(d worker.Deps) worker.Deps { d.Turns = purblind{d.Turns, "open"}; return d }},
	"too large":       {"turn-b", func(d worker.Deps) worker.Deps { d.Trajectories = narrow{d.Trajectories, "turn-b"}; return d }},
	"a seal that is":  {"close", func(d worker.Deps) worker.Deps { d.Trajectories = narrow{d.Trajectories, "close"}; return d }},
	"after the seal":  {"reward-2", func(d worker.Deps) worker.Deps { d.Turns = purblind{d.Turns, "reward-2"}; return d }},
	"a defect":        {"turn-a", func(d worker.Deps) worker.Deps { d.Models = defect{}; return d }},
	"two, one after each": {"turn-b", func(d worker.Deps) worker.Deps {
		d.Turns = purblind{d.Turns, "close"}
		d.Trajectories = narrow{d.Trajectories, "turn-b"}
		return d
	}},
}

// parked is a session that a program with a fault records.
func parked() *sessiontest.Session {
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1}, Out: []uint32{3, 4}})
	s.Commit(sessiontest.Step{ID: "c", Parent: "b", New: []uint32{1}, Out: []uint32{5}})
	s.Reward(1, 1)
	s.Close("completed")
	s.Reward(2, 2)
	s.Annotate("judge", 1)
	return s
}

// repair records a session with a program that has a fault, releases it, and
// lets one without go on with it; each dies at a point, again and again.
func repair(t *testing.T, breaks func(worker.Deps) worker.Deps, atOnce bool, point worker.Point, nth int) *rig {
	s := parked()
	r := &rig{
		t: t, atOnce: atOnce, sessions: []*sessiontest.Session{s},
		turns: mem.New(mem.Options{}), out: mem.New(mem.Options{}), letters: mem.New(mem.Options{}), registry: registry.NewMemory(),
	}
	// Without audits or masked reasoning no model is opened.
	policy := func(c *worker.Config) { c.Policy.Reasoning, c.RegistryEvery = fold.Mask, 1 }
	program := func(deps worker.Deps) {
		for kills := range 40 {
			p := &plug{}
			d := deps
			d.Turns, d.Trajectories = powered{d.Turns, p}, powered{d.Trajectories, p}
			var mu sync.Mutex
			passed := 0
			d.Fault = func(at worker.Point) {
				mu.Lock()
				defer mu.Unlock()
				if passed++; nth > 0 && at == point && passed >= nth+kills {
					p.pull()
				}
			}
			r.run("recorder", d, policy)
			if p.check() == nil {
				break
			}
		}
		r.run("recorder", deps, policy)
	}
	fill(t, r.turns, s)
	deps := r.deps(r.out)
	deps.Models = sound{}
	program(breaks(deps))
	row, _, err := r.registry.Get(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, registry.Parked, row.State)
	tip := last(t, r.turns, s.ID).Tip
	tip, err = r.turns.Append(t.Context(), tip, s.Release())
	require.NoError(t, err)
	program(deps)
	_, err = r.turns.Append(t.Context(), tip, s.Reward(3, 3))
	require.NoError(t, err)
	program(deps)
	return r
}

func TestAParkedSessionIsReleasedAfterARepair(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			var want map[string][]string
			synctest.Test(t, func(t *testing.T) {
				r := repair(t, fault.breaks, false, "", 0)
				want = recorded(t, r.out, r.sessions)
				s := r.sessions[0]

				row, _, err := r.registry.Get(t.Context(), s.ID)
				require.NoError(t, err)
				require.Equal(t, registry.Closed, row.State)
				require.Equal(t, "completed", row.Status)
				require.Equal(t, 3, row.Turns)
				require.Equal(t, 3.0, *row.Reward)

				checked, err := verify.Run(t.Context(), r.turns, r.out, replay.These(s.ID), verify.Options{})
				require.NoError(t, err)
				require.Empty(t, checked.Findings)
				require.Equal(t, uint64(1), checked.Released)
				require.Zero(t, checked.Parked)

				// It says what a recorder says that never had the fault.
				policy := fold.DefaultPolicy()
				policy.Reasoning = fold.Mask
				report, err := replay.Run(t.Context(), r.turns, replay.These(s.ID), replay.Options{
					Policy: policy, Models: sound{}, Against: r.out,
					Change: func(c replay.Change) { require.Fail(t, "changed", "%+v", c) },
				})
				require.NoError(t, err)
				require.Zero(t, report.Failed)

				letters, err := deadletter.New(r.letters).Read(t.Context(), s.ID)
				require.NoError(t, err)
				require.NotEmpty(t, letters)
				for _, l := range letters {
					require.Zero(t, l.Round, "nothing went wrong afterwards")
				}

				// A program that still has the fault changes nothing, even if it is
				// given all of it again.
				deps := r.deps(r.out)
				deps.Models = sound{}
				r.run("given-again", fault.breaks(deps), func(c *worker.Config) { c.Policy.Reasoning = fold.Mask })
				require.Equal(t, want, recorded(t, r.out, r.sessions))
				is, _, err := r.registry.Get(t.Context(), s.ID)
				require.NoError(t, err)
				require.Equal(t, row, is)
				letters, err = deadletter.New(r.letters).Read(t.Context(), s.ID)
				require.NoError(t, err)
				for _, l := range letters {
					require.Zero(t, l.Round, "it has something to say of a round that is over, at most")
				}
			})
			for _, atOnce := range []bool{false, true} {
				for _, point := range worker.Points {
					for nth := 1; nth <= 21; nth += 8 {
						t.Run(fmt.Sprintf("killed at %s %d, at once %t", point, nth, atOnce), func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) {
								r := repair(t, fault.breaks, atOnce, point, nth)
								require.Equal(t, want, recorded(t, r.out, r.sessions))
								require.Zero(t, r.lag("recorder"))
							})
						})
					}
				}
			}
		})
	}
}

func TestAReleasedSessionIsParkedForWhatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := repair(t, faults["unreadable"].breaks, false, "", 0)
		s := r.sessions[0]
		r.turns.AppendRaw(s.ID, []byte("no event"))
		deps := r.deps(r.out)
		deps.Models = sound{}
		policy := func(c *worker.Config) { c.Policy.Reasoning, c.CacheBytes = fold.Mask, 0 }
		r.run("recorder", deps, policy)
		tip := last(t, r.turns, s.ID).Tip
		for i := range 2 {
			ev := s.Abort(fmt.Sprint("late", i), "closed", 1, 2)
			var err error
			tip, err = r.turns.Append(t.Context(), tip, ev)
			require.NoError(t, err)
			r.run("recorder", deps, policy)
		}
		row, _, _ := r.registry.Get(t.Context(), s.ID)
		require.Equal(t, registry.Parked, row.State)
		require.Equal(t, fold.FaultUnreadable, row.Reason)
		require.EqualValues(t, 4, row.Lost, "what comes after it is counted, whoever holds the session")
		require.Equal(t, 3, row.Turns)
		letters, err := deadletter.New(r.letters).Read(t.Context(), s.ID)
		require.NoError(t, err)
		require.EqualValues(t, 1, letters[len(letters)-1].Round)
		require.Equal(t, []byte("no event"), letters[len(letters)-1].Raw)
		want := recorded(t, r.out, r.sessions)
		r.run("from-the-start", deps, policy)
		require.Equal(t, want, recorded(t, r.out, r.sessions))
	})
}

func TestAReleaseBeforeTheRepairLeavesTheSessionParked(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := parked()
				r := &rig{
					t: t, sessions: []*sessiontest.Session{s},
					turns: mem.New(mem.Options{}), out: mem.New(mem.Options{}), letters: mem.New(mem.Options{}), registry: registry.NewMemory(),
				}
				fill(t, r.turns, s)
				deps := r.deps(r.out)
				deps.Models = sound{}
				policy := func(c *worker.Config) { c.Policy.Reasoning = fold.Mask }
				r.run("recorder", fault.breaks(deps), policy)
				before, err := deadletter.New(r.letters).Read(t.Context(), s.ID)
				require.NoError(t, err)
				tip := last(t, r.turns, s.ID).Tip
				for range 2 { // again and again
					tip, err = r.turns.Append(t.Context(), tip, s.Release())
					require.NoError(t, err)
					stats := r.run("recorder", fault.breaks(deps), policy)
					require.Less(t, stats.Updates, uint64(20), "it must not go round and round")
					row, _, _ := r.registry.Get(t.Context(), s.ID)
					require.Equal(t, registry.Parked, row.State)
					letters, err := deadletter.New(r.letters).Read(t.Context(), s.ID)
					require.NoError(t, err)
					require.Greater(t, len(letters), len(before), "there is a new dead letter")
					before = letters
				}
				// The next one comes after the repair.
				_, err = r.turns.Append(t.Context(), tip, s.Release())
				require.NoError(t, err)
				r.run("recorder", deps, policy)
				row, _, _ := r.registry.Get(t.Context(), s.ID)
				require.Equal(t, registry.Closed, row.State)
				checked, err := verify.Run(t.Context(), r.turns, r.out, replay.These(s.ID), verify.Options{})
				require.NoError(t, err)
				require.Empty(t, checked.Findings)

				// A registry that was lost is filled with the same row.
				fresh := registry.NewMemory()
				deps.Registry = fresh
				require.NoError(t, worker.Fill(t.Context(), deps, replay.These(s.ID)))
				again, _, _ := fresh.Get(t.Context(), s.ID)
				require.Equal(t, row, again)
			})
		})
	}
}

// An old program freezes over a session; a newer one takes over, and folds it
// after its release. Then the old one wakes up, and is even given all of it
// again.
func TestAnOldProgramThatWakesUpDoesNotJudgeWhatItCannotRead(t *testing.T) {
	for name, fault := range faults {
		for _, point := range []worker.Point{worker.PointFetched, worker.PointFolded, worker.PointAppended, worker.PointDeadLetter} {
			t.Run(name+" "+string(point), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := parked()
					r := &rig{
						t: t, sessions: []*sessiontest.Session{s},
						turns: mem.New(mem.Options{}), out: mem.New(mem.Options{}), letters: mem.New(mem.Options{}), registry: registry.NewMemory(),
					}
					fill(t, r.turns, s)
					policy := func(c *worker.Config) { c.Policy.Reasoning, c.RegistryEvery = fold.Mask, 1 }
					deps := r.deps(r.out)
					deps.Models = sound{}

					frozen := make(chan struct{})
					subs := &handover{Journal: r.turns}
					old := deps
					old.Turns = subs
					old = fault.breaks(old)
					old.Fault = func(at worker.Point) {
						if at == point {
							<-frozen
						}
					}
					cfg := config("recorder")
					policy(&cfg)
					zombie, err := worker.New(cfg, old)
					require.NoError(t, err)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- zombie.Run(ctx) }()
					synctest.Wait()
					subs.closeAll()

					// What the old one left may be parked, or not.
					_, err = r.turns.Append(t.Context(), last(t, r.turns, s.ID).Tip, s.Release())
					require.NoError(t, err)
					r.run("recorder", deps, policy)
					want := recorded(t, r.out, r.sessions)
					row, _, _ := r.registry.Get(t.Context(), s.ID)
					require.Equal(t, registry.Closed, row.State)

					close(frozen)
					synctest.Wait()
					cancel()
					if err := <-done; err != nil {
						require.ErrorIs(t, err, journal.ErrClosed)
					}
					again := fault.breaks(deps)
					r.run("given-again", again, policy)
					require.Equal(t, want, recorded(t, r.out, r.sessions))
					is, _, _ := r.registry.Get(t.Context(), s.ID)
					row.Events, row.LastAt = is.Events, is.LastAt // which may be written a moment later
					require.Equal(t, row, is)
				})
			})
		}
	}
}

// damaged is a trajectory stream that nothing can be appended to, until it is
// mended.
type damaged struct {
	journal.Journal
	mended *bool
}

func (j damaged) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if !*j.mended {
		return journal.Tip{}, fmt.Errorf("%w: it was damaged", journal.ErrGap)
	}
	return j.Journal.Append(ctx, tip, ev)
}

func TestABrokenSessionIsTriedAgainWhenItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parked()
		r := newRig(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		mended := false
		deps := r.deps(damaged{r.out, &mended})
		w, err := worker.New(config("recorder"), deps)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		row, _, _ := r.registry.Get(t.Context(), s.ID)
		require.Equal(t, "broken", row.Reason)

		mended = true
		_, err = r.turns.Append(ctx, last(t, r.turns, s.ID).Tip, s.Release())
		require.NoError(t, err)
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		row, _, _ = r.registry.Get(t.Context(), s.ID)
		require.Equal(t, registry.Closed, row.State)
		got := recorded(t, r.out, r.sessions)[s.ID]
		require.Equal(t, r.want[s.ID], got[:len(got)-1])
	})
}
