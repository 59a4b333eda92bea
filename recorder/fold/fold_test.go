package fold_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// first is a session with one turn of four prompt ids and three sampled ones.
func first(edit func(*event.TurnCommitted)) *sessiontest.Session {
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2, 3, 4}, Out: []uint32{5, 6, 7}, Edit: edit})
	return s
}

func spansOf(t *testing.T, p fold.Policy, aids fold.Aids, s *sessiontest.Session) map[string]event.Tokens {
	t.Helper()
	st := fold.New(s.ID, p, aids)
	var out []*event.TrajectoryUpdate
	for _, e := range sessiontest.Entries(s.Events) {
		u, err := st.Apply(e)
		require.NoError(t, err)
		out = append(out, u)
	}
	return viewOf(out).spans
}

func TestATurnBecomesSpansOfItsOwnIDs(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8, 9}, Out: []uint32{10}})
	spans := spansOf(t, fold.DefaultPolicy(), fold.Aids{}, s)["b"]

	require.Equal(t, "a", spans.GetParent())
	require.Equal(t, uint32(7), spans.GetKeep())
	require.Equal(t, []uint32{8, 9, 10}, spans.AppendIDs(nil))
	require.Equal(t, []int8{0, 0, 1}, spans.AppendMask(nil))
	require.Equal(t, []float32{0, 0, -1. / 16}, spans.AppendLogprobs(nil))
	require.Equal(t, []int32{-1, -1, 7}, spans.AppendVersions(nil))
	require.Equal(t, event.Grade_GRADE_A, spans.GetGrade())
	require.Empty(t, spans.GetGradeReasons())
	require.Equal(t, "tok", spans.GetTokenizer())
	require.Equal(t, int64(999), spans.GetGenerationUs())
	require.NotNil(t, spans.GetConversation())
}

func TestGradesFollowTheEvidence(t *testing.T) {
	cases := []struct {
		name   string
		grade  event.Grade
		reason string
		edit   func(*event.TurnCommitted)
	}{
		{"proof by count", event.Grade_GRADE_B, "proof_count", func(c *event.TurnCommitted) { c.Generation.Proof = event.PromptProof_PROMPT_PROOF_COUNT }},
		{"tolerance", event.Grade_GRADE_B, "tolerance:trimmed", func(c *event.TurnCommitted) { c.Match.Tolerances = []string{"trimmed"} }},
		{"kind of logprobs unknown", event.Grade_GRADE_C, "logprob_kind_unknown", func(c *event.TurnCommitted) { c.Completion.LogprobKind = 0 }},
		{"ambiguous", event.Grade_GRADE_C, "ambiguous_parent", func(c *event.TurnCommitted) { c.Match.Ambiguous = true }},
		{"rewritten", event.Grade_GRADE_C, "rewritten_call", func(c *event.TurnCommitted) { c.Match.Rewritten = true }},
		{"grammar", event.Grade_GRADE_C, "constrained:json_schema", func(c *event.TurnCommitted) { c.Generation.Constraints = []string{"json_schema"} }},
		{"temperature zero", event.Grade_GRADE_C, "greedy", func(c *event.TurnCommitted) { c.Request.SamplingUsed = []byte(`{"temperature":0.0}`) }},
		{"one candidate", event.Grade_GRADE_C, "greedy", func(c *event.TurnCommitted) { c.Request.SamplingUsed = []byte(`{"top_k":1}`) }},
		{"no version", event.Grade_GRADE_C, "version_unknown", func(c *event.TurnCommitted) { c.Completion.Versions = nil }},
		{"version without number", event.Grade_GRADE_C, "version_unknown", func(c *event.TurnCommitted) { c.Completion.Versions[0].Label = "default" }},
		{"text in", event.Grade_GRADE_D, "text_in", func(c *event.TurnCommitted) { c.Generation.Proof = event.PromptProof_PROMPT_PROOF_NONE }},
		{"a proof that only newer programs know", event.Grade_GRADE_D, "proof_unknown", func(c *event.TurnCommitted) { c.Generation.Proof = 99 }},
		{"text out", event.Grade_GRADE_D, "text_out", func(c *event.TurnCommitted) { c.Completion = &event.Completion{Text: "answer"} }},
		{"no logprobs", event.Grade_GRADE_D, "logprobs_missing", func(c *event.TurnCommitted) { c.Completion.Logprobs = nil }},
		{"logprob that is no number", event.Grade_GRADE_D, "logprob_not_finite", func(c *event.TurnCommitted) {
			c.Completion.Logprobs = event.AppendFloats(nil, []float32{-1, float32(math.NaN()), -1})
		}},
		{"infinite logprob", event.Grade_GRADE_D, "logprob_not_finite", func(c *event.TurnCommitted) {
			c.Completion.Logprobs = event.AppendFloats(nil, []float32{-1, float32(math.Inf(-1)), -1})
		}},
		{"the engine read another prompt", event.Grade_GRADE_X, "prompt_count_mismatch", func(c *event.TurnCommitted) { c.Generation.PromptTokens = 9 }},
		{"count proof without a count", event.Grade_GRADE_X, "prompt_count_mismatch", func(c *event.TurnCommitted) {
			c.Generation.Proof, c.Generation.PromptTokens = event.PromptProof_PROMPT_PROOF_COUNT, 0
		}},
		{"fewer logprobs than ids", event.Grade_GRADE_X, "logprob_count_mismatch", func(c *event.TurnCommitted) {
			c.Completion.Logprobs = c.Completion.Logprobs[:8]
		}},
		{"versions that do not tile", event.Grade_GRADE_X, "version_count_mismatch", func(c *event.TurnCommitted) { c.Completion.Versions[0].Count = 2 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spans := spansOf(t, fold.DefaultPolicy(), fold.Aids{}, first(c.edit))["a"]
			require.Equal(t, c.grade, spans.GetGrade())
			require.Contains(t, spans.GetGradeReasons(), c.reason)
			if c.grade == event.Grade_GRADE_X {
				require.NotContains(t, spans.AppendMask(nil), int8(1))
			}
		})
	}
}

