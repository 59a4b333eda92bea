package sessiontest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"turnlog.dev/schema/event"
)

// Random writes a legal log: turns that extend, branch, retry and cut, as ids
// and as text, with whatever evidence an engine may give or fail to give; calls
// that fail, answers that do not arrive, rewards and annotations before and
// after the close. The same seed gives the same log.
func Random(id string, seed uint64) *Session {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := New(id)
	for i := range 3 + rng.IntN(20) {
		switch k := rng.IntN(20); {
		case k == 0:
			s.Abort(fmt.Sprintf("a%d", i), pick(rng, "client_gone", "deadline", "engine", "duplicate", ""), ids(rng, rng.IntN(6))...)
			if rng.IntN(3) == 0 { // after a try that failed as well
				s.Events[len(s.Events)-1].GetTurnAborted().Partial.Generation = &event.Generation{Attempts: attempts(rng)}
			}
		case k == 1:
			reward := s.Reward(rng.Float64(), int64(i)).GetRewardAssigned()
			if len(s.Turns) > 0 && rng.IntN(2) == 0 {
				reward.Turn = s.Turns[rng.IntN(len(s.Turns))].ID
			}
		case k == 2:
			s.Annotate("judge", int64(i))
		case k == 3 && len(s.Turns) > 0 && s.Events[len(s.Events)-1].GetTurnCommitted() != nil:
			s.Undelivered(s.Turns[len(s.Turns)-1].ID)
		case k == 4:
			s.randomUndelivered(rng)
		default:
			s.randomTurn(rng, fmt.Sprintf("t%d", i))
		}
	}
	if rng.IntN(8) > 0 {
		s.Close(pick(rng, "completed", "completed", "truncated", "limit_idle", "failed", "deleted"))
		if rng.IntN(2) == 0 {
			s.Reward(rng.Float64(), 1000)
		}
		if rng.IntN(4) == 0 {
			s.Abort("late", "closed", ids(rng, 3)...)
		}
		if rng.IntN(4) == 0 {
			s.randomUndelivered(rng)
		}
	}
	reasons := rand.New(rand.NewPCG(seed, 4))
	for _, turn := range s.Turns {
		turn.Event.GetTurnCommitted().Match.Reason = pick(reasons, "", "rewind", "resample", "history_rewritten")
	}
	return s
}

// Parked is Random with events that cannot be folded, and releases, at random
// places. The first release that finds the session parked is at place order,
// counted in Events; -1 if none does.
func Parked(id string, seed uint64) (s *Session, order int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	whole := Random(id, seed)
	s = New(id)
	s.Events, s.Turns = whole.Events[:1:1], whole.Turns
	s.clock = whole.clock
	parked, order := false, -1
	for i, ev := range append(whole.Events[1:], nil) {
		if rng.IntN(len(whole.Events)) < 2 {
			s.Misplace(fmt.Sprintf("x%d", i))
			parked = true
		}
		if rng.IntN(len(whole.Events)) < 3 {
			s.Release()
			if parked && order < 0 {
				order = len(s.Events) - 1
			}
		}
		if ev != nil {
			s.Events = append(s.Events, ev)
		}
	}
	return s, order
}

// randomUndelivered says of some turn that its answer could not be written.
func (s *Session) randomUndelivered(rng *rand.Rand) {
	if len(s.Turns) == 0 {
		return
	}
	turn := s.Turns[rng.IntN(len(s.Turns))].ID
	for _, ev := range s.Events {
		if ev.GetDeliveryFailed().GetTurn() == turn {
			return
		}
	}
	s.Undelivered(turn)
}

func attempts(rng *rand.Rand) []*event.Attempt {
	return []*event.Attempt{{Backend: "b", Error: "gone", Ids: event.AppendIDs(nil, ids(rng, 1+rng.IntN(4)))}}
}

func (s *Session) randomTurn(rng *rand.Rand, id string) {
	step := Step{ID: id, New: ids(rng, 1+rng.IntN(8)), Out: ids(rng, 1+rng.IntN(8)), Text: rng.IntN(12) == 0}
	if rng.IntN(12) == 0 {
		step.Out = nil // no answer, or one that came as text
	}
	switch k := rng.IntN(10); {
	case len(s.Turns) == 0: // a root
	case k == 0: // another, or the same request again
		if root := s.Turns[0]; rng.IntN(2) == 0 && len(root.Prompt) > 0 {
			step.New = slices.Clone(root.Prompt)
		}
	case k < 7: // go on from the newest
		step.Parent = s.Turns[len(s.Turns)-1].ID
	default: // branch, or the same request again
		step.Parent = s.Turns[rng.IntN(len(s.Turns))].ID
	}
	p := s.Turn(step.Parent)
	if p != nil && len(p.IDs()) > 0 {
		switch rng.IntN(6) {
		case 0:
			step.Cut = 1 // the end token, which some families write again
			step.New[0] = p.IDs()[len(p.IDs())-1]
		case 1:
			step.Cut = rng.IntN(len(p.IDs()) + 1)
		}
	}
	how := rng.IntN(8)
	step.Edit = func(c *event.TurnCommitted) {
		c.Request.Class = pick(rng, "main", "main", "main", "main", "subagent", "side", "compaction", "probe", "")
		c.Request.Thread = pick(rng, "", "", "", "t1")
		c.Request.ReceivedUs = rng.Int64N(1 << 40)
		c.Completion.FinishReason = pick(rng, "stop", "stop", "tool_calls", "length")
		if rng.IntN(3) == 0 {
			first := uint32(rng.IntN(len(step.Out) + 1))
			c.Completion.Versions = []*event.VersionSpan{{Count: first, Label: "7"}, {Count: uint32(len(step.Out)) - first, Label: pick(rng, "8", "8", "step-8")}}
		}
		evidence(rng, c)
		if c.Match.Rewritten && p != nil && rng.IntN(2) == 0 {
			c.Match.RewrittenTurns = []string{p.ID}
		}
		if p != nil && !step.Text {
			s.rebase(rng, how, c)
		}
	}
	s.Commit(step)
}

