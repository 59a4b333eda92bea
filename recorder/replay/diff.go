package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// summary is what the trajectory stream says of one session, by what it says
// it of.
type summary struct {
	session  string
	turns    map[string]*event.TurnSpans
	branches map[string]*event.BranchSealed
	excluded map[string]string
	seal     *event.SessionSealed
	faults   []string
	size     int
}

// newSummary is the summary of a session of which nothing is said.
func newSummary(session string) *summary {
	return &summary{session: session, turns: map[string]*event.TurnSpans{}, branches: map[string]*event.BranchSealed{}, excluded: map[string]string{}}
}

// add takes in one update.
func (s *summary) add(u *event.TrajectoryUpdate) {
	for _, o := range u.GetOutputs() {
		switch o := o.GetOutput().(type) {
		case *event.Output_TurnSpans:
			// In the form that is written now: another form is no difference.
			t, _ := o.TurnSpans.Tokens()
			s.turns[t.GetTurn()] = t.TurnSpans
			s.size += 1024 + 4*t.Len
		case *event.Output_BranchSealed:
			s.branches[o.BranchSealed.GetBranch()] = o.BranchSealed
			maps.Copy(s.excluded, o.BranchSealed.GetExcluded())
		case *event.Output_SessionSealed:
			s.seal = o.SessionSealed
		case *event.Output_SessionRestarted:
			*s = *newSummary(s.session)
		case *event.Output_Fault:
			s.faults = append(s.faults, o.Fault.GetReason())
		}
	}
}

// recorded reads the summary of a session from a trajectory stream.
func recorded(ctx context.Context, trajectories journal.Journal, session string) (*summary, error) {
	s := newSummary(session)
	for e, err := range trajectories.ReadSession(ctx, session, journal.Tip{}) {
		if err != nil {
			return nil, fmt.Errorf("recorded session: %w", err)
		}
		s.add(e.Event.GetTrajectoryUpdate())
	}
	return s, nil
}

// bytes estimates the memory that a summary holds, which may be nil.
func (s *summary) bytes() int {
	if s == nil {
		return 0
	}
	return s.size
}

// sealed reports whether all turns and branches are known for good: a session
// that is parked may be released.
func (s *summary) sealed() bool { return s != nil && s.seal != nil && len(s.faults) == 0 }

// letGo forgets turns and branches.
func (s *summary) letGo() {
	clear(s.turns)
	clear(s.branches)
	clear(s.excluded)
	s.size = 0
}

// Row says what becomes of a branch's row.
type Row string

// What can become of a row. Other differences leave it out.
const (
	RowAdded   Row = "added"
	RowRemoved Row = "removed"
	RowChanged Row = "changed"
)

// Change is one difference between two folds of a session.
type Change struct {
	Session string `json:"session"`
	// What is turn, branch or session; ID names the turn or branch.
	What string `json:"what"`
	ID   string `json:"id,omitempty"`
	// Row is set for branches only.
	Row Row `json:"row,omitempty"`
	// Fields are the differences, before and after, in a fixed order.
	Fields []Field `json:"fields"`
}

// Field is one value that differs.
type Field struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Exportable reports whether a branch becomes a row by default: it has
// trainable tokens and a grade from A to C.
func Exportable(b *event.BranchSealed) bool {
	return b.GetTrainable() > 0 && b.GetGrade() <= event.Grade_GRADE_C
}

// details lists the turns, then the branches, that differ, each by id.
func (s *summary) details(after *summary) []Change {
	var out []Change
	changed := map[string]bool{}
	for _, id := range union(s.turns, after.turns) {
		if f := turnFields(s.turns[id], after.turns[id]); len(f) > 0 {
			changed[id] = true
			out = append(out, Change{Session: after.session, What: "turn", ID: id, Fields: f})
		}
	}
	before, later := s.parents(), after.parents()
	for _, id := range union(s.branches, after.branches) {
		b, a := s.place(id, before), after.place(id, later)
		fields := branchFields(b, a)
		turns := a.turns
		if a.BranchSealed == nil {
			turns = b.turns
		}
		touched := slices.ContainsFunc(turns, func(t string) bool { return changed[t] })
		if len(fields) == 0 && !touched {
			continue
		}
		c := Change{Session: after.session, What: "branch", ID: id, Fields: fields}
		switch was, is := Exportable(b.BranchSealed), Exportable(a.BranchSealed); {
		case !was && is:
			c.Row = RowAdded
		case was && !is:
			c.Row = RowRemoved
		case was && is:
			c.Row = RowChanged
		}
		out = append(out, c)
	}
	return out
}

// placed is a branch, nil if there is none, with what its seal says of its turns,
// whichever form it is written in.
type placed struct {
	*event.BranchSealed
	fit string
	// turns are the path; shared those of them that are context although their mask
	// would allow it; excluded those that no branch trains, and why.
	turns, shared, excluded []string
}

// parents has the parent of each turn.
func (s *summary) parents() map[string]string {
	parents := make(map[string]string, len(s.turns))
	for id, t := range s.turns {
		parents[id] = t.GetParent()
	}
	return parents
}

