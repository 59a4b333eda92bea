package session

import "turnlog.dev/schema/message"

// Known is what the index of a session says of a turn.
type Known struct {
	Added   []message.Message
	Answer  message.Message
	Chains  []message.Hash
	Thought bool
}

// Known returns what the index says of every turn, in order.
func (s *Session) Known() (list []Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tree.Turns {
		n := s.nodes[t]
		n.chainAt(n.count())
		list = append(list, Known{n.turn.Added, n.turn.Answer, n.chains, n.thought})
	}
	return list
}