func TestAPromptThatDoesNotContinueItsParentIsBrokenButReadable(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{10}, Edit: func(c *event.TurnCommitted) {
		c.Base = nil
		c.Segments = []*event.Segment{{Provenance: event.Provenance_PROVENANCE_USER, Ids: event.AppendIDs(nil, []uint32{1, 2, 3, 4, 5, 6, 99, 8})}}
	}})
	spans := spansOf(t, fold.DefaultPolicy(), fold.Aids{}, s)["b"]
	require.Equal(t, event.Grade_GRADE_X, spans.GetGrade())
	require.Equal(t, []string{"parent_ids_mismatch"}, spans.GetGradeReasons())
	require.Zero(t, spans.GetKeep())
	require.Equal(t, []uint32{1, 2, 3, 4, 5, 6, 99, 8, 10}, spans.AppendIDs(nil))
}

func TestAnotherTokenizerCannotContinueATurn(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{9}, Edit: func(c *event.TurnCommitted) { c.Generation.Tokenizer = "other" }})
	s.Commit(sessiontest.Step{ID: "c", Parent: "a", New: []uint32{8}, Out: []uint32{9}, Edit: func(c *event.TurnCommitted) { c.Generation.Template = "other" }})
	spans := spansOf(t, fold.DefaultPolicy(), fold.Aids{}, s)
	require.Equal(t, event.Grade_GRADE_X, spans["b"].GetGrade())
	require.Equal(t, event.Grade_GRADE_B, spans["c"].GetGrade())
}

func TestWeightLabelsGetTheNumberThatTheRunGaveThem(t *testing.T) {
	s := first(func(c *event.TurnCommitted) {
		c.Completion.Versions = []*event.VersionSpan{{Count: 2, Label: "step-40"}, {Count: 1, Label: "step-41"}}
	})
	aids := fold.Aids{Version: func(run, label string) (int32, bool) {
		require.Equal(t, "run1", run)
		return 40, label == "step-40"
	}}
	spans := spansOf(t, fold.DefaultPolicy(), aids, s)["a"]
	require.Equal(t, []int32{-1, -1, -1, -1, 40, 40, -1}, spans.AppendVersions(nil))
	require.Equal(t, []string{"version_unknown"}, spans.GetGradeReasons())
}

