package verify

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// turn is one turn, as recorded and as said in the trajectory.
type turn struct {
	committed    *event.TurnCommitted
	spans        event.Tokens
	parent, base *turn
	// text turns have ids in the trajectory only.
	text bool
}

// exact compares every turn's spans with its event.
func (s *session) exact() {
	s.turns = map[string]*turn{}
	for e, o := range s.outputs() {
		c, spans := e.Event.GetTurnCommitted(), o.GetTurnSpans()
		if spans == nil {
			continue
		}
		if c.GetTurn() != spans.GetTurn() || c.GetParent() != spans.GetParent() {
			s.find(Exact, "event %s became turn %s", e.Event.GetId(), spans.GetTurn())
			continue
		}
		tokens, err := spans.Tokens()
		if err != nil {
			promise := Exact
			if errors.Is(err, event.ErrTrainsContext) {
				promise = Masked
			}
			s.find(promise, "turn %s: %v", spans.GetTurn(), err)
			continue
		}
		t := &turn{committed: c, spans: tokens, parent: s.turns[c.GetParent()], base: s.turns[c.GetBase().GetTurn()]}
		t.text = c.GetBase().GetKeep() == 0 && c.NewIDs() == event.Count(c.GetCompletion().GetIds())
		s.turns[c.GetTurn()] = t
		s.report.Turns++
		s.report.Tokens += uint64(tokens.Len)
		s.turn(t)
	}
	for _, e := range s.events {
		if c := e.Event.GetTurnCommitted(); c != nil && s.turns[c.GetTurn()] == nil {
			s.find(Exact, "turn %s has no spans", c.GetTurn())
		}
	}
}

// logged is the whole turn according to the turn log.
func (t *turn) logged() []uint32 {
	var ids []uint32
	if t.base != nil {
		before := t.base.logged()
		ids = before[:min(int(t.committed.GetBase().GetKeep()), len(before))]
	}
	for _, seg := range t.committed.GetSegments() {
		ids = event.IDs(ids, seg.GetIds())
	}
	return event.IDs(ids, t.committed.GetCompletion().GetIds())
}

// rebuilt is the whole turn according to the trajectory.
func (t *turn) rebuilt() []uint32 {
	var ids []uint32
	if t.parent != nil {
		before := t.parent.rebuilt()
		ids = before[:min(int(t.spans.GetKeep()), len(before))]
	}
	return t.spans.AppendIDs(ids)
}

// same reports whether the trajectory rebuilds the turn. One that is stored
// upon what it keeps need not be put together for that.
func (t *turn) same() bool {
	c := t.committed
	if t.base != t.parent || c.GetBase().GetKeep() != t.spans.GetKeep() {
		return slices.Equal(t.logged(), t.rebuilt())
	}
	rest := event.AppendIDs(nil, t.spans.AppendIDs(nil))
	for _, seg := range c.GetSegments() {
		var ok bool
		if rest, ok = bytes.CutPrefix(rest, seg.GetIds()); !ok {
			return false
		}
	}
	return bytes.Equal(rest, c.GetCompletion().GetIds())
}

func (s *session) turn(t *turn) {
	id, spans, comp := t.spans.GetTurn(), t.spans, t.committed.GetCompletion()
	n, k := spans.Len, event.Count(comp.GetIds())
	if t.text {
		if k > 0 && !bytes.HasSuffix(event.AppendIDs(nil, spans.AppendIDs(nil)), comp.GetIds()) {
			s.find(Exact, "turn %s does not end in its sampled ids", id)
		}
	} else if !t.same() {
		s.find(Exact, "turn %s has other ids than were recorded", id)
		return
	}
	answer := 0
	for _, span := range spans.GetSpans() {
		if span.GetProvenance() == event.Provenance_PROVENANCE_SAMPLED {
			answer += int(span.GetCount())
		}
	}
	if spans.Start != n-k || spans.End != n || answer != k {
		s.find(Exact, "turn %s: spans say that %d ids were sampled, the last at %d to %d of %d; it were %d", id, answer, spans.Start, spans.End, n, k)
	}
	s.arrays(t, k)
	s.versions(t, k)
	s.mask(t, k)
	s.maskedFor(t, k)
	c := t.committed
	if spans.GetClass() != t.class() || spans.GetThread() != c.GetRequest().GetThread() || spans.GetFinishReason() != comp.GetFinishReason() {
		s.find(Exact, "turn %s has another class, thread or finish reason than was recorded", id)
	}
	if worst := t.evidence(); spans.GetGrade() < worst {
		s.find(Graded, "turn %s has grade %s, its evidence allows %s at best", id, spans.GetGrade(), worst)
	}
}

