package fold

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// Drift is how a prompt differs from the same conversation rendered afresh.
type Drift string

// Kinds of drift. Of a prompt only the first difference is classified that is no
// split: what follows it is usually its echo.
const (
	// DriftNone: the same ids.
	DriftNone Drift = ""
	// DriftSplit: the same text in other tokens, where the model sampled it.
	// Expected, and the reason why ids are recorded.
	DriftSplit Drift = "split"
	// DriftRespelled: an assistant message has other text, or other control
	// tokens where the model sampled it, than the template would write for it.
	DriftRespelled Drift = "respelled"
	// DriftSpecial: a control token is missing, added or another.
	DriftSpecial Drift = "special_token"
	// DriftBoundary: the text between an answer and the next message.
	DriftBoundary Drift = "boundary"
	// DriftContextSplit: the same text in other tokens, outside of answers.
	DriftContextSplit Drift = "context_split"
	// DriftContext: other text, outside of answers.
	DriftContext Drift = "context"
	// DriftNotRendered: it could not be rendered here.
	DriftNotRendered Drift = "not_rendered"
)

// Audit renders the prompt of a turn from scratch and says how what was
// recorded differs. It heals nothing.
func (s *State) Audit(turn *tree.Turn) (Drift, error) {
	m, err := s.model(turn.Committed)
	if err != nil {
		return DriftNone, err
	}
	fresh, err := s.render(turn, m)
	if err != nil {
		return DriftNone, err
	}
	return s.classify(turn, m, flat(fresh)), nil
}

// Audited counts the turns that were audited, by their drift.
func (s *State) Audited() map[Drift]int { return s.audited }

// audit grades the turn by its drift, if the policy's sample holds it.
func (s *State) audit(n *tree.Turn, g *grading) {
	if s.aids.Models == nil || n.PromptLen == 0 || !s.sampledForAudit(n.ID) {
		return
	}
	drift, err := s.Audit(n)
	if err != nil {
		drift = DriftNotRendered
	}
	s.audited[drift]++
	switch {
	case drift == DriftNone, drift == DriftSplit:
	case drift == DriftRespelled:
		g.c(ReasonAuditSampled + string(drift))
	default:
		g.b(ReasonAuditContext + string(drift))
	}
}

// sampledForAudit picks turns by their id, so that a replay audits the same.
func (s *State) sampledForAudit(turn string) bool {
	h := sha256.Sum256([]byte(turn))
	return float64(binary.BigEndian.Uint32(h[:])) < s.policy.Audit*(1<<32)
}

// classify compares a prompt with a fresh render. Answers that the model split
// otherwise are passed over, each up to the control token that ends it: they
// are expected, and what lies behind them must be seen all the same.
func (s *State) classify(n *tree.Turn, m Model, fresh []uint32) Drift {
	recorded := n.PromptIDs(nil)
	found := DriftNone
	for at, to, aligned := 0, 0, 0; ; {
		for at < len(recorded) && to < len(fresh) && recorded[at] == fresh[to] {
			at++
			to++
		}
		if at == len(recorded) && to == len(fresh) {
			return found
		}
		d, a, b := s.difference(n, m, recorded, fresh, at, to, aligned)
		if d != DriftSplit {
			return d
		}
		found = DriftSplit
		at, to, aligned = a, b, a
	}
}

// difference classifies a difference at a place of the recorded prompt and one
// of the fresh one, which are alike before it from the place aligned on. It
// returns where the stretch up to the next control token ends in each.
func (s *State) difference(n *tree.Turn, m Model, recorded, fresh []uint32, at, to, aligned int) (d Drift, a, b int) {
	back := 0
	for at-back > aligned && !m.Special(recorded[at-back-1]) {
		back++
	}
	if at-back > aligned {
		back++ // with the control token: some tokenizers drop a space that begins a text
	}
	a, b = nextSpecial(m, recorded, at), nextSpecial(m, fresh, to)
	x, y := m.Decode(recorded[at-back:a]), m.Decode(fresh[to-back:b])
	// What is no text decodes to the same replacement, whatever it is.
	sameText := x == y && !strings.ContainsRune(x, utf8.RuneError)
	ended := at == len(recorded) || to == len(fresh)
	control := func(ids []uint32, i int) bool { return i < len(ids) && m.Special(ids[i]) }
	p := s.provenanceAt(n, at)
	switch {
	case p == event.Provenance_PROVENANCE_SAMPLED && sameText && a > at && b > to:
		last := a - 1
		for i := b - 1; last > at && i > to && recorded[last] == fresh[i]; i-- {
			last--
		}
		if s.provenanceAt(n, last) != event.Provenance_PROVENANCE_SAMPLED {
			return DriftContextSplit, a, b
		}
		return DriftSplit, a, b
	case p == event.Provenance_PROVENANCE_SAMPLED:
		return DriftRespelled, a, b
	case ended, control(recorded, at) && control(fresh, to):
		return DriftSpecial, a, b
	case sameText:
		return DriftContextSplit, a, b
	case p == event.Provenance_PROVENANCE_ASSISTANT_RERENDERED:
		return DriftRespelled, a, b
	case p == event.Provenance_PROVENANCE_BOUNDARY, p == event.Provenance_PROVENANCE_TURN_END:
		return DriftBoundary, a, b
	case control(recorded, at) != control(fresh, to):
		return DriftSpecial, a, b
	default:
		return DriftContext, a, b
	}
}

// nextSpecial is the place of the first control token from a place on.
func nextSpecial(m Model, ids []uint32, from int) int {
	if i := slices.IndexFunc(ids[from:], m.Special); i >= 0 {
		return from + i
	}
	return len(ids)
}

// provenanceAt says where the id at a position of the prompt came from; SAMPLED
// if the model of an earlier turn wrote it.
func (s *State) provenanceAt(n *tree.Turn, at int) event.Provenance {
	for base := n; base != nil; base = s.tree.Turn(base.Committed.GetBase().GetTurn()) {
		pos := int(base.Committed.GetBase().GetKeep())
		if at < pos {
			continue
		}
		for _, seg := range base.Committed.GetSegments() {
			if pos += event.Count(seg.GetIds()); at < pos {
				return seg.GetProvenance()
			}
		}
		return event.Provenance_PROVENANCE_SAMPLED
	}
	return event.Provenance_PROVENANCE_UNSPECIFIED
}
