package verify

import (
	"maps"
	"math"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// sealed checks the seals and the ledger of a session that was closed.
func (s *session) sealed() error {
	closed := false
	for e, o := range s.outputs() {
		closed = closed || e.Event.GetSessionClosed() != nil
		if b := o.GetBranchSealed(); b != nil {
			s.branches = append(s.branches, b)
		}
		if o.GetSessionSealed() != nil {
			if s.seal != nil {
				s.find(Sealed, "sealed twice")
			}
			s.seal = o.GetSessionSealed()
		} else if lost := o.GetTurnLost(); lost != nil {
			s.lose(lost)
		}
	}
	if closed != (s.seal != nil) {
		s.find(Sealed, "closed %t, sealed %t", closed, s.seal != nil)
	}
	if s.seal == nil {
		return nil
	}
	if int(s.seal.GetBranches()) != len(s.branches) || int(s.seal.GetTurns()) != len(s.turns) {
		s.find(Sealed, "the seal has %d branches and %d turns, the session %d and %d", s.seal.GetBranches(), s.seal.GetTurns(), len(s.branches), len(s.turns))
	}
	s.leaves()
	trained, parents := map[string]bool{}, make(map[string]string, len(s.turns))
	for id, t := range s.turns {
		parents[id] = t.spans.GetParent()
	}
	for _, b := range s.branches {
		if err := s.branch(b, parents, trained); err != nil {
			return err
		}
	}
	s.balance(trained)
	s.labels(parents, trained)
	return nil
}

func (s *session) lose(lost *event.TurnLost) {
	if s.seal != nil {
		s.late += lost.GetIds()
		return
	}
	if s.lost == nil {
		s.lost = map[string]uint64{}
	}
	s.lost[lost.GetReason()] += lost.GetIds()
}

// leaves checks that every turn that none of its class goes on from ends a
// branch of that class.
func (s *session) leaves() {
	inner, ends := map[string]bool{}, map[string]bool{}
	for _, t := range s.turns {
		for up := t.parent; up != nil; up = up.parent {
			if up.spans.GetClass() == t.spans.GetClass() {
				inner[up.spans.GetTurn()] = true
				break
			}
		}
	}
	for _, b := range s.branches {
		last := b.End()
		if ends[last] {
			s.find(Sealed, "two branches end in turn %s", last)
		}
		ends[last] = true
		if t := s.turns[last]; t != nil && t.spans.GetClass() != b.GetClass() {
			s.find(Sealed, "branch %s of class %s ends in a turn of class %s", b.GetBranch(), b.GetClass(), t.spans.GetClass())
		}
	}
	for _, id := range sorted(s.turns) {
		if !inner[id] && !ends[id] {
			s.find(Sealed, "no branch ends in turn %s", id)
		}
	}
}

// branch checks the numbers of a branch, and puts it together where somebody wants
// its segments.
func (s *session) branch(b *event.BranchSealed, parents map[string]string, trained map[string]bool) error {
	path, err := b.Path(parents)
	if err != nil {
		s.find(Sealed, "%v", err)
		return nil
	}
	grade, tokens, trainable := event.Grade_GRADE_UNSPECIFIED, 0, 0
	for i, id := range path.Turns {
		t := s.turns[id]
		if int(t.spans.GetKeep()) > tokens {
			s.find(Sealed, "branch %s is no path at turn %s, which keeps more than there is", b.GetBranch(), id)
			return nil
		}
		tokens = int(t.spans.GetKeep()) + t.spans.Len
		grade = max(grade, t.spans.GetGrade())
		if n := t.spans.Trainable(); path.Trained[i] && n > 0 {
			if trained[id] {
				s.find(Masked, "turn %s is trained by two branches", id)
			}
			trained[id] = true
			trainable += n
		}
	}
	if int(b.GetTokens()) != tokens || int(b.GetTrainable()) != trainable {
		s.find(Sealed, "branch %s says %d tokens, %d trainable; it has %d and %d", b.GetBranch(), b.GetTokens(), b.GetTrainable(), tokens, trainable)
	}
	if grade != b.GetGrade() {
		s.find(Graded, "branch %s has grade %s, its worst turn %s", b.GetBranch(), b.GetGrade(), grade)
	}
	if b.GetGrade() == event.Grade_GRADE_X && b.GetTrainable() > 0 {
		s.find(Masked, "branch %s of grade X would be trained", b.GetBranch())
	}
	if want := s.options.Segment; want != nil && (s.options.Branch == nil || s.options.Branch(b.GetBranch())) {
		return s.segments(b, path, want)
	}
	return nil
}

// segments hands on a copy of each segment of a branch.
func (s *session) segments(b *event.BranchSealed, path event.Path, want func(Segment) error) error {
	seg := Segment{Session: s.id, Branch: b.GetBranch(), Bare: math.MaxInt, Grade: b.GetGrade()}
	for i, id := range path.Turns {
		t := s.turns[id]
		if int(t.spans.GetKeep()) < len(seg.IDs) {
			if err := want(seg.clone()); err != nil {
				return err
			}
		}
		seg.add(t, !path.Trained[i])
	}
	return want(seg.clone())
}

// add appends what a turn adds to what it keeps.
func (g *Segment) add(t *turn, shared bool) {
	keep := int(t.spans.GetKeep())
	g.IDs = t.spans.AppendIDs(g.IDs[:keep])
	g.Mask = t.spans.AppendMask(g.Mask[:keep])
	g.Versions = t.spans.AppendVersions(g.Versions[:keep])
	g.Logprobs = t.spans.AppendLogprobs(g.Logprobs[:keep])
	g.From = append(g.From[:keep], slices.Repeat([]int32{int32(len(g.Turns))}, len(g.IDs)-keep)...)
	g.Turns = append(g.Turns, t.spans.GetTurn())
	if shared {
		clear(g.Mask[keep:])
	}
	if g.Bare >= keep {
		g.Bare = math.MaxInt
	}
	if !t.spans.HasLogprobs() {
		g.Bare = min(g.Bare, keep+t.spans.Start)
	}
}

func (g Segment) clone() Segment {
	g.Turns, g.From = slices.Clone(g.Turns), slices.Clone(g.From)
	g.IDs, g.Mask = slices.Clone(g.IDs), slices.Clone(g.Mask)
	g.Logprobs, g.Versions = slices.Clone(g.Logprobs), slices.Clone(g.Versions)
	return g
}

// balance checks the ledger against the log, and against what turns and branches
// say of their tokens.
func (s *session) balance(trained map[string]bool) {
	l := s.seal.GetLedger()
	s.adds(l)
	var trainable, held uint64
	for _, b := range s.branches {
		trainable += uint64(b.GetTrainable())
	}
	if trainable != l.GetTrainable() {
		s.find(Balanced, "the ledger has %d trainable, the branches %d", l.GetTrainable(), trainable)
	}
	for _, e := range s.events {
		held += generated(e.Event)
	}
	if held != l.GetGenerated()+s.late {
		s.find(Balanced, "the log holds %d generated ids, the ledger %d and %d after it", held, l.GetGenerated(), s.late)
	}
	s.reasons("lost", l.GetLost(), s.lost)
	s.reasons("masked", l.GetMasked(), s.masked(trained))
}

// masked counts the ids that are not trained, by the reasons that the turns and
// branches give.
func (s *session) masked(trained map[string]bool) map[string]uint64 {
	excluded := map[string]string{}
	for _, b := range s.branches {
		for turn, why := range b.GetExcluded() {
			if trained[turn] {
				s.find(Masked, "branch %s says that nothing trains turn %s, but another branch does", b.GetBranch(), turn)
			}
			excluded[turn] = why
		}
	}
	masked := map[string]uint64{}
	for id, t := range s.turns {
		for why, n := range t.spans.GetMasked() {
			masked[why] += uint64(n)
		}
		if n := t.spans.Trainable(); n > 0 && !trained[id] {
			if excluded[id] == "" {
				s.find(Masked, "no branch trains turn %s, and none says why", id)
			}
			masked[excluded[id]] += uint64(n)
		}
	}
	return masked
}

// reasons compares a part of the ledger with what was said of single turns.
func (s *session) reasons(part string, ledger, said map[string]uint64) {
	all := maps.Clone(said)
	if all == nil {
		all = map[string]uint64{}
	}
	maps.Copy(all, ledger)
	for _, why := range sorted(all) {
		if ledger[why] != said[why] {
			s.find(Balanced, "the ledger has %d ids %s for %q, turns and branches %d", ledger[why], part, why, said[why])
		}
	}
}

// adds checks that generated = trainable + masked + lost.
func (s *session) adds(l *event.Ledger) {
	sum := l.GetTrainable()
	for _, n := range l.GetMasked() {
		sum += n
	}
	for _, n := range l.GetLost() {
		sum += n
	}
	if sum != l.GetGenerated() {
		s.find(Balanced, "generated %d, accounted for %d", l.GetGenerated(), sum)
	}
}

// parkedLedger checks the ledger of a session that could not be folded: nothing
// of it is trained, and all ids are accounted for that its log holds, but for
// those of an event that cannot be read. Of what stands behind that the updates
// alone tell.
func (s *session) parkedLedger(out []journal.Entry) {
	read, here := map[string]bool{}, map[string]bool{}
	for _, e := range s.events {
		here[e.Event.GetId()] = true
	}
	var held uint64
	for _, e := range out {
		u := e.Event.GetTrajectoryUpdate()
		read[u.GetInput().GetEvent()] = true
		for _, o := range u.GetOutputs() {
			if lost := o.GetTurnLost(); lost != nil {
				s.lose(lost)
				if !here[u.GetInput().GetEvent()] {
					held += lost.GetIds()
				}
			}
			if seal := o.GetSessionSealed(); seal != nil {
				s.seal = seal
			}
		}
	}
	if s.seal == nil || s.seal.GetReason() != "parked" {
		return // open, or closed before the event that parked it
	}
	for _, e := range s.events {
		if read[e.Event.GetId()] {
			held += generated(e.Event)
		}
	}
	l := s.seal.GetLedger()
	s.adds(l)
	s.reasons("lost", l.GetLost(), s.lost)
	if l.GetTrainable() > 0 {
		s.find(Masked, "%d tokens of a parked session would be trained", l.GetTrainable())
	}
	if held != l.GetGenerated()+s.late {
		s.find(Balanced, "the log holds %d generated ids, the ledger of the parked session %d and %d after it", held, l.GetGenerated(), s.late)
	}
}

// generated is the number of ids that engines sampled for a call.
func generated(ev *event.Event) (n uint64) {
	for _, c := range []*event.TurnCommitted{ev.GetTurnCommitted(), ev.GetTurnAborted().GetPartial()} {
		n += uint64(event.Count(c.GetCompletion().GetIds()))
		for _, a := range c.GetGeneration().GetAttempts() {
			n += uint64(event.Count(a.GetIds()))
		}
	}
	return n
}
