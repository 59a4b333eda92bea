package replay_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
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
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/tree"
)

// live records sessions as a recorder does. It must run in a synctest bubble.
func live(t *testing.T, policy fold.Policy, sessions ...*sessiontest.Session) (turns, trajectories *mem.Journal) {
	t.Helper()
	turns = mem.New(mem.Options{})
	for _, s := range sessions {
		var tip journal.Tip
		for _, ev := range s.Events {
			var err error
			tip, err = turns.Append(t.Context(), tip, ev)
			require.NoError(t, err)
		}
	}
	return turns, record(t, policy, turns)
}

// record records a log as a recorder does, likewise.
func record(t *testing.T, policy fold.Policy, turns *mem.Journal) *mem.Journal {
	t.Helper()
	trajectories := mem.New(mem.Options{})
	cfg := worker.DefaultConfig()
	cfg.Policy = policy
	w, err := worker.New(cfg, worker.Deps{Turns: turns, Trajectories: trajectories, DeadLetters: deadletter.New(mem.New(mem.Options{}))})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	cancel()
	require.NoError(t, <-done)
	return trajectories
}

func bodies(t *testing.T, j journal.Journal, session string) (out [][]byte) {
	for e, err := range j.ReadSession(t.Context(), session, journal.Tip{}) {
		require.NoError(t, err)
		out = append(out, e.Body)
	}
	return out
}

func random(n int) (sessions []*sessiontest.Session, ids []string) {
	for i := range n {
		s := sessiontest.Random(fmt.Sprintf("s%d", i), uint64(i))
		sessions, ids = append(sessions, s), append(ids, s.ID)
	}
	return sessions, ids
}

func TestAReplayThatChangesNothingGivesTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions, ids := random(30)
		turns, trajectories := live(t, fold.DefaultPolicy(), sessions...)
		into := mem.New(mem.Options{})
		o := replay.Options{
			Policy: fold.DefaultPolicy(), Into: into, Against: trajectories,
			Change: func(c replay.Change) { require.Fail(t, "nothing changed", "%+v", c) },
		}
		report, err := replay.Run(t.Context(), turns, replay.These(ids...), o)
		require.NoError(t, err)
		require.Equal(t, uint64(30), report.Sessions)
		require.Zero(t, report.Changed)
		for _, id := range ids {
			require.Equal(t, bodies(t, trajectories, id), bodies(t, into, id))
		}
		// A replay that is started again finds its own work.
		_, err = replay.Run(t.Context(), turns, replay.These(ids...), o)
		require.NoError(t, err)
		for _, id := range ids {
			require.Equal(t, bodies(t, trajectories, id), bodies(t, into, id))
		}
	})
}

func TestAStreamOfAnOlderFormIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions, ids := random(30)
		turns, trajectories := live(t, fold.DefaultPolicy(), sessions...)
		old := mem.New(mem.Options{})
		branches := 0
		for _, id := range ids {
			var tip journal.Tip
			form := sessiontest.NewOld()
			for e, err := range trajectories.ReadSession(t.Context(), id, journal.Tip{}) {
				require.NoError(t, err)
				form.Rewrite(e.Event.GetTrajectoryUpdate())
				for _, o := range e.Event.GetTrajectoryUpdate().GetOutputs() {
					branches += len(o.GetBranchSealed().GetTurns())
				}
				tip, err = old.Append(t.Context(), tip, e.Event)
				require.NoError(t, err)
			}
		}
		require.Positive(t, branches)
		report, err := replay.Run(t.Context(), turns, replay.These(ids...), replay.Options{
			Policy: fold.DefaultPolicy(), Against: old,
			Change: func(c replay.Change) { require.Fail(t, "nothing changed", "%+v", c) },
		})
		require.NoError(t, err)
		require.Zero(t, report.Changed)
		checked, err := verify.Run(t.Context(), turns, old, replay.These(ids...), verify.Options{})
		require.NoError(t, err)
		require.Empty(t, checked.Findings)
	})
}

