package rows_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/rows/rowstest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/racetest"
)

func build(t *testing.T, s *rowstest.Session, p rows.Policy) rows.Result {
	t.Helper()
	session := rows.NewSession(s.ID)
	for i, ev := range s.Events() {
		require.NoError(t, session.Add(ev, uint64(i+1)))
	}
	res, err := session.Rows(p)
	require.NoError(t, err)
	return res
}

func TestARowHoldsABranchAsTheModelSawIt(t *testing.T) {
	s := rowstest.New("s1")
	s.Group, s.Index, s.GroupSize = "g", 3, 8
	a := s.Turn("a", "", 0, []uint32{1, 2, 3}, []uint32{10, 11})
	s.Turn("b", "a", a.Total(), []uint32{4}, []uint32{12, 13, 14})
	s.Reward("", 0.5)
	s.Seal("main", "a", "b")
	res := build(t, s, rows.Policy{})

	require.Len(t, res.Rows, 1)
	r := res.Rows[0]
	require.Equal(t, []int32{1, 2, 3, 10, 11, 4, 12, 13, 14}, r.InputIDs)
	require.Equal(t, []int8{0, 0, 0, 1, 1, 0, 1, 1, 1}, r.LossMask)
	require.Equal(t, []int32{3, 6}, r.TurnStart)
	require.Equal(t, []int32{5, 9}, r.TurnEnd)
	require.Equal(t, []int32{9, 3, 6, 5}, []int32{r.Length, r.PromptLength, r.ResponseLength, r.TrainableTokens})
	require.Equal(t, float32(0.5), *r.Reward)
	require.Equal(t, "g", r.GroupID)
	require.EqualValues(t, 3, r.RolloutIndex)
	require.EqualValues(t, 8, *r.GroupSize)
	require.True(t, r.PrefixStable)
	require.True(t, r.IsLastSegment)
	require.Nil(t, r.TurnReward)
	for i, m := range r.LossMask {
		require.Equal(t, m == 0, r.Logprobs[i] == 0)
		require.Equal(t, m == 0, r.Versions[i] == -1)
	}
}

func TestALongRowTakesNoMoreAllocationsThanAShortOne(t *testing.T) {
	allocations := func(tokens int) float64 {
		s := rowstest.New("s")
		s.Turn("a", "", 0, make([]uint32, tokens), make([]uint32, tokens))
		s.Seal("main", "a")
		in := rows.NewSession(s.ID)
		for i, ev := range s.Events() {
			require.NoError(t, in.Add(ev, uint64(i+1)))
		}
		return testing.AllocsPerRun(10, func() {
			res, err := in.Rows(rows.Policy{})
			require.NoError(t, err)
			require.NotNil(t, res.Rows[0].VersionMin)
		})
	}
	short, long := allocations(10), allocations(10_000)
	if !racetest.On {
		require.Equal(t, short, long)
	}
}

func TestASharedTurnIsTrainedOnce(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10, 11})
	s.Turn("b", "a", a.Total(), []uint32{2}, []uint32{20})
	s.Turn("c", "a", a.Total(), []uint32{3}, []uint32{30})
	s.Seal("main", "a", "b")
	s.Seal("side", "a", "c").Shared = []string{"a"}
	res := build(t, s, rows.Policy{})

	require.Len(t, res.Rows, 2)
	require.Equal(t, []int8{0, 1, 1, 0, 1}, res.Rows[0].LossMask)
	require.Equal(t, []int8{0, 0, 0, 0, 1}, res.Rows[1].LossMask)
	require.EqualValues(t, 4, res.Rows[1].PromptLength)
	require.NotZero(t, res.Rows[1].Logprobs[1], "a sampled token keeps its logprob though it is masked")
	require.Equal(t, []int32{1, 4}, res.Rows[1].TurnStart)
	require.NotEqual(t, res.Rows[0].RowID, res.Rows[1].RowID)
	require.Equal(t, []bool{false, true}, []bool{res.Rows[0].IsLastSegment, res.Rows[1].IsLastSegment})
}

