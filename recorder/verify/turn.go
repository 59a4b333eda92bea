package verify

import (
	"bytes"
	"math"
	"slices"

	"turnlog.dev/schema/event"
)

// turn is one turn, as recorded and as said in the trajectory.
type turn struct {
	committed    *event.TurnCommitted
	spans        *event.TurnSpans
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
		t := &turn{committed: c, spans: spans, parent: s.turns[c.GetParent()], base: s.turns[c.GetBase().GetTurn()]}
		t.text = c.GetBase().GetKeep() == 0 && c.NewIDs() == event.Count(c.GetCompletion().GetIds())
		s.turns[c.GetTurn()] = t
		s.report.Turns++
		s.report.Tokens += uint64(event.Count(spans.GetIds()))
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
	return event.IDs(ids, t.spans.GetIds())
}

// same reports whether the trajectory rebuilds the turn. One that is stored
// upon what it keeps need not be put together for that.
func (t *turn) same() bool {
	c := t.committed
	if t.base != t.parent || c.GetBase().GetKeep() != t.spans.GetKeep() {
		return slices.Equal(t.logged(), t.rebuilt())
	}
	rest := t.spans.GetIds()
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
	n, k := event.Count(spans.GetIds()), event.Count(comp.GetIds())
	if t.text {
		if k > 0 && !bytes.HasSuffix(spans.GetIds(), comp.GetIds()) {
			s.find(Exact, "turn %s does not end in its sampled ids", id)
		}
	} else if !t.same() {
		s.find(Exact, "turn %s has other ids than were recorded", id)
		return
	}
	tiled, answer := 0, 0
	for _, span := range spans.GetSpans() {
		tiled += int(span.GetCount())
		if span.GetProvenance() == event.Provenance_PROVENANCE_SAMPLED {
			answer += int(span.GetCount())
		}
	}
	if tiled != n || answer != k {
		s.find(Exact, "turn %s: spans tile %d of %d ids, %d sampled of %d", id, tiled, n, answer, k)
	}
	s.arrays(t, n, k)
	s.mask(t, n, k)
}

// arrays checks logprobs and versions.
func (s *session) arrays(t *turn, n, k int) {
	id, comp := t.spans.GetTurn(), t.committed.GetCompletion()
	if lp := event.Floats(nil, t.spans.GetLogprobs()); lp != nil {
		switch {
		case len(lp) != n:
			s.find(Exact, "turn %s: %d logprobs for %d ids", id, len(lp), n)
		case k > 0 && !bytes.Equal(t.spans.GetLogprobs()[4*(n-k):], comp.GetLogprobs()):
			s.find(Exact, "turn %s has other logprobs than were recorded", id)
		case slices.ContainsFunc(lp, func(f float32) bool { return math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) }):
			s.find(Exact, "turn %s has a logprob that is no number", id)
		case slices.ContainsFunc(lp[:n-k], func(f float32) bool { return f != 0 }):
			s.find(Exact, "turn %s has a logprob where nothing was sampled", id)
		}
	} else if n > 0 && t.spans.GetGrade() < event.Grade_GRADE_D {
		s.find(Exact, "turn %s has no logprobs and grade %s", id, t.spans.GetGrade())
	}
	v := event.Ints(nil, t.spans.GetVersions())
	if len(v) != n {
		s.find(Exact, "turn %s: %d versions for %d ids", id, len(v), n)
	} else if slices.ContainsFunc(v[:n-k], func(x int32) bool { return x != -1 }) {
		s.find(Exact, "turn %s has a weight version where nothing was sampled", id)
	}
}

func (s *session) mask(t *turn, n, k int) {
	id, mask := t.spans.GetTurn(), t.spans.GetMask()
	if len(mask) != n {
		s.find(Masked, "turn %s: a mask of %d for %d ids", id, len(mask), n)
		return
	}
	if slices.ContainsFunc(mask[:n-k], func(m byte) bool { return m != 0 }) {
		s.find(Masked, "turn %s would train context", id)
	}
	masked := 0
	for _, c := range t.spans.GetMasked() {
		masked += int(c)
	}
	if ones := bytes.Count(mask, []byte{1}); ones+masked != k {
		s.find(Masked, "turn %s: %d trainable and %d masked of %d sampled", id, ones, masked, k)
	}
}
