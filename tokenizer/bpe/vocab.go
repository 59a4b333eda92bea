package bpe

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"unicode/utf8"
)

// vocab holds the bytes of every token, those of the model in one string, and
// finds the model's tokens by their bytes.
type vocab struct {
	arena  string
	tokens []extent          // by id
	added  map[uint32]string // bytes of added tokens that are not in the model
	size   int               // one more than the highest id
	slots  []vocabSlot
	shift  uint
	seed   maphash.Seed
}

// vocabSlot is a place of the hash table: an id + 1, or 0, and the key of its
// token.
type vocabSlot struct {
	key uint64
	id  uint32
}

// shortToken is up to how many bytes a key holds all of a token: most are found
// without a look at their bytes.
const shortToken = 7

// keyOf is the token itself and its length, or of a long one a hash.
func (v *vocab) keyOf(token string) uint64 {
	n := len(token)
	if n > shortToken {
		return maphash.String(v.seed, token) | 0xff<<56
	}
	key := uint64(n) << 56
	for i := range n {
		key |= uint64(token[i]) << (8 * i)
	}
	return key
}

// extent is where a token's bytes are in the arena. An id without a token has
// the length -1.
type extent struct {
	start uint32
	len   int32
}

// vocabBuilder collects tokens. Their bytes go to one arena, so that a
// vocabulary of 200,000 tokens is a few allocations.
type vocabBuilder struct {
	arena  []byte
	tokens []extent
}

// add makes the bytes that were appended to the arena since start the token
// id. It reports false if id is taken.
func (b *vocabBuilder) add(id uint32, start int) bool {
	for int(id) >= len(b.tokens) {
		b.tokens = append(b.tokens, extent{len: -1})
	}
	if b.tokens[id].len >= 0 {
		return false
	}
	b.tokens[id] = extent{uint32(start), int32(len(b.arena) - start)}
	return true
}

// build makes the vocabulary. Tokens in hidden cannot be found by their bytes:
// nothing but their id leads to them.
func (b *vocabBuilder) build(hidden map[uint32]string) (*vocab, error) {
	log := bits.Len(uint(len(b.tokens) + len(b.tokens)/2 + 1)) // at most two thirds full
	v := &vocab{
		arena: string(b.arena), tokens: b.tokens, size: len(b.tokens), added: map[uint32]string{},
		slots: make([]vocabSlot, 1<<log), shift: uint(64 - log), seed: maphash.MakeSeed(),
	}
	for id := range b.tokens {
		if b.tokens[id].len < 0 {
			continue
		}
		if _, ok := hidden[uint32(id)]; ok {
			continue
		}
		slot, key := v.slot(v.at(uint32(id)))
		if slot.id != 0 {
			return nil, fmt.Errorf("the tokens %d and %d are the same", slot.id-1, id)
		}
		*slot = vocabSlot{key, uint32(id) + 1}
	}
	return v, nil
}

// add enters a token that is not in the model.
func (v *vocab) add(id uint32, bytes string) {
	v.added[id] = bytes
	v.size = max(v.size, int(id)+1)
}

// at returns the bytes of a token of the model.
func (v *vocab) at(id uint32) string {
	e := v.tokens[id]
	return v.arena[e.start : int(e.start)+int(e.len)]
}

// get returns the bytes of a token.
func (v *vocab) get(id uint32) (string, bool) {
	if int64(id) < int64(len(v.tokens)) && v.tokens[id].len >= 0 {
		return v.at(id), true
	}
	s, ok := v.added[id]
	return s, ok
}

// slot is where token is, or would be, and its key.
func (v *vocab) slot(token string) (*vocabSlot, uint64) {
	key := v.keyOf(token)
	for i := key * hashFactor >> v.shift; ; i = (i + 1) & uint64(len(v.slots)-1) {
		s := &v.slots[i]
		if s.id == 0 || s.key == key && (len(token) <= shortToken || v.at(s.id-1) == token) {
			return s, key
		}
	}
}

// find returns the id of the token with these bytes.
func (v *vocab) find(token string) (uint32, bool) {
	s, _ := v.slot(token)
	return s.id - 1, s.id != 0
}

// The byte alphabet of GPT-2: in files a byte-level token is spelled with one
// visible character for each byte, bytes without a visible form being moved to
// U+0100 and up.
var alphabet, alphabetBytes = byteAlphabet()

// notInAlphabet marks characters that stand for no byte.
const notInAlphabet = -1

func byteAlphabet() (chars [256]rune, bytes [324]int16) {
	for i := range bytes {
		bytes[i] = notInAlphabet
	}
	moved := rune(0)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = 256 + moved
			moved++
		}
		chars[b] = r
		bytes[r] = int16(b)
	}
	return chars, bytes
}

// appendRaw appends the bytes that a visible form stands for. If a character
// is outside the alphabet, the token stands for itself: its own UTF-8 is
// appended, and the result is false.
func appendRaw(dst []byte, visible string) ([]byte, bool) {
	start := len(dst)
	for i := 0; i < len(visible); {
		r, w := rune(visible[i]), 1
		if r >= utf8.RuneSelf {
			r, w = utf8.DecodeRuneInString(visible[i:])
		}
		if int(r) >= len(alphabetBytes) || alphabetBytes[r] == notInAlphabet {
			return append(dst[:start], visible...), false
		}
		dst = append(dst, byte(alphabetBytes[r]))
		i += w
	}
	return dst, true
}

// visibleForm is the inverse of appendRaw.
func visibleForm(raw string) string {
	b := make([]byte, 0, len(raw)*2)
	for i := range len(raw) {
		b = utf8.AppendRune(b, alphabet[raw[i]])
	}
	return string(b)
}
