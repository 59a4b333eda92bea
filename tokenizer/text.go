package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Repair replaces each maximal invalid part of s by one U+FFFD, as Rust, the
// WHATWG encoding standard and Python (errors="replace") do. Go's own
// strings.ToValidUTF8 makes one of a whole run.
func Repair(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && w == 1 {
			n, _ := invalidPart(s[i:])
			b.WriteString("\uFFFD")
			i += n
			continue
		}
		b.WriteString(s[i : i+w])
		i += w
	}
	return b.String()
}

// invalidPart returns the length of the maximal part at the start of s that
// begins a character and is not one, at least 1. unfinished says that s ends
// before the part turned out to be wrong: more bytes could complete it.
// (Unicode Standard, table 3-7.)
func invalidPart(s string) (n int, unfinished bool) {
	low, high, more := byte(0x80), byte(0xbf), 0
	switch c := s[0]; {
	case c >= 0xc2 && c <= 0xdf:
		more = 1
	case c == 0xe0:
		more, low = 2, 0xa0
	case c == 0xed:
		more, high = 2, 0x9f
	case c >= 0xe1 && c <= 0xef:
		more = 2
	case c == 0xf0:
		more, low = 3, 0x90
	case c >= 0xf1 && c <= 0xf3:
		more = 3
	case c == 0xf4:
		more, high = 3, 0x8f
	}
	for n = 1; n <= more; n++ {
		if n == len(s) {
			return n, true
		}
		if s[n] < low || s[n] > high {
			break
		}
		low, high = 0x80, 0xbf
	}
	return n, false
}