func TestAnotherPolicyChangesWhatAHandMadeExamplePredicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3, 4, 5}})
		s.Commit(sessiontest.Step{ID: "title", New: []uint32{9}, Out: []uint32{8, 7}, Edit: func(c *event.TurnCommitted) { c.Request.Class = "side" }})
		s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1}, Out: []uint32{6}, Edit: func(c *event.TurnCommitted) { c.Completion.FinishReason = "length" }})
		s.Close("completed")
		turns, trajectories := live(t, fold.DefaultPolicy(), s)

		p := fold.DefaultPolicy()
		p.Classes[fold.ClassSide] = fold.Train
		p.CutOff = fold.Mask
		changes := map[string]replay.Change{}
		report, err := replay.Run(t.Context(), turns, replay.These("s1"), replay.Options{
			Policy: p, Against: trajectories,
			Change: func(c replay.Change) { changes[c.What+" "+c.ID] = c },
		})
		require.NoError(t, err)
		require.Equal(t, []uint64{1, 1, 0, 1}, []uint64{report.Changed, report.RowsAdded, report.RowsRemoved, report.RowsChanged})
		require.Len(t, changes, 5)
		require.Equal(t, []replay.Field{
			{Name: "mask", Before: "3 values", After: "3 values, first other at 1"},
			{Name: "masked", Before: "class_side=2", After: ""},
		}, changes["turn title"].Fields)
		require.Equal(t, []replay.Field{
			{Name: "mask", Before: "2 values", After: "2 values, first other at 1"},
			{Name: "masked", Before: "", After: "cut_off=1"},
		}, changes["turn b"].Fields)
		side, main := changes["branch "+tree.BranchID("s1", "title")], changes["branch "+tree.BranchID("s1", "b")]
		require.Equal(t, replay.RowAdded, side.Row)
		require.Equal(t, []replay.Field{{Name: "trainable", Before: "0", After: "2"}}, side.Fields)
		require.Equal(t, replay.RowChanged, main.Row)
		require.Equal(t, []replay.Field{{Name: "trainable", Before: "4", After: "3"}}, main.Fields)
		require.Equal(t, []replay.Field{
			{Name: "trainable", Before: "4", After: "5"},
			{Name: "masked", Before: "class_side=2", After: "cut_off=1"},
		}, changes["session "].Fields)
	})
}

// spelling is a tokenizer that knows one long token more, or does not.
type spelling struct{ pairs bool }

func (s spelling) Open(fold.ModelRef) (fold.Model, error) { return s, nil }
func (s spelling) Render(v fold.View) ([]fold.Piece, error) {
	return []fold.Piece{{IDs: s.Encode(v.Conversation.Messages[0].Content.String())}}, nil
}

func (s spelling) Encode(text string) (ids []uint32) {
	for i := 0; i < len(text); i++ {
		if s.pairs && i+1 < len(text) && text[i] == text[i+1] {
			ids = append(ids, 256+uint32(text[i]))
			i++
			continue
		}
		ids = append(ids, uint32(text[i]))
	}
	return ids
}
func (spelling) Decode([]uint32) string { return "" }
func (spelling) Special(uint32) bool    { return false }
func (spelling) Reasoning(fold.View, []uint32) ([]fold.Range, error) {
	return nil, nil
}

func TestAnotherTokenizerChangesTextTurnsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Commit(sessiontest.Step{ID: "ids", New: []uint32{1, 2}, Out: []uint32{3}})
		s.Commit(sessiontest.Step{ID: "text", Edit: func(c *event.TurnCommitted) {
			c.Segments, c.Completion = nil, &event.Completion{Text: "feed"}
			c.Generation.Proof, c.Generation.PromptTokens = event.PromptProof_PROMPT_PROOF_NONE, 0
			c.Conversation.Messages = [][]byte{[]byte(`{"role":"user","content":"abba"}`)}
		}})
		s.Close("completed")
		turns, _ := live(t, fold.DefaultPolicy(), s)
		before := mem.New(mem.Options{})
		_, err := replay.Run(t.Context(), turns, replay.These("s1"), replay.Options{Policy: fold.DefaultPolicy(), Models: spelling{}, Into: before})
		require.NoError(t, err)

		var changes []replay.Change
		report, err := replay.Run(t.Context(), turns, replay.These("s1"), replay.Options{
			Policy: fold.DefaultPolicy(), Models: spelling{pairs: true}, Against: before,
			Change: func(c replay.Change) { changes = append(changes, c) },
		})
		require.NoError(t, err)
		require.Equal(t, uint64(1), report.Changed)
		require.Len(t, changes, 2)
		require.Equal(t, "text", changes[0].ID)
		require.Equal(t, replay.Field{Name: "ids", Before: "8 values", After: "6 values, first other at 1"}, changes[0].Fields[0])
		require.Equal(t, []replay.Field{{Name: "tokens", Before: "8", After: "6"}}, changes[1].Fields)
		require.Empty(t, changes[1].Row, "text is no row either way")
	})
}

