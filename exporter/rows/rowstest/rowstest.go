// Package rowstest makes trajectory streams of sessions for tests: by hand, or
// at random from a seed.
package rowstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"turnlog.dev/schema/event"
)

// Session is a session as a recorder would describe it. Its fields may be
// changed until Events is called.
type Session struct {
	ID, Tenant, Run, Group    string
	Index, Attempt, GroupSize int32
	Status, Reason            string
	Metadata                  string
	// NoReward leaves the rewards out of Events; RewardEvents has them.
	NoReward bool
	// Old writes turns and branches in the form that recorders wrote before runs.
	Old bool

	turns    []*Turn
	branches []*event.BranchSealed
	rewards  []*event.RewardRecorded
	notes    []*event.AnnotationRecorded
}

// Turn is a turn and all the ids that the model saw and sampled. Its arrays have
// an element for each id.
type Turn struct {
	*event.TurnSpans
	prompt, completion []uint32
}

// Total is the number of the turn's ids, prompt and completion.
func (t *Turn) Total() int { return len(t.prompt) + len(t.completion) }

// New returns a completed session without turns in run "r".
func New(id string) *Session {
	return &Session{ID: id, Tenant: "default", Run: "r", Status: "completed", Reason: "completed"}
}

// Turn adds a turn whose prompt is the first keep ids of parent and then added.
func (s *Session) Turn(name, parent string, keep int, added, completion []uint32) *Turn {
	t := &Turn{TurnSpans: &event.TurnSpans{
		Turn: name, Parent: parent, Keep: uint32(keep),
		Grade: event.Grade_GRADE_A, LogprobKind: event.LogprobKind_LOGPROB_KIND_PROCESSED,
		Class: "main", FinishReason: "stop", Model: "demo", Engine: "mock",
		Sampling: []byte(`{"temperature":1,"top_p":1}`), Tokenizer: "aa", Template: "bb", Family: "demo",
		StartedUs: 1_700_000_000_000_000 + int64(len(s.turns))*2e6, GenerationUs: 1e6,
		FinishedUs: 1_700_000_001_000_000 + int64(len(s.turns))*2e6,
	}}
	if parent != "" {
		p := s.find(parent)
		t.prompt = slices.Clone(slices.Concat(p.prompt, p.completion)[:keep])
	}
	t.prompt = append(t.prompt, added...)
	t.completion = completion
	t.Ids = event.AppendIDs(event.AppendIDs(nil, added), completion)
	t.Mask = make([]byte, len(added)+len(completion))
	logprobs, versions := make([]float32, len(t.Mask)), make([]int32, len(t.Mask))
	for i := range t.Mask {
		versions[i] = -1
		if i >= len(added) {
			t.Mask[i], versions[i] = 1, 7
			logprobs[i] = -1 / float32(1+completion[i-len(added)]%1000)
		}
	}
	t.Logprobs, t.Versions = event.AppendFloats(nil, logprobs), event.AppendInts(nil, versions)
	t.Spans = []*event.Span{
		{Provenance: event.Provenance_PROVENANCE_USER, Count: uint32(len(added))},
		{Provenance: event.Provenance_PROVENANCE_SAMPLED, Count: uint32(len(completion))},
	}
	text := func(role, s string) []byte { return fmt.Appendf(nil, `{"role":%q,"content":%q}`, role, s) }
	t.Conversation = &event.Conversation{
		Messages: [][]byte{text("user", "ask "+name)}, Answer: text("assistant", "answer "+name),
	}
	for p := parent; p != ""; p = s.find(p).Parent {
		t.Conversation.Keep += 2
	}
	s.turns = append(s.turns, t)
	return t
}

// Seal adds a branch.
func (s *Session) Seal(label string, turns ...string) *event.BranchSealed {
	b := &event.BranchSealed{
		Branch: fmt.Sprintf("b%d", len(s.branches)), Label: label, Class: "main",
		Turns: turns, Grade: event.Grade_GRADE_A,
	}
	s.branches = append(s.branches, b)
	return b
}

// Reward adds a reward for a turn, or for the session.
func (s *Session) Reward(turn string, v float64) *event.RewardRecorded {
	r := &event.RewardRecorded{Turn: turn, Reward: v, Components: []byte(`{"tests":1}`), Source: "test"}
	s.rewards = append(s.rewards, r)
	return r
}

