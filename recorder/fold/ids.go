package fold

import (
	"bytes"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// owned are a turn's ids after the first keep ids of its parent, and the spans
// that tile them.
type owned struct {
	keep  int
	ids   []byte
	spans []*event.Span
}

// add appends ids of one provenance; neighbours of the same kind are one span.
func (o *owned) add(p event.Provenance, ids []byte) {
	n := uint32(event.Count(ids))
	if n == 0 {
		return
	}
	o.ids = append(o.ids, ids...)
	if last := len(o.spans) - 1; last >= 0 && o.spans[last].Provenance == p {
		o.spans[last].Count += n
		return
	}
	o.spans = append(o.spans, &event.Span{Provenance: p, Count: n})
}

// drop leaves out the first n ids, which the parent turned out to have as well.
func (o *owned) drop(n int) {
	o.keep += n
	o.ids = o.ids[4*n:]
	for n > 0 {
		k := min(n, int(o.spans[0].Count))
		o.spans[0].Count -= uint32(k)
		if o.spans[0].Count == 0 {
			o.spans = o.spans[1:]
		}
		n -= k
	}
}

// context is the provenance of ids in a prompt: what was sampled for another
// turn is context here.
func context(p event.Provenance) event.Provenance {
	if p == event.Provenance_PROVENANCE_SAMPLED {
		return event.Provenance_PROVENANCE_ASSISTANT_RERENDERED
	}
	return p
}

// ownIDs returns what the turn adds to its parent, and verifies that its prompt
// begins with what it says it keeps.
func (s *State) ownIDs(n *tree.Turn, g *grading) owned {
	c := n.Committed
	if n.PromptLen == 0 {
		return s.textIDs(n, g)
	}
	var o owned
	if base := c.GetBase(); base.GetTurn() == c.GetParent() && int(base.GetKeep()) == n.Keep && !s.keepsMade(n) {
		// The normal turn: what is kept is what it is stored upon, so there is
		// nothing to compare.
		o.keep = n.Keep
		o.ids = make([]byte, 0, 4*(n.Len-n.Keep))
		for _, seg := range c.GetSegments() {
			o.add(context(seg.GetProvenance()), seg.GetIds())
		}
	} else {
		o = s.cutIDs(n, g)
	}
	if o.keep == n.Keep && !s.made(n.Parent) {
		o.drop(restated(n, o.ids))
	}
	o.add(event.Provenance_PROVENANCE_SAMPLED, c.GetCompletion().GetIds())
	return o
}

// made reports whether the sequence of a turn was made here: it came as text,
// and what the log holds of it are not the ids that its children stand upon.
func (s *State) made(n *tree.Turn) bool { return n != nil && s.turns[n.ID].ids != nil }

// keepsMade reports a turn that says it keeps ids of one that came as text. It
// cannot: those that it was sent with are not those.
func (s *State) keepsMade(n *tree.Turn) bool { return n.Keep > 0 && s.made(n.Parent) }

// restated is the number of ids that the turn does not keep of its parent's
// answer but begins its own with: all of them, or none. Some models sample the
// next message's first token as their end token (GLM); the gateway cuts it off
// and the template writes it again. The sequence goes on unbroken.
func restated(n *tree.Turn, own []byte) int {
	if n.Parent == nil {
		return 0
	}
	answer := n.Parent.Committed.GetCompletion().GetIds()
	cut := n.Parent.Len - n.Keep
	if cut <= 0 || 4*cut > len(answer) || !bytes.HasPrefix(own, answer[len(answer)-4*cut:]) {
		return 0
	}
	return cut
}

// cutIDs is for a turn that is stored upon something else than what it keeps of
// its parent: the prompt is put together and cut where the parent's part ends.
func (s *State) cutIDs(n *tree.Turn, g *grading) owned {
	prompt := n.PromptIDs(nil)
	o := owned{keep: n.Keep}
	if s.keepsMade(n) || n.Parent != nil && !slices.Equal(n.Parent.IDs(nil, n.Keep), prompt[:n.Keep]) {
		// Not a continuation. Its own ids are the whole sequence, so that what
		// was recorded can still be read.
		g.x(ReasonParentMismatch)
		o.keep = 0
	}
	at := 0
	for _, p := range s.promptSpans(n) {
		end := at + p.count
		if end > o.keep {
			o.add(p.from, event.AppendIDs(nil, prompt[max(at, o.keep):end]))
		}
		at = end
	}
	return o
}

// run is a span before it is part of an event.
type run struct {
	from  event.Provenance
	count int
}

// promptSpans tiles the whole prompt of a turn.
func (s *State) promptSpans(n *tree.Turn) []run {
	var spans []run
	if base := s.tree.Turn(n.Committed.GetBase().GetTurn()); base != nil {
		left := int(n.Committed.GetBase().GetKeep())
		whole := append(s.promptSpans(base), run{
			event.Provenance_PROVENANCE_ASSISTANT_RERENDERED, base.Len - base.PromptLen,
		})
		for _, r := range whole {
			if k := min(left, r.count); k > 0 {
				spans = append(spans, run{r.from, k})
				left -= k
			}
		}
	}
	for _, seg := range n.Committed.GetSegments() {
		spans = append(spans, run{context(seg.GetProvenance()), event.Count(seg.GetIds())})
	}
	return spans
}

// common is the number of ids that two arrays in the log's form begin with
// alike.
func common(a, b []byte) int {
	n := min(len(a), len(b)) &^ 3
	for at := 0; at < n; at += 4 {
		if !bytes.Equal(a[at:at+4], b[at:at+4]) {
			return at / 4
		}
	}
	return n / 4
}