// evidence is the best grade that no policy can raise: what is missing or broken
// is so whatever one thinks of it.
func (t *turn) evidence() event.Grade {
	c := t.committed
	comp, gen, k := c.GetCompletion(), c.GetGeneration(), event.Count(c.GetCompletion().GetIds())
	told := versioned(comp)
	prompt := int(c.GetBase().GetKeep()) + c.NewIDs() - k
	counted := gen.GetPromptTokens() != 0 || gen.GetProof() == event.PromptProof_PROMPT_PROOF_COUNT
	ours := gen.GetProof() == event.PromptProof_PROMPT_PROOF_ECHO || gen.GetProof() == event.PromptProof_PROMPT_PROOF_COUNT
	switch {
	case ours && !t.text && counted && int(gen.GetPromptTokens()) != prompt,
		k > 0 && len(comp.GetLogprobs()) > 0 && len(comp.GetLogprobs()) != 4*k,
		k > 0 && told > 0 && told != k,
		!t.text && t.spans.GetKeep() < c.GetParentKeep():
		return event.Grade_GRADE_X
	case !ours, t.text, k == 0 && spoke(c), k > 0 && len(comp.GetLogprobs()) == 0:
		return event.Grade_GRADE_D
	}
	return event.Grade_GRADE_A
}

// spoke reports whether the answer of a turn has a text.
func spoke(c *event.TurnCommitted) bool {
	answer, err := message.Parse(c.GetConversation().GetAnswer())
	return c.GetCompletion().GetText() != "" || err == nil && answer.Content.String() != ""
}

// versioned is the number of ids that the engine named weight versions of.
func versioned(c *event.Completion) (n int) {
	for _, v := range c.GetVersions() {
		n += int(v.GetCount())
	}
	return n
}

// versions compares weight versions with the labels that are numbers.
func (s *session) versions(t *turn, k int) {
	said := t.spans.AppendVersions(nil)[t.spans.Start:t.spans.End]
	told := t.committed.GetCompletion().GetVersions()
	if versioned(t.committed.GetCompletion()) != k {
		told = nil // they do not fit the ids, which is in the grade
	}
	at := 0
	for _, v := range told {
		n := int(v.GetCount())
		want, err := strconv.ParseInt(v.GetLabel(), 10, 32)
		for _, is := range said[at : at+n] {
			if err == nil && want >= 0 && int64(is) != want || is < event.NoVersion {
				s.find(Exact, "turn %s has weight version %d where the engine said %q", t.spans.GetTurn(), is, v.GetLabel())
				return
			}
		}
		at += n
	}
	if at == 0 && slices.ContainsFunc(said, func(v int32) bool { return v != event.NoVersion }) {
		s.find(Exact, "turn %s has a weight version that no engine named", t.spans.GetTurn())
	}
}

// arrays checks logprobs and versions.
func (s *session) arrays(t *turn, k int) {
	id := t.spans.GetTurn()
	switch lp := t.spans.GetSampledLogprobs(); {
	case len(lp) == 0:
		if k > 0 && t.spans.GetGrade() < event.Grade_GRADE_D {
			s.find(Exact, "turn %s has no logprobs and grade %s", id, t.spans.GetGrade())
		}
	case !bytes.Equal(lp, t.committed.GetCompletion().GetLogprobs()):
		s.find(Exact, "turn %s has other logprobs than were recorded", id)
	case slices.ContainsFunc(event.Floats(nil, lp), func(f float32) bool { return math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) }):
		s.find(Exact, "turn %s has a logprob that is no number", id)
	}
}

// mask counts a turn's trainable and masked tokens. That none of them is context
// is in the form.
func (s *session) mask(t *turn, k int) {
	id, masked := t.spans.GetTurn(), 0
	for _, c := range t.spans.GetMasked() {
		masked += int(c)
	}
	if ones := t.spans.Trainable(); ones+masked != k {
		s.find(Masked, "turn %s: %d trainable and %d masked of %d sampled", id, ones, masked, k)
	}
	if t.spans.GetGrade() == event.Grade_GRADE_X && t.spans.Trainable() > 0 {
		s.find(Masked, "turn %s of grade X would be trained", id)
	}
}
