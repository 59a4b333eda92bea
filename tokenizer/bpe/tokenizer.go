// Package bpe is byte pair encoding in pure Go, with the same result as the
// model's own tokenizer: Hugging Face tokenizers (Rust) for tokenizer.json,
// tiktoken for rank files, mistral-common for tekken.json.
//
// A text goes through these stages:
//
//	added tokens are cut out          <|im_end|>, <think>, ...
//	each gap is normalized            NFC, or spaces to U+2581, or not at all
//	and split into pre-tokens         by one of a few patterns (patterns.go)
//	each pre-token is merged          lowest rank first, from bytes or characters
//
// Loaders compare every setting of a file with the forms that are implemented
// and refuse a file, naming the setting, rather than approximate it.
package bpe

import (
	"strings"
	"sync"
	"unicode/utf8"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe/internal/ucd"
)

// version is part of every fingerprint. It changes whenever the same file
// would encode some text differently.
const version = "turnlog bpe 1"

// maxID bounds token ids, so that a hostile file cannot ask for 4 billion of
// them. The largest vocabularies have about 300,000.
const maxID = 1 << 22

// normalization is what happens to the text between added tokens.
type normalization uint8

const (
	normalizeNot normalization = iota
	normalizeNFC
	// normalizeSpaces replaces " " by U+2581, as SentencePiece does.
	normalizeSpaces
	// normalizePrefixed also puts a U+2581 in front.
	normalizePrefixed
)

// space is how SentencePiece vocabularies spell a space.
const space = "▁"

// Tokenizer implements tokenizer.Tokenizer. It is immutable and safe for
// concurrent use.
type Tokenizer struct {
	vocab *vocab
	added []tokenizer.AddedToken // by id
	// ids and forms are the tokens whose spelling is not made from their bytes:
	// added ones, and those outside of the byte alphabet.
	ids        map[string]uint32
	forms      map[uint32]string
	raw        *trie // added tokens, found in the text as it is
	normalized *trie // added tokens, found in normalized text; nil if none
	normalize  normalization
	split      splitter
	merges     *merges
	wholeWords bool // a pre-token that is a token needs no merges (ignore_merges)
	// bytes are the tokens of single bytes: where merging starts, or, at the
	// level of characters, what stands for a character without a token.
	bytes       [256]uint32
	characters  bool            // merge characters, not bytes (SentencePiece)
	byteOf      map[uint32]byte // of the tokens <0x00> to <0xFF>, if characters
	fingerprint string
	works       sync.Pool // of *work
}

var _ tokenizer.Tokenizer = (*Tokenizer)(nil)

// work is what one call of Encode needs. It keeps the ids of words that it has
// seen, since most text consists of few words.
type work struct {
	cache map[string]cached
	slab  []uint32 // ids of cached words
	ids   []uint32
	gap   []uint32 // ids of a text that EncodeSpans looks at
	ranks [shortWord]uint64
}

type cached struct{ start, end uint32 }

// Limits of a word cache. At the limit it starts afresh.
const (
	maxCachedWord  = 64 // bytes
	maxCachedWords = 1 << 15
)

func (t *Tokenizer) work() *work {
	if w, ok := t.works.Get().(*work); ok {
		return w
	}
	return &work{cache: map[string]cached{}}
}

// Encode implements tokenizer.Tokenizer.
func (t *Tokenizer) Encode(dst []uint32, text string) []uint32 {
	text = tokenizer.Repair(text)
	w := t.work()
	for i := 0; i < len(text); {
		tok, start, end := t.raw.next(text, i)
		dst = t.gap(w, dst, text[i:start])
		if tok == nil {
			break
		}
		dst = append(dst, tok.ID)
		i = end
	}
	t.works.Put(w)
	return dst
}

// EncodePlain implements tokenizer.Tokenizer.
func (t *Tokenizer) EncodePlain(dst []uint32, text string) []uint32 {
	if text == "" {
		return dst
	}
	w := t.work()
	dst = t.words(w, dst, t.normalForm(tokenizer.Repair(text)))
	t.works.Put(w)
	return dst
}

