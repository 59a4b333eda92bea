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

// abandoned returns the turns that the agent did not go on from although it
// could have. Of turns that continue the same parent, or roots with the same
// prompt, in one class and thread:
//
//   - if any was gone on from, those that were not are abandoned (a retry, a
//     rewind);
//   - else, if some could not be delivered and others could, those that could
//     not are abandoned;
//   - else none is: they are samples of the same step, which is legal.
func (s *State) abandoned() map[*tree.Turn]bool {
	groups := map[rivals][]*tree.Turn{}
	for _, n := range s.tree.Turns {
		k := rivals{parent: n.Parent, class: class(n.Committed), thread: n.Committed.GetRequest().GetThread()}
		if n.Parent == nil && len(s.tree.Roots) > 1 {
			k.prompt = s.promptHash(n)
		}
		groups[k] = append(groups[k], n)
	}
	out := map[*tree.Turn]bool{}
	for _, siblings := range groups {
		if len(siblings) < 2 {
			continue
		}
		var goneOn, delivered bool
		for _, n := range siblings {
			goneOn = goneOn || wentOn(n)
			delivered = delivered || !s.undelivered(n)
		}
		for _, n := range siblings {
			out[n] = !wentOn(n) && (goneOn || delivered && s.undelivered(n))
		}
	}
	return out
}

// wentOn reports whether the agent went on from a turn. A side request or a
// probe that extends another class's turn only looks at it.
func wentOn(n *tree.Turn) bool {
	return slices.ContainsFunc(n.Children, func(c *tree.Turn) bool {
		k := class(c.Committed)
		return k == class(n.Committed) || k != ClassSide && k != ClassProbe
	})
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
