package fold

import (
	"cmp"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/tree"
)

// branch is one path while it is being sealed: from a root to a turn that no
// turn of its class goes on from. A side request that extends the main line so
// does not hide where the main line ends.
type branch struct {
	path []*verdict
	// ends says up to which position of the last segment each turn's ids are
	// still there: a later turn may keep less of them.
	ends    []int
	sealed  *event.BranchSealed
	exclude map[*verdict]string
}

func (b *branch) leaf() *verdict { return b.path[len(b.path)-1] }

// owner is the branch that trains a turn.
type owner struct {
	branch *branch
	// kept counts the turn's trainable tokens that later turns keep.
	kept int
	// why no branch does.
	why string
}

// seal closes the session: all branches, then the seal.
func (s *State) seal() []*event.Output {
	branches := s.branches()
	owners := s.assign(branches)
	ledger := s.ledger(owners)

	var out []*event.Output
	for _, b := range branches {
		s.sealBranch(b, owners)
		out = append(out, &event.Output{Output: &event.Output_BranchSealed{BranchSealed: b.sealed}})
	}
	reason := s.tree.Closed.GetReason()
	s.sealed = &event.SessionSealed{
		Status:   s.status(reason),
		Reason:   reason,
		Turns:    uint32(len(s.tree.Turns)),
		Branches: uint32(len(branches)),
		Ledger:   ledger,
		OpenedUs: s.tree.OpenedAt.UnixMicro(),
		ClosedUs: s.tree.ClosedAt.UnixMicro(),
	}
	return append(out, &event.Output{Output: &event.Output_SessionSealed{SessionSealed: s.sealed}})
}

// sealParked ends a session that could not be folded to its end: nothing of it
// may be trained, and whoever waits for its group must learn that.
func (s *State) sealParked(closed journal.Entry) []*event.Output {
	l := &event.Ledger{Generated: s.Generated(), Lost: s.lostCopy()}
	if s.sampled > 0 {
		l.Masked = map[string]uint64{MaskParked: s.sampled}
	}
	s.sealed = &event.SessionSealed{
		Status:   StatusFailed,
		Reason:   MaskParked,
		Turns:    uint32(len(s.tree.Turns)),
		Ledger:   l,
		ClosedUs: closed.Time.UnixMicro(),
	}
	if s.tree.Opened != nil {
		s.sealed.OpenedUs = s.tree.OpenedAt.UnixMicro()
	}
	return []*event.Output{{Output: &event.Output_SessionSealed{SessionSealed: s.sealed}}}
}

// Status of a sealed session.
const (
	StatusCompleted = "completed"
	StatusTruncated = "truncated"
	StatusAborted   = "aborted"
	StatusFailed    = "failed"
)

// status is what a trainer calls the outcome. A session that ran into a limit,
// or whose newest main turn was cut off, is truncated.
func (s *State) status(reason string) string {
	switch reason {
	case "failed":
		return StatusFailed
	case "aborted", "deleted":
		return StatusAborted
	case "truncated", "limit_turns", "limit_tokens", "limit_wall", "limit_idle":
		return StatusTruncated
	case "completed", "":
	default:
		return StatusFailed // whatever it was, nobody said that it was completed
	}
	var last *tree.Turn
	for _, n := range s.tree.Turns {
		if class(n.Committed) == ClassMain && (last == nil || byArrival(last, n) < 0) {
			last = n
		}
	}
	if last != nil && last.Committed.GetCompletion().GetFinishReason() == "length" {
		return StatusTruncated
	}
	return StatusCompleted
}

// byArrival orders turns by when their request was received, equal ones by id:
// by what they say, so that their order in the log does not matter.
func byArrival(a, b *tree.Turn) int {
	return cmp.Or(
		cmp.Compare(a.Committed.GetRequest().GetReceivedUs(), b.Committed.GetRequest().GetReceivedUs()),
		cmp.Compare(a.ID, b.ID),
	)
}

// continued returns the turns that a turn of the same class descends from.
func (s *State) continued() map[*tree.Turn]bool {
	out := map[*tree.Turn]bool{}
	for _, n := range s.tree.Turns {
		for a := n.Parent; a != nil; a = a.Parent {
			if class(a.Committed) == class(n.Committed) {
				out[a] = true
				break // what is above has been marked for a
			}
		}
	}
	return out
}

// branches lists all branches, siblings by arrival.
func (s *State) branches() []*branch {
	var out []*branch
	var path []*verdict
	abandoned, continued := s.abandoned(), s.continued()
	var walk func(siblings []*tree.Turn)
	walk = func(siblings []*tree.Turn) {
		for _, n := range slices.SortedFunc(slices.Values(siblings), byArrival) {
			path = append(path, s.turns[n.ID])
			if !continued[n] {
				out = append(out, s.branch(slices.Clone(path), abandoned))
			}
			walk(n.Children)
			path = path[:len(path)-1]
		}
	}
	walk(s.tree.Roots)
	return out
}