func TestMaskedTokensKeepTheirLogprobsAndSayWhy(t *testing.T) {
	p := fold.DefaultPolicy()
	p.CutOff, p.MaskFlags = fold.Mask, []string{"malformed_call"}
	for why, edit := range map[string]func(*event.TurnCommitted){
		"class_side":          func(c *event.TurnCommitted) { c.Request.Class = "side" },
		"class_new":           func(c *event.TurnCommitted) { c.Request.Class = "new" },
		"cut_off":             func(c *event.TurnCommitted) { c.Completion.FinishReason = "length" },
		"flag_malformed_call": func(c *event.TurnCommitted) { c.Completion.Flags = []string{"malformed_call"} },
	} {
		t.Run(why, func(t *testing.T) {
			spans := spansOf(t, p, fold.Aids{}, first(edit))["a"]
			require.NotContains(t, spans.AppendMask(nil), int8(1))
			require.Equal(t, map[string]uint32{why: 3}, spans.GetMasked())
			require.Equal(t, []float32{0, 0, 0, 0, -1. / 16, -2. / 16, -3. / 16}, spans.AppendLogprobs(nil))
		})
	}
}

// sealed folds a closed session and returns its branches by their last turn.
func sealed(t *testing.T, p fold.Policy, s *sessiontest.Session) (map[string]*event.BranchSealed, *event.SessionSealed) {
	t.Helper()
	branches := map[string]*event.BranchSealed{}
	var seal *event.SessionSealed
	for _, u := range run(t, p, sessiontest.Entries(s.Events)) {
		for _, o := range u.GetOutputs() {
			if b := o.GetBranchSealed(); b != nil {
				branches[b.GetLeaf()] = b
			}
			if o.GetSessionSealed() != nil {
				seal = o.GetSessionSealed()
			}
		}
	}
	return branches, seal
}

func TestARetryThatTheAgentDidNotUseIsAbandoned(t *testing.T) {
	s := first(nil)
	again := sessiontest.Step{Parent: "a", New: []uint32{8}, Out: []uint32{10, 11}}
	again.ID = "b"
	s.Commit(again)
	again.ID = "c"
	s.Commit(again)
	s.Commit(sessiontest.Step{ID: "d", Parent: "c", New: []uint32{8}, Out: []uint32{12}})
	s.Close("completed")
	branches, seal := sealed(t, fold.DefaultPolicy(), s)

	require.Equal(t, "abandoned", branches["b"].GetLabel())
	require.Equal(t, "main", branches["b"].GetClass())
	require.Equal(t, map[string]string{"b": "abandoned"}, branches["b"].GetExcluded())
	require.Empty(t, branches["b"].GetTrainRuns())
	require.Zero(t, branches["b"].GetTrainable())
	require.Equal(t, "main", branches["d"].GetLabel())
	require.Equal(t, []uint32{0, 3}, branches["d"].GetTrainRuns(), "a, c and d")
	require.Equal(t, uint32(6), branches["d"].GetTrainable())
	require.Equal(t, map[string]uint64{"abandoned": 2}, seal.GetLedger().GetMasked())

	p := fold.DefaultPolicy()
	p.Abandoned = fold.Train
	branches, _ = sealed(t, p, s)
	require.Equal(t, uint32(2), branches["b"].GetTrainable())
	require.Equal(t, []uint32{1, 1}, branches["b"].GetTrainRuns(), "b and not a")
}

// lines writes main turns in the order of their requests: id, parent, and the
// reason of the match.
func lines(turns ...[3]string) *sessiontest.Session {
	s := sessiontest.New("s1")
	for i, turn := range turns {
		s.Commit(sessiontest.Step{ID: turn[0], Parent: turn[1], New: []uint32{uint32(i)}, Out: []uint32{7}, Edit: func(c *event.TurnCommitted) {
			c.Match.Reason = turn[2]
		}})
	}
	return s
}

