package verify_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// recorded returns the log and the trajectory of a session, the latter after
// an edit of each output.
func recorded(t *testing.T, s *sessiontest.Session, edit func(o *event.Output)) (turns, trajectories *mem.Journal) {
	t.Helper()
	return recordedUnder(t, fold.DefaultPolicy(), s, edit)
}

func recordedUnder(t *testing.T, p fold.Policy, s *sessiontest.Session, edit func(o *event.Output)) (turns, trajectories *mem.Journal) {
	t.Helper()
	turns, trajectories = mem.New(mem.Options{}), mem.New(mem.Options{})
	var in journal.Tip
	for _, ev := range s.Events {
		var err error
		in, err = turns.Append(t.Context(), in, ev)
		require.NoError(t, err)
	}
	st := fold.New(s.ID, p, fold.Aids{})
	var out journal.Tip
	for e, err := range turns.ReadSession(t.Context(), s.ID, journal.Tip{}) {
		require.NoError(t, err)
		u, err := st.Apply(e)
		require.NoError(t, err)
		if u == nil {
			continue
		}
		u = proto.CloneOf(u) // the state keeps parts of it
		for _, o := range u.GetOutputs() {
			if edit != nil {
				edit(o)
			}
		}
		out, err = trajectories.Append(t.Context(), out, st.Event(st.UpdateID(e.Event.GetId()), e, u))
		require.NoError(t, err)
	}
	return turns, trajectories
}

func TestWhatTheRecorderWritesKeepsEveryPromise(t *testing.T) {
	for seed := range uint64(300) {
		s := sessiontest.Random(fmt.Sprintf("s%d", seed), seed)
		turns, trajectories := recorded(t, s, nil)
		rows := 0
		r, err := verify.Run(t.Context(), turns, trajectories, replay.These(s.ID), verify.Options{Segment: func(row verify.Segment) error {
			rows++
			last := row.Turns[len(row.Turns)-1]
			require.Equal(t, append([]uint32{}, s.Turn(last).IDs()...), append([]uint32{}, row.IDs...))
			require.Len(t, row.Mask, len(row.IDs))
			require.Len(t, row.Versions, len(row.IDs))
			require.Len(t, row.Logprobs, len(row.IDs))
			require.Len(t, row.From, len(row.IDs))
			return nil
		}})
		require.NoError(t, err)
		require.Empty(t, r.Findings)
		require.Equal(t, uint64(len(s.Turns)), r.Turns)
		if s.Events[len(s.Events)-1].GetSessionClosed() != nil {
			require.NotZero(t, rows)
		}
	}
}

// policies are the recorder's and what verify is told of each. They differ in
// every key.
func policies() map[string]struct {
	fold   fold.Policy
	verify verify.Policy
} {
	all := fold.DefaultPolicy()
	all.Classes = map[string]fold.Use{"main": fold.Train, "side": fold.Train, "subagent": fold.Train, "compaction": fold.Train, "probe": fold.Train}
	all.Abandoned, all.Undelivered = fold.Train, fold.Train
	strict := fold.DefaultPolicy()
	strict.Classes = map[string]fold.Use{"main": fold.Train}
	strict.CutOff, strict.RewrittenCalls, strict.MaskFlags = fold.Mask, fold.Mask, []string{"malformed_call"}
	thinking := fold.DefaultPolicy()
	thinking.Reasoning = fold.Mask
	train := []string{"main", "subagent", "compaction"}
	return map[string]struct {
		fold   fold.Policy
		verify verify.Policy
	}{
		"default": {fold.DefaultPolicy(), verify.Policy{Train: train, MaskAbandoned: true, MaskUndelivered: true}},
		"all":     {all, verify.Policy{Train: append(train, "side", "probe")}},
		"strict": {strict, verify.Policy{
			Train: train[:1], MaskAbandoned: true, MaskUndelivered: true,
			MaskCutOff: true, MaskRewrittenCalls: true, MaskFlags: []string{"malformed_call"},
		}},
		"thinking": {thinking, verify.Policy{Train: train, MaskAbandoned: true, MaskUndelivered: true, MaskReasoning: true}},
	}
}

