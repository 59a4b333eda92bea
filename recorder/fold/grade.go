package fold

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// grading collects why a turn is not of grade A.
type grading struct {
	policy  map[string]Letter
	grade   event.Grade
	reasons []string
}

func (g *grading) add(grade event.Grade, reason string) {
	if l, ok := g.policy[reason]; ok {
		grade = letters[l]
	} else if name, _, named := strings.Cut(reason, ":"); named {
		if l, ok := g.policy[name+":"]; ok {
			grade = letters[l]
		}
	}
	g.grade = max(g.grade, grade)
	if !slices.Contains(g.reasons, reason) {
		g.reasons = append(g.reasons, reason)
	}
}

func (g *grading) b(reason string) { g.add(event.Grade_GRADE_B, reason) }
func (g *grading) c(reason string) { g.add(event.Grade_GRADE_C, reason) }
func (g *grading) d(reason string) { g.add(event.Grade_GRADE_D, reason) }
func (g *grading) x(reason string) { g.add(event.Grade_GRADE_X, reason) }

// result is the grade, and all reasons in a fixed order.
func (g *grading) result() (event.Grade, []string) {
	slices.Sort(g.reasons)
	return max(g.grade, event.Grade_GRADE_A), g.reasons
}

// gradeTurn judges the evidence of a turn, but for what the arrays of its
// completion show.
func (s *State) gradeTurn(n *tree.Turn, g *grading) {
	c := n.Committed
	comp, gen, match := c.GetCompletion(), c.GetGeneration(), c.GetMatch()

	switch proof := gen.GetProof(); {
	case n.PromptLen == 0, proof == event.PromptProof_PROMPT_PROOF_NONE, proof == event.PromptProof_PROMPT_PROOF_UNSPECIFIED:
		g.d(ReasonTextIn)
	case int(gen.GetPromptTokens()) != n.PromptLen && (gen.GetPromptTokens() != 0 || proof == event.PromptProof_PROMPT_PROOF_COUNT):
		g.x(ReasonPromptCount)
	case proof == event.PromptProof_PROMPT_PROOF_COUNT:
		g.b(ReasonProofCount)
	case proof != event.PromptProof_PROMPT_PROOF_ECHO:
		g.d(ReasonProofUnknown)
	}
	if len(comp.GetIds()) == 0 {
		// What cannot be read is found by whoever needs it.
		if text, _ := n.Written(); text != "" {
			g.d(ReasonTextOut)
		}
	}
	for _, t := range match.GetTolerances() {
		g.b(ReasonTolerance + t)
	}
	if match.GetAmbiguous() {
		g.c(ReasonAmbiguous)
	}
	if match.GetRewritten() {
		g.c(ReasonRewrittenCall)
	}
	for _, k := range gen.GetConstraints() {
		g.c(ReasonConstrained + k)
	}
	if len(comp.GetIds()) > 0 && greedy(c.GetRequest().GetSamplingUsed()) {
		g.c(ReasonGreedy)
	}
	if n.Parent != nil && n.Keep > 0 {
		before := n.Parent.Committed.GetGeneration()
		if differ(before.GetTokenizer(), gen.GetTokenizer()) {
			g.x(ReasonTokenizerChanged)
		}
		if differ(before.GetTemplate(), gen.GetTemplate()) {
			g.b(ReasonTemplateChanged)
		}
	}
	s.audit(n, g)
}

func differ(a, b string) bool { return a != "" && b != "" && a != b }

// greedy reports sampling that had no choice: its logprobs are of another
// distribution than the one that a trainer would compute.
func greedy(sampling []byte) bool {
	if len(sampling) == 0 {
		return false
	}
	var p struct {
		Temperature *float64 `json:"temperature"`
		TopK        *float64 `json:"top_k"`
	}
	if json.Unmarshal(sampling, &p) != nil {
		return false
	}
	return p.Temperature != nil && *p.Temperature == 0 || p.TopK != nil && *p.TopK == 1
}

// logprobs returns those of the sampled ids, or nil when they are missing or
// cannot be trusted: a made-up 0 would look like certainty.
func logprobs(c *event.Completion, sampled int, g *grading) []byte {
	if sampled == 0 {
		return nil
	}
	lp := c.GetLogprobs()
	switch {
	case len(lp) == 0:
		g.d(ReasonNoLogprobs)
		return nil
	case len(lp) != 4*sampled:
		g.x(ReasonLogprobCount)
		return nil
	case !finite(lp):
		g.d(ReasonLogprobNotFinite)
		return nil
	}
	switch c.GetLogprobKind() {
	case event.LogprobKind_LOGPROB_KIND_RAW, event.LogprobKind_LOGPROB_KIND_PROCESSED:
	default:
		g.c(ReasonLogprobKind)
	}
	return lp
}

// finite reports whether all float32 values in b are numbers: neither NaN nor
// infinite, which have all exponent bits set.
func finite(b []byte) bool {
	const exponent = 0x7f800000
	for ; len(b) >= 4; b = b[4:] {
		if binary.LittleEndian.Uint32(b)&exponent == exponent {
			return false
		}
	}
	return true
}

// versions gives each sampled id its weight version, as far as the engine's
// labels have numbers.
func (s *State) versions(c *event.Completion, sampled int, g *grading) []*event.VersionRun {
	if sampled == 0 {
		return nil
	}
	count := 0
	for _, v := range c.GetVersions() {
		count += int(v.GetCount())
	}
	switch {
	case count == 0:
		g.c(ReasonVersionUnknown)
		return nil
	case count != sampled:
		g.x(ReasonVersionCount)
		return nil
	}
	numbers := make([]int32, 0, sampled)
	for _, span := range c.GetVersions() {
		n, ok := s.version(span.GetLabel())
		if !ok {
			g.c(ReasonVersionUnknown)
			n = event.NoVersion
		}
		for range span.GetCount() {
			numbers = append(numbers, n)
		}
	}
	return event.VersionRuns(numbers)
}

// version is the number of a label: itself, or what the run says.
func (s *State) version(label string) (int32, bool) {
	if n, err := strconv.ParseInt(label, 10, 32); err == nil && n >= 0 && n <= math.MaxInt32 {
		return int32(n), true
	}
	if s.aids.Version == nil || label == "" {
		return -1, false
	}
	return s.aids.Version(s.tree.Run, label)
}
