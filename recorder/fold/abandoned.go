package fold

import (
	"crypto/sha256"
	"slices"

	"turnlog.dev/schema/tree"
)

// rivals names turns that could have been the same step of the same actor.
type rivals struct {
	parent        *tree.Turn
	class, thread string
	// prompt tells roots apart, which have no parent to share.
	prompt [sha256.Size]byte
}

// abandoned returns the turns that the session left behind, and all that descends
// from them. Turns that continue the same parent, or roots with the same prompt, in
// one class and thread, are rivals; the line of a turn is the turn and what the
// agent went on to from it.
//
//   - A rival that was not gone on from is abandoned if another was, unless it was
//     asked for after the whole line of each such: then the agent came back to it.
//   - One that was gone on from is abandoned if the agent came back to the parent
//     after its whole line, to ask otherwise or again: the match of that turn says
//     so. A turn whose history was rewritten continues this line under another
//     prefix, and lines that overlap in time are samples beside each other. So are
//     roots, whenever: there is no turn that the session came back to.
//   - If none was gone on from and some could not be delivered but others could,
//     those that could not are abandoned. The others are samples of one last step.
//
// An answer that the agent never got is abandoned wherever a rival was gone on
// from, and shows nothing about the others.
func (s *State) abandoned() map[*tree.Turn]bool {
	groups := map[rivals][]*tree.Turn{}
	for _, n := range s.tree.Turns {
		k := rivals{parent: n.Parent, class: class(n.Committed), thread: n.Committed.GetRequest().GetThread()}
		if n.Parent == nil && len(s.tree.Roots) > 1 {
			k.prompt = s.promptHash(n)
		}
		groups[k] = append(groups[k], n)
	}
	ends := s.lineEnds()
	out := map[*tree.Turn]bool{}
	for _, siblings := range groups {
		if len(siblings) > 1 {
			s.leave(siblings, ends, out)
		}
	}
	for _, n := range s.tree.Turns { // parents stand before their children
		if n.Parent != nil && out[n.Parent] {
			out[n] = true
		}
	}
	return out
}

// leave marks those of some rivals that are abandoned.
func (s *State) leave(siblings []*tree.Turn, ends map[*tree.Turn]int64, out map[*tree.Turn]bool) {
	// Of the rivals that the agent got: when it last came back to ask for one, and
	// where the last line of those that were gone on from ends.
	var goneOn, delivered bool
	var back, lastEnd int64
	for _, n := range siblings {
		if !s.undelivered(n) {
			delivered = true
			if cameBack(n) {
				back = max(back, received(n))
			}
		}
		if wentOn(n) {
			goneOn, lastEnd = true, max(lastEnd, ends[n])
		}
	}
	for _, n := range siblings {
		switch {
		case s.undelivered(n):
			out[n] = delivered
		case wentOn(n):
			out[n] = n.Parent != nil && back > ends[n]
		default:
			out[n] = goneOn && (n.Parent == nil || received(n) <= lastEnd)
		}
	}
}

// lineEnds returns when the last request of each turn's line was received.
func (s *State) lineEnds() map[*tree.Turn]int64 {
	ends := make(map[*tree.Turn]int64, len(s.tree.Turns))
	for _, n := range slices.Backward(s.tree.Turns) { // children before their parents
		ends[n] = max(ends[n], received(n))
		if n.Parent != nil && goesOn(n) {
			ends[n.Parent] = max(ends[n.Parent], ends[n])
		}
	}
	return ends
}

// cameBack reports a turn that was asked for at a turn which had been continued
// before, with nothing else in its history.
func cameBack(n *tree.Turn) bool {
	reason := n.Committed.GetMatch().GetReason()
	return reason == reasonRewind || reason == reasonResample
}

// Reasons of a match, as gateways write them.
const (
	reasonRewind   = "rewind"
	reasonResample = "resample"
)

func received(n *tree.Turn) int64 { return n.Committed.GetRequest().GetReceivedUs() }

// wentOn reports whether the agent went on from a turn.
func wentOn(n *tree.Turn) bool { return slices.ContainsFunc(n.Children, goesOn) }

// goesOn reports whether a turn goes on from its parent. A side request or a probe
// that extends another class's turn only looks at it.
func goesOn(n *tree.Turn) bool {
	k := class(n.Committed)
	return k == class(n.Parent.Committed) || k != ClassSide && k != ClassProbe
}

// undelivered reports a turn whose answer the agent never got. Whatever
// continues it, with its answer in the history, proves that it did.
func (s *State) undelivered(n *tree.Turn) bool {
	return s.tree.Undelivered[n.ID] && len(n.Children) == 0
}

func (s *State) promptHash(n *tree.Turn) [sha256.Size]byte {
	if v := s.turns[n.ID]; v.prompt > 0 {
		return sha256.Sum256(s.prefix(n, v.prompt))
	}
	// A text turn that nobody could tokenize is like no other.
	return sha256.Sum256([]byte(n.ID))
}