func TestVerifyDerivesEveryMaskAndLabelThatTheRecorderMakes(t *testing.T) {
	others := map[string]int{}
	for seed := range uint64(200) {
		s := sessiontest.Random(fmt.Sprintf("s%d", seed), seed)
		for made, p := range policies() {
			turns, trajectories := recordedUnder(t, p.fold, s, nil)
			for held, other := range policies() {
				r, err := verify.Run(t.Context(), turns, trajectories, replay.These(s.ID), verify.Options{Policy: &other.verify})
				require.NoError(t, err)
				if held == made {
					require.Empty(t, r.Findings, "seed %d, policy %s", seed, made)
				}
				others[made+" held against "+held] += len(r.Findings)
			}
		}
	}
	for pair, findings := range others {
		made, held, _ := strings.Cut(pair, " held against ")
		// Turns that are masked whole are masked whole where only thinking is.
		require.Equal(t, made == held || made == "default" && held == "thinking", findings == 0, pair)
	}
}

// example has a side request, a retry, a lost attempt, turns of grade D and X,
// and an abort after its close.
func example() *sessiontest.Session {
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3, 4}, Edit: func(c *event.TurnCommitted) {
		c.Generation.Attempts = []*event.Attempt{{Ids: event.AppendIDs(nil, []uint32{1})}}
	}})
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{5}, Out: []uint32{6}})
	s.Commit(sessiontest.Step{ID: "c", Parent: "a", New: []uint32{5}, Out: []uint32{7}})
	s.Commit(sessiontest.Step{ID: "side", New: []uint32{5}, Out: []uint32{7}, Edit: func(c *event.TurnCommitted) { c.Request.Class = "side" }})
	s.Commit(sessiontest.Step{ID: "d", Parent: "c", New: []uint32{8}, Out: []uint32{9}})
	s.Commit(sessiontest.Step{ID: "text", New: []uint32{9}, Out: []uint32{7}, Edit: func(c *event.TurnCommitted) {
		c.Generation.Proof = event.PromptProof_PROMPT_PROOF_NONE
	}})
	s.Commit(sessiontest.Step{ID: "count", New: []uint32{9, 9}, Out: []uint32{7}, Edit: func(c *event.TurnCommitted) {
		c.Generation.PromptTokens++
	}})
	s.Reward(0.5, 1)
	s.Annotate("judge", 1)
	s.Close("completed")
	s.Abort("late", "closed", 1, 2)
	return s
}

