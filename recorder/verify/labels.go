package verify

import (
	"cmp"
	"slices"
	"strings"

	"turnlog.dev/schema/event"
)

// Policy says which sampled tokens were to be trained when the sessions were
// recorded.
type Policy struct {
	// Train are the classes that are trained.
	Train []string
	// What else is masked.
	MaskCutOff, MaskReasoning, MaskAbandoned, MaskUndelivered, MaskRewrittenCalls bool
	MaskFlags                                                                     []string
}

func (t *turn) id() string { return t.spans.GetTurn() }

func (t *turn) class() string { return cmp.Or(t.committed.GetRequest().GetClass(), "main") }

func (t *turn) asked() int64 { return t.committed.GetRequest().GetReceivedUs() }

// deserves reports whether a reason to mask a turn is true of it. What is thinking
// in an answer needs a model to tell.
func (t *turn) deserves(why string) bool {
	comp := t.committed.GetCompletion()
	if flag, ok := strings.CutPrefix(why, "flag_"); ok {
		return slices.Contains(comp.GetFlags(), flag)
	}
	switch why {
	case "reasoning":
		return true
	case "grade_x":
		return t.spans.GetGrade() == event.Grade_GRADE_X
	case "cut_off":
		return comp.GetFinishReason() == "length"
	}
	return why == "class_"+t.class()
}

// maskedFor checks that the reasons for which tokens of a turn are masked are true of
// it, and that all but reasoning mask all of them; and what a policy makes of them.
func (s *session) maskedFor(t *turn, k int) {
	for _, why := range sorted(t.spans.GetMasked()) {
		n := int(t.spans.GetMasked()[why])
		if !t.deserves(why) || why != "reasoning" && n != k {
			s.find(Masked, "turn %s has %d of %d tokens masked for %q, which is not so", t.id(), n, k, why)
		}
	}
	p := s.options.Policy
	if p == nil || k == 0 {
		return
	}
	switch want := p.whole(t); {
	case want != "":
		if int(t.spans.GetMasked()[want]) != k {
			s.find(Masked, "turn %s is not masked for %q, as the policy wants", t.id(), want)
		}
	case t.spans.Trainable() < k && (!p.MaskReasoning || t.spans.GetMasked()["reasoning"] == 0):
		s.find(Masked, "turn %s has %d of %d tokens masked, which the policy trains", t.id(), k-t.spans.Trainable(), k)
	}
}

// whole is why a policy masks a whole turn with the turn itself, or "".
func (p *Policy) whole(t *turn) string {
	switch {
	case t.deserves("grade_x"):
		return "grade_x"
	case !slices.Contains(p.Train, t.class()):
		return "class_" + t.class()
	case p.MaskCutOff && t.deserves("cut_off"):
		return "cut_off"
	}
	for _, flag := range t.committed.GetCompletion().GetFlags() {
		if slices.Contains(p.MaskFlags, flag) {
			return "flag_" + flag
		}
	}
	return ""
}

// family is what the labels of branches follow from.
type family struct {
	children    map[*turn][]*turn
	undelivered map[string]bool
	left        map[*turn]bool
}

// labels checks the labels of branches, the session's status, and why turns are
// excluded.
func (s *session) labels(parents map[string]string, trained map[string]bool) {
	for _, b := range s.branches {
		if b.GetLeaf() == "" {
			return // it was recorded when only the last step of a branch could be abandoned
		}
	}
	f := s.family()
	for _, b := range s.branches {
		leaf := s.turns[b.End()]
		if leaf == nil {
			continue // which is said elsewhere
		}
		want := leaf.class()
		if f.left[leaf] {
			want = "abandoned"
		}
		if b.GetLabel() != want {
			s.find(Sealed, "branch %s is labelled %q, and is %q", b.GetBranch(), b.GetLabel(), want)
		}
	}
	if want := s.status(f); s.seal.GetStatus() != want {
		s.find(Sealed, "the session is sealed as %q, and is %q", s.seal.GetStatus(), want)
	}
	s.exclusions(f, parents, trained)
}

func (s *session) family() *family {
	f := &family{children: map[*turn][]*turn{}, undelivered: map[string]bool{}, left: map[*turn]bool{}}
	steps := map[string][]*turn{}
	for _, id := range sorted(s.turns) {
		t := s.turns[id]
		f.children[t.parent] = append(f.children[t.parent], t)
		step := strings.Join([]string{t.spans.GetParent(), t.class(), t.committed.GetRequest().GetThread()}, "\x00")
		if t.parent == nil {
			prompt := t.rebuilt()
			prompt = prompt[:len(prompt)-event.Count(t.committed.GetCompletion().GetIds())]
			if step += "\x00" + string(event.AppendIDs(nil, prompt)); len(prompt) == 0 {
				step += id
			}
		}
		steps[step] = append(steps[step], t)
	}
	for _, e := range s.events {
		if e.Event.GetSessionClosed() != nil {
			break // what is said later did not count for the seal
		}
		if d := e.Event.GetDeliveryFailed(); d != nil {
			f.undelivered[d.GetTurn()] = true
		}
	}
	for t := range f.children {
		if t != nil {
			delete(f.undelivered, t.id()) // what continues it had it
		}
	}
	for _, rivals := range steps {
		for _, t := range rivals {
			f.left[t] = f.isLeft(t, rivals)
		}
	}
	for _, t := range s.turns {
		for up := t.parent; up != nil && !f.left[t]; up = up.parent {
			f.left[t] = f.left[up]
		}
	}
	return f
}

