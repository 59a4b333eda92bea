package fold

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// Drift is how a prompt differs from the same conversation rendered afresh.
type Drift string

// Kinds of drift. Only the first difference is classified: what follows it is
// usually its echo.
const (
	// DriftNone: the same ids.
	DriftNone Drift = ""
	// DriftSplit: the same text in other tokens, where the model sampled it.
	// Expected, and the reason why ids are recorded.
	DriftSplit Drift = "split"
	// DriftRespelled: an assistant message has other text than the template
	// would write for it.
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

func (s *State) classify(n *tree.Turn, m Model, fresh []uint32) Drift {
	recorded := n.PromptIDs(nil)
	if slices.Equal(recorded, fresh) {
		return DriftNone
	}
	at := 0
	for at < min(len(recorded), len(fresh)) && recorded[at] == fresh[at] {
		at++
	}
	// The stretch between control tokens in which the two part.
	from := at
	for from > 0 && !m.Special(recorded[from-1]) {
		from--
	}
	a, b := upToSpecial(m, recorded[from:]), upToSpecial(m, fresh[from:])
	sameText := m.Decode(a) == m.Decode(b)
	switch p := s.provenanceAt(n, at); {
	case at == len(recorded), at == len(fresh), m.Special(recorded[at]) && m.Special(fresh[at]):
		return DriftSpecial
	case p == event.Provenance_PROVENANCE_SAMPLED && sameText:
		return DriftSplit
	case p == event.Provenance_PROVENANCE_SAMPLED, p == event.Provenance_PROVENANCE_ASSISTANT_RERENDERED:
		return DriftRespelled
	case sameText:
		return DriftContextSplit
	case p == event.Provenance_PROVENANCE_BOUNDARY, p == event.Provenance_PROVENANCE_TURN_END:
		return DriftBoundary
	case m.Special(recorded[at]) != m.Special(fresh[at]):
		return DriftSpecial
	default:
		return DriftContext
	}
}

func upToSpecial(m Model, ids []uint32) []uint32 {
	if i := slices.IndexFunc(ids, m.Special); i >= 0 {
		return ids[:i]
	}
	return ids
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