func TestEveryBrokenPromiseIsFound(t *testing.T) {
	spans := func(turn string, f func(*event.TurnSpans)) func(*event.Output) {
		return func(o *event.Output) {
			if s := o.GetTurnSpans(); s.GetTurn() == turn {
				f(s)
			}
		}
	}
	// old has the turn in the form that recorders wrote before runs.
	old := func(f func(*event.TurnSpans)) func(*event.Output) {
		return spans("b", func(s *event.TurnSpans) { f(sessiontest.InOldForm(s)) })
	}
	branch := func(f func(*event.BranchSealed)) func(*event.Output) {
		return func(o *event.Output) {
			if b := o.GetBranchSealed(); b != nil && b.GetLabel() == "main" {
				f(b)
			}
		}
	}
	ledger := func(f func(*event.Ledger)) func(*event.Output) {
		return func(o *event.Output) {
			if s := o.GetSessionSealed(); s != nil {
				f(s.Ledger)
			}
		}
	}
	cases := []struct {
		name    string
		promise verify.Promise
		edit    func(*event.Output)
	}{
		{"another id", verify.Exact, spans("b", func(s *event.TurnSpans) { s.IdVarints[0]++ })},
		{"another id of the answer", verify.Exact, spans("b", func(s *event.TurnSpans) { s.IdVarints[1]++ })},
		{"an id less of the parent", verify.Exact, spans("b", func(s *event.TurnSpans) { s.Keep-- })},
		{"another logprob", verify.Exact, spans("b", func(s *event.TurnSpans) { s.SampledLogprobs[3] ^= 1 })},
		{"another logprob, of old", verify.Exact, old(func(s *event.TurnSpans) { s.Logprobs[4*len(s.Mask)-1] ^= 1 })},
		{"a made-up logprob", verify.Exact, old(func(s *event.TurnSpans) { s.Logprobs[3] = 1 })},
		{"no logprobs", verify.Exact, spans("b", func(s *event.TurnSpans) { s.SampledLogprobs = nil })},
		{"no logprobs, of old", verify.Exact, old(func(s *event.TurnSpans) { s.Logprobs = nil })},
		{"a version less", verify.Exact, spans("b", func(s *event.TurnSpans) { s.VersionRuns[0].Count-- })},
		{"a version for context", verify.Exact, old(func(s *event.TurnSpans) { s.Versions[0] = 0 })},
		{"a span too long", verify.Exact, spans("b", func(s *event.TurnSpans) { s.Spans[0].Count++ })},
		{"trained context", verify.Masked, old(func(s *event.TurnSpans) { s.Mask[0] = 1 })},
		{"a mask of more than was sampled", verify.Exact, spans("b", func(s *event.TurnSpans) { s.MaskRuns[1]++ })},
		{"a token that nobody masked", verify.Masked, spans("side", func(s *event.TurnSpans) { s.MaskRuns = append([]uint32{0}, s.MaskRuns...) })},
		{"two forms at once", verify.Exact, spans("b", func(s *event.TurnSpans) { s.Mask = make([]byte, 2) })},
		{"a masked token without a reason", verify.Masked, spans("side", func(s *event.TurnSpans) { s.Masked = nil })},
		{"spans of another turn", verify.Exact, spans("b", func(s *event.TurnSpans) { s.Turn = "x" })},
		{"a turn trained twice", verify.Masked, func(o *event.Output) {
			if b := o.GetBranchSealed(); b != nil {
				b.TrainRuns = []uint32{0, 2}
			}
		}},
		{"more trainable than there is", verify.Sealed, branch(func(b *event.BranchSealed) { b.Trainable++ })},
		{"more tokens than there are", verify.Sealed, branch(func(b *event.BranchSealed) { b.Tokens++ })},
		{"a path with a hole", verify.Sealed, branch(func(b *event.BranchSealed) { b.Leaf, b.Turns, b.TrainRuns = "", []string{"c", "d"}, nil })},
		{"a path of an unknown turn", verify.Sealed, branch(func(b *event.BranchSealed) { b.Leaf = "x" })},
		{"runs of more than the path", verify.Sealed, branch(func(b *event.BranchSealed) { b.TrainRuns = []uint32{0, 9} })},
		{"a turn that is trained no more", verify.Masked, branch(func(b *event.BranchSealed) { b.TrainRuns = nil })},
		{"a better grade", verify.Graded, branch(func(b *event.BranchSealed) { b.Grade = event.Grade_GRADE_UNSPECIFIED })},
		{"a branch less", verify.Sealed, func(o *event.Output) {
			if o.GetBranchSealed().GetLabel() == "side" {
				o.Output = nil
			}
		}},
		{"no seal", verify.Sealed, func(o *event.Output) {
			if o.GetSessionSealed() != nil {
				o.Output = nil
			}
		}},
		{"a branch of another class", verify.Sealed, branch(func(b *event.BranchSealed) { b.Class = "side" })},
		{"a branch twice", verify.Sealed, branch(func(b *event.BranchSealed) { b.Leaf = "b" })},
		{"a branch that is labelled as the agent's own and was abandoned", verify.Sealed, func(o *event.Output) {
			if b := o.GetBranchSealed(); b.GetLeaf() == "b" {
				b.Label = "main"
			}
		}},
		{"a branch that is labelled as abandoned and was not", verify.Sealed, branch(func(b *event.BranchSealed) { b.Label = "abandoned" })},
		{"another status", verify.Sealed, func(o *event.Output) {
			if s := o.GetSessionSealed(); s != nil {
				s.Status = "truncated"
			}
		}},
		{"another class", verify.Exact, spans("b", func(s *event.TurnSpans) { s.Class = "subagent" })},
		{"another finish reason", verify.Exact, spans("b", func(s *event.TurnSpans) { s.FinishReason = "length" })},
		{"a turn that is excluded for what it is not, in the ledger as well", verify.Masked, func(o *event.Output) {
			if b := o.GetBranchSealed(); b.GetExcluded()["b"] != "" {
				b.Excluded["b"] = "undelivered"
			}
			if l := o.GetSessionSealed().GetLedger(); l != nil {
				l.Masked["undelivered"], l.Masked["abandoned"] = l.Masked["abandoned"], 0
			}
		}},
		{"a turn that is masked for what it is not, in the ledger as well", verify.Masked, func(o *event.Output) {
			if s := o.GetTurnSpans(); s.GetTurn() == "side" {
				s.Masked = map[string]uint32{"cut_off": 1}
			}
			if l := o.GetSessionSealed().GetLedger(); l != nil {
				l.Masked["cut_off"], l.Masked["class_side"] = l.Masked["class_side"], 0
			}
		}},
		{"another version", verify.Exact, spans("b", func(s *event.TurnSpans) { s.VersionRuns[0].Version++ })},
		{"text for ids", verify.Graded, spans("text", func(s *event.TurnSpans) { s.Grade = event.Grade_GRADE_C })},
		{"a prompt that the engine did not read", verify.Graded, spans("count", func(s *event.TurnSpans) { s.Grade = event.Grade_GRADE_D })},
		{"a trained turn of grade X", verify.Masked, spans("b", func(s *event.TurnSpans) { s.Grade = event.Grade_GRADE_X })},
		{"another reason for a masked token", verify.Balanced, spans("side", func(s *event.TurnSpans) { s.Masked = map[string]uint32{"x": 1} })},
		{"an excluded turn without a reason", verify.Masked, func(o *event.Output) {
			if b := o.GetBranchSealed(); b != nil {
				b.Excluded = nil
			}
		}},
		{"an excluded turn that is trained", verify.Masked, branch(func(b *event.BranchSealed) { b.Excluded = map[string]string{"a": "abandoned"} })},
		{"another reward", verify.Told, func(o *event.Output) {
			if r := o.GetRewardRecorded(); r != nil {
				r.Reward++
			}
		}},
		{"no reward", verify.Told, func(o *event.Output) {
			if o.GetRewardRecorded() != nil {
				o.Output = nil
			}
		}},
		{"an annotation of something else", verify.Told, func(o *event.Output) {
			if a := o.GetAnnotationRecorded(); a != nil {
				a.Turn = "b"
			}
		}},
		{"another group", verify.Told, func(o *event.Output) {
			if s := o.GetSessionStarted(); s != nil {
				s.Group = "other"
			}
		}},
		{"a reward that nobody gave", verify.Told, func(o *event.Output) {
			if o.GetTurnSpans().GetTurn() == "b" {
				o.Output = &event.Output_RewardRecorded{RewardRecorded: &event.RewardRecorded{}}
			}
		}},
		{"a ledger of other reasons", verify.Balanced, ledger(func(l *event.Ledger) { l.Lost["deadline"], l.Lost["failed_attempt"] = 1, 0 })},
		{"a masked token under another reason in the ledger", verify.Balanced, ledger(func(l *event.Ledger) {
			l.Masked["class_side"], l.Masked["cut_off"] = 0, 1
		})},
		{"a ledger that does not add up", verify.Balanced, ledger(func(l *event.Ledger) { l.Trainable++ })},
		{"a ledger of too little", verify.Balanced, ledger(func(l *event.Ledger) { l.Generated--; l.Lost["failed_attempt"]-- })},
		{"a lost id that nobody mentions", verify.Balanced, func(o *event.Output) {
			if o.GetTurnLost() != nil {
				o.Output = nil
			}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			turns, trajectories := recorded(t, example(), c.edit)
			r, err := verify.Run(t.Context(), turns, trajectories, replay.These("s1"), verify.Options{})
			require.NoError(t, err)
			var broken []verify.Promise
			for _, f := range r.Findings {
				broken = append(broken, f.Promise)
			}
			require.Contains(t, broken, c.promise, "%v", r.Findings)
		})
	}
}