// evidence changes what shows how good a turn is, and often leaves it as it is.
func evidence(rng *rand.Rand, c *event.TurnCommitted) {
	switch rng.IntN(40) {
	case 0, 1:
		c.Generation.Proof = event.PromptProof_PROMPT_PROOF_COUNT
	case 2:
		c.Generation.Proof = 99 // of a newer gateway
	case 3:
		c.Match.Tolerances = []string{"reasoning_dropped"}
	case 4:
		c.Match.Ambiguous = true
	case 5, 6:
		c.Match.Rewritten = true
	case 7:
		c.Completion.Versions = nil
	case 8:
		c.Completion.Logprobs = nil
	case 9:
		if lp := c.Completion.Logprobs; len(lp) > 0 {
			copy(lp, event.AppendFloats(nil, []float32{float32(math.NaN())}))
		}
	case 10:
		c.Completion.Logprobs = append(c.Completion.Logprobs, 0, 0, 0, 0)
	case 11:
		c.Completion.LogprobKind = event.LogprobKind_LOGPROB_KIND_UNSPECIFIED
	case 12:
		c.Generation.PromptTokens++ // an engine that ignored our ids
	case 13:
		c.Completion.Versions = append(c.Completion.Versions, &event.VersionSpan{Count: 1, Label: "9"})
	case 14:
		c.Generation.Tokenizer = "other"
	case 15, 16:
		c.Generation.Template = "other"
	case 17:
		c.Generation.Constraints = []string{"json_schema"}
	case 18:
		c.Request.SamplingUsed = []byte(`{"temperature":0}`)
	case 19:
		c.Completion.Flags = []string{"malformed_call"}
	case 20, 21:
		c.Generation.Attempts = attempts(rng)
	}
}

// rebase stores the same prompt upon something else.
func (s *Session) rebase(rng *rand.Rand, how int, c *event.TurnCommitted) {
	prompt := slices.Clone(s.Turn(c.Parent).IDs()[:c.ParentKeep])
	switch how {
	case 0: // everything inline
		c.Base = nil
		c.Segments = append([]*event.Segment{{Provenance: event.Provenance_PROVENANCE_SYSTEM, Ids: event.AppendIDs(nil, prompt)}}, c.Segments...)
	case 1: // less than what is kept
		less := rng.IntN(len(prompt) + 1)
		c.Base.Keep = uint32(less)
		c.Segments = append([]*event.Segment{{Provenance: event.Provenance_PROVENANCE_TOOL, Ids: event.AppendIDs(nil, prompt[less:])}}, c.Segments...)
	case 2: // upon whatever turn begins alike
		other := s.Turns[rng.IntN(len(s.Turns))]
		n := 0
		for all := other.IDs(); n < min(len(all), len(prompt)) && all[n] == prompt[n]; n++ {
		}
		c.Base = &event.Base{Turn: other.ID, Keep: uint32(n)}
		c.Segments = append([]*event.Segment{{Provenance: event.Provenance_PROVENANCE_TOOL, Ids: event.AppendIDs(nil, prompt[n:])}}, c.Segments...)
	}
}

// Shuffle returns the events in another order that a log could hold: a turn
// after what it builds on, everything on its side of the close.
func Shuffle(rng *rand.Rand, events []*event.Event) []*event.Event {
	var before, after []*event.Event
	var closed *event.Event
	for _, ev := range events[1:] {
		switch {
		case ev.GetSessionClosed() != nil:
			closed = ev
		case closed == nil:
			before = append(before, ev)
		default:
			after = append(after, ev)
		}
	}
	out := []*event.Event{events[0]}
	there := map[string]bool{"": true}
	rng.Shuffle(len(before), func(i, j int) { before[i], before[j] = before[j], before[i] })
	for len(before) > 0 {
		before = slices.DeleteFunc(before, func(ev *event.Event) bool {
			c := ev.GetTurnCommitted()
			if c != nil && !(there[c.GetParent()] && there[c.GetBase().GetTurn()]) {
				return false
			}
			there[c.GetTurn()] = true
			out = append(out, ev)
			return true
		})
	}
	if closed != nil {
		out = append(out, closed)
	}
	rng.Shuffle(len(after), func(i, j int) { after[i], after[j] = after[j], after[i] })
	return append(out, after...)
}

// Duplicate repeats some events, as a producer does that never learned that it
// had succeeded.
func Duplicate(rng *rand.Rand, events []*event.Event) []*event.Event {
	var out []*event.Event
	for _, ev := range events {
		out = append(out, ev)
		if rng.IntN(4) == 0 {
			out = append(out, proto.CloneOf(out[rng.IntN(len(out))]))
		}
	}
	return out
}

func ids(rng *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(rng.IntN(4)) // few, so that wrong ones look alike
	}
	return out
}

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }
