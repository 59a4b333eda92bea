package verify

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"turnlog.dev/schema/event"
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
		if lost := o.GetTurnLost(); lost != nil {
			s.addLost(lost)
		}
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

func (s *session) addLost(lost *event.TurnLost) {
	if s.lost == nil {
		s.lost = map[string]uint64{}
	}
	s.lost[lost.GetReason()] += lost.GetIds()
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
	s.mask(t, k)
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
}
