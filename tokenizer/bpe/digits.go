package bpe

import (
	"unicode/utf8"

	"turnlog.dev/tokenizer/bpe/internal/ucd"
)

// splitDigits is the pre-tokenizer Digits in front of a pattern: digits stand
// apart, one by one or in runs, and the pattern cuts the pieces, each as if it
// were the whole text.
func splitDigits(individual bool, pattern splitter) splitter {
	return func(s *scan) {
		piece := &scan{}
		from, atEnd := 0, false
		piece.emit = func(start, end int) {
			s.open = s.open || atEnd && piece.open // what follows other pieces is decided
			piece.open = false
			s.emit(from+start, from+end)
		}
		for from < len(s.text) {
			end, closed := digitsEnd(s.text, from, individual)
			atEnd = end == len(s.text) && !closed
			piece.text, piece.open = s.text[from:end], false
			pattern(piece)
			from = end
		}
	}
}

// digitsEnd is where the piece of digits or of other characters that starts at
// i ends; closed says that nothing can become a part of it.
func digitsEnd(text string, i int, individual bool) (end int, closed bool) {
	first, w := isDigit(text[i:])
	if first && individual {
		return i + w, true
	}
	for i += w; i < len(text); i += w {
		var digit bool
		if digit, w = isDigit(text[i:]); digit != first {
			break
		}
	}
	return i, false
}

// isDigit looks at the first character of s with Rust's char::is_numeric: \p{N}
// of Unicode 17.0, one version newer than the tables of the patterns.
func isDigit(s string) (digit bool, width int) {
	r, w := utf8.DecodeRuneInString(s)
	return ucd.Of(r)&ucd.N != 0 || r >= 0x11de0 && r <= 0x11de9 || r >= 0x16ff4 && r <= 0x16ff6, w
}
