package bpe

import (
	"strings"
	"unicode/utf8"

	"turnlog.dev/tokenizer"
)

// Decode implements tokenizer.Tokenizer. Ids that do not exist are left out, as
// in the Rust library.
//
// In a vocabulary of characters the library decodes a run of byte tokens as a
// whole: if the run is not valid UTF-8, each of its bytes becomes U+FFFD, also
// those that form characters. Decode does the same. A tokenizer.Stream cannot,
// since the run may go on; it replaces only what is invalid.
func (t *Tokenizer) Decode(ids []uint32) string {
	if t.characters {
		return t.decodeCharacters(ids)
	}
	b := make([]byte, 0, len(ids)*4)
	for _, id := range ids {
		s, _ := t.vocab.get(id)
		b = append(b, s...)
	}
	return tokenizer.Repair(string(b))
}

func (t *Tokenizer) decodeCharacters(ids []uint32) string {
	b := make([]byte, 0, len(ids)*4)
	run := -1 // where the current run of byte tokens starts
	endRun := func() {
		if run >= 0 && !utf8.Valid(b[run:]) {
			n := len(b) - run
			b = append(b[:run], strings.Repeat("\uFFFD", n)...)
		}
		run = -1
	}
	for _, id := range ids {
		if v, ok := t.byteOf[id]; ok {
			if run < 0 {
				run = len(b)
			}
			b = append(b, v)
			continue
		}
		endRun()
		b, _ = t.AppendBytes(b, id)
	}
	endRun()
	if t.normalize == normalizePrefixed && len(b) > 0 && b[0] == ' ' {
		b = b[1:] // the decoder's Strip
	}
	return string(b)
}

// AppendBytes implements tokenizer.Tokenizer.
func (t *Tokenizer) AppendBytes(dst []byte, id uint32) ([]byte, bool) {
	s, ok := t.vocab.get(id)
	if !ok || !t.characters {
		return append(dst, s...), ok
	}
	if v, ok := t.byteOf[id]; ok {
		return append(dst, v), true
	}
	for {
		before, after, found := strings.Cut(s, space)
		dst = append(dst, before...)
		if !found {
			return dst, true
		}
		dst = append(dst, ' ')
		s = after
	}
}
