//go:build hf

package hf

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/daulet/tokenizers"

	"turnlog.dev/tokenizer"
)

// version is part of every fingerprint.
const version = "turnlog hf 1"

// Errors of texts and ids that the library did not handle. They are wrapped.
var (
	// ErrNUL: the text holds U+0000 and the linked library cuts text there. The
	// library that build.sh builds does not.
	ErrNUL = errors.New("the linked tokenizers library cuts text at U+0000: link the one of tokenizer/hf/build.sh")
	// ErrLibrary: the library failed. The C interface does not say why.
	ErrLibrary = errors.New("the tokenizers library failed")
)

// Tokenizer implements tokenizer.Tokenizer.
//
// The interface has no errors, since a loaded tokenizer in Go has none; this
// one can fail on a text. Encode and the other methods then panic with an error
// that wraps ErrNUL or ErrLibrary, rather than return ids of another text; Try
// returns the error. StableCut is 0: the library does not say what it looked at.
//
// A Tokenizer is safe for concurrent use. It lives until the process ends.
type Tokenizer struct {
	lib   *tokenizers.Tokenizer
	plain *tokenizers.Tokenizer // the same without added tokens
	// carriesNUL: the library is ours, and U+0000 travels as C0 80.
	carriesNUL  bool
	ids         map[string]uint32
	forms       map[uint32]string
	added       []tokenizer.AddedToken
	isAdded     map[uint32]bool
	size        int
	fingerprint string
}

var _ tokenizer.Tokenizer = (*Tokenizer)(nil)

