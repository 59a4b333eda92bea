package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// Text decodes a string value. A lone surrogate and an invalid byte become
// U+FFFD, as in encoding/json. Anything but a string gives "".
func Text(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return ""
	}
	raw = raw[1 : len(raw)-1]
	next := bytes.IndexByte(raw, '\\')
	if next < 0 && utf8.Valid(raw) {
		return string(raw)
	}
	if !utf8.Valid(raw) {
		raw = appendValid(make([]byte, 0, len(raw)+len(raw)/2), raw)
	}
	out, n := make([]byte, len(raw)+word), 0
	for len(raw) > 0 {
		if len(raw) >= word {
			// A word is copied as it is, and what follows a backslash in it again.
			w := binary.LittleEndian.Uint64(raw)
			binary.LittleEndian.PutUint64(out[n:], w)
			found := equal(w, '\\')
			if found == 0 {
				raw, n = raw[word:], n+word
				continue
			}
			at := first(found)
			raw, n = raw[at:], n+at
		}
		if raw[0] != '\\' {
			out[n] = raw[0]
			raw, n = raw[1:], n+1
			continue
		}
		var size int
		size, raw = unescape(out[n:], raw)
		n += size
	}
	if n < len(out)-len(out)/8 {
		return string(out[:n]) // mostly \uXXXX: not worth keeping all that room
	}
	return unsafe.String(unsafe.SliceData(out), n)
}

// appendValid appends text without escapes, each invalid byte as U+FFFD.
func appendValid(dst, text []byte) []byte {
	if utf8.Valid(text) {
		return append(dst, text...)
	}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		dst, text = utf8.AppendRune(dst, r), text[n:]
	}
	return dst
}

// unescape writes the character of the escape that raw begins with, and returns
// its length and what comes after it. No escape is shorter than its character.
func unescape(dst, raw []byte) (n int, rest []byte) {
	if len(raw) < 2 {
		return 0, nil
	}
	if c := plainEscapes[raw[1]]; c != 0 {
		dst[0] = c
		return 1, raw[2:]
	}
	if raw[1] != 'u' {
		dst[0] = raw[1]
		return 1, raw[2:]
	}
	r, size := unit(raw), 6
	if utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(r, unit(raw[size:])); pair != utf8.RuneError {
			r, size = pair, 12
		} else {
			r = utf8.RuneError
		}
	}
	return utf8.EncodeRune(dst, r), raw[min(size, len(raw)):]
}

// plainEscapes are the characters that a letter stands for behind a backslash.
var plainEscapes = [256]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unit decodes \uXXXX at the start of b, or returns -1.
func unit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(n)
}

// AppendText appends s as a JSON string: control characters, quotes and
// backslashes escaped, everything else as it is, an invalid byte as U+FFFD.
func AppendText(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	if !utf8.ValidString(s) {
		s = string(appendValid(nil, []byte(s)))
	}
	text := unsafe.Slice(unsafe.StringData(s), len(s))
	// There is always room for what is left of the text as it is, and a word more.
	// Most texts have no more than an escape in sixteen bytes.
	n := len(dst)
	dst = grow(dst, n, 1+len(text)+len(text)/16+2*word)
	dst[n] = '"'
	n++
	plain := 0 // bytes since the last special one
	for len(text) > 0 {
		if len(text) >= word {
			w := binary.LittleEndian.Uint64(text)
			binary.LittleEndian.PutUint64(dst[n:], w)
			found := special(w)
			if found == 0 {
				text, n = text[word:], n+word
				if plain += word; plain == long {
					k := copy(dst[n:], text[:stretch(text)])
					text, n, plain = text[k:], n+k, 0
				}
				continue
			}
			at := first(found)
			text, n, plain = text[at:], n+at, 0
		}
		c := text[0]
		text = text[1:]
		e := escapes[c]
		if e == 0 {
			dst[n] = c
			n++
			continue
		}
		if len(dst)-n < len(text)+2*word {
			dst = grow(dst, n, len(text)+len(text)/4+8*word)
		}
		dst[n], dst[n+1] = '\\', e
		n += 2
		if e == 'u' {
			n += copy(dst[n:], []byte{'0', '0', digits[c>>4], digits[c&15]})
		}
	}
	dst[n] = '"'
	return dst[:n+1]
}

// grow returns dst with room for more bytes behind the first n, all of it as its
// length.
func grow(dst []byte, n, more int) []byte {
	dst = slices.Grow(dst[:n], more)
	return dst[:cap(dst)]
}

// escapes are the letters that stand behind a backslash for the bytes that no
// string holds as they are.
var escapes = func() (t [256]byte) {
	for c := range byte(0x20) {
		t[c] = 'u'
	}
	t['\n'], t['\r'], t['\t'], t['"'], t['\\'] = 'n', 'r', 't', '"', '\\'
	return t
}()

// Texts are looked at a word at a time. What finds bytes in a word sets the high
// bit of each; bits above the first may be wrong.

const (
	word  = 8
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// first is the place of the first byte that was found in a word. Who has a word
// in which none was goes on without it: adding a place that has to be computed
// first would cost more than all the rest.
func first(found uint64) int { return bits.TrailingZeros64(found) / 8 }

// equal finds a byte: where it is, the rest is zero, and only from that one
// cannot be taken without a borrow.
func equal(w uint64, c byte) uint64 {
	w ^= uint64(c) * ones
	return (w - ones) &^ w & highs
}

// long is how many bytes in which nothing is special are reason to look for many
// more: that takes a look of its own, but then costs a fraction.
const long = 16 * word

// stretch returns how many bytes from the first on are ASCII in which nothing is
// special, as far as it saw.
func stretch(b []byte) (n int) {
	const window, block = 8 * long, 4 * word
	for len(b)-n >= block {
		in := b[n:min(len(b), n+window)]
		if i := bytes.IndexByte(in, '"'); i >= 0 {
			in = in[:i]
		}
		if i := bytes.IndexByte(in, '\\'); i >= 0 {
			in = in[:i]
		}
		end := n + len(in)/block*block
		for ; n < end; n += block {
			four := b[n : n+block]
			if usual(binary.LittleEndian.Uint64(four))&usual(binary.LittleEndian.Uint64(four[word:]))&
				usual(binary.LittleEndian.Uint64(four[2*word:]))&usual(binary.LittleEndian.Uint64(four[3*word:]))&highs != highs {
				return n
			}
		}
		if len(in) < window {
			break
		}
	}
	return n
}

// usual finds the bytes of ASCII that are no control characters: in a word of
// nothing else no addition carries into the next byte.
func usual(w uint64) uint64 { return (w + 0x60*ones) &^ w }

// special finds what does not stand for itself in a string: quotes, backslashes
// and control characters.
func special(w uint64) uint64 {
	return (w-0x20*ones)&^w&highs | equal(w, '"') | equal(w, '\\')
}