func TestASessionThatIsStillBeingRecordedIsBehindAndNotWrong(t *testing.T) {
	s := example()
	turns, trajectories := recorded(t, s, nil)
	var tip journal.Tip
	for e, err := range turns.ReadSession(t.Context(), "s1", journal.Tip{}) {
		require.NoError(t, err)
		tip = e.Tip
	}
	_, err := turns.Append(t.Context(), tip, s.Reward(1, 2))
	require.NoError(t, err)
	r, err := verify.Run(t.Context(), turns, trajectories, replay.These("s1"), verify.Options{Behind: true})
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.Equal(t, uint64(1), r.Behind)
	r, err = verify.Run(t.Context(), turns, trajectories, replay.These("s1"), verify.Options{})
	require.NoError(t, err)
	require.Equal(t, verify.Once, r.Findings[0].Promise)
}

// growing is a log to which more is written once it has been read.
type growing struct {
	journal.Journal
	grow func()
}

func (g growing) ReadSession(ctx context.Context, id string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for e, err := range g.Journal.ReadSession(ctx, id, from) {
			if !yield(e, err) {
				return
			}
		}
		g.grow()
	}
}

func TestWhatIsRecordedMeanwhileIsNoFinding(t *testing.T) {
	allTurns, allUpdates := recorded(t, example(), nil)
	turns, trajectories := mem.New(mem.Options{}), mem.New(mem.Options{})
	// grow appends the next entries of both.
	var tips [2]journal.Tip
	grow := func() {
		for i, pair := range [][2]*mem.Journal{{allTurns, turns}, {allUpdates, trajectories}} {
			end := tips[i].Count + 2
			for e, err := range pair[0].ReadSession(t.Context(), "s1", journal.Tip{}) {
				require.NoError(t, err)
				if e.Tip.Count > tips[i].Count && e.Tip.Count <= end {
					tips[i], err = pair[1].Append(t.Context(), tips[i], e.Event)
					require.NoError(t, err)
				}
			}
		}
	}
	grow()
	r, err := verify.Run(t.Context(), growing{turns, grow}, growing{trajectories, grow}, replay.These("s1"), verify.Options{Behind: true})
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.Equal(t, uint64(1), r.Behind)
	require.Equal(t, uint64(4), r.Events)
}

