package fold

import (
	"bytes"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// verdict is what the state keeps of a turn after its spans are out: enough to
// seal branches, nothing that grows with the prompt.
type verdict struct {
	turn *tree.Turn
	// Positions in the branch's sequence: the turn's own ids begin at keep,
	// its completion at prompt, and end at end. The tree does not know them for
	// a turn that came as text.
	keep, prompt, end int

	sampled, trainable int
	masked             map[string]uint32
	// mask is the runs of the sampled tokens.
	mask []uint32

	grade   event.Grade
	reasons []string

	// ids is the whole turn, in the log's form, where the tree has none.
	ids []byte
}

// trainableBefore counts the trainable tokens at positions below limit.
func (v *verdict) trainableBefore(limit int) int {
	return event.TrainableBefore(v.mask, max(limit-v.prompt, 0))
}

// keep remembers the verdict on a turn from its spans.
func (s *State) keep(n *tree.Turn, spans event.Tokens) {
	sampled := event.Count(n.Committed.GetCompletion().GetIds())
	v := &verdict{
		turn:    n,
		keep:    int(spans.GetKeep()),
		end:     int(spans.GetKeep()) + spans.Len,
		sampled: sampled,
		mask:    spans.GetMaskRuns(),
		masked:  spans.GetMasked(),
		grade:   spans.GetGrade(),
		reasons: spans.GetGradeReasons(),
	}
	v.prompt = v.end - sampled
	v.trainable = event.TrainableBefore(v.mask, sampled)
	s.ids += 4 * len(v.mask)
	if v.end != n.Len {
		// The sequence was made here: children that come as text need it.
		v.ids = slices.Concat(s.prefix(n.Parent, v.keep), event.AppendIDs(nil, spans.AppendIDs(nil)))
		s.ids += len(v.ids)
	}
	s.turns[n.ID] = v
	s.sampled += uint64(sampled)
}

// prefix returns the first keep ids of a turn in the log's form.
func (s *State) prefix(n *tree.Turn, keep int) []byte {
	if n == nil || keep == 0 {
		return nil
	}
	if v := s.turns[n.ID]; v != nil && v.ids != nil {
		return v.ids[:min(4*keep, len(v.ids))]
	}
	return event.AppendIDs(nil, n.IDs(nil, keep))
}

// foldTurn verifies a turn and makes its spans.
func (s *State) foldTurn(n *tree.Turn) []*event.Output {
	c := n.Committed
	comp, request, gen := c.GetCompletion(), c.GetRequest(), c.GetGeneration()
	out := s.attempts(c)

	g := grading{policy: s.policy.Grades}
	own := s.ownIDs(n, &g)
	s.gradeTurn(n, &g)

	sampled := event.Count(comp.GetIds())
	spans := &event.TurnSpans{
		Turn:            n.ID,
		Keep:            uint32(own.keep),
		Spans:           own.spans,
		IdVarints:       event.Varints(own.ids),
		SampledLogprobs: logprobs(comp, sampled, &g),
		VersionRuns:     s.versions(comp, sampled, &g),
		LogprobKind:     comp.GetLogprobKind(),
		Class:           class(c),
		Thread:          request.GetThread(),
		FinishReason:    comp.GetFinishReason(),
		Model:           request.GetModel(),
		Engine:          gen.GetEngine(),
		Sampling:        request.GetSamplingUsed(),
		Tokenizer:       gen.GetTokenizer(),
		Template:        gen.GetTemplate(),
		Family:          gen.GetFamily(),
		Conversation:    c.GetConversation(),
		StartedUs:       request.GetReceivedUs(),
		FinishedUs:      gen.GetDoneUs(),
		Blobs:           gen.GetBlobs(),
	}
	if n.Parent != nil {
		spans.Parent = n.Parent.ID
	}
	if gen.GetDoneUs() > gen.GetSentUs() && gen.GetSentUs() > 0 {
		spans.GenerationUs = gen.GetDoneUs() - gen.GetSentUs()
	}
	// The mask comes last: it needs the grade.
	spans.Grade, spans.GradeReasons = g.result()
	spans.MaskRuns, spans.Masked = s.mask(n, sampled, spans.Grade)
	total := event.Count(own.ids)
	s.keep(n, event.Tokens{TurnSpans: spans, Len: total, Start: total - sampled, End: total})
	return append(out, &event.Output{Output: &event.Output_TurnSpans{TurnSpans: spans}})
}

func class(c *event.TurnCommitted) string {
	if k := c.GetRequest().GetClass(); k != "" {
		return k
	}
	return ClassMain
}

// mask returns the runs of the sampled ids that are masked and trained, and the
// count of those that are masked, by reason.
func (s *State) mask(n *tree.Turn, sampled int, grade event.Grade) ([]uint32, map[string]uint32) {
	if sampled == 0 {
		return nil, nil
	}
	if why := s.maskTurn(n.Committed, grade); why != "" {
		return []uint32{uint32(sampled)}, map[string]uint32{why: uint32(sampled)}
	}
	if s.policy.Reasoning != Mask {
		return []uint32{0, uint32(sampled)}, nil
	}
	answer := bytes.Repeat([]byte{1}, sampled)
	masked := 0
	for _, r := range s.reasoning(n) {
		for i := max(r.Start, 0); i < min(r.End, sampled); i++ {
			masked += int(answer[i])
			answer[i] = 0
		}
	}
	if masked == 0 {
		return event.MaskRuns(answer), nil
	}
	return event.MaskRuns(answer), map[string]uint32{MaskReasoning: uint32(masked)}
}

// maskTurn returns why the whole turn is masked, or "".
func (s *State) maskTurn(c *event.TurnCommitted, grade event.Grade) string {
	if grade == event.Grade_GRADE_X {
		return MaskGradeX
	}
	if k := class(c); s.policy.Classes[k] != Train {
		return "class_" + k
	}
	if s.policy.CutOff == Mask && c.GetCompletion().GetFinishReason() == "length" {
		return MaskCutOff
	}
	for _, f := range c.GetCompletion().GetFlags() {
		if slices.Contains(s.policy.MaskFlags, f) {
			return "flag_" + f
		}
	}
	return ""
}