// used reports whether a turn goes on from its parent, and does not only look at it.
func used(t *turn) bool {
	return t.class() == t.parent.class() || t.class() != "side" && t.class() != "probe"
}

func (f *family) goneOn(t *turn) bool { return slices.ContainsFunc(f.children[t], used) }

// end is when the last turn was asked for of those that a turn was gone on to.
func (f *family) end(t *turn) int64 {
	last := t.asked()
	for todo := slices.Clone(f.children[t]); len(todo) > 0; {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if used(c) {
			last = max(last, c.asked())
			todo = append(todo, f.children[c]...)
		}
	}
	return last
}

// isLeft reports whether the session left a turn behind for one of its rivals.
func (f *family) isLeft(t *turn, rivals []*turn) bool {
	got := func(t *turn) bool { return !f.undelivered[t.id()] }
	if len(rivals) < 2 || !got(t) {
		return !got(t) && slices.ContainsFunc(rivals, got)
	}
	goneOn, end := f.goneOn(t), f.end(t)
	return slices.ContainsFunc(rivals, func(other *turn) bool {
		switch reason := other.committed.GetMatch().GetReason(); {
		case other == t || !got(other):
			return false
		case !goneOn:
			return f.goneOn(other) && (t.parent == nil || t.asked() <= f.end(other))
		default:
			return t.parent != nil && (reason == "rewind" || reason == "resample") && other.asked() > end
		}
	})
}

// status is how the session ended.
func (s *session) status(f *family) string {
	switch reason := s.seal.GetReason(); {
	case reason == "aborted" || reason == "deleted":
		return "aborted"
	case reason == "truncated" || slices.Contains([]string{"limit_turns", "limit_tokens", "limit_wall", "limit_idle"}, reason):
		return "truncated"
	case reason != "completed" && reason != "":
		return "failed"
	}
	var newest *turn
	for _, id := range sorted(s.turns) { // of equal ones the last
		if t := s.turns[id]; t.class() == "main" && !f.left[t] && (newest == nil || t.asked() >= newest.asked()) {
			newest = t
		}
	}
	if newest != nil && newest.committed.GetCompletion().GetFinishReason() == "length" {
		return "truncated"
	}
	return "completed"
}

// exclusions checks that each turn that no branch trains has a reason to be
// excluded on one of them; and, against a policy, that it has one on all, and that
// the others are trained.
func (s *session) exclusions(f *family, parents map[string]string, trained map[string]bool) {
	said := map[string]string{}
	for _, b := range s.branches {
		for id, why := range b.GetExcluded() {
			said[id] = why
		}
	}
	p := s.options.Policy
	if p == nil && len(said) == 0 {
		return
	}
	so, free, first := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, b := range s.branches {
		path, err := b.Path(parents)
		if err != nil {
			continue // which is said elsewhere
		}
		rewritten := s.rewritten(path.Turns)
		for _, id := range path.Turns {
			t := s.turns[id]
			facts := map[string]bool{
				"grade_x":        b.GetGrade() == event.Grade_GRADE_X,
				"rewritten_call": rewritten[id],
				"abandoned":      f.left[t],
				"undelivered":    f.undelivered[id],
			}
			so[id] = so[id] || facts[said[id]]
			if p == nil {
				continue
			}
			why := ""
			switch {
			case facts["grade_x"]:
				why = "grade_x"
			case facts["rewritten_call"] && p.MaskRewrittenCalls:
				why = "rewritten_call"
			case facts["abandoned"] && p.MaskAbandoned:
				why = "abandoned"
			case facts["undelivered"] && p.MaskUndelivered:
				why = "undelivered"
			}
			free[id] = free[id] || why == ""
			first[id] = cmp.Or(first[id], why)
		}
	}
	for _, id := range sorted(said) {
		if !so[id] {
			s.find(Masked, "no branch trains turn %s for %q, which is not so", id, said[id])
		}
	}
	if p == nil {
		return
	}
	for _, id := range sorted(s.turns) {
		switch {
		case s.turns[id].spans.Trainable() == 0:
		case free[id] != trained[id]:
			s.find(Masked, "turn %s is trained %t, the policy says %t", id, trained[id], free[id])
		case !free[id] && said[id] != first[id]:
			s.find(Masked, "no branch trains turn %s for %q, the policy says for %q", id, said[id], first[id])
		}
	}
}

// rewritten are the turns of a path whose calls the client changed: those that later
// turns name, or, as long as none is named, the one before each that says so.
func (s *session) rewritten(path []string) map[string]bool {
	out, named := map[string]bool{}, false
	for i, id := range path {
		match := s.turns[id].committed.GetMatch()
		for _, turn := range match.GetRewrittenTurns() {
			out[turn], named = true, true
		}
		if match.GetRewritten() && !named && i > 0 {
			out[path[i-1]] = true
		}
	}
	return out
}
