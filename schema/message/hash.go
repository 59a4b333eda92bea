package message

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
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
		h.raw(t.Raw)
	}
	return h.sum()
}

// Chain binds the hash of a message to everything before it.
func Chain(prev, next Hash) Hash {
	const fixed = 2
	b := [fixed + 2*sha256.Size]byte{HashVersion, 'c'}
	copy(b[fixed:], prev[:])
	copy(b[fixed+sha256.Size:], next[:])
	return sha256.Sum256(b[:])
}

// hasher gathers length-prefixed fields, so that no two lists of fields give
// the same bytes.
type hasher struct{ buf []byte }

// buffers are those of hashers that are done. Messages are hashed with every
// turn, and some are long.
var buffers = sync.Pool{New: func() any { return new(hasher) }}

// bufferLimit is what a buffer may have grown to and still be kept, in bytes.
const bufferLimit = 1 << 20

func newHasher(domain byte) *hasher {
	h := buffers.Get().(*hasher)
	h.buf = append(h.buf[:0], HashVersion, domain)
	return h
}

func (h *hasher) text(s string) {
	h.buf = append(binary.LittleEndian.AppendUint32(h.buf, uint32(len(s))), s...)
}

func (h *hasher) raw(b []byte) {
	h.buf = append(binary.LittleEndian.AppendUint32(h.buf, uint32(len(b))), b...)
}

func (h *hasher) sep() { h.buf = append(h.buf, 0xff, 0xff, 0xff, 0xff) }

func (h *hasher) content(c Content) {
	if c.Form == List {
		text := c.OnlyText()
		if text && len(c.Parts) <= 1 {
			h.text(c.String())
			return
		}
		for _, p := range c.Parts {
			if p.Raw != nil {
				h.raw(p.Raw)
			} else {
				h.text(p.Text)
			}
		}
		h.sep()
		return
	}
	h.text(c.Text)
}

// sum ends the use of h.
func (h *hasher) sum() Hash {
	out := Hash(sha256.Sum256(h.buf))
	if cap(h.buf) <= bufferLimit {
		buffers.Put(h)
	}
	return out
}
