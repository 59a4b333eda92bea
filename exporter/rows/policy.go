package rows

import (
	"slices"

	"turnlog.dev/schema/event"
)

// Policy says which rows of a session are wanted. The zero Policy wants all.
type Policy struct {
	// Grades and Classes that are wanted; empty is all. Grade X is never.
	Grades  []string
	Classes []string
	// Bounds of a row's length in tokens; 0 is none.
	MinTokens, MaxTokens int
	// Bounds of the reward; a row without one passes.
	MinReward, MaxReward *float64
	// MinVersion is the oldest weight version of a trainable token; an unknown
	// one passes.
	MinVersion *int64
	// KeepTail keeps the context after the last turn that is trained.
	KeepTail bool
}

// Reasons why a row is left out, as Result counts them.
const (
	Untrainable = "untrainable"
	ByGrade     = "grade"
	ByClass     = "class"
	ByLength    = "length"
	ByReward    = "reward"
	ByVersion   = "version"
)

// branch returns why no row of a branch is wanted, or nothing.
func (p Policy) branch(b *event.BranchSealed) string {
	grade := gradeName(b.Grade)
	switch {
	case b.Grade == event.Grade_GRADE_X || len(p.Grades) > 0 && !slices.Contains(p.Grades, grade):
		return ByGrade
	case len(p.Classes) > 0 && !slices.Contains(p.Classes, b.Class):
		return ByClass
	}
	return ""
}

// row returns why a row is not wanted, or nothing.
func (p Policy) row(r *Row) string {
	length := int(r.Length)
	switch {
	case length < p.MinTokens || p.MaxTokens > 0 && length > p.MaxTokens:
		return ByLength
	case r.Reward != nil && (p.MinReward != nil && float64(*r.Reward) < *p.MinReward ||
		p.MaxReward != nil && float64(*r.Reward) > *p.MaxReward):
		return ByReward
	case r.VersionMin != nil && p.MinVersion != nil && *r.VersionMin < *p.MinVersion:
		return ByVersion
	}
	return ""
}

// gradeName is A, B, C, D or X; a grade that this program does not know is X.
func gradeName(g event.Grade) string {
	switch g {
	case event.Grade_GRADE_A:
		return "A"
	case event.Grade_GRADE_B:
		return "B"
	case event.Grade_GRADE_C:
		return "C"
	case event.Grade_GRADE_D:
		return "D"
	default:
		return "X"
	}
}