func (s *summary) place(id string, parents map[string]string) placed {
	b := placed{BranchSealed: s.branches[id]}
	if b.BranchSealed == nil {
		return b
	}
	path, err := b.Path(parents)
	b.fit, b.turns = fit(err), path.Turns
	for i, turn := range path.Turns {
		if path.Trained[i] {
			continue
		}
		if len(s.turns[turn].GetMaskRuns()) > 1 {
			b.shared = append(b.shared, turn)
		}
		if why := s.excluded[turn]; why != "" {
			b.excluded = append(b.excluded, turn+"="+why)
		}
	}
	return b
}

// overall lists what differs of the session itself.
func (s *summary) overall(after *summary) []Change {
	if f := sessionFields(s, after); len(f) > 0 {
		return []Change{{Session: after.session, What: "session", Fields: f}}
	}
	return nil
}

func union[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// fields collects differences.
type fields []Field

func (f *fields) text(name, before, after string) {
	if before != after {
		*f = append(*f, Field{name, before, after})
	}
}

func (f *fields) list(name string, before, after []string) {
	if !slices.Equal(before, after) {
		f.text(name, strings.Join(before, " "), strings.Join(after, " "))
	}
}

func (f *fields) number(name string, before, after uint64) {
	f.text(name, fmt.Sprint(before), fmt.Sprint(after))
}

// values compares arrays without showing them: no token belongs in a report.
func values[T comparable](f *fields, name string, before, after []T) {
	if slices.Equal(before, after) {
		return
	}
	at := 0
	for at < min(len(before), len(after)) && before[at] == after[at] {
		at++
	}
	*f = append(*f, Field{name, fmt.Sprintf("%d values", len(before)), fmt.Sprintf("%d values, first other at %d", len(after), at)})
}

func turnFields(b, a *event.TurnSpans) []Field {
	var f fields
	f.text("there", present(b != nil), present(a != nil))
	if b == nil || a == nil || proto.Equal(b, a) {
		return f
	}
	f.text("parent", b.GetParent(), a.GetParent())
	f.number("keep", uint64(b.GetKeep()), uint64(a.GetKeep()))
	was, err1 := b.Tokens()
	is, err2 := a.Tokens()
	if f.text("arrays", fit(err1), fit(err2)); err1 == nil && err2 == nil {
		values(&f, "ids", was.AppendIDs(nil), is.AppendIDs(nil))
		values(&f, "mask", was.AppendMask(nil), is.AppendMask(nil))
		values(&f, "logprobs", logprobs(was), logprobs(is))
		values(&f, "versions", was.AppendVersions(nil), is.AppendVersions(nil))
	}
	f.text("masked", counts(b.GetMasked()), counts(a.GetMasked()))
	f.text("grade", letter(b.GetGrade()), letter(a.GetGrade()))
	f.text("grade_reasons", strings.Join(b.GetGradeReasons(), " "), strings.Join(a.GetGradeReasons(), " "))
	f.text("spans", tiles(b.GetSpans()), tiles(a.GetSpans()))
	if len(f) == 0 {
		f.text("other", "recorded", "differs")
	}
	return f
}

func logprobs(t event.Tokens) []float32 {
	if !t.HasLogprobs() {
		return nil
	}
	return t.AppendLogprobs(nil)
}

func fit(err error) string {
	if err != nil {
		return "malformed"
	}
	return "fit"
}

func branchFields(b, a placed) []Field {
	var f fields
	f.text("there", present(b.BranchSealed != nil), present(a.BranchSealed != nil))
	f.text("label", b.GetLabel(), a.GetLabel())
	f.text("class", b.GetClass(), a.GetClass())
	f.text("grade", letter(b.GetGrade()), letter(a.GetGrade()))
	f.text("grade_reasons", strings.Join(b.GetGradeReasons(), " "), strings.Join(a.GetGradeReasons(), " "))
	f.number("tokens", uint64(b.GetTokens()), uint64(a.GetTokens()))
	f.number("trainable", uint64(b.GetTrainable()), uint64(a.GetTrainable()))
	f.text("path", b.fit, a.fit)
	f.list("turns", b.turns, a.turns)
	f.list("shared", b.shared, a.shared)
	f.list("excluded", b.excluded, a.excluded)
	return f
}

func sessionFields(before, after *summary) []Field {
	var f fields
	b, a := before.seal, after.seal
	f.text("sealed", present(b != nil), present(a != nil))
	f.text("status", b.GetStatus(), a.GetStatus())
	f.text("reason", b.GetReason(), a.GetReason())
	f.text("faults", strings.Join(before.faults, " "), strings.Join(after.faults, " "))
	f.number("generated", b.GetLedger().GetGenerated(), a.GetLedger().GetGenerated())
	f.number("trainable", b.GetLedger().GetTrainable(), a.GetLedger().GetTrainable())
	f.text("masked", counts(b.GetLedger().GetMasked()), counts(a.GetLedger().GetMasked()))
	f.text("lost", counts(b.GetLedger().GetLost()), counts(a.GetLedger().GetLost()))
	return f
}

func present(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func letter(g event.Grade) string { return strings.TrimPrefix(g.String(), "GRADE_") }

func counts[V any](m map[string]V) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return strings.Join(parts, " ")
}

func tiles(spans []*event.Span) string {
	var parts []string
	for _, s := range spans {
		parts = append(parts, fmt.Sprintf("%s=%d", strings.ToLower(strings.TrimPrefix(s.GetProvenance().String(), "PROVENANCE_")), s.GetCount()))
	}
	return strings.Join(parts, " ")
}