func TestABranchIsCutWhereTrainableTokensWouldBeLost(t *testing.T) {
	s := rowstest.New("s1")
	s.Turn("a", "", 0, []uint32{1, 2}, []uint32{10, 11, 12})
	s.Turn("b", "a", 3, []uint32{5}, []uint32{20})
	s.Seal("main", "a", "b")
	res := build(t, s, rows.Policy{})

	require.Len(t, res.Rows, 2)
	require.Equal(t, []int32{1, 2, 10, 11, 12}, res.Rows[0].InputIDs)
	require.Equal(t, []int8{0, 0, 1, 1, 1}, res.Rows[0].LossMask)
	require.Equal(t, []int32{1, 2, 10, 5, 20}, res.Rows[1].InputIDs)
	require.Equal(t, []int8{0, 0, 0, 0, 1}, res.Rows[1].LossMask)
	require.Equal(t, []int32{4}, res.Rows[1].TurnStart)
	require.NotZero(t, res.Rows[1].Logprobs[2])
}

func TestIDsThatNothingTrainsMayBeLeftOut(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1, 2}, []uint32{10, 11, 12})
	a.Mask[4] = 0 // the last sampled id is not to be trained
	s.Turn("b", "a", 4, []uint32{5}, []uint32{20})
	s.Seal("main", "a", "b")
	res := build(t, s, rows.Policy{})

	require.Len(t, res.Rows, 1)
	require.Equal(t, []int32{1, 2, 10, 11, 5, 20}, res.Rows[0].InputIDs)
	require.False(t, res.Rows[0].PrefixStable)
}

func TestContextAfterTheLastTrainedTurnIsTrimmed(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10, 11})
	b := s.Turn("b", "a", a.Total(), []uint32{2, 3}, []uint32{20})
	b.Mask[2] = 0
	s.Seal("main", "a", "b")

	r := build(t, s, rows.Policy{}).Rows[0]
	require.Equal(t, []int32{1, 10, 11}, r.InputIDs)
	require.Equal(t, []int32{3}, r.TurnEnd)
	r = build(t, s, rows.Policy{KeepTail: true}).Rows[0]
	require.Equal(t, []int32{1, 10, 11, 2, 3, 20}, r.InputIDs)
	require.Equal(t, []int32{3, 6}, r.TurnEnd)
}

func TestRowsWithoutATrainableTokenAreCountedNotExported(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
	a.Mask[1] = 0
	s.Seal("side", "a")
	res := build(t, s, rows.Policy{})
	require.Empty(t, res.Rows)
	require.Equal(t, map[string]int64{rows.Untrainable: 1}, res.LeftOut)
}

func TestAMissingLogprobNeverBecomesZero(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
	b := s.Turn("b", "a", a.Total(), []uint32{2}, []uint32{20})
	b.Logprobs = nil
	s.Seal("main", "a", "b")
	require.Nil(t, build(t, s, rows.Policy{}).Rows[0].Logprobs)
	require.NotNil(t, build(t, s, rows.Policy{}).Rows[0].Versions)

	b.Mask[1] = 0 // now the row ends before it
	require.Len(t, build(t, s, rows.Policy{}).Rows[0].Logprobs, 2)
}

func TestATurnWithoutLogprobsMattersOnlyWhereItIsKept(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
	b := s.Turn("b", "a", a.Total(), nil, []uint32{20}) // begins where a ends
	b.Logprobs, b.Mask[0] = nil, 0
	s.Seal("main", "a", "b")
	require.Len(t, build(t, s, rows.Policy{}).Rows[0].Logprobs, 2, "the row ends before it")

	s.Turn("c", "b", a.Total(), []uint32{2}, []uint32{30})
	s.Seal("main", "a", "b", "c").Shared = []string{"a"}
	r := build(t, s, rows.Policy{}).Rows[1]
	require.Equal(t, []int32{1, 10, 2, 30}, r.InputIDs)
	require.Len(t, r.Logprobs, 4, "the history was cut before it")
}