// Annotate adds an annotation of the session.
func (s *Session) Annotate(name, json string) *event.AnnotationRecorded {
	a := &event.AnnotationRecorded{Name: name, Value: []byte(json), Source: "test"}
	s.notes = append(s.notes, a)
	return a
}

// Events returns the session's trajectory stream: its start, a turn each, its
// rewards and annotations, its seal.
func (s *Session) Events() []*event.Event {
	list := []*event.Event{s.event(event.KindSessionOpened, 1, &event.Output{Output: &event.Output_SessionStarted{
		SessionStarted: &event.SessionStarted{
			Group: s.Group, Index: s.Index, Attempt: s.Attempt, GroupSize: s.GroupSize,
			Task: "task", DataSource: "source", Split: "train", Metadata: []byte(s.Metadata),
		},
	}})}
	var tokens uint32
	for i, t := range s.turns {
		tokens += uint32(len(t.Mask))
		list = append(list, s.event(event.KindTurnCommitted, sequence(i),
			&event.Output{Output: &event.Output_TurnSpans{TurnSpans: s.written(t)}}))
	}
	if !s.NoReward {
		list = append(list, s.RewardEvents()...)
	}
	list = append(list, s.AnnotationEvents()...)
	var seals []*event.Output
	for _, b := range s.branches {
		b.Tokens = tokens
		seals = append(seals, &event.Output{Output: &event.Output_BranchSealed{BranchSealed: s.sealed(b)}})
	}
	seals = append(seals, &event.Output{Output: &event.Output_SessionSealed{SessionSealed: &event.SessionSealed{
		Status: s.Status, Reason: s.Reason, Turns: uint32(len(s.turns)), Branches: uint32(len(s.branches)),
	}}})
	return append(list, s.event(event.KindSessionClosed, 3000, seals...))
}

// written is the turn as a recorder writes it. What is malformed stays as it is.
func (s *Session) written(t *Turn) *event.TurnSpans {
	if k, err := t.Tokens(); err == nil && !s.Old {
		return k.TurnSpans
	}
	return t.TurnSpans
}

// sealed is the branch as a recorder writes it. What is malformed stays as it is.
func (s *Session) sealed(b *event.BranchSealed) *event.BranchSealed {
	parents := make(map[string]string)
	for _, t := range s.turns {
		parents[t.Turn] = t.Parent
	}
	p, err := b.Path(parents)
	if err != nil {
		return b
	}
	trained := make([]byte, len(p.Trained))
	b.Trainable = 0
	for i, id := range p.Turns {
		if n := bytes.Count(s.find(id).Mask, []byte{1}); p.Trained[i] && n > 0 {
			trained[i] = 1
			b.Trainable += uint32(n)
		}
	}
	if s.Old {
		return b
	}
	return &event.BranchSealed{
		Branch: b.Branch, Label: b.Label, Class: b.Class, Grade: b.Grade, GradeReasons: b.GradeReasons,
		Tokens: b.Tokens, Trainable: b.Trainable, Excluded: b.Excluded,
		Leaf: b.End(), TrainRuns: event.TrainRuns(trained),
	}
}

// Parked returns the first n events of the session, after which it was parked
// and, unless they have a seal, sealed for that.
func (s *Session) Parked(n int) []*event.Event {
	list := s.Events()
	sealed := n == len(list)
	list = append(list[:n:n], s.event(event.KindTurnCommitted, 4000, &event.Output{Output: &event.Output_Fault{
		Fault: &event.Fault{Reason: "illegal"},
	}}))
	if sealed {
		return list
	}
	return append(list, s.event(event.KindSessionClosed, 4001, &event.Output{Output: &event.Output_SessionSealed{
		SessionSealed: &event.SessionSealed{Status: "failed", Reason: "parked"},
	}}))
}

// Released returns what follows Parked(n) when the session is released: the
// mark that all of that is void, and its events again.
func (s *Session) Released(n int) []*event.Event {
	list := s.Events()
	again := &event.SessionRestarted{Round: 1, Started: n > 0, Sealed: n == len(list)}
	list[0].GetTrajectoryUpdate().Outputs[0].GetSessionStarted().Restarted = again
	for _, ev := range list {
		ev.Id = "1:" + ev.Id
	}
	return append([]*event.Event{s.event(event.KindSessionReleased, 4002, &event.Output{Output: &event.Output_SessionRestarted{
		SessionRestarted: again,
	}})}, list...)
}

// RewardEvents returns the events of the session's rewards.
func (s *Session) RewardEvents() []*event.Event {
	var list []*event.Event
	for i, r := range s.rewards {
		list = append(list, s.event(event.KindRewardAssigned, uint64(1000+i),
			&event.Output{Output: &event.Output_RewardRecorded{RewardRecorded: r}}))
	}
	return list
}

// AnnotationEvents returns the events of the session's annotations.
func (s *Session) AnnotationEvents() []*event.Event {
	var list []*event.Event
	for i, a := range s.notes {
		list = append(list, s.event(event.KindAnnotated, uint64(2000+i),
			&event.Output{Output: &event.Output_AnnotationRecorded{AnnotationRecorded: a}}))
	}
	return list
}

func (s *Session) event(kind event.Kind, seq uint64, outputs ...*event.Output) *event.Event {
	return &event.Event{
		Id: fmt.Sprintf("%s-%d", s.ID, seq), Tenant: s.Tenant, Run: s.Run, Session: s.ID, Producer: "rowstest",
		Body: &event.Event_TrajectoryUpdate{TrajectoryUpdate: &event.TrajectoryUpdate{
			Input: &event.Input{
				Event: fmt.Sprintf("in-%d", seq), Kind: string(kind), Sequence: seq, Stream: "turns",
				TimeUs: 1_700_000_000_000_000 + int64(seq),
			},
			Outputs: outputs,
		}},
	}
}

// sequence is where the i-th turn stands in the turn stream.
func sequence(i int) uint64 { return uint64(10 + i) }

func (s *Session) find(turn string) *Turn {
	i := slices.IndexFunc(s.turns, func(t *Turn) bool { return t.Turn == turn })
	return s.turns[i]
}

// Turns returns the turns in order.
func (s *Session) Turns() []*Turn { return s.turns }

// Spans returns a turn's update.
func (s *Session) Spans(turn string) *event.TurnSpans { return s.find(turn).TurnSpans }

// TurnAt returns the turn at a sequence of the turn stream.
func (s *Session) TurnAt(seq uint64) *Turn { return s.turns[seq-sequence(0)] }

// OnABranch reports whether a sealed branch has the turn.
func (s *Session) OnABranch(turn string) bool {
	return slices.ContainsFunc(s.branches, func(b *event.BranchSealed) bool { return slices.Contains(b.Turns, turn) })
}

// Prompt returns what the model saw before it sampled the turn.
func (s *Session) Prompt(turn string) []int32 { return ints(s.find(turn).prompt) }

// Completion returns what the model sampled.
func (s *Session) Completion(turn string) []int32 { return ints(s.find(turn).completion) }

// Logprobs returns the logprobs of the completion.
func (s *Session) Logprobs(turn string) []float32 {
	t := s.find(turn)
	all := event.Floats(nil, t.TurnSpans.Logprobs)
	return all[len(all)-len(t.completion):]
}

func ints(ids []uint32) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// Random returns a sealed session with a random tree: turns that extend, branch
// off, keep less than all of their parent, and are masked in part.
func Random(id string, rng *rand.Rand) *Session {
	s := New(id)
	ids := func(most int) []uint32 {
		list := make([]uint32, 1+rng.IntN(most))
		for i := range list {
			list[i] = uint32(rng.IntN(150_000))
		}
		return list
	}
	children := make(map[string]int)
	for i := range 1 + rng.IntN(10) {
		name, parent, keep := fmt.Sprintf("t%d", i), "", 0
		if i > 0 && rng.IntN(8) > 0 {
			p := s.turns[max(0, i-1-rng.IntN(2))]
			parent, keep = p.Turn, p.Total()
			if rng.IntN(4) == 0 {
				keep = rng.IntN(keep)
			}
		}
		children[parent]++
		t := s.Turn(name, parent, keep, ids(6), ids(5))
		if rng.IntN(4) == 0 {
			from := len(t.Mask) - 1 - rng.IntN(len(t.completion))
			clear(t.Mask[from:])
		}
	}
	taken := make(map[string]bool)
	for _, leaf := range s.turns {
		if children[leaf.Turn] > 0 {
			continue
		}
		var path, shared []string
		for t := leaf; ; t = s.find(t.Parent) {
			path = append(path, t.Turn)
			if taken[t.Turn] {
				shared = append(shared, t.Turn)
			}
			taken[t.Turn] = true
			if t.Parent == "" {
				break
			}
		}
		slices.Reverse(path)
		s.Seal("main", path...).Shared = shared
	}
	s.Reward("", rng.Float64())
	return s
}
