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
	// mask has a byte for each sampled token; nil when they are all equal.
	mask []byte

	grade   event.Grade
	reasons []string

	// ids is the whole turn, in the log's form, where the tree has none.
	ids []byte
}

// trainableBefore counts the trainable tokens at positions below limit.
func (v *verdict) trainableBefore(limit int) int {
	n := limit - v.prompt
	switch {
	case n <= 0 || v.trainable == 0:
		return 0
	case n >= v.sampled:
		return v.trainable
	case v.mask == nil:
		return n
	}
	return bytes.Count(v.mask[:n], []byte{1})
}

// keep remembers the verdict on a turn from its spans.
func (s *State) keep(n *tree.Turn, spans *event.TurnSpans) {
	sampled := event.Count(n.Committed.GetCompletion().GetIds())
	own := event.Count(spans.GetIds())
	v := &verdict{
		turn:    n,
		keep:    int(spans.GetKeep()),
		end:     int(spans.GetKeep()) + own,
		sampled: sampled,
		masked:  spans.GetMasked(),
		grade:   spans.GetGrade(),
		reasons: spans.GetGradeReasons(),
	}
	v.prompt = v.end - sampled
	mask := spans.GetMask()[min(own, len(spans.GetMask())):]
	if len(spans.GetMask()) == own {
		mask = spans.GetMask()[own-sampled:]
	}
	v.trainable = bytes.Count(mask, []byte{1})
	if v.trainable != 0 && v.trainable != sampled {
		v.mask = bytes.Clone(mask)
		s.ids += len(v.mask)
	}
	if v.end != n.Len {
		// The sequence was made here: children that come as text need it.
		v.ids = slices.Concat(s.prefix(n.Parent, v.keep), spans.GetIds())
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
	total := event.Count(own.ids)
	spans := &event.TurnSpans{
		Turn:         n.ID,
		Keep:         uint32(own.keep),
		Spans:        own.spans,
		Ids:          own.ids,
		Logprobs:     logprobs(comp, total, sampled, &g),
		Versions:     s.versions(comp, total, sampled, &g),
		LogprobKind:  comp.GetLogprobKind(),
		Class:        class(c),
		Thread:       request.GetThread(),
		FinishReason: comp.GetFinishReason(),
		Model:        request.GetModel(),
		Engine:       gen.GetEngine(),
		Sampling:     request.GetSamplingUsed(),
		Tokenizer:    gen.GetTokenizer(),
		Template:     gen.GetTemplate(),
		Family:       gen.GetFamily(),
		Conversation: c.GetConversation(),
		StartedUs:    request.GetReceivedUs(),
		FinishedUs:   gen.GetDoneUs(),
		Blobs:        gen.GetBlobs(),
	}
	if n.Parent != nil {
		spans.Parent = n.Parent.ID
	}
	if gen.GetDoneUs() > gen.GetSentUs() && gen.GetSentUs() > 0 {
		spans.GenerationUs = gen.GetDoneUs() - gen.GetSentUs()
	}
	// The mask comes last: it needs the grade.
	spans.Grade, spans.GradeReasons = g.result()
	spans.Mask, spans.Masked = s.mask(n, total, sampled, spans.Grade)
	s.keep(n, spans)
	return append(out, &event.Output{Output: &event.Output_TurnSpans{TurnSpans: spans}})
}

func class(c *event.TurnCommitted) string {
	if k := c.GetRequest().GetClass(); k != "" {
		return k
	}
	return ClassMain
}

// mask returns a byte for each of total ids, of which the last sampled ones may
// be 1, and the count of those that are not, by reason.
func (s *State) mask(n *tree.Turn, total, sampled int, grade event.Grade) ([]byte, map[string]uint32) {
	mask := make([]byte, total)
	if sampled == 0 {
		return mask, nil
	}
	if why := s.maskTurn(n.Committed, grade); why != "" {
		return mask, map[string]uint32{why: uint32(sampled)}
	}
	answer := mask[total-sampled:]
	for i := range answer {
		answer[i] = 1
	}
	if s.policy.Reasoning != Mask {
		return mask, nil
	}
	masked := 0
	for _, r := range s.reasoning(n) {
		for i := max(r.Start, 0); i < min(r.End, sampled); i++ {
			masked += int(answer[i])
			answer[i] = 0
		}
	}
	if masked == 0 {
		return mask, nil
	}
	return mask, map[string]uint32{MaskReasoning: uint32(masked)}
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
