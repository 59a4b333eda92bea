package fold_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

const programs = 200

func run(t *testing.T, policy fold.Policy, entries []journal.Entry) []*event.TrajectoryUpdate {
	t.Helper()
	s := fold.New(entries[0].Event.GetSession(), policy, thinking)
	var out []*event.TrajectoryUpdate
	for _, e := range entries {
		u, err := s.Apply(e)
		require.NoError(t, err)
		require.Nil(t, s.Parked(), "%v", e.Event)
		if u != nil {
			out = append(out, u)
		}
	}
	return out
}

// thinking is a model that thinks in the middle of its answers.
var thinking = fold.Aids{Models: thinker{}}

type thinker struct{ toy }

func (t thinker) Open(fold.ModelRef) (fold.Model, error) { return t, nil }

func (thinker) Reasoning(_ fold.View, ids []uint32) ([]fold.Range, error) {
	return []fold.Range{{Start: len(ids) / 3, End: len(ids) - len(ids)/4}}, nil
}

// policies are the default and its opposite.
func policies() []fold.Policy {
	other := fold.DefaultPolicy()
	other.Classes = map[string]fold.Use{fold.ClassMain: fold.Train, fold.ClassSide: fold.Train}
	other.Abandoned, other.Undelivered = fold.Train, fold.Train
	other.CutOff, other.RewrittenCalls, other.Reasoning = fold.Mask, fold.Mask, fold.Mask
	other.MaskFlags, other.Audit = []string{"malformed_call"}, 0.5
	return []fold.Policy{fold.DefaultPolicy(), other}
}

func eachProgram(t *testing.T, f func(t *testing.T, rng *rand.Rand, s *sessiontest.Session, p fold.Policy)) {
	for seed := range uint64(programs) {
		for i, p := range policies() {
			t.Run(fmt.Sprintf("seed %d policy %d", seed, i), func(t *testing.T) {
				f(t, rand.New(rand.NewPCG(seed, 2)), sessiontest.Random(fmt.Sprintf("s%d", seed), seed), p)
			})
		}
	}
}

// byEvent maps the id of each event to what followed from it.
func byEvent(t *testing.T, updates []*event.TrajectoryUpdate) map[string]*event.TrajectoryUpdate {
	m := map[string]*event.TrajectoryUpdate{}
	for _, u := range updates {
		require.NotContains(t, m, u.GetInput().GetEvent())
		m[u.GetInput().GetEvent()] = &event.TrajectoryUpdate{Outputs: u.GetOutputs()}
	}
	return m
}

func requireSame(t *testing.T, want, got map[string]*event.TrajectoryUpdate) {
	t.Helper()
	require.Len(t, got, len(want))
	for id, u := range want {
		require.True(t, proto.Equal(u, got[id]), "event %s:\nwant %v\ngot  %v", id, u, got[id])
	}
}

// What the random programs never come to, the properties below say nothing of.
func TestTheRandomProgramsComeToEveryVerdict(t *testing.T) {
	reached := map[string]int{}
	note := func(u *event.TrajectoryUpdate) {
		for _, o := range u.GetOutputs() {
			for _, reason := range o.GetTurnSpans().GetGradeReasons() {
				kind, _, named := strings.Cut(reason, ":")
				if named {
					kind += ":"
				}
				reached["reason "+kind]++
			}
			for why := range o.GetTurnSpans().GetMasked() {
				reached["masked "+why]++
			}
			for _, why := range o.GetBranchSealed().GetExcluded() {
				reached["excluded "+why]++
			}
			reached["label "+o.GetBranchSealed().GetLabel()]++
			reached["status "+o.GetSessionSealed().GetStatus()]++
			for why := range o.GetSessionSealed().GetLedger().GetLost() {
				reached["lost "+why]++
			}
		}
	}
	for seed := range uint64(programs) {
		s := sessiontest.Random(fmt.Sprintf("s%d", seed), seed)
		for _, p := range policies() {
			for _, u := range run(t, p, sessiontest.Entries(s.Events)) {
				note(u)
			}
		}
		for _, u := range runWith(t, fold.DefaultPolicy(), fold.Aids{}, s) {
			note(u)
		}
	}
	wanted := []string{
		"masked grade_x", "masked cut_off", "masked reasoning", "masked flag_malformed_call", "masked class_side", "masked class_probe",
		"excluded abandoned", "excluded undelivered", "excluded rewritten_call", "excluded grade_x",
		"label main", "label subagent", "label side", "label compaction", "label probe", "label abandoned",
		"status completed", "status truncated", "status aborted", "status failed",
		"lost client_gone", "lost deadline", "lost engine", "lost duplicate", "lost unknown", "lost failed_attempt",
	}
	for _, reason := range append(slices.Clone(fold.Regradable),
		fold.ReasonTextIn, fold.ReasonTextOut, fold.ReasonProofUnknown, fold.ReasonNoLogprobs, fold.ReasonLogprobNotFinite, fold.ReasonNoTokenizer,
		fold.ReasonParentMismatch, fold.ReasonPromptCount, fold.ReasonLogprobCount, fold.ReasonVersionCount, fold.ReasonTokenizerChanged) {
		wanted = append(wanted, "reason "+reason)
	}
	for _, what := range wanted {
		require.GreaterOrEqual(t, reached[what], 5, what)
	}
}