func TestANewStreamThatHoldsAnotherFoldIsNotMixedWithThisOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessiontest.New("s1")
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3, 4, 5}})
		turns, trajectories := live(t, fold.DefaultPolicy(), s)
		p := fold.DefaultPolicy()
		p.Classes = nil
		report, err := replay.Run(t.Context(), turns, replay.These("s1"), replay.Options{Policy: p, Into: trajectories})
		require.NoError(t, err)
		require.Equal(t, uint64(1), report.Failed)
		require.ErrorIs(t, report.Failures[0], replay.ErrDiffers)
	})
}

func TestASessionThatCannotBeReadDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions, ids := random(3)
		turns, _ := live(t, fold.DefaultPolicy(), sessions...)
		turns.AppendRaw("s1", []byte("no event"))
		var last replay.Progress
		report, err := replay.Run(t.Context(), turns, replay.These(ids...), replay.Options{
			Policy: fold.DefaultPolicy(), Progress: func(p replay.Progress) { last = p },
		})
		require.NoError(t, err)
		require.Equal(t, uint64(2), report.Sessions)
		require.Equal(t, uint64(1), report.Failed)
		require.Equal(t, uint64(2), last.Sessions)
	})
}

func collect(t *testing.T, seq iter.Seq2[string, error]) (ids []string) {
	for id, err := range seq {
		require.NoError(t, err)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func TestRangesSelectSessionsByTheirEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := mem.New(mem.Options{})
		put := func(tip journal.Tip, s *sessiontest.Session, at int) journal.Tip {
			tip, err := turns.Append(t.Context(), tip, s.Events[at])
			require.NoError(t, err)
			return tip
		}
		a, b, c := sessiontest.New("a"), sessiontest.New("b"), sessiontest.New("c")
		c.Events[0].Run = "run2"
		start := time.Now()
		tip := put(journal.Tip{}, a, 0)
		pass(t, time.Minute)
		put(journal.Tip{}, b, 0)
		a.Reward(1, 1)
		put(tip, a, 1)
		pass(t, time.Minute)
		put(journal.Tip{}, c, 0)
		pass(t, time.Minute)

		ctx := t.Context()
		require.Equal(t, []string{"a", "b", "c"}, collect(t, replay.Logged(ctx, turns, replay.Range{})))
		require.Equal(t, []string{"a"}, collect(t, replay.Logged(ctx, turns, replay.Range{To: start.Add(time.Second)})))
		require.Equal(t, []string{"a", "b"}, collect(t, replay.Logged(ctx, turns, replay.Range{From: start.Add(time.Second), To: start.Add(90 * time.Second)})))
		require.Equal(t, []string{"c"}, collect(t, replay.Logged(ctx, turns, replay.Range{Run: "run2"})))
		require.Equal(t, []string{"b"}, collect(t, replay.Logged(ctx, turns, replay.Range{After: 1, UpTo: 2})))
		p := journal.PartitionOf("b")
		require.Contains(t, collect(t, replay.Logged(ctx, turns, replay.Range{Partitions: []int{p}})), "b")
	})
}

// pass moves the bubble's clock.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

func TestARegistryListsSessionsToo(t *testing.T) {
	rows := registry.NewMemory()
	require.NoError(t, rows.Put(t.Context(), registry.Session{ID: "a", Run: "r1"}))
	require.NoError(t, rows.Put(t.Context(), registry.Session{ID: "b", Run: "r2"}))
	require.Equal(t, []string{"a"}, collect(t, replay.Listed(t.Context(), rows, registry.Filter{Run: "r1"})))
}

func TestAListThatBreaksStopsTheReplay(t *testing.T) {
	broken := errors.New("broken")
	_, err := replay.Run(t.Context(), mem.New(mem.Options{}), func(yield func(string, error) bool) { yield("", broken) }, replay.Options{Policy: fold.DefaultPolicy()})
	require.ErrorIs(t, err, broken)
}
