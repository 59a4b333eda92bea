package replay_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// counted counts what a reader asks a journal for.
type counted struct {
	journal.Journal
	sessions, followers atomic.Int64
}

func (c *counted) ReadSession(ctx context.Context, session string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	if !journal.IsRunSession(session) {
		c.sessions.Add(1)
	}
	return c.Journal.ReadSession(ctx, session, from)
}

func (c *counted) Subscribe(ctx context.Context, partition int, o journal.SubscribeOptions) (journal.Subscription, error) {
	c.followers.Add(1)
	return c.Journal.Subscribe(ctx, partition, o)
}

// sips is a journal that gives few entries at a time.
type sips struct{ journal.Journal }

func (s sips) Subscribe(ctx context.Context, partition int, o journal.SubscribeOptions) (journal.Subscription, error) {
	sub, err := s.Journal.Subscribe(ctx, partition, o)
	return sipping{sub}, err
}

type sipping struct{ journal.Subscription }

func (s sipping) Fetch(ctx context.Context, _ int) ([]journal.Delivery, error) {
	return s.Subscription.Fetch(ctx, 2)
}

// mixed is a recorded log whose sessions stand in each other's way, a second
// apart.
func mixed(t *testing.T, n int, seed uint64) (turns, trajectories *mem.Journal, ids []string) {
	t.Helper()
	var sessions []*sessiontest.Session
	for i := range n {
		s := sessiontest.Random(fmt.Sprintf("s%d", i), seed+uint64(i))
		if i%4 == 3 {
			s.Reward(0.5, 9) // after the seal
		}
		if i%5 == 0 {
			for _, ev := range s.Events {
				ev.Run = "run2"
			}
		}
		sessions, ids = append(sessions, s), append(ids, s.ID)
	}
	slices.Sort(ids)
	rng := rand.New(rand.NewPCG(seed, 1))
	turns = mem.New(mem.Options{})
	tips, left := map[string]journal.Tip{}, slices.Clone(sessions)
	at := map[string]int{}
	for len(left) > 0 {
		i := rng.IntN(len(left))
		s := left[i]
		tip, err := turns.Append(t.Context(), tips[s.ID], s.Events[at[s.ID]])
		require.NoError(t, err)
		tips[s.ID] = tip
		if at[s.ID]++; at[s.ID] == len(s.Events) {
			left = slices.Delete(left, i, i+1)
		}
		pass(t, time.Second)
	}
	return turns, record(t, fold.DefaultPolicy(), turns), ids
}

func other() fold.Policy {
	p := fold.DefaultPolicy()
	p.CutOff, p.Abandoned, p.RewrittenCalls = fold.Mask, fold.Train, fold.Mask
	p.Classes[fold.ClassSide] = fold.Train
	return p
}

// outcome is all that a replay says and writes.
type outcome struct {
	report  replay.Report
	changes []string
	bodies  map[string][][]byte
}

func replayed(t *testing.T, run func(o replay.Options) (replay.Report, error), o replay.Options, ids []string) outcome {
	t.Helper()
	into := mem.New(mem.Options{})
	var out outcome
	o.Into = into
	if o.Against != nil {
		o.Change = func(c replay.Change) { out.changes = append(out.changes, fmt.Sprintf("%+v", c)) }
	}
	report, err := run(o)
	require.NoError(t, err)
	out.bodies = map[string][][]byte{}
	for _, id := range ids {
		if b := bodies(t, into, id); len(b) > 0 {
			out.bodies[id] = b
		}
	}
	slices.Sort(out.changes)
	report.Elapsed, report.Share = 0, 0
	slices.SortFunc(report.Failures, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	out.report = report
	return out
}

func TestARangeInOnePassGivesWhatItsSessionsGiveOneByOne(t *testing.T) {
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			turns, trajectories, ids := mixed(t, 25, 100*seed)
			end, err := turns.End(t.Context(), journal.PartitionOf(ids[0]))
			require.NoError(t, err)
			first := time.Now().Add(-time.Hour)
			for e, err := range turns.ReadSession(t.Context(), ids[0], journal.Tip{}) {
				require.NoError(t, err)
				first = e.Time
				break
			}
			for name, rng := range map[string]replay.Range{
				"all":               {},
				"a run":             {Run: "run2"},
				"from a time":       {From: first.Add(40 * time.Second)},
				"up to a time":      {To: first.Add(40 * time.Second)},
				"between times":     {From: first.Add(20 * time.Second), To: first.Add(50 * time.Second)},
				"after a position":  {Partitions: []int{journal.PartitionOf(ids[0])}, After: end / 2},
				"up to a position":  {Partitions: []int{journal.PartitionOf(ids[0])}, UpTo: end / 2},
				"between positions": {After: 30, UpTo: 60},
				"nothing":           {Run: "none"},
			} {
				for _, cache := range []int{0, 1} {
					for _, o := range []replay.Options{
						{Policy: fold.DefaultPolicy(), CacheBytes: cache},
						{Policy: fold.DefaultPolicy(), CacheBytes: cache, Against: sips{trajectories}},
						{Policy: other(), CacheBytes: cache, Against: sips{trajectories}},
					} {
						want := replayed(t, func(o replay.Options) (replay.Report, error) {
							return replay.Run(t.Context(), turns, replay.Logged(t.Context(), turns, rng), o)
						}, o, ids)
						got := replayed(t, func(o replay.Options) (replay.Report, error) {
							return replay.RunRange(t.Context(), sips{turns}, rng, o)
						}, o, ids)
						require.Equal(t, want, got, "%s, cache of %d", name, cache)
						if o.Against != nil && name == "all" {
							require.Equal(t, o.Policy.CutOff == fold.Mask, len(got.changes) > 0)
						}
					}
				}
			}
		})
	}
}

func TestAWholeRangeReadsNoSessionByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, trajectories, ids := mixed(t, 25, 7)
		in, against := &counted{Journal: turns}, &counted{Journal: trajectories}
		var last replay.Progress
		report, err := replay.RunRange(t.Context(), in, replay.Range{}, replay.Options{
			Policy: other(), Against: against, Into: mem.New(mem.Options{}),
			Progress: func(p replay.Progress) {
				require.GreaterOrEqual(t, p.Share, last.Share)
				last = p
			},
		})
		require.NoError(t, err)
		require.EqualValues(t, len(ids), report.Sessions)
		require.Positive(t, report.Changed)
		require.InDelta(t, 1, last.Share, 1e-9)
		require.Zero(t, in.sessions.Load()+against.sessions.Load())
		partitions := map[int]bool{}
		for _, id := range ids {
			partitions[journal.PartitionOf(id)] = true
		}
		require.LessOrEqual(t, in.followers.Load(), int64(len(partitions)+1)) // and that of run logs
		require.LessOrEqual(t, against.followers.Load(), int64(len(partitions)))
	})
}

// early is a journal that ends before it does: what comes later was appended
// since.
type early struct {
	*mem.Journal
	end uint64
}

func (e early) End(ctx context.Context, partition int) (uint64, error) {
	end, err := e.Journal.End(ctx, partition)
	return min(end, e.end), err
}

func TestWhatIsRecordedWhileARangeIsReplayedIsNoDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s")
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}})
		s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1}, Out: []uint32{2}})
		s.Close("completed")
		turns, trajectories := live(t, fold.DefaultPolicy(), s)
		report, err := replay.RunRange(t.Context(), early{turns, 2}, replay.Range{}, replay.Options{
			Policy: fold.DefaultPolicy(), Against: trajectories,
			Change: func(c replay.Change) { require.Fail(t, "nothing changed", "%+v", c) },
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, report.Turns)
		require.Zero(t, report.Changed)
	})
}

func TestARoundThatBeginsWhileARangeIsReplayedIsNoDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s")
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}})
		s.Commit(sessiontest.Step{ID: "b", Parent: "nobody", New: []uint32{1}, Out: []uint32{2}}) // parks it
		s.Close("completed")
		end := uint64(len(s.Events))
		s.Release()
		turns, trajectories := live(t, fold.DefaultPolicy(), s)
		report, err := replay.RunRange(t.Context(), early{turns, end}, replay.Range{}, replay.Options{
			Policy: fold.DefaultPolicy(), Against: sips{trajectories},
			Change: func(c replay.Change) { require.Fail(t, "nothing changed", "%+v", c) },
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, report.Sessions)
		require.Zero(t, report.Changed)
	})
}

func TestARecordedStreamMayStandInAnyOrderAndHoldOthersSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, _, ids := mixed(t, 25, 7)
		elsewhere, _, _ := mixed(t, 25, 100) // a log of the same sessions, with other events
		for name, list := range map[string][]string{
			"session by session": ids,
			"the last first":     reversed(ids),
			"some are missing":   ids[5:20],
			"nothing":            nil,
		} {
			recorded := mem.New(mem.Options{})
			_, err := replay.Run(t.Context(), turns, replay.These(list...), replay.Options{Policy: other(), Into: recorded, Lanes: 1})
			require.NoError(t, err)
			compareAll(t, name, turns, recorded, ids)
		}
		compareAll(t, "another log", turns, record(t, fold.DefaultPolicy(), elsewhere), ids)
	})
}

