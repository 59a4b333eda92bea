package verify

import (
	"slices"

	"turnlog.dev/schema/event"
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
		} else if s.seal != nil {
			s.late += o.GetTurnLost().GetIds()
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
	trained := map[string]bool{}
	for _, b := range s.branches {
		row, ok := s.branch(b, trained)
		if ok && s.options.Row != nil {
			if err := s.options.Row(row); err != nil {
				return err
			}
		}
	}
	s.balance()
	return nil
}

// leaves checks that every leaf of the tree ends a branch.
func (s *session) leaves() {
	inner, ends := map[string]bool{}, map[string]bool{}
	for _, t := range s.turns {
		inner[t.spans.GetParent()] = true
	}
	for _, b := range s.branches {
		if n := len(b.GetTurns()); n > 0 {
			ends[b.GetTurns()[n-1]] = true
		}
	}
	for _, id := range sorted(s.turns) {
		if !inner[id] && !ends[id] {
			s.find(Sealed, "no branch ends in turn %s", id)
		}
	}
}

// branch puts a branch together and checks its numbers.
func (s *session) branch(b *event.BranchSealed, trained map[string]bool) (Row, bool) {
	row := Row{Session: s.id, Branch: b.GetBranch(), Turns: b.GetTurns(), Grade: b.GetGrade()}
	whole, grade, trainable := true, event.Grade_GRADE_UNSPECIFIED, 0
	before := ""
	for _, id := range b.GetTurns() {
		t := s.turns[id]
		if t == nil || t.spans.GetParent() != before || int(t.spans.GetKeep()) > len(row.IDs) {
			s.find(Sealed, "branch %s is no path at turn %s", b.GetBranch(), id)
			return row, false
		}
		before = id
		grade = max(grade, t.spans.GetGrade())
		keep := t.spans.GetKeep()
		row.IDs = t.spans.AppendIDs(row.IDs[:keep])
		row.Mask = t.spans.AppendMask(row.Mask[:keep])
		row.Versions = t.spans.AppendVersions(row.Versions[:keep])
		row.Logprobs = t.spans.AppendLogprobs(row.Logprobs[:keep])
		whole = whole && t.spans.HasLogprobs()
		switch own := row.Mask[keep:]; {
		case slices.Contains(b.GetShared(), id):
			clear(own)
		case slices.Contains(own, 1):
			if trained[id] {
				s.find(Masked, "turn %s is trained by two branches", id)
			}
			trained[id] = true
			for _, m := range own {
				trainable += int(m)
			}
		}
	}
	if !whole {
		row.Logprobs = nil
	}
	if int(b.GetTokens()) != len(row.IDs) || int(b.GetTrainable()) != trainable {
		s.find(Sealed, "branch %s says %d tokens, %d trainable; it has %d and %d", b.GetBranch(), b.GetTokens(), b.GetTrainable(), len(row.IDs), trainable)
	}
	if grade != b.GetGrade() {
		s.find(Sealed, "branch %s has grade %s, its worst turn %s", b.GetBranch(), b.GetGrade(), grade)
	}
	if b.GetGrade() == event.Grade_GRADE_X && b.GetTrainable() > 0 {
		s.find(Masked, "branch %s of grade X would be trained", b.GetBranch())
	}
	return row, true
}

// balance checks the ledger against the log.
func (s *session) balance() {
	l := s.seal.GetLedger()
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
	var trainable uint64
	for _, b := range s.branches {
		trainable += uint64(b.GetTrainable())
	}
	if trainable != l.GetTrainable() {
		s.find(Balanced, "the ledger has %d trainable, the branches %d", l.GetTrainable(), trainable)
	}
	var held uint64
	for _, e := range s.events {
		for _, c := range []*event.TurnCommitted{e.Event.GetTurnCommitted(), e.Event.GetTurnAborted().GetPartial()} {
			answer, failed := sampled(c)
			held += answer + failed
		}
	}
	if held != l.GetGenerated()+s.late {
		s.find(Balanced, "the log holds %d generated ids, the ledger %d and %d after it", held, l.GetGenerated(), s.late)
	}
	var lost, told uint64
	for _, n := range l.GetLost() {
		lost += n
	}
	for _, n := range s.lost {
		told += n
	}
	if lost+s.late != told {
		s.find(Balanced, "the ledger lost %d ids, the updates %d", lost+s.late, told)
	}
}
