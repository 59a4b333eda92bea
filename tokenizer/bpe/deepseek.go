package bpe

import (
	"unicode/utf8"

	"turnlog.dev/tokenizer/bpe/internal/ucd"
)

// splitDeepSeek applies DeepSeek's three patterns one after the other: each
// cuts the pieces that the ones before left, and what a pattern does not match
// stays a piece.
func splitDeepSeek(s *scan) {
	start := 0
	for i := 0; i < len(s.text); {
		c, w := s.class(i)
		if c&ucd.N == 0 {
			i += w
			continue
		}
		end := s.digits(i+w, 3)
		s.deepseekCJK(start, i)
		s.deepseekCJK(i, end)
		i, start = end, end
	}
	s.deepseekCJK(start, len(s.text))
}

// deepseekCJK cuts runs of CJK ideographs and kana out of one piece.
func (s *scan) deepseekCJK(from, to int) {
	start := from
	for i := from; i < to; {
		end := i
		for end < to {
			w := cjkLen(s.text[end:])
			if w == 0 {
				break
			}
			end += w
		}
		if end == i {
			_, w := s.class(i)
			i += w
			continue
		}
		s.deepseekWords(start, i)
		s.deepseekWords(i, end)
		i, start = end, end
	}
	s.deepseekWords(start, to)
}

// cjkLen is the length of the character that s starts with if it is in
// [一-龥぀-ゟ゠-ヿ], else 0.
func cjkLen(s string) int {
	if s[0] < 0xe3 || s[0] > 0xe9 {
		return 0
	}
	r, w := utf8.DecodeRuneInString(s)
	if r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff {
		return w
	}
	return 0
}

// deepseekWords cuts one piece with the third pattern, for which the piece is
// the whole text: what follows the piece is decided already.
func (s *scan) deepseekWords(from, to int) {
	if from == to {
		return
	}
	piece := &scan{text: s.text[from:to]}
	atEnd := to == len(s.text)
	emit := func(a, b int) {
		s.open = atEnd && (s.open || piece.open)
		s.emit(from+a, from+b)
		piece.open = false
	}
	gap := 0
	for i := 0; i < len(piece.text); {
		end := piece.deepseekWord(i)
		if end == 0 { // no match: part of a gap
			_, w := piece.class(i)
			i += w
			continue
		}
		if gap < i {
			emit(gap, i)
		}
		emit(i, end)
		i, gap = end, end
	}
	if gap < len(piece.text) {
		emit(gap, len(piece.text))
	}
}

func (s *scan) deepseekWord(i int) int {
	c, w := s.class(i)
	if s.text[i] < utf8.RuneSelf && c&ucd.P != 0 {
		if i+1 == len(s.text) {
			s.open = true
		} else if isLatin(s.text[i+1]) {
			end := i + 2
			for end < len(s.text) && isLatin(s.text[end]) {
				end++
			}
			s.open = s.open || end == len(s.text)
			return end
		}
	}
	const letters = ucd.L | ucd.M
	if c&(ucd.Newline|ucd.L|ucd.P) == 0 {
		if c, n := s.class(i + w); c&letters != 0 {
			return s.run(i+w+n, letters)
		}
	}
	switch {
	case c&letters != 0:
		return s.run(i+w, letters)
	case c&ucd.P != 0:
		return s.runBytes(s.run(i+w, ucd.P), "\r\n")
	}
	if s.text[i] == ' ' {
		if c, n := s.class(i + 1); c&ucd.P != 0 {
			return s.runBytes(s.run(i+1+n, ucd.P), "\r\n")
		}
	}
	if c&ucd.S != 0 {
		return s.spaces(i, true)
	}
	return 0
}

func isLatin(b byte) bool { b |= 0x20; return b >= 'a' && b <= 'z' }