func TestARowThatEndsWhereIDsWereLeftOutIsNotPrefixStable(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1, 2}, []uint32{10, 11, 12})
	a.Mask[4] = 0
	s.Turn("b", "a", 4, nil, []uint32{20}).Mask[0] = 0
	s.Seal("main", "a", "b")
	r := build(t, s, rows.Policy{}).Rows[0]
	require.Equal(t, []int32{1, 2, 10, 11}, r.InputIDs)
	require.False(t, r.PrefixStable)
}

func TestTheFirstWeightsHaveVersionZero(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10, 11})
	a.Versions = event.AppendInts(nil, []int32{-1, 0, 0})
	s.Seal("main", "a")
	r := build(t, s, rows.Policy{}).Rows[0]
	require.Equal(t, []int32{-1, 0, 0}, r.Versions)
	require.Zero(t, *r.VersionMin)
	require.Zero(t, *r.VersionMax)
}

func TestARowStopsForWhatEndedItsSessionUnlessItWasCompleted(t *testing.T) {
	for _, c := range []struct{ status, reason, want string }{
		{"completed", "completed", "length"},
		{"aborted", "out of time", "out of time"},
		{"aborted", "", "length"},
	} {
		s := rowstest.New("s1")
		s.Status, s.Reason = c.status, c.reason
		s.Turn("a", "", 0, []uint32{1}, []uint32{10}).FinishReason = "length"
		s.Seal("main", "a")
		r := build(t, s, rows.Policy{}).Rows[0]
		require.Equal(t, c.want, r.StopReason)
		require.Equal(t, c.status == "aborted", r.RemoveSample)
	}
}

func TestAnAnnotationCountsWhereItWasMade(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
	s.Turn("b", "a", a.Total(), []uint32{2}, []uint32{20})
	s.Turn("c", "a", a.Total(), []uint32{3}, []uint32{30})
	s.Seal("main", "a", "b")
	s.Seal("side", "a", "c").Shared = []string{"a"}
	s.Annotate("advantage", "1").Revision = 9
	s.Annotate("advantage", "2").Branch = "b1"
	s.Annotate("advantage", "3").Turn = "b"
	s.Annotate("judge", "4").Revision = 99
	list := build(t, s, rows.Policy{}).Rows
	require.Equal(t, float32(1), *list[0].Advantage, "that of the session")
	require.Equal(t, float32(2), *list[1].Advantage, "that of the branch goes before the session's")
}

func TestPolicyLeavesOutAndCounts(t *testing.T) {
	bound := func(f float64) *float64 { return &f }
	version, seven := int64(100), int64(7) // rowstest's turns are of version 7
	for _, c := range []struct {
		name   string
		policy rows.Policy
		grade  event.Grade
		reason string
	}{
		{"a wanted grade", rows.Policy{Grades: []string{"A"}}, event.Grade_GRADE_A, ""},
		{"an unwanted grade", rows.Policy{Grades: []string{"A"}}, event.Grade_GRADE_B, rows.ByGrade},
		{"grade X though asked for", rows.Policy{Grades: []string{"X"}}, event.Grade_GRADE_X, rows.ByGrade},
		{"an unknown grade", rows.Policy{}, event.Grade(99), ""},
		{"another class", rows.Policy{Classes: []string{"side"}}, event.Grade_GRADE_A, rows.ByClass},
		{"too short", rows.Policy{MinTokens: 100}, event.Grade_GRADE_A, rows.ByLength},
		{"too long", rows.Policy{MaxTokens: 1}, event.Grade_GRADE_A, rows.ByLength},
		{"too little reward", rows.Policy{MinReward: bound(1)}, event.Grade_GRADE_A, rows.ByReward},
		{"too much reward", rows.Policy{MaxReward: bound(0)}, event.Grade_GRADE_A, rows.ByReward},
		{"all bounds met exactly", rows.Policy{MinTokens: 2, MaxTokens: 2, MinReward: bound(0.5), MaxReward: bound(0.5), MinVersion: &seven}, event.Grade_GRADE_A, ""},
		{"too old weights", rows.Policy{MinVersion: &version}, event.Grade_GRADE_A, rows.ByVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := rowstest.New("s1")
			s.Turn("a", "", 0, []uint32{1}, []uint32{10})
			s.Reward("", 0.5)
			s.Seal("main", "a").Grade = c.grade
			res := build(t, s, c.policy)
			if c.reason == "" {
				require.Len(t, res.Rows, 1)
				return
			}
			require.Empty(t, res.Rows)
			require.Equal(t, map[string]int64{c.reason: 1}, res.LeftOut)
		})
	}
}

