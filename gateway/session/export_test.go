package session

import "turnlog.dev/schema/message"

// Known is what the index of a session says of a turn.
type Known struct {
	Added   []message.Message
	Answer  message.Message
	Chains  []any // each the key of a history
	Thought bool
}

// Known returns what the index says of every turn, in order.
func (s *Session) Known() (list []Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tree.Turns {
		n := s.nodes[t]
		n.chainAt(n.count())
		k := Known{Added: n.turn.Added, Answer: n.turn.Answer, Thought: n.thought}
		for _, c := range n.chains {
			k.Chains = append(k.Chains, c)
		}
		list = append(list, k)
	}
	return list
}

// Alike reports whether the maps of a session take two messages for the same.
func Alike(a, b message.Message) bool { return keyOfMessage(a) == keyOfMessage(b) }
