package fold

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"turnlog.dev/schema/event"
)

// Use says what becomes of sampled tokens.
type Use string

// The uses. A masked token keeps its id, logprob and version; only its mask is
// 0, and the ledger says why.
const (
	Train Use = "train"
	Mask  Use = "mask"
)

// Classes of turns, as the gateway names them.
const (
	ClassMain       = "main"
	ClassSubagent   = "subagent"
	ClassSide       = "side"
	ClassCompaction = "compaction"
	ClassProbe      = "probe"
)

// LabelAbandoned marks a branch with a turn that the session left behind. Every
// other branch is labelled with its class.
const LabelAbandoned = "abandoned"

// Policy decides which sampled tokens are trained. It never decides what is
// recorded.
type Policy struct {
	// Classes says what becomes of the turns of each class. A class that is
	// not listed is masked.
	Classes map[string]Use
	// Abandoned turns: the session left them behind, for others that continue the
	// same turn; and all that descends from them.
	Abandoned Use
	// Undelivered turns: the agent never got the answer, and no other turn
	// continues it.
	Undelivered Use
	// CutOff turns ended for length, not because the model was done.
	CutOff Use
	// RewrittenCalls are turns whose tool call the client changed before it
	// ran it.
	RewrittenCalls Use
	// Reasoning is the part of an answer that is thinking. To mask it needs
	// Aids.Models.
	Reasoning Use
	// MaskFlags lists flags of the reply parser (malformed_call, ...) whose
	// turns are masked.
	MaskFlags []string
	// Grades gives reasons of grade B and C another grade than their own, by
	// code; a code that ends in a colon is for all that begin with it. Reasons
	// of grade D and X say what is missing or broken, and stay.
	Grades map[string]Letter
	// Audit is the share of token-in turns, 0 to 1, whose prompt is rendered
	// again from scratch and compared. It needs Aids.Models.
	Audit float64
}

// Letter is a grade as policies and people write it.
type Letter string

var letters = map[Letter]event.Grade{
	"A": event.Grade_GRADE_A, "B": event.Grade_GRADE_B, "C": event.Grade_GRADE_C,
	"D": event.Grade_GRADE_D, "X": event.Grade_GRADE_X,
}

// Regradable lists the reasons that a policy may grade otherwise.
var Regradable = []string{
	ReasonProofCount, ReasonTolerance, ReasonTemplateChanged, ReasonAuditContext,
	ReasonLogprobKind, ReasonAmbiguous, ReasonRewrittenCall, ReasonConstrained, ReasonGreedy, ReasonVersionUnknown, ReasonAuditSampled,
}

// DefaultPolicy trains what the policy model sampled for the agent's own work:
// main line, sub-agents and compaction; not side requests and probes, and not
// answers that nobody used.
func DefaultPolicy() Policy {
	return Policy{
		Classes: map[string]Use{
			ClassMain: Train, ClassSubagent: Train, ClassCompaction: Train,
			ClassSide: Mask, ClassProbe: Mask,
		},
		Abandoned:      Mask,
		Undelivered:    Mask,
		CutOff:         Train,
		RewrittenCalls: Train,
		Reasoning:      Train,
	}
}

// Validate reports all faults of the policy at once.
func (p Policy) Validate() error {
	var faults []error
	check := func(name string, u Use) {
		if u != Train && u != Mask {
			faults = append(faults, fmt.Errorf("fold: policy: %s is %q, not train or mask", name, u))
		}
	}
	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		check("classes."+class, p.Classes[class])
	}
	check("abandoned", p.Abandoned)
	check("undelivered", p.Undelivered)
	check("cut_off", p.CutOff)
	check("rewritten_calls", p.RewrittenCalls)
	check("reasoning", p.Reasoning)
	for _, reason := range slices.Sorted(maps.Keys(p.Grades)) {
		kind, _, named := strings.Cut(reason, ":")
		if named {
			kind += ":"
		}
		if !slices.Contains(Regradable, kind) {
			faults = append(faults, fmt.Errorf("fold: policy: grades: %q is no reason of grade B or C; those are %s", reason, strings.Join(Regradable, ", ")))
		}
		if _, ok := letters[p.Grades[reason]]; !ok {
			faults = append(faults, fmt.Errorf("fold: policy: grades: %s: %q is none of A, B, C, D, X", reason, p.Grades[reason]))
		}
	}
	if p.Audit < 0 || p.Audit > 1 || p.Audit != p.Audit {
		faults = append(faults, fmt.Errorf("fold: policy: audit is %v, not a share from 0 to 1", p.Audit))
	}
	return errors.Join(faults...)
}