func TestRewardsAreTheHighestRevisionAndNaNWhereATurnHasNone(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
	s.Turn("b", "a", a.Total(), []uint32{2}, []uint32{20})
	s.Reward("", 1).Revision = 2
	s.Reward("", 0.25).Revision = 1
	s.Reward("b", 0.75)
	s.Annotate("advantage", "-1.5")
	s.Annotate("remove_sample", "true")
	s.Seal("main", "a", "b")
	r := build(t, s, rows.Policy{}).Rows[0]
	require.Equal(t, float32(1), *r.Reward)
	require.True(t, math.IsNaN(float64(r.TurnReward[0])))
	require.Equal(t, float32(0.75), r.TurnReward[1])
	require.Equal(t, float32(-1.5), *r.Advantage)
	require.True(t, r.RemoveSample)
}

func TestSamplingIsNullWhereTurnsDiffer(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
	b := s.Turn("b", "a", a.Total(), []uint32{2}, []uint32{20})
	s.Seal("main", "a", "b")
	a.Sampling, b.Sampling = []byte(`{"temperature":0.7,"top_p":1}`), []byte(`{"temperature":0.7,"top_p":1}`)
	r := build(t, s, rows.Policy{}).Rows[0]
	require.Equal(t, float32(0.7), *r.Temperature)
	require.JSONEq(t, `{"temperature":0.7,"top_p":1}`, r.Sampling)

	b.Sampling = []byte(`{"temperature":1,"top_p":1}`)
	b.LogprobKind = event.LogprobKind_LOGPROB_KIND_RAW
	r = build(t, s, rows.Policy{}).Rows[0]
	require.Nil(t, r.Temperature)
	require.Equal(t, float32(1), *r.TopP)
	require.JSONEq(t, `[{"temperature":0.7,"top_p":1},{"temperature":1,"top_p":1}]`, r.Sampling)
	require.Equal(t, "mixed", r.LogprobKind)
}

func TestMessagesAreTheConversationOfTheLastTurnInOpenAIsForm(t *testing.T) {
	s := rowstest.New("s1")
	a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
	b := s.Turn("b", "a", a.Total(), []uint32{2}, []uint32{20})
	a.Conversation = &event.Conversation{
		System: []byte("hash-of-system"), Tools: []byte("hash-of-tools"),
		Definitions: []*event.Definition{
			{Hash: []byte("hash-of-system"), Content: []byte(`[{"role":"system","content":"be brief"}]`)},
			{Hash: []byte("hash-of-tools"), Content: []byte(`[{"type":"function","function":{"name":"ls"}}]`)},
		},
		Messages: [][]byte{[]byte(`{"role":"user","content":"list"}`)},
		Answer:   []byte(`{"role":"assistant","content":null,"reasoning":"hm","calls":[{"id":"c1","model_id":"x","name":"ls","arguments":"{\"p\": 1}"}]}`),
	}
	b.Conversation = &event.Conversation{
		System: []byte("hash-of-system"), Tools: []byte("hash-of-tools"), Keep: 2,
		Messages: [][]byte{[]byte(`{"role":"tool","content":"a.go","call_id":"c1"}`)},
		Answer:   []byte(`{"role":"assistant","content":"a.go"}`),
	}
	s.Seal("main", "a", "b")
	r := build(t, s, rows.Policy{}).Rows[0]
	require.JSONEq(t, `[
		{"role":"system","content":"be brief"},
		{"role":"user","content":"list"},
		{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1}"}}]},
		{"role":"tool","content":"a.go","tool_call_id":"c1"},
		{"role":"assistant","content":"a.go"}]`, r.MessagesJSON)
	require.JSONEq(t, `[{"type":"function","function":{"name":"ls"}}]`, r.ToolsJSON)

	// Definitions may stand where their hashes would; a conversation need not
	// have any.
	a.Conversation.System, a.Conversation.Tools, a.Conversation.Definitions = []byte(`[{"role":"system","content":"go"}]`), []byte(`[{"type":"function"}]`), nil
	b.Conversation.System, b.Conversation.Tools = a.Conversation.System, a.Conversation.Tools
	r = build(t, s, rows.Policy{}).Rows[0]
	require.Contains(t, r.MessagesJSON, `[{"role":"system","content":"go"},{"role":"user",`)
	require.JSONEq(t, `[{"type":"function"}]`, r.ToolsJSON)
	b.Conversation.System, b.Conversation.Tools = nil, []byte("unknown hash")
	r = build(t, s, rows.Policy{}).Rows[0]
	require.Contains(t, r.MessagesJSON, `[{"role":"user","content":"list"}`)
	require.Empty(t, r.ToolsJSON)
}

func TestUpdatesThatContradictEachOtherAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(s *rowstest.Session){
		"a short mask":          func(s *rowstest.Session) { s.Spans("b").Mask = []byte{0} },
		"half a logprob":        func(s *rowstest.Session) { s.Spans("b").Logprobs = []byte{0, 0} },
		"spans that don't tile": func(s *rowstest.Session) { s.Spans("b").Spans[0].Count++ },
		"a trained prompt":      func(s *rowstest.Session) { s.Spans("b").Mask[0] = 1 },
		"too much kept":         func(s *rowstest.Session) { s.Spans("b").Keep = 99 },
		"another parent":        func(s *rowstest.Session) { s.Spans("b").Parent = "z" },
		"an id above int32":     func(s *rowstest.Session) { copy(s.Spans("b").Ids, []byte{255, 255, 255, 255}) },
		"a missing turn":        func(s *rowstest.Session) { s.Seal("main", "a", "z") },
		"a branch of no turn":   func(s *rowstest.Session) { s.Seal("main", "b") },
	} {
		t.Run(name, func(t *testing.T) {
			s := rowstest.New("s1")
			a := s.Turn("a", "", 0, []uint32{1}, []uint32{10})
			s.Turn("b", "a", a.Total(), []uint32{2}, []uint32{20})
			s.Seal("main", "a", "b")
			spoil(s)
			session := rows.NewSession("s1")
			var err error
			for i, ev := range s.Events() {
				if err = session.Add(ev, uint64(i)); err != nil {
					break
				}
			}
			if err == nil {
				_, err = session.Rows(rows.Policy{})
			}
			require.ErrorIs(t, err, rows.ErrMalformed)
		})
	}
}

// Every view that trainers derive rebuilds what was sampled, whatever the tree
// looks like, and all rows of a session together train each sampled token once.
func TestDerivedViewsRebuildTheTurns(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := rowstest.Random("s"+strconv.FormatUint(seed, 10), rng)
		res := build(t, s, rows.Policy{KeepTail: seed%2 == 0})
		trained := make(map[string]int)
		for _, r := range res.Rows {
			checkRow(t, s, r, trained)
		}
		for _, turn := range s.Turns() {
			want := 0
			if slices.Contains(turn.Mask, 1) && s.OnABranch(turn.Turn) {
				want = 1
			}
			require.Equal(t, want, trained[turn.Turn], "seed %d, turn %s", seed, turn.Turn)
		}
	}
}

func TestBothFormsOfATurnGiveTheSameRows(t *testing.T) {
	for seed := range uint64(100) {
		s := rowstest.Random("s", rand.New(rand.NewPCG(seed, 2)))
		now := build(t, s, rows.Policy{KeepTail: seed%2 == 0})
		require.Empty(t, s.Events()[1].GetTrajectoryUpdate().GetOutputs()[0].GetTurnSpans().GetMask())
		s.Old = true
		require.NotEmpty(t, s.Events()[1].GetTrajectoryUpdate().GetOutputs()[0].GetTurnSpans().GetMask())
		require.Equal(t, now, build(t, s, rows.Policy{KeepTail: seed%2 == 0}))
	}
}