func TestWhatTheSessionLeftBehindIsAbandoned(t *testing.T) {
	for name, c := range map[string]struct {
		s         *sessiontest.Session
		edit      func(s *sessiontest.Session)
		abandoned []string // branches, by their last turn
		masked    uint64
	}{
		"a rewind of several turns": {
			s:         lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "c"}, [3]string{"e", "a", "rewind"}, [3]string{"f", "e"}),
			abandoned: []string{"d"}, masked: 3,
		},
		"a rewind to ask for the last answer": {
			s:         lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "a", "rewind"}),
			abandoned: []string{"c"}, masked: 2,
		},
		"the same question again after several turns": {
			s:         lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "a", "resample"}, [3]string{"e", "d"}),
			abandoned: []string{"c"}, masked: 2,
		},
		"two rewinds, one inside the other": {
			s: lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "b", "rewind"}, [3]string{"e", "d"},
				[3]string{"f", "a", "rewind"}, [3]string{"g", "f"}),
			abandoned: []string{"c", "e"}, masked: 4,
		},
		"a rewind whose answer never came": {
			s:         lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "a", "rewind"}),
			edit:      func(s *sessiontest.Session) { s.Undelivered("d") },
			abandoned: []string{"d"}, masked: 1,
		},
		"a sub-agent of what was left": {
			s: lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"sub", "b"}, [3]string{"d", "a", "rewind"}, [3]string{"e", "d"}),
			edit: func(s *sessiontest.Session) {
				s.Turn("sub").Event.GetTurnCommitted().Request.Class = "subagent"
			},
			abandoned: []string{"b", "sub"}, masked: 2,
		},
		"a history that was rewritten goes on": {
			s: lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "a", "history_rewritten"}, [3]string{"e", "d"}),
		},
		"the last answer after a history was rewritten": {
			s: lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "a", "history_rewritten"}),
		},
		"samples of several steps beside each other": {
			s: lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"d", "a", "resample"}, [3]string{"c", "b"}, [3]string{"e", "d"}),
		},
		"samples of the last step after a rewind": {
			s:         lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "a", "rewind"}, [3]string{"e", "a", "resample"}),
			abandoned: []string{"c"}, masked: 2,
		},
		"a conversation that begins again": {
			s: lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "", "resample"}, [3]string{"d", "c"}),
			edit: func(s *sessiontest.Session) {
				s.Turn("c").Event.GetTurnCommitted().Segments = s.Turn("a").Event.GetTurnCommitted().Segments
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(c.s)
			}
			c.s.Close("completed")
			branches, seal := sealed(t, fold.DefaultPolicy(), c.s)
			var abandoned []string
			for id, b := range branches {
				if b.GetLabel() == "abandoned" {
					abandoned = append(abandoned, id)
				}
			}
			require.ElementsMatch(t, c.abandoned, abandoned)
			require.Equal(t, c.masked, seal.GetLedger().GetMasked()["abandoned"])
		})
	}
}

func TestASessionIsAsTruncatedAsTheNewestAnswerThatItKept(t *testing.T) {
	cut := func(s *sessiontest.Session, turn string) *sessiontest.Session {
		s.Turn(turn).Event.GetTurnCommitted().Completion.FinishReason = "length"
		return s
	}
	status := func(s *sessiontest.Session) string {
		s.Close("completed")
		_, seal := sealed(t, fold.DefaultPolicy(), s)
		return seal.GetStatus()
	}
	rewound := func() *sessiontest.Session {
		return lines([3]string{"a"}, [3]string{"b", "a"}, [3]string{"c", "b"}, [3]string{"d", "a", "rewind"})
	}
	require.Equal(t, "truncated", status(cut(rewound(), "d")))
	require.Equal(t, "completed", status(cut(rewound(), "c")))
	undelivered := cut(rewound(), "d")
	undelivered.Undelivered("d")
	require.Equal(t, "completed", status(undelivered), "the agent never got it")
	kept := cut(rewound(), "c")
	kept.Undelivered("d")
	require.Equal(t, "truncated", status(kept))
}

func TestEqualSamplesOfTheLastStepAreNotAbandoned(t *testing.T) {
	s := sessiontest.New("s1")
	for _, id := range []string{"a", "b", "c"} {
		s.Commit(sessiontest.Step{ID: id, New: []uint32{1}, Out: []uint32{2}})
	}
	s.Undelivered("c")
	s.Close("completed")
	branches, seal := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, "main", branches["a"].GetLabel())
	require.Equal(t, "main", branches["b"].GetLabel())
	require.Equal(t, "abandoned", branches["c"].GetLabel(), "two were delivered and this one was not")
	require.Equal(t, uint64(2), seal.GetLedger().GetTrainable())
}