// Open is Load for hub.Hub.Fallback.
func Open(data []byte) (tokenizer.Tokenizer, error) {
	t, err := Load(data)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// definition is the part of tokenizer.json that the C interface does not give.
type definition struct {
	Added []struct {
		ID      uint32 `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Model struct {
		Vocab json.RawMessage `json:"vocab"`
	} `json:"model"`
}

// Load reads a tokenizer.json.
func Load(data []byte) (*Tokenizer, error) {
	t, err := load(data)
	if err != nil {
		return nil, fmt.Errorf("hf: load tokenizer.json: %w", err)
	}
	return t, nil
}

func load(data []byte) (*Tokenizer, error) {
	var d definition
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	t := &Tokenizer{ids: map[string]uint32{}, forms: map[uint32]string{}, isAdded: map[uint32]bool{}}
	if err := t.readVocabulary(d); err != nil {
		return nil, err
	}
	var err error
	if t.lib, err = tokenizers.FromBytes(data); err != nil {
		return nil, err
	}
	without, err := withoutAdded(data)
	if err != nil {
		return nil, err
	}
	if t.plain, err = tokenizers.FromBytes(without); err != nil {
		return nil, fmt.Errorf("without added tokens: %w", err)
	}
	probe := t.lib.EncodeWithOptions(nulForC, false, tokenizers.WithReturnOffsets())
	t.carriesNUL = true
	for _, o := range probe.Offsets {
		if o[1] > 1 { // two U+FFFD instead of one U+0000
			t.carriesNUL = false
		}
	}
	sum := sha256.Sum256(append([]byte(version), data...))
	t.fingerprint = hex.EncodeToString(sum[:])
	return t, nil
}

// readVocabulary reads a vocabulary in the form of BPE and WordPiece (a map) or
// of Unigram (a list of token and score).
func (t *Tokenizer) readVocabulary(d definition) error {
	var list [][2]json.RawMessage
	if json.Unmarshal(d.Model.Vocab, &t.ids) != nil {
		if err := json.Unmarshal(d.Model.Vocab, &list); err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		clear(t.ids)
		for i, entry := range list {
			var token string
			if err := json.Unmarshal(entry[0], &token); err != nil {
				return fmt.Errorf("vocab: %w", err)
			}
			t.ids[token] = uint32(i)
		}
	}
	for _, a := range d.Added {
		t.ids[a.Content] = a.ID
		t.isAdded[a.ID] = true
		t.added = append(t.added, tokenizer.AddedToken{ID: a.ID, Content: a.Content, Special: a.Special})
	}
	slices.SortFunc(t.added, func(a, b tokenizer.AddedToken) int { return cmp.Compare(a.ID, b.ID) })
	for token, id := range t.ids {
		t.forms[id] = token
		t.size = max(t.size, int(id)+1)
	}
	return nil
}

func withoutAdded(data []byte) ([]byte, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	file["added_tokens"] = json.RawMessage("[]")
	file["post_processor"] = json.RawMessage("null") // may name an added token
	return json.Marshal(file)
}

// nulForC is how text with U+0000 reaches our library.
const nulForC = "\xc0\x80"

// Try encodes text and says which bytes each id stands for. Without added, the
// text cannot name control tokens.
func (t *Tokenizer) Try(text string, added bool) ([]tokenizer.Span, error) {
	text = tokenizer.Repair(text)
	send := text
	if strings.Contains(text, "\x00") {
		if !t.carriesNUL {
			return nil, fmt.Errorf("hf: encode: %w", ErrNUL)
		}
		send = strings.ReplaceAll(text, "\x00", nulForC)
	}
	lib := t.lib
	if !added {
		lib = t.plain
	}
	e := lib.EncodeWithOptions(send, false, tokenizers.WithReturnOffsets())
	if len(e.IDs) == 0 && strings.TrimSpace(text) != "" && !t.mayVanish(text) {
		return nil, fmt.Errorf("hf: encode: %w on %d bytes", ErrLibrary, len(text))
	}
	spans := make([]tokenizer.Span, len(e.IDs))
	for i, id := range e.IDs {
		if !added && t.isAdded[id] {
			return nil, fmt.Errorf("hf: encode plain: %w: the text spells the control token %q, which this model cannot tell apart", ErrLibrary, t.forms[id])
		}
		spans[i] = tokenizer.Span{ID: id, Start: int(e.Offsets[i][0]), End: int(e.Offsets[i][1])}
	}
	return spans, nil
}

// mayVanish reports whether text may have no ids because the model's normalizer
// drops all of it: control characters and lone marks.
func (t *Tokenizer) mayVanish(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= '!' && r <= '~' })
}

// Encode implements tokenizer.Tokenizer.
func (t *Tokenizer) Encode(dst []uint32, text string) []uint32 { return t.append(dst, text, true) }

// EncodePlain implements tokenizer.Tokenizer.
func (t *Tokenizer) EncodePlain(dst []uint32, text string) []uint32 {
	return t.append(dst, text, false)
}

func (t *Tokenizer) append(dst []uint32, text string, added bool) []uint32 {
	spans, err := t.Try(text, added)
	if err != nil {
		panic(err)
	}
	for _, s := range spans {
		dst = append(dst, s.ID)
	}
	return dst
}

// EncodeSpans implements tokenizer.Tokenizer. The ranges are the library's:
// what its normalizer drops belongs to no token.
func (t *Tokenizer) EncodeSpans(text string) []tokenizer.Span {
	spans, err := t.Try(text, true)
	if err != nil {
		panic(err)
	}
	return spans
}

// Decode implements tokenizer.Tokenizer.
func (t *Tokenizer) Decode(ids []uint32) string {
	if len(ids) == 0 {
		return ""
	}
	s := t.lib.Decode(ids, false)
	if t.carriesNUL {
		s = strings.ReplaceAll(s, nulForC, "\x00")
	} else if s == "" && slices.ContainsFunc(ids, func(id uint32) bool { return strings.Trim(t.forms[id], "▁ ") != "" }) {
		// Upstream returns nothing for text with a U+0000, and for errors.
		panic(fmt.Errorf("hf: decode: %w on %d ids", ErrLibrary, len(ids)))
	}
	return s
}

// AppendBytes implements tokenizer.Tokenizer with what the library decodes for
// the one id. Decoders that join tokens in context (WordPiece, Metaspace) may
// put a space before it in a longer text.
func (t *Tokenizer) AppendBytes(dst []byte, id uint32) ([]byte, bool) {
	if _, ok := t.forms[id]; !ok {
		return dst, false
	}
	return append(dst, t.Decode([]uint32{id})...), true
}

// StableCut implements tokenizer.Tokenizer.
func (t *Tokenizer) StableCut(string) int { return 0 }

// TokenID implements tokenizer.Tokenizer.
func (t *Tokenizer) TokenID(token string) (uint32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token implements tokenizer.Tokenizer.
func (t *Tokenizer) Token(id uint32) (string, bool) {
	s, ok := t.forms[id]
	return s, ok
}

// Added implements tokenizer.Tokenizer.
func (t *Tokenizer) Added() []tokenizer.AddedToken { return t.added }

// VocabSize implements tokenizer.Tokenizer.
func (t *Tokenizer) VocabSize() int { return t.size }

// Fingerprint implements tokenizer.Tokenizer.
func (t *Tokenizer) Fingerprint() string { return t.fingerprint }