func (s *State) branch(path []*verdict, abandoned map[*tree.Turn]bool) *branch {
	b := &branch{path: path, ends: make([]int, len(path)), exclude: map[*verdict]string{}}
	leaf := b.leaf()
	end := leaf.end
	for i := len(path) - 1; i >= 0; i-- {
		b.ends[i] = min(end, path[i].end)
		end = min(end, path[i].keep)
	}

	var g grading
	rewritten := rewrittenTurns(path)
	for _, v := range path {
		for _, r := range v.reasons {
			g.add(v.grade, r)
		}
		g.grade = max(g.grade, v.grade)
		switch {
		case rewritten[v.turn.ID] && s.policy.RewrittenCalls == Mask:
			b.exclude[v] = MaskRewrittenCall
		// A side request may have extended it: it is no less abandoned there.
		case abandoned[v.turn] && s.policy.Abandoned == Mask:
			b.exclude[v] = MaskAbandoned
		case s.undelivered(v.turn) && s.policy.Undelivered == Mask:
			b.exclude[v] = MaskUndelivered
		}
	}
	grade, reasons := g.result()
	if grade == event.Grade_GRADE_X {
		for _, v := range path {
			b.exclude[v] = MaskGradeX
		}
	}

	b.sealed = &event.BranchSealed{
		Branch:       tree.BranchID(s.tree.Session, leaf.turn.ID),
		Class:        class(leaf.turn.Committed),
		Label:        class(leaf.turn.Committed),
		Turns:        make([]string, len(path)),
		Grade:        grade,
		GradeReasons: reasons,
		Tokens:       uint32(leaf.end),
	}
	if abandoned[leaf.turn] {
		b.sealed.Label = LabelAbandoned
	}
	for i, v := range path {
		b.sealed.Turns[i] = v.turn.ID
	}
	return b
}

// rewrittenTurns are the turns of a path whose calls the client changed. Where
// none is named, as by older gateways, it is the one before each that is flagged:
// since a changed call stays in the history that may be too many, never too few.
func rewrittenTurns(path []*verdict) map[string]bool {
	out := map[string]bool{}
	named := false
	for i, v := range path {
		match := v.turn.Committed.GetMatch()
		for _, turn := range match.GetRewrittenTurns() {
			out[turn], named = true, true
		}
		if match.GetRewritten() && !named && i > 0 {
			out[path[i-1].turn.ID] = true
		}
	}
	return out
}

// assign gives every turn with trainable tokens to one branch: the one that
// keeps most of them to its end, then one of its own class, then one that is not abandoned,
// then the first. A token is trained once, however many branches share it.
func (s *State) assign(branches []*branch) map[*verdict]owner {
	owners := map[*verdict]owner{}
	for _, b := range branches {
		for i, v := range b.path {
			if v.trainable == 0 {
				continue
			}
			has, known := owners[v]
			if why, no := b.exclude[v]; no {
				if !known {
					owners[v] = owner{why: why}
				}
				continue
			}
			n := v.trainableBefore(b.ends[i])
			if has.branch == nil || cmp.Or(cmp.Compare(n, has.kept), cmp.Compare(b.fit(v), has.branch.fit(v))) > 0 {
				owners[v] = owner{branch: b, kept: n}
			}
		}
	}
	return owners
}

// fit says how well a turn's tokens are at home on the branch.
func (b *branch) fit(v *verdict) int {
	fit := 0
	if b.sealed.Class == class(v.turn.Committed) {
		fit += 2
	}
	if b.sealed.Label != LabelAbandoned {
		fit++
	}
	return fit
}

// sealBranch fills in what depends on the other branches.
func (s *State) sealBranch(b *branch, owners map[*verdict]owner) {
	for _, v := range b.path {
		if v.trainable == 0 {
			continue
		}
		o := owners[v]
		if o.branch == b {
			b.sealed.Trainable += uint32(v.trainable)
			continue
		}
		b.sealed.Shared = append(b.sealed.Shared, v.turn.ID)
		if o.branch == nil {
			if b.sealed.Excluded == nil {
				b.sealed.Excluded = map[string]string{}
			}
			b.sealed.Excluded[v.turn.ID] = o.why
		}
	}
}

// ledger accounts for every id that the session's log holds up to its close.
func (s *State) ledger(owners map[*verdict]owner) *event.Ledger {
	l := &event.Ledger{Generated: s.Generated(), Masked: map[string]uint64{}, Lost: s.lostCopy()}
	for _, v := range s.turns {
		for why, n := range v.masked {
			l.Masked[why] += uint64(n)
		}
		if v.trainable == 0 {
			continue
		}
		o := owners[v]
		if o.branch == nil {
			l.Masked[o.why] += uint64(v.trainable)
			continue
		}
		l.Trainable += uint64(v.trainable)
	}
	return l
}

func (s *State) lostCopy() map[string]uint64 {
	m := make(map[string]uint64, len(s.lost))
	for why, n := range s.lost {
		m[why] = n
	}
	return m
}