func TestAnAnswerThatTheAgentNeverGotDoesNotCostTheTurnsBeforeIt(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{10}})
	s.Undelivered("b")
	s.Close("completed")
	branches, seal := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, "main", branches["b"].GetLabel())
	require.Equal(t, uint32(3), branches["b"].GetTrainable())
	require.Equal(t, map[string]string{"b": "undelivered"}, branches["b"].GetExcluded())
	require.Equal(t, map[string]uint64{"undelivered": 1}, seal.GetLedger().GetMasked())
}

func TestASideRequestDoesNotHideTheEndOfTheMainLine(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{10}})
	s.Commit(sessiontest.Step{ID: "title", Parent: "b", New: []uint32{8}, Out: []uint32{11}, Edit: func(c *event.TurnCommitted) { c.Request.Class = "side" }})
	s.Close("completed")
	branches, _ := sealed(t, fold.DefaultPolicy(), s)
	require.Len(t, branches, 2)
	require.Equal(t, "main", branches["b"].GetLabel())
	require.Equal(t, uint32(4), branches["b"].GetTrainable())
	require.Equal(t, "side", branches["title"].GetLabel())
	require.Zero(t, branches["title"].GetTrainable())
}

func TestASideRequestDoesNotMakeAnAnswerOneThatTheAgentWentOnFrom(t *testing.T) {
	side := func(c *event.TurnCommitted) { c.Request.Class = "side" }
	s := first(nil)
	for _, id := range []string{"b", "c"} {
		s.Commit(sessiontest.Step{ID: id, Parent: "a", New: []uint32{8}, Out: []uint32{10}})
	}
	s.Commit(sessiontest.Step{ID: "title", Parent: "b", New: []uint32{8}, Out: []uint32{11}, Edit: side})
	samples := *s
	s.Close("completed")
	branches, _ := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, "main", branches["b"].GetLabel(), "samples of one last step")
	require.Equal(t, "main", branches["c"].GetLabel())

	s = &samples
	s.Commit(sessiontest.Step{ID: "d", Parent: "c", New: []uint32{8}, Out: []uint32{12}})
	s.Close("completed")
	branches, seal := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, "abandoned", branches["b"].GetLabel())
	require.Zero(t, branches["b"].GetTrainable())
	require.Zero(t, branches["title"].GetTrainable(), "nor is it trained where the side request extends it")
	require.Equal(t, map[string]string{"b": "abandoned"}, branches["b"].GetExcluded())
	require.Empty(t, branches["title"].GetExcluded(), "it is said once")
	require.Equal(t, map[string]uint64{"abandoned": 1, "class_side": 1}, seal.GetLedger().GetMasked())
}

func TestACompactionGoesOnFromTheTurnThatItExtends(t *testing.T) {
	s := first(nil)
	for _, id := range []string{"b", "c"} {
		s.Commit(sessiontest.Step{ID: id, Parent: "a", New: []uint32{8}, Out: []uint32{10}})
	}
	s.Commit(sessiontest.Step{ID: "sum", Parent: "b", New: []uint32{8}, Out: []uint32{11}, Edit: func(c *event.TurnCommitted) { c.Request.Class = "compaction" }})
	s.Close("completed")
	branches, _ := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, "main", branches["b"].GetLabel())
	require.Equal(t, "abandoned", branches["c"].GetLabel())
}

func TestWhatContinuesAnAnswerProvesThatItWasDelivered(t *testing.T) {
	s := first(nil)
	s.Undelivered("a")
	s.Commit(sessiontest.Step{ID: "title", Parent: "a", New: []uint32{8}, Out: []uint32{11}, Edit: func(c *event.TurnCommitted) { c.Request.Class = "side" }})
	s.Close("completed")
	branches, _ := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, uint32(3), branches["a"].GetTrainable())
}