func checkRow(t *testing.T, s *rowstest.Session, r *rows.Row, trained map[string]int) {
	t.Helper()
	require.NoError(t, r.Check())
	n := int(r.Length)
	require.Len(t, r.InputIDs, n)
	require.Len(t, r.LossMask, n)
	require.Len(t, r.Logprobs, n)
	require.Len(t, r.Versions, n)

	// The response begins with the first trained token.
	require.NotContains(t, r.LossMask[:r.PromptLength], int8(1))
	require.EqualValues(t, 1, r.LossMask[r.PromptLength])
	require.EqualValues(t, n, r.PromptLength+r.ResponseLength)

	inTurn := make([]bool, n)
	sum := 0
	for i := range r.TurnStart {
		turn := s.TurnAt(uint64(r.TurnSeq[i]))
		start, end := r.TurnStart[i], r.TurnEnd[i]
		// Per turn: the prompt and the completion, as they were.
		require.Equal(t, s.Prompt(turn.Turn), r.InputIDs[:start])
		completion := s.Completion(turn.Turn)
		mask := turn.Mask[len(turn.Mask)-len(completion):]
		if left := int(end - start); !r.PrefixStable && left < len(completion) {
			if slices.Contains(r.LossMask[start:end], 1) {
				require.NotContains(t, mask[left:], byte(1), "what is missing was not to be trained")
			}
			completion = completion[:left]
		}
		require.Equal(t, completion, r.InputIDs[start:end])
		require.Equal(t, s.Logprobs(turn.Turn)[:len(completion)], r.Logprobs[start:end])
		whole := true
		for j := start; j < end; j++ {
			inTurn[j] = true
			sum += int(r.LossMask[j])
			whole = whole && r.LossMask[j] == int8(mask[j-start])
		}
		if slices.Contains(r.LossMask[start:end], 1) {
			require.True(t, whole, "a turn is trained as a whole or not at all")
			trained[turn.Turn]++
		}
	}
	// Action ranges and the shifted mask cover the same tokens.
	require.EqualValues(t, r.TrainableTokens, sum)
	for j := range n {
		if !inTurn[j] {
			require.Zero(t, r.LossMask[j], "token %d is trained outside of a turn", j)
		}
	}
	require.True(t, json.Valid([]byte(r.Sampling)))
}

func TestCheckReportsRowsThatContradictThemselves(t *testing.T) {
	for name, spoil := range map[string]func(r *rows.Row){
		"no id":              func(r *rows.Row) { r.RowID = "" },
		"a short mask":       func(r *rows.Row) { r.LossMask = r.LossMask[1:] },
		"a long logprob":     func(r *rows.Row) { r.Logprobs = append(r.Logprobs, 0) },
		"an early response":  func(r *rows.Row) { r.PromptLength-- },
		"a mask of 2":        func(r *rows.Row) { r.LossMask[4] = 2 },
		"a trained context":  func(r *rows.Row) { r.LossMask[5] = 1 },
		"a turn that is not": func(r *rows.Row) { r.TurnEnd[0] = r.TurnStart[0] },
		"turns out of order": func(r *rows.Row) { r.TurnStart[1] = 0 },
		"an end too few":     func(r *rows.Row) { r.TurnEnd = r.TurnEnd[:1] },
		"another sum":        func(r *rows.Row) { r.TrainableTokens++ },
	} {
		t.Run(name, func(t *testing.T) {
			s := rowstest.New("s1")
			a := s.Turn("a", "", 0, []uint32{1, 2, 3}, []uint32{10, 11})
			s.Turn("b", "a", a.Total(), []uint32{4}, []uint32{12, 13, 14})
			s.Seal("main", "a", "b")
			r := build(t, s, rows.Policy{}).Rows[0]
			require.NoError(t, r.Check())
			spoil(r)
			require.ErrorIs(t, r.Check(), rows.ErrMalformed)
		})
	}
}
