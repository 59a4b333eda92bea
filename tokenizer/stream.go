package tokenizer

import "unicode/utf8"

// Stream decodes ids as they arrive. It holds back only the bytes of an
// unfinished character, at most three, so every piece of text that it returns
// is final. For a Stream over all ids, the pieces together are Decode of the
// ids. (One exception is documented at bpe.Tokenizer.Decode.)
//
// A Stream belongs to one goroutine.
type Stream struct {
	t       Tokenizer
	pending []byte
}

// NewStream begins to decode.
func NewStream(t Tokenizer) *Stream { return &Stream{t: t} }

// Append decodes more ids and appends the text that is now complete to dst.
// Ids that do not exist add nothing, as in Decode.
func (s *Stream) Append(dst []byte, ids ...uint32) []byte {
	for _, id := range ids {
		s.pending, _ = s.t.AppendBytes(s.pending, id)
	}
	b := s.pending
	for len(b) > 0 {
		r, w := utf8.DecodeRune(b)
		if r == utf8.RuneError && w == 1 {
			n, unfinished := invalidPart(string(b[:min(len(b), utf8.UTFMax)]))
			if unfinished {
				break
			}
			dst = append(dst, "\uFFFD"...)
			b = b[n:]
			continue
		}
		dst = append(dst, b[:w]...)
		b = b[w:]
	}
	s.pending = append(s.pending[:0], b...)
	return dst
}

// Held is the number of bytes that wait for the rest of their character.
func (s *Stream) Held() int { return len(s.pending) }

// Flush ends the text: a character that was never finished becomes U+FFFD.
func (s *Stream) Flush(dst []byte) []byte {
	if len(s.pending) > 0 {
		dst = append(dst, "\uFFFD"...)
		s.pending = s.pending[:0]
	}
	return dst
}