func TestAnUpdateTooManyIsFound(t *testing.T) {
	turns, trajectories := recorded(t, example(), nil)
	var tip journal.Tip
	var last *event.Event
	for e, err := range trajectories.ReadSession(t.Context(), "s1", journal.Tip{}) {
		require.NoError(t, err)
		tip, last = e.Tip, e.Event
	}
	last.Id = "u:again"
	_, err := trajectories.Append(t.Context(), tip, last)
	require.NoError(t, err)
	r, err := verify.Run(t.Context(), turns, trajectories, replay.These("s1"), verify.Options{})
	require.NoError(t, err)
	require.Equal(t, verify.Once, r.Findings[0].Promise)
}

// parked has an event that cannot be folded, and ids before, in and after it.
func parked() *sessiontest.Session {
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}})
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}}).Event.Id = "again"
	s.Abort("b", "client_gone", 1, 2, 3)
	s.Close("completed")
	s.Abort("late", "closed", 1)
	return s
}

func TestTheLedgerOfAParkedSessionBalances(t *testing.T) {
	for name, edit := range map[string]func(*event.Output){
		"a lost id less": func(o *event.Output) {
			if l := o.GetTurnLost(); l.GetTurn() == "b" {
				l.Ids--
			}
		},
		"a ledger of too little": func(o *event.Output) {
			if l := o.GetSessionSealed().GetLedger(); l != nil {
				l.Generated--
				l.Masked["parked"]--
			}
		},
		"a sum that is none": func(o *event.Output) {
			if l := o.GetSessionSealed().GetLedger(); l != nil {
				l.Masked["parked"]++
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			turns, trajectories := recorded(t, parked(), edit)
			r, err := verify.Run(t.Context(), turns, trajectories, replay.These("s1"), verify.Options{})
			require.NoError(t, err)
			require.NotEmpty(t, r.Findings)
			require.Equal(t, verify.Balanced, r.Findings[0].Promise)
		})
	}
}

func TestAParkedSessionIsCountedAndHasNoRows(t *testing.T) {
	turns, trajectories := recorded(t, parked(), nil)
	r, err := verify.Run(t.Context(), turns, trajectories, replay.These("s1"), verify.Options{Segment: func(verify.Segment) error {
		require.Fail(t, "no row")
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, uint64(1), r.Parked)
	require.Empty(t, r.Findings)
}

// TestWhatARestartSaysOfEarlierRoundsIsChecked: exporters decide by it whether a
// session has rows already.
func TestWhatARestartSaysOfEarlierRoundsIsChecked(t *testing.T) {
	s := example()
	s.Commit(sessiontest.Step{ID: "late", New: []uint32{1}, Out: []uint32{2}}) // after the close
	s.Release()
	turns, _ := recorded(t, s, nil)
	for name, edit := range map[string]func(*event.SessionRestarted){
		"":                   func(*event.SessionRestarted) {},
		"it was not started": func(r *event.SessionRestarted) { r.Started = !r.Started },
		"it was not sealed":  func(r *event.SessionRestarted) { r.Sealed = !r.Sealed },
		"another round":      func(r *event.SessionRestarted) { r.Round++ },
	} {
		t.Run(name, func(t *testing.T) {
			right, edited := mem.New(mem.Options{}), mem.New(mem.Options{})
			_, err := replay.Run(t.Context(), turns, replay.These(s.ID), replay.Options{Policy: fold.DefaultPolicy(), Into: right})
			require.NoError(t, err)
			var tip journal.Tip
			for e, err := range right.ReadSession(t.Context(), s.ID, journal.Tip{}) {
				require.NoError(t, err)
				for _, o := range e.Event.GetTrajectoryUpdate().GetOutputs() {
					if again := o.GetSessionRestarted(); again != nil {
						require.True(t, again.GetStarted() && again.GetSealed())
						edit(again)
					}
				}
				tip, err = edited.Append(t.Context(), tip, e.Event)
				require.NoError(t, err)
			}
			r, err := verify.Run(t.Context(), turns, edited, replay.These(s.ID), verify.Options{})
			require.NoError(t, err)
			if name == "" {
				require.Empty(t, r.Findings)
				require.Equal(t, uint64(1), r.Released)
				return
			}
			require.NotEmpty(t, r.Findings)
			require.Equal(t, verify.Once, r.Findings[0].Promise)
		})
	}
}
