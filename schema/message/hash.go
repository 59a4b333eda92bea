package message

import (
	"crypto/sha256"
	"hash"
)

// HashVersion changes whenever the same conversation would hash differently.
const HashVersion = 1

// Hash identifies a message or a head by what it means to a model.
type Hash [sha256.Size]byte

// Hash returns the identity of a message for matching histories. What a client
// may change without changing what the model reads does not count: a text and
// a list of one text part are the same, null content and empty text are the
// same, and an assistant's calls count by their ids alone, since clients respell
// arguments but return ids. Reasoning does not count either: most clients drop
// it. The session compares both itself and names the difference.
func (m Message) Hash() Hash {
	h := newHasher('m')
	h.text(string(m.Role))
	h.content(m.Content)
	for _, c := range m.Calls {
		h.text(c.ID)
	}
	h.text(m.CallID)
	if m.Role != Tool {
		h.text(m.Name)
	}
	return h.sum()
}

// Hash returns the identity of a head: system messages by their text, tools by
// their bytes.
func (head Head) Hash() Hash {
	h := newHasher('h')
	for _, m := range head.System {
		// Developer is another spelling of system.
		h.content(m.Content)
	}
	h.sep()
	for _, t := range head.Tools {
		h.text(string(t.Raw))
	}
	return h.sum()
}

// Chain binds the hash of a message to everything before it.
func Chain(prev, next Hash) Hash {
	h := newHasher('c')
	h.h.Write(prev[:])
	h.h.Write(next[:])
	return h.sum()
}

// hasher writes length-prefixed fields, so that no two lists of fields give
// the same bytes.
type hasher struct{ h hash.Hash }

func newHasher(domain byte) hasher {
	h := hasher{sha256.New()}
	h.h.Write([]byte{HashVersion, domain})
	return h
}

func (h hasher) text(s string) {
	n := len(s)
	h.h.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	h.h.Write([]byte(s))
}

func (h hasher) sep() { h.h.Write([]byte{0xff, 0xff, 0xff, 0xff}) }

func (h hasher) content(c Content) {
	if c.Form == List {
		text := c.OnlyText()
		if text && len(c.Parts) <= 1 {
			h.text(c.String())
			return
		}
		for _, p := range c.Parts {
			if p.Raw != nil {
				h.text(string(p.Raw))
			} else {
				h.text(p.Text)
			}
		}
		h.sep()
		return
	}
	h.text(c.Text)
}

func (h hasher) sum() (out Hash) {
	h.h.Sum(out[:0])
	return out
}
