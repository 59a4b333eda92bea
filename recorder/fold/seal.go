package fold

import (
	"cmp"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/tree"
)

// step is a turn while its session is sealed.
type step struct {
	*verdict
	parent *step
	// path is the grading of the whole path down to here.
	path      grading
	abandoned bool

	// owner is the branch that trains the turn, nil if none does, and why not. kept
	// counts the turn's trainable tokens that later turns of the branch keep.
	owner *branch
	kept  int
	why   string
	// told is set once a seal has said so.
	told bool
}

// branch is a path from a root to a turn that no turn of its class goes on from.
// A side request that extends the main line so does not hide where the main line
// ends. Its steps hang together by their parents: many branches of a long session
// take no more memory than its turns.
type branch struct {
	leaf      *step
	sealed    *event.BranchSealed
	rewritten map[string]bool
}

// seal closes the session: all branches, then the seal.
func (s *State) seal() []*event.Output {
	steps, branches := s.branches()
	for _, b := range branches {
		s.claim(b)
	}
	ledger := s.ledger(steps)

	var out []*event.Output
	for _, b := range branches {
		b.share()
		out = append(out, &event.Output{Output: &event.Output_BranchSealed{BranchSealed: b.sealed}})
	}
	reason := s.tree.Closed.GetReason()
	s.sealed = &event.SessionSealed{
		Status:   s.status(reason, steps),
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
func (s *State) status(reason string, steps []*step) string {
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
	for _, st := range steps {
		if n := st.turn; class(n.Committed) == ClassMain && !st.abandoned && (last == nil || byArrival(last, n) < 0) {
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

// branches lists all turns and all branches, siblings by arrival.
func (s *State) branches() ([]*step, []*branch) {
	var steps []*step
	var branches []*branch
	abandoned, continued := s.abandoned(), s.continued()
	var walk func(siblings []*tree.Turn, parent *step)
	walk = func(siblings []*tree.Turn, parent *step) {
		for _, n := range slices.SortedFunc(slices.Values(siblings), byArrival) {
			st := &step{verdict: s.turns[n.ID], parent: parent, abandoned: abandoned[n]}
			if parent != nil {
				st.path = parent.path
			}
			st.path.extend(st.verdict)
			steps = append(steps, st)
			if !continued[n] {
				branches = append(branches, s.branch(st))
			}
			walk(n.Children, st)
		}
	}
	walk(s.tree.Roots, nil)
	return steps, branches
}

// extend adds what was found of another turn to the grading of a path.
func (g *grading) extend(v *verdict) {
	g.grade = max(g.grade, v.grade)
	for _, r := range v.reasons {
		if !slices.Contains(g.reasons, r) {
			g.reasons = append(slices.Clip(g.reasons), r) // others have what it was
		}
	}
}

func (s *State) branch(leaf *step) *branch {
	g := grading{grade: leaf.path.grade, reasons: slices.Clone(leaf.path.reasons)}
	grade, reasons := g.result()
	b := &branch{leaf: leaf, sealed: &event.BranchSealed{
		Branch:       tree.BranchID(s.tree.Session, leaf.turn.ID),
		Class:        class(leaf.turn.Committed),
		Label:        class(leaf.turn.Committed),
		Leaf:         leaf.turn.ID,
		Grade:        grade,
		GradeReasons: reasons,
		Tokens:       uint32(leaf.end),
	}}
	if leaf.abandoned {
		b.sealed.Label = LabelAbandoned
	}
	if s.policy.RewrittenCalls == Mask {
		b.rewritten = rewrittenTurns(leaf.turn.Path())
	}
	return b
}

// excluded returns why a turn is not trained on a branch, or "".
func (s *State) excluded(b *branch, st *step) string {
	switch {
	case b.sealed.Grade == event.Grade_GRADE_X:
		return MaskGradeX
	case b.rewritten[st.turn.ID]:
		return MaskRewrittenCall
	// A side request may have extended it: it is no less abandoned there.
	case st.abandoned && s.policy.Abandoned == Mask:
		return MaskAbandoned
	case s.undelivered(st.turn) && s.policy.Undelivered == Mask:
		return MaskUndelivered
	}
	return ""
}

// rewrittenTurns are the turns of a path whose calls the client changed. Where
// none is named, as by older gateways, it is the one before each that is flagged:
// since a changed call stays in the history that may be too many, never too few.
func rewrittenTurns(path []*tree.Turn) map[string]bool {
	out := map[string]bool{}
	named := false
	for i, n := range path {
		match := n.Committed.GetMatch()
		for _, turn := range match.GetRewrittenTurns() {
			out[turn], named = true, true
		}
		if match.GetRewritten() && !named && i > 0 {
			out[path[i-1].ID] = true
		}
	}
	return out
}

// claim gives a branch the turns of its path with trainable tokens, unless a
// branch before it has a better claim. A turn goes to the branch that keeps most of
// its tokens to its end, then to one of its own class, then to one that is not
// abandoned, then to the first. A token is trained once, however many branches
// share it.
func (s *State) claim(b *branch) {
	// Up to end, the ids of a turn are still there: a later turn may keep less.
	end := b.leaf.end
	for st := b.leaf; st != nil; st = st.parent {
		kept := st.trainableBefore(min(end, st.end))
		end = min(end, st.keep)
		if st.trainable == 0 {
			continue
		}
		if why := s.excluded(b, st); why != "" {
			if st.owner == nil && st.why == "" {
				st.why = why
			}
			continue
		}
		if st.owner == nil || cmp.Or(cmp.Compare(kept, st.kept), cmp.Compare(b.fit(st), st.owner.fit(st))) > 0 {
			st.owner, st.kept = b, kept
		}
	}
}

// fit says how well a turn's tokens are at home on the branch.
func (b *branch) fit(st *step) int {
	fit := 0
	if b.sealed.Class == class(st.turn.Committed) {
		fit += 2
	}
	if b.sealed.Label != LabelAbandoned {
		fit++
	}
	return fit
}

// share fills in what depends on the other branches, once all have claimed.
func (b *branch) share() {
	var trained []byte
	for st := b.leaf; st != nil; st = st.parent {
		mark := byte(0)
		switch {
		case st.trainable == 0:
		case st.owner == b:
			b.sealed.Trainable += uint32(st.trainable)
			mark = 1
		case st.owner == nil && !st.told:
			st.told = true
			if b.sealed.Excluded == nil {
				b.sealed.Excluded = map[string]string{}
			}
			b.sealed.Excluded[st.turn.ID] = st.why
		}
		trained = append(trained, mark)
	}
	slices.Reverse(trained)
	b.sealed.TrainRuns = event.TrainRuns(trained)
}

// ledger accounts for every id that the session's log holds up to its close.
func (s *State) ledger(steps []*step) *event.Ledger {
	l := &event.Ledger{Generated: s.Generated(), Masked: map[string]uint64{}, Lost: s.lostCopy()}
	for _, st := range steps {
		for why, n := range st.masked {
			l.Masked[why] += uint64(n)
		}
		switch {
		case st.trainable == 0:
		case st.owner == nil:
			l.Masked[st.why] += uint64(st.trainable)
		default:
			l.Trainable += uint64(st.trainable)
		}
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
