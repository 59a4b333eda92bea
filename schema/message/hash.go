package message

import (
	"crypto/sha256"
	"encoding/binary"
)

// HashVersion changes whenever the same head would hash differently.
const HashVersion = 1

// Hash identifies a head by what it means to a model.
type Hash [sha256.Size]byte

// Hash returns the identity of a head, under which the log knows it: system
// messages by their text, tools by their bytes.
func (head Head) Hash() Hash {
	h := hasher{HashVersion, 'h'}
	for _, m := range head.System {
		// Developer is another spelling of system.
		h.content(m.Content)
	}
	h.sep()
	for _, t := range head.Tools {
		h.field(t.Raw)
	}
	return sha256.Sum256(h)
}

// hasher gathers length-prefixed fields, so that no two lists of fields give
// the same bytes.
type hasher []byte

func (h *hasher) field(b []byte) {
	*h = append(binary.LittleEndian.AppendUint32(*h, uint32(len(b))), b...)
}

func (h *hasher) sep() { *h = append(*h, 0xff, 0xff, 0xff, 0xff) }

// content counts a text and a list of one text part as the same, and null content
// and empty text.
func (h *hasher) content(c Content) {
	if c.Form != List || c.OnlyText() && len(c.Parts) <= 1 {
		h.field([]byte(c.String()))
		return
	}
	for _, p := range c.Parts {
		if p.Raw != nil {
			h.field(p.Raw)
		} else {
			h.field([]byte(p.Text))
		}
	}
	h.sep()
}