func TestTheOrderOfSiblingsChangesNothing(t *testing.T) {
	eachProgram(t, func(t *testing.T, rng *rand.Rand, s *sessiontest.Session, p fold.Policy) {
		want := byEvent(t, run(t, p, sessiontest.Entries(s.Events)))
		for range 3 {
			got := run(t, p, sessiontest.Entries(sessiontest.Shuffle(rng, s.Events)))
			requireSame(t, want, byEvent(t, got))
		}
	})
}

func TestDuplicatesChangeNothing(t *testing.T) {
	eachProgram(t, func(t *testing.T, rng *rand.Rand, s *sessiontest.Session, p fold.Policy) {
		want := byEvent(t, run(t, p, sessiontest.Entries(s.Events)))
		got := run(t, p, sessiontest.Entries(sessiontest.Duplicate(rng, s.Events)))
		requireSame(t, want, byEvent(t, got))
	})
}

// byWhom is an update as this recorder wrote it, or as one did before runs.
func byWhom(rng *rand.Rand, u *event.TrajectoryUpdate) *event.TrajectoryUpdate {
	if rng.IntN(2) == 0 {
		return u
	}
	u = proto.CloneOf(u)
	for _, o := range u.GetOutputs() {
		if t := o.GetTurnSpans(); t != nil {
			sessiontest.InOldForm(t)
		}
	}
	return u
}

func TestARestartAtAnyEventGoesOnTheSame(t *testing.T) {
	eachProgram(t, func(t *testing.T, rng *rand.Rand, s *sessiontest.Session, p fold.Policy) {
		entries := sessiontest.Entries(sessiontest.Duplicate(rng, s.Events))
		want := run(t, p, entries)
		cut := rng.IntN(len(entries))
		st := fold.New(s.ID, p, thinking)
		for i, e := range entries {
			if i < cut && len(want) > 0 && want[0].GetInput().GetEvent() == e.Event.GetId() {
				require.NoError(t, st.Adopt(e, byWhom(rng, want[0])))
				want = want[1:]
				continue
			}
			u, err := st.Apply(e)
			require.NoError(t, err)
			if u != nil {
				require.True(t, proto.Equal(want[0], u), "event %d after a restart at %d", i, cut)
				want = want[1:]
			}
		}
		require.Empty(t, want)
	})
}

func TestLedgersBalance(t *testing.T) {
	eachProgram(t, func(t *testing.T, _ *rand.Rand, s *sessiontest.Session, p fold.Policy) {
		var trainable, generated, late uint64
		var sealed *event.SessionSealed
		for _, u := range run(t, p, sessiontest.Entries(s.Events)) {
			for _, o := range u.GetOutputs() {
				trainable += uint64(o.GetBranchSealed().GetTrainable())
				if o.GetSessionSealed() != nil {
					sealed = o.GetSessionSealed()
				} else if sealed != nil {
					late += o.GetTurnLost().GetIds()
				}
			}
		}
		if sealed == nil {
			return
		}
		for _, ev := range s.Events {
			for _, c := range []*event.TurnCommitted{ev.GetTurnCommitted(), ev.GetTurnAborted().GetPartial()} {
				generated += uint64(event.Count(c.GetCompletion().GetIds()))
				for _, a := range c.GetGeneration().GetAttempts() {
					generated += uint64(event.Count(a.GetIds()))
				}
			}
		}
		require.True(t, worker.Balanced(sealed.GetLedger()), "%v", sealed.GetLedger())
		require.Equal(t, generated, sealed.GetLedger().GetGenerated()+late)
		require.Equal(t, trainable, sealed.GetLedger().GetTrainable())
	})
}

// view is what a reader of the trajectory stream puts together.
type view struct {
	spans    map[string]event.Tokens
	branches []*event.BranchSealed
}

func viewOf(updates []*event.TrajectoryUpdate) view {
	v := view{spans: map[string]event.Tokens{}}
	for _, u := range updates {
		for _, o := range u.GetOutputs() {
			if s := o.GetTurnSpans(); s != nil {
				k, err := s.Tokens()
				if err != nil {
					panic(err)
				}
				v.spans[s.GetTurn()] = k
			}
			if b := o.GetBranchSealed(); b != nil {
				v.branches = append(v.branches, b)
			}
		}
	}
	return v
}

func (v view) parents() map[string]string {
	parents := map[string]string{}
	for id, t := range v.spans {
		parents[id] = t.GetParent()
	}
	return parents
}

func (v view) ids(turn string) []uint32 {
	s, ok := v.spans[turn]
	if !ok {
		return nil
	}
	return s.AppendIDs(v.ids(s.GetParent())[:s.GetKeep()])
}