func TestAnEndTokenThatTheNextMessageBeginsWithDoesNotBreakTheSequence(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", Cut: 1, New: []uint32{7, 8}, Out: []uint32{10}})
	s.Commit(sessiontest.Step{ID: "c", Parent: "a", Cut: 2, New: []uint32{6, 8, 9}, Out: []uint32{10}})
	s.Close("completed")
	v := viewOf(run(t, fold.DefaultPolicy(), sessiontest.Entries(s.Events)))
	require.Equal(t, uint32(7), v.spans["b"].GetKeep(), "7 was sampled, and stands where it was sampled")
	require.Equal(t, []uint32{8, 10}, v.spans["b"].AppendIDs(nil))
	require.Equal(t, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 10}, v.ids("b"))
	require.Equal(t, uint32(5), v.spans["c"].GetKeep(), "only one of two is there again")
	require.Equal(t, []uint32{1, 2, 3, 4, 5, 6, 8, 9, 10}, v.ids("c"))
}

func TestTokensThatNothingContinuesBelongToTheBranchAllTheSame(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", Cut: 2, New: []uint32{8}, Out: []uint32{10}})
	s.Close("completed")
	branches, seal := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, uint32(7), branches["b"].GetTokens(), "of the last segment")
	require.Equal(t, uint32(4), branches["b"].GetTrainable(), "of all segments")
	require.Equal(t, uint64(4), seal.GetLedger().GetTrainable())
}

func TestARewrittenCallCanBeMasked(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{10}, Edit: func(c *event.TurnCommitted) { c.Match.Rewritten = true }})
	s.Close("completed")
	p := fold.DefaultPolicy()
	p.RewrittenCalls = fold.Mask
	branches, _ := sealed(t, p, s)
	require.Equal(t, map[string]string{"a": "rewritten_call"}, branches["b"].GetExcluded())
	require.Equal(t, uint32(1), branches["b"].GetTrainable())
	require.Equal(t, event.Grade_GRADE_C, branches["b"].GetGrade())
}

func TestOnlyTheTurnWhoseCallWasRewrittenIsMasked(t *testing.T) {
	flagged := func(turns ...string) func(*event.TurnCommitted) {
		return func(c *event.TurnCommitted) { c.Match.Rewritten, c.Match.RewrittenTurns = true, turns }
	}
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{10}})
	// The history of b's children holds the changed call for ever; only one of
	// them says so first.
	s.Commit(sessiontest.Step{ID: "c", Parent: "b", New: []uint32{8}, Out: []uint32{10}, Edit: flagged("a")})
	s.Commit(sessiontest.Step{ID: "d", Parent: "c", New: []uint32{8}, Out: []uint32{10}, Edit: flagged()})
	s.Commit(sessiontest.Step{ID: "e", Parent: "d", New: []uint32{8}, Out: []uint32{10}, Edit: flagged("d")})
	s.Close("completed")
	p := fold.DefaultPolicy()
	p.RewrittenCalls = fold.Mask
	branches, _ := sealed(t, p, s)
	require.Equal(t, map[string]string{"a": "rewritten_call", "d": "rewritten_call"}, branches["e"].GetExcluded())
	require.Equal(t, uint32(3), branches["e"].GetTrainable())
}

func TestABranchIsAsGoodAsItsWorstTurn(t *testing.T) {
	s := first(func(c *event.TurnCommitted) { c.Match.Tolerances = []string{"x"} })
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{10}})
	s.Commit(sessiontest.Step{ID: "c", Parent: "a", New: []uint32{8}, Out: []uint32{10}, Edit: func(c *event.TurnCommitted) { c.Generation.PromptTokens = 1 }})
	s.Close("completed")
	branches, seal := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, event.Grade_GRADE_B, branches["b"].GetGrade())
	require.Equal(t, event.Grade_GRADE_X, branches["c"].GetGrade())
	require.Equal(t, []string{"prompt_count_mismatch", "tolerance:x"}, branches["c"].GetGradeReasons())
	require.Zero(t, branches["c"].GetTrainable(), "never exported, so nothing counts as trainable")
	require.Equal(t, uint32(4), branches["b"].GetTrainable())
	require.Equal(t, map[string]uint64{"grade_x": 1}, seal.GetLedger().GetMasked())
}

func TestTheStatusOfASession(t *testing.T) {
	for reason, status := range map[string]string{
		"completed": "completed", "failed": "failed", "aborted": "aborted", "deleted": "aborted",
		"truncated": "truncated", "a reason of a newer gateway": "failed", "": "completed",
		"limit_turns": "truncated", "limit_idle": "truncated", "limit_wall": "truncated", "limit_tokens": "truncated",
	} {
		s := first(nil)
		s.Close(reason)
		_, seal := sealed(t, fold.DefaultPolicy(), s)
		require.Equal(t, status, seal.GetStatus(), reason)
	}
	s := first(func(c *event.TurnCommitted) { c.Completion.FinishReason = "length" })
	s.Close("completed")
	_, seal := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, "truncated", seal.GetStatus())
}

