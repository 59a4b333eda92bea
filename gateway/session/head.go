package session

import (
	"bytes"
	"fmt"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
)

// Head is a head that the session's log holds.
type Head struct {
	Hash message.Hash
	// System and Tools are the hashes of its definitions; nil where it has
	// none.
	System, Tools []byte

	system []message.Message
	tools  []message.Definition
}

// readHead takes a turn's head from the definitions in the log.
func readHead(c *event.Conversation, t *tree.Tree) (*Head, error) {
	h := &Head{System: c.GetSystem(), Tools: c.GetTools()}
	copy(h.Hash[:], c.GetHead())
	if h.System != nil {
		raw, ok := t.Definition(h.System)
		if !ok {
			return nil, fmt.Errorf("no definition of the system messages %x", h.System)
		}
		var err error
		if h.system, err = message.ParseList(raw); err != nil {
			return nil, err
		}
	}
	if h.Tools != nil {
		raw, ok := t.Definition(h.Tools)
		if !ok {
			return nil, fmt.Errorf("no definition of the tools %x", h.Tools)
		}
		var err error
		if h.tools, err = message.ParseTools(raw); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// same reports whether a request's head is surely this one, to the byte.
func (h *Head) same(other message.Head) bool {
	return h != nil &&
		slices.EqualFunc(h.system, other.System, func(a, b message.Message) bool {
			return a.Role == b.Role && a.Name == b.Name && bytes.Equal(a.Extra, b.Extra) &&
				a.Content.Form == b.Content.Form && plain(a.Content) && plain(b.Content) &&
				a.Content.String() == b.Content.String()
		}) &&
		slices.EqualFunc(h.tools, other.Tools, func(a, b message.Definition) bool { return bytes.Equal(a.Raw, b.Raw) })
}

// Head returns the head of a request if a turn of the log has it, or nil.
func (s *Session) Head(head message.Head) *Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known(head)
}

// known compares, which costs less than hashing: nearly always it is the latest
// turn's head, and seldom are there many.
func (s *Session) known(head message.Head) *Head {
	if n := len(s.tree.Turns); n > 0 {
		if h := s.heads[s.nodes[s.tree.Turns[n-1]].head]; h.same(head) {
			return h
		}
	}
	for _, h := range s.heads {
		if h.same(head) {
			return h
		}
	}
	return nil
}

// headHash is head.Hash.
func (s *Session) headHash(head message.Head) message.Hash {
	if h := s.known(head); h != nil {
		return h.Hash
	}
	return head.Hash()
}