func reversed(ids []string) []string {
	list := slices.Clone(ids)
	slices.Reverse(list)
	return list
}

// compareAll compares a range in one pass with its sessions one by one.
func compareAll(t *testing.T, name string, turns, recorded *mem.Journal, ids []string) {
	t.Helper()
	for _, cache := range []int{0, 1} {
		o := replay.Options{Policy: fold.DefaultPolicy(), Against: sips{recorded}, CacheBytes: cache}
		want := replayed(t, func(o replay.Options) (replay.Report, error) {
			return replay.Run(t.Context(), turns, replay.Logged(t.Context(), turns, replay.Range{}), o)
		}, o, ids)
		require.Positive(t, want.report.Changed)
		got := replayed(t, func(o replay.Options) (replay.Report, error) {
			return replay.RunRange(t.Context(), sips{turns}, replay.Range{}, o)
		}, o, ids)
		require.Equal(t, want, got, "%s, cache of %d", name, cache)
	}
}

func TestASessionThatWasReleasedIsFoldedAgainInItsPlace(t *testing.T) {
	for _, cache := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			turns := mem.New(mem.Options{})
			s := sessiontest.New("s")
			s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}})
			s.Commit(sessiontest.Step{ID: "b", Parent: "nobody", New: []uint32{1}, Out: []uint32{2}}) // parks it
			s.Release()
			s.Commit(sessiontest.Step{ID: "c", Parent: "a", New: []uint32{1}, Out: []uint32{2}})
			s.Close("completed")
			var tip journal.Tip
			for i, ev := range s.Events {
				var err error
				tip, err = turns.Append(t.Context(), tip, ev)
				require.NoError(t, err)
				between := sessiontest.New(fmt.Sprintf("x%d", i))
				_, err = turns.Append(t.Context(), journal.Tip{}, between.Events[0])
				require.NoError(t, err)
			}
			trajectories := record(t, fold.DefaultPolicy(), turns)
			o := replay.Options{Policy: fold.DefaultPolicy(), Against: trajectories, CacheBytes: cache}
			got := replayed(t, func(o replay.Options) (replay.Report, error) {
				return replay.RunRange(t.Context(), sips{turns}, replay.Range{}, o)
			}, o, []string{"s"})
			require.Equal(t, bodies(t, trajectories, "s"), got.bodies["s"])
			require.Empty(t, got.changes)
			want := replayed(t, func(o replay.Options) (replay.Report, error) {
				return replay.Run(t.Context(), turns, replay.Logged(t.Context(), turns, replay.Range{}), o)
			}, o, []string{"s"})
			require.Equal(t, want, got)
		})
	}
}

func TestASessionOfARangeThatCannotBeReadDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, trajectories, ids := mixed(t, 8, 3)
		turns.AppendRaw("s1", []byte("no event"))
		trajectories.AppendRaw("s3", []byte("no event"))
		report, err := replay.RunRange(t.Context(), &forged{turns, "s2"}, replay.Range{}, replay.Options{
			Policy: fold.DefaultPolicy(), Against: &forged{trajectories, "s4"},
		})
		require.NoError(t, err)
		require.EqualValues(t, len(ids)-4, report.Sessions)
		require.EqualValues(t, 4, report.Failed)
		text := errors.Join(report.Failures...).Error()
		for _, id := range []string{"s1: ", "s2: ", "s3: recorded", "s4: recorded"} {
			require.Contains(t, text, "replay: session "+id)
		}
		require.ErrorIs(t, errors.Join(report.Failures...), journal.ErrGap)
	})
}

// forged is a journal in which a session's third event has another past.
type forged struct {
	journal.Journal
	session string
}

func (f *forged) Subscribe(ctx context.Context, partition int, o journal.SubscribeOptions) (journal.Subscription, error) {
	sub, err := f.Journal.Subscribe(ctx, partition, o)
	return forgedSubscription{sub, f.session}, err
}

type forgedSubscription struct {
	journal.Subscription
	session string
}

func (f forgedSubscription) Fetch(ctx context.Context, max int) ([]journal.Delivery, error) {
	list, err := f.Subscription.Fetch(ctx, max)
	for i, d := range list {
		if d.Session == f.session && d.Tip.Count == 3 {
			list[i].Prev[0] ^= 1
		}
	}
	return list, err
}