func TestTheIDsOfACallThatDoesNotBelongWhereItStandsAreAccountedFor(t *testing.T) {
	s := &sessiontest.Session{ID: "s1"}
	s.Abort("a", "client_gone", 1, 2)
	entries := sessiontest.Entries(s.Events)
	st := fold.New("s1", fold.DefaultPolicy(), fold.Aids{})
	u, err := st.Apply(entries[0])
	require.NoError(t, err)
	require.Equal(t, "illegal", u.GetOutputs()[0].GetFault().GetReason())
	require.Equal(t, uint64(2), u.GetOutputs()[1].GetTurnLost().GetIds())
	require.Equal(t, uint64(2), st.Generated())
}

func TestLostIDsAreAccountedForByReason(t *testing.T) {
	s := first(func(c *event.TurnCommitted) {
		c.Generation.Attempts = []*event.Attempt{{Ids: event.AppendIDs(nil, []uint32{1, 2})}, {}}
	})
	s.Abort("x", "client_gone", 1, 2, 3, 4)
	s.Abort("y", "engine")
	s.Close("completed")
	s.Abort("z", "closed", 1)
	_, seal := sealed(t, fold.DefaultPolicy(), s)
	require.Equal(t, map[string]uint64{"failed_attempt": 2, "client_gone": 4}, seal.GetLedger().GetLost())
	require.Equal(t, uint64(9), seal.GetLedger().GetGenerated())
}

func TestRewardsAndAnnotationsAfterTheCloseArePassedOn(t *testing.T) {
	s := first(nil)
	s.Close("completed")
	s.Reward(0.5, 1)
	s.Annotate("judge", 1)
	updates := run(t, fold.DefaultPolicy(), sessiontest.Entries(s.Events))
	require.InEpsilon(t, 0.5, updates[3].GetOutputs()[0].GetRewardRecorded().GetReward(), 0)
	require.Equal(t, "judge", updates[4].GetOutputs()[0].GetAnnotationRecorded().GetName())
}

func TestAnIllegalEventParksTheSessionAndNothingOfItIsTrained(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{10}, Edit: func(c *event.TurnCommitted) { c.Parent = "nowhere" }})
	s.Commit(sessiontest.Step{ID: "c", Parent: "a", New: []uint32{8}, Out: []uint32{11, 12}})
	s.Close("completed")
	s.Reward(1, 1)
	st := fold.New("s1", fold.DefaultPolicy(), fold.Aids{})
	var updates []*event.TrajectoryUpdate
	for _, e := range sessiontest.Entries(s.Events) {
		u, err := st.Apply(e)
		require.NoError(t, err)
		updates = append(updates, u)
	}
	require.Equal(t, "illegal", updates[2].GetOutputs()[0].GetFault().GetReason())
	require.Equal(t, "parked", updates[3].GetOutputs()[0].GetTurnLost().GetReason())
	require.Len(t, updates[4].GetOutputs(), 1)
	seal := updates[4].GetOutputs()[0].GetSessionSealed()
	require.Equal(t, "failed", seal.GetStatus())
	require.Equal(t, &event.Ledger{
		Generated: 6, Masked: map[string]uint64{"parked": 3}, Lost: map[string]uint64{"parked": 3},
	}, seal.GetLedger())
	require.NotNil(t, updates[5].GetOutputs()[0].GetRewardRecorded())
	require.NotNil(t, st.Parked())

	// A restart finds the session parked.
	again := fold.New("s1", fold.DefaultPolicy(), fold.Aids{})
	for i, e := range sessiontest.Entries(s.Events) {
		require.NoError(t, again.Adopt(e, updates[i]))
	}
	require.NotNil(t, again.Parked())
	require.Equal(t, st.Generated(), again.Generated())
}

