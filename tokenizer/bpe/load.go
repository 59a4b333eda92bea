package bpe

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"turnlog.dev/tokenizer"
)

// ErrUnsupported marks a definition that asks for something that this package
// does not implement. The message names the setting.
var ErrUnsupported = errors.New("not supported")

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
}

// definition is a tokenizer before it is built, whatever file it came from.
type definition struct {
	vocab *vocab
	// hidden are the model's tokens that are spelled with characters outside of
	// the byte alphabet: no text becomes them.
	hidden     map[uint32]string
	added      []addedToken
	normalize  normalization
	split      splitter // nil at the level of characters
	merges     *merges
	wholeWords bool
	characters bool
	// alphabet: added tokens, too, are spelled in the byte alphabet, so that
	// decoding maps their characters to bytes.
	alphabet bool
}

// fingerprint identifies what a definition computes: the files that it came
// from, and the version of this code.
func fingerprint(parts ...[]byte) string {
	h := sha256.New()
	h.Write([]byte(version))
	for _, p := range parts {
		sum := sha256.Sum256(p)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// build completes a tokenizer.
func (d *definition) build(fingerprint string) (*Tokenizer, error) {
	t := &Tokenizer{
		vocab: d.vocab, merges: d.merges, normalize: d.normalize, split: d.split,
		wholeWords: d.wholeWords, characters: d.characters, fingerprint: fingerprint,
		ids: map[string]uint32{}, forms: map[uint32]string{},
	}
	for id, form := range d.hidden {
		t.ids[form], t.forms[id] = id, form
	}
	if err := t.addTokens(d); err != nil {
		return nil, err
	}
	if t.characters {
		t.split = t.spaceSplitter()
	}
	return t, t.findByteTokens()
}

// addTokens enters the added tokens. One may also be in the model, under the
// same id.
func (t *Tokenizer) addTokens(d *definition) error {
	var raw, normalized []addedToken
	for _, a := range d.added {
		bytes := a.Content
		if d.alphabet {
			b, _ := appendRaw(nil, a.Content)
			bytes = string(b)
		}
		if other, ok := t.ids[a.Content]; ok && other != a.ID {
			return fmt.Errorf("the token %q has the ids %d and %d", a.Content, other, a.ID)
		}
		switch have, ok := t.vocab.get(a.ID); {
		case !ok:
			t.vocab.add(a.ID, bytes)
		case have != bytes:
			return fmt.Errorf("the id %d stands for the added token %q and for %q", a.ID, a.Content, have)
		}
		t.ids[a.Content], t.forms[a.ID] = a.ID, a.Content
		t.added = append(t.added, a.AddedToken)
		if a.normalized {
			a.Content = t.normalForm(a.Content)
			normalized = append(normalized, a)
		} else {
			raw = append(raw, a)
		}
	}
	slices.SortFunc(t.added, func(a, b tokenizer.AddedToken) int { return int(a.ID) - int(b.ID) })
	t.raw = newTrie(raw)
	if len(normalized) > 0 {
		t.normalized = newTrie(normalized)
	}
	return nil
}

// findByteTokens looks up the tokens of single bytes, which is where merging
// starts. At the level of characters a byte token may be missing if no text
// needs it: an ASCII character with a token of its own.
func (t *Tokenizer) findByteTokens() error {
	if !t.characters {
		for b := range t.bytes {
			id, ok := t.vocab.find(string([]byte{byte(b)}))
			if !ok {
				return unsupported("a vocabulary without a token for byte %#02x", b)
			}
			t.bytes[b] = id
		}
		return nil
	}
	t.byteOf = make(map[uint32]byte, 256)
	for b := range t.bytes {
		id, ok := t.vocab.find(fmt.Sprintf("<0x%02X>", b))
		if !ok {
			if _, ok := t.vocab.find(string(rune(b))); b < utf8.RuneSelf && ok {
				continue
			}
			return unsupported("a vocabulary without a token for byte %#02x", b)
		}
		t.bytes[b] = id
		t.byteOf[id] = byte(b)
	}
	return nil
}

// spaceSplitter cuts text before every U+2581 that no token can join to the
// character before it. Files for SentencePiece models have no pre-tokenizer:
// the whole text is one word, and merging would be slow. No merge crosses such
// a cut, so the result is the same, and cuts are stable.
func (t *Tokenizer) spaceSplitter() splitter {
	joins := map[rune]bool{'▁': true}
	for i := range t.merges.slots {
		m := &t.merges.slots[i]
		if m.pair == noPair {
			continue
		}
		token := t.vocab.at(m.id)
		for at := 1; at < len(token); at++ {
			n := strings.Index(token[at:], space)
			if n < 0 {
				break
			}
			at += n
			r, _ := utf8.DecodeLastRuneInString(token[:at])
			joins[r] = true
		}
	}
	return func(s *scan) {
		start, end := 0, 0
		for {
			n := strings.Index(s.text[end:], space)
			if n < 0 {
				break
			}
			cut := end + n
			end = cut + len(space)
			if cut == start { // a word may begin with its space
				continue
			}
			if r, _ := utf8.DecodeLastRuneInString(s.text[:cut]); !joins[r] {
				s.emit(start, cut)
				start = cut
			}
		}
		if start < len(s.text) {
			s.open = true
			s.emit(start, len(s.text))
		}
	}
}