func TestTrajectoriesRebuildTheRecordedTurns(t *testing.T) {
	eachProgram(t, func(t *testing.T, _ *rand.Rand, s *sessiontest.Session, p fold.Policy) {
		v := viewOf(run(t, p, sessiontest.Entries(s.Events)))
		require.Len(t, v.spans, len(s.Turns))
		for _, turn := range s.Turns {
			spans, c := v.spans[turn.ID], turn.Event.GetTurnCommitted()
			ids := v.ids(turn.ID)
			if c.GetSegments() != nil {
				require.Equal(t, turn.IDs(), ids)
			} else { // it came as text: its prompt was made here
				require.Greater(t, len(ids), len(turn.Completion))
				require.Equal(t, turn.Completion, append([]uint32(nil), ids[len(ids)-len(turn.Completion):]...))
				require.GreaterOrEqual(t, spans.GetGrade(), event.Grade_GRADE_D)
			}

			n, k := spans.Len, len(turn.Completion)
			if slices.Contains(spans.GetGradeReasons(), "parent_ids_mismatch") {
				require.Zero(t, spans.GetKeep())
			} else {
				require.GreaterOrEqual(t, int(spans.GetKeep()), int(c.GetParentKeep()))
			}
			tiled, sampled := 0, 0
			for _, span := range spans.GetSpans() {
				tiled += int(span.GetCount())
				if span.GetProvenance() == event.Provenance_PROVENANCE_SAMPLED {
					sampled += int(span.GetCount())
				}
			}
			require.Equal(t, n, tiled)
			require.Equal(t, k, sampled)
			require.Equal(t, []int{n - k, n}, []int{spans.Start, spans.End}, "what was sampled ends the turn")

			require.Len(t, spans.AppendMask(nil), n)
			require.NotContains(t, spans.AppendMask(nil)[:n-k], int8(1), "context is never trained")
			logprobs := append(make([]float32, n-k), turn.Logprobs...)
			if !bytes.Equal(c.GetCompletion().GetLogprobs(), event.AppendFloats(nil, turn.Logprobs)) {
				require.Equal(t, k == 0, spans.HasLogprobs(), "missing, no numbers, or too many")
				logprobs = make([]float32, n)
			}
			require.Equal(t, logprobs, spans.AppendLogprobs([]float32{}))
			versions := append([]int32{}, slices.Repeat([]int32{-1}, n-k)...)
			for _, span := range c.GetCompletion().GetVersions() {
				version, err := strconv.Atoi(span.GetLabel())
				if err != nil {
					version = -1
				}
				versions = append(versions, slices.Repeat([]int32{int32(version)}, int(span.GetCount()))...)
			}
			if len(versions) != n {
				versions = slices.Repeat([]int32{-1}, n)
			}
			require.Equal(t, versions, spans.AppendVersions([]int32{}))
		}
	})
}

func TestNoTokenIsTrainedTwiceAndEachBranchSaysHowMany(t *testing.T) {
	eachProgram(t, func(t *testing.T, _ *rand.Rand, s *sessiontest.Session, p fold.Policy) {
		v := viewOf(run(t, p, sessiontest.Entries(s.Events)))
		trainedBy := map[string]string{}
		ended := map[string]bool{}
		var excluded []string
		for _, b := range v.branches {
			ended[b.GetLeaf()] = true
			path, err := b.Path(v.parents())
			require.NoError(t, err)
			for turn := range b.GetExcluded() {
				require.Contains(t, path.Turns, turn)
				excluded = append(excluded, turn)
			}
			trained := 0
			var ids []uint32
			for i, turn := range path.Turns {
				spans := v.spans[turn]
				own := spans.AppendMask(nil)
				if !path.Trained[i] {
					own = make([]int8, len(own))
				} else {
					require.NotZero(t, count(own))
					require.Empty(t, trainedBy[turn])
					trainedBy[turn] = b.GetBranch()
				}
				ids = spans.AppendIDs(ids[:spans.GetKeep()])
				trained += count(own)
			}
			require.Len(t, ids, int(b.GetTokens()))
			require.Equal(t, int(b.GetTrainable()), trained)
			if b.GetGrade() == event.Grade_GRADE_X {
				require.Zero(t, b.GetTrainable())
			}
		}
		for _, turn := range excluded {
			require.Empty(t, trainedBy[turn], "what no branch trains")
		}
		for id, spans := range v.spans {
			why := 0
			for _, turn := range excluded {
				if turn == id {
					why++
				}
			}
			if spans.Trainable() > 0 && trainedBy[id] == "" && len(v.branches) > 0 {
				require.Equal(t, 1, why, "it is said once why none trains turn %s", id)
			}
		}
		for _, turn := range s.Turns {
			leaf := true
			for _, other := range s.Turns {
				leaf = leaf && other.Parent != turn.ID
			}
			if leaf && len(v.branches) > 0 {
				require.True(t, ended[turn.ID], "every leaf ends a branch")
			}
		}
	})
}

func count(mask []int8) (n int) {
	for _, m := range mask {
		n += int(m)
	}
	return n
}