func TestAnEntryThatIsNotTheNextOneIsRefused(t *testing.T) {
	entries := sessiontest.Entries(first(nil).Events)
	st := fold.New("s1", fold.DefaultPolicy(), fold.Aids{})
	_, err := st.Apply(entries[1])
	require.ErrorIs(t, err, journal.ErrGap)
	_, err = st.Apply(entries[0])
	require.NoError(t, err)
}

func TestAPolicyThatMakesNoSenseIsRefusedWithAllItsFaults(t *testing.T) {
	p := fold.DefaultPolicy()
	require.NoError(t, p.Validate())
	p.CutOff, p.Audit = "perhaps", 2
	p.Classes[fold.ClassSide] = ""
	err := p.Validate()
	require.ErrorContains(t, err, "cut_off")
	require.ErrorContains(t, err, "audit")
	require.ErrorContains(t, err, "classes.side")
}

func TestATurnStoredUponASiblingIsContextWhereTheSiblingSampled(t *testing.T) {
	s := first(nil)
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8}, Out: []uint32{20, 21}})
	// A root whose prompt happens to be stored upon b, its answer included.
	s.Commit(sessiontest.Step{ID: "c", New: []uint32{1}, Out: []uint32{30}, Edit: func(c *event.TurnCommitted) {
		c.Base = &event.Base{Turn: "b", Keep: 9}
		c.Segments = []*event.Segment{{Provenance: event.Provenance_PROVENANCE_USER, Ids: event.AppendIDs(nil, []uint32{22})}}
		c.Generation.PromptTokens = 10
	}})
	spans := spansOf(t, fold.DefaultPolicy(), fold.Aids{}, s)["c"]
	require.Equal(t, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 20, 22, 30}, spans.AppendIDs(nil))
	require.Equal(t, []int8{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, spans.AppendMask(nil))
	sampled := slices.IndexFunc(spans.GetSpans(), func(p *event.Span) bool { return p.GetProvenance() == event.Provenance_PROVENANCE_SAMPLED })
	require.Equal(t, len(spans.GetSpans())-1, sampled, "only its own answer is sampled")
}

func TestLongEventIDsStillNameTheirUpdate(t *testing.T) {
	long := strings.Repeat("x", 128)
	st := fold.New("s", fold.DefaultPolicy(), fold.Aids{})
	require.LessOrEqual(t, len(st.UpdateID(long)), 128)
	require.NotEqual(t, st.UpdateID(long), st.UpdateID(long[1:]+"y"))
	require.Equal(t, "u:e1", st.UpdateID("e1"))
}

func TestAPolicyMayGradeReasonsOfBAndCOtherwise(t *testing.T) {
	step := func(c *event.TurnCommitted) {
		c.Generation.Constraints = []string{"json", "tool"}
		c.Match = &event.Match{Ambiguous: true}
	}
	grade := func(grades map[string]fold.Letter) (event.Grade, []string) {
		p := fold.DefaultPolicy()
		p.Grades = grades
		require.NoError(t, p.Validate())
		spans := spansOf(t, p, fold.Aids{}, first(step))["a"]
		return spans.GetGrade(), spans.GetGradeReasons()
	}
	all := []string{"ambiguous_parent", "constrained:json", "constrained:tool"}
	for _, c := range []struct {
		grades map[string]fold.Letter
		want   event.Grade
	}{
		{nil, event.Grade_GRADE_C},
		{map[string]fold.Letter{"ambiguous_parent": "B"}, event.Grade_GRADE_C},
		{map[string]fold.Letter{"ambiguous_parent": "A", "constrained:": "A"}, event.Grade_GRADE_A},
		{map[string]fold.Letter{"ambiguous_parent": "A", "constrained:": "A", "constrained:tool": "B"}, event.Grade_GRADE_B},
		{map[string]fold.Letter{"constrained:json": "X"}, event.Grade_GRADE_X},
	} {
		got, reasons := grade(c.grades)
		require.Equal(t, c.want, got, "%v", c.grades)
		require.Equal(t, all, reasons, "reasons stay")
	}
	p := fold.DefaultPolicy()
	p.Grades = map[string]fold.Letter{"text_in": "A", "greedy": "E", "nonsense": "B"}
	err := p.Validate()
	for _, name := range []string{"text_in", `"E"`, "nonsense"} {
		require.ErrorContains(t, err, name)
	}
}