// gap encodes text that has no raw added token.
func (t *Tokenizer) gap(w *work, dst []uint32, text string) []uint32 {
	if text == "" {
		return dst
	}
	text = t.normalForm(text)
	if t.normalized == nil {
		return t.words(w, dst, text)
	}
	for i := 0; i < len(text); {
		tok, start, end := t.normalized.next(text, i)
		dst = t.words(w, dst, text[i:start])
		if tok == nil {
			break
		}
		dst = append(dst, tok.ID)
		i = end
	}
	return dst
}

func (t *Tokenizer) normalForm(text string) string {
	switch t.normalize {
	case normalizeNFC:
		return ucd.Normalize(text)
	case normalizeSpaces:
		return strings.ReplaceAll(text, " ", space)
	case normalizePrefixed:
		return space + strings.ReplaceAll(text, " ", space)
	}
	return text
}

// words encodes normalized text without added tokens.
func (t *Tokenizer) words(w *work, dst []uint32, text string) []uint32 {
	if text == "" {
		return dst
	}
	t.split(&scan{text: text, emit: func(start, end int) {
		dst = t.word(w, dst, text[start:end])
	}})
	return dst
}

// word encodes one pre-token.
func (t *Tokenizer) word(w *work, dst []uint32, word string) []uint32 {
	if c, ok := w.cache[word]; ok {
		return append(dst, w.slab[c.start:c.end]...)
	}
	ids := t.merge(w, word)
	if len(word) <= maxCachedWord {
		if len(w.cache) >= maxCachedWords {
			clear(w.cache)
			w.slab = w.slab[:0]
		}
		start := len(w.slab)
		w.slab = append(w.slab, ids...)
		w.cache[strings.Clone(word)] = cached{uint32(start), uint32(len(w.slab))}
	}
	return append(dst, ids...)
}

// merge returns the ids of a pre-token; they are valid until the next call.
func (t *Tokenizer) merge(w *work, word string) []uint32 {
	w.ids = w.ids[:0]
	if t.wholeWords {
		if id, ok := t.vocab.find(word); ok {
			w.ids = append(w.ids, id)
			return w.ids
		}
	}
	if t.characters {
		for i := 0; i < len(word); {
			_, n := utf8.DecodeRuneInString(word[i:])
			w.ids = t.character(w.ids, word[i:i+n])
			i += n
		}
	} else {
		for i := range len(word) {
			w.ids = append(w.ids, t.bytes[word[i]])
		}
	}
	return t.merges.apply(w.ids, w)
}

// character appends the token of a character, or those of its bytes.
func (t *Tokenizer) character(ids []uint32, char string) []uint32 {
	if id, ok := t.vocab.find(char); ok {
		return append(ids, id)
	}
	for i := range len(char) {
		ids = append(ids, t.bytes[char[i]])
	}
	return ids
}

// TokenID implements tokenizer.Tokenizer. The visible form of a token is the
// one of tokenizer.json: in GPT-2's byte alphabet ("Ġthe"), or with U+2581 for
// a space in vocabularies of characters.
func (t *Tokenizer) TokenID(token string) (uint32, bool) {
	if id, ok := t.ids[token]; ok {
		return id, true
	}
	if t.characters {
		return t.vocab.find(token)
	}
	raw, ok := appendRaw(nil, token)
	if !ok {
		return 0, false
	}
	return t.vocab.find(string(raw))
}

// Token implements tokenizer.Tokenizer.
func (t *Tokenizer) Token(id uint32) (string, bool) {
	if form, ok := t.forms[id]; ok {
		return form, true
	}
	raw, ok := t.vocab.get(id)
	if !ok || t.characters {
		return raw, ok
	}
	return visibleForm(raw), true
}

// Added implements tokenizer.Tokenizer.
func (t *Tokenizer) Added() []tokenizer.AddedToken { return t.added }

// VocabSize implements tokenizer.Tokenizer.
func (t *Tokenizer) VocabSize() int { return t.vocab.size }

// Fingerprint implements tokenizer.Tokenizer.
func (t *Tokenizer) Fingerprint() string { return t.fingerprint }
