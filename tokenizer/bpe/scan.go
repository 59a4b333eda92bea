package bpe

import (
	"strings"
	"unicode/utf8"

	"turnlog.dev/tokenizer/bpe/internal/ucd"
)

// A splitter cuts a text into pre-tokens, as one regular expression of a
// tokenizer's definition does, and passes each to s.emit in order. Between them
// the pre-tokens cover the text.
//
// The expressions need look-ahead and backtracking that Go's regexp does not
// have, and a general engine would be ten times slower; there are few of them,
// so each is written out (patterns.go lists them).
type splitter func(s *scan)

// scan is one pass over a text.
type scan struct {
	text string
	emit func(start, end int)
	// open is set as soon as the scan reads at or past the end of the text: the
	// pre-token at hand may become another one when text is appended. Whoever
	// wants to know resets it in emit.
	open bool
}

// class returns the class and the length of the character at i; 0, 0 at the
// end of the text.
func (s *scan) class(i int) (ucd.Class, int) {
	if i >= len(s.text) {
		s.open = true
		return 0, 0
	}
	if b := s.text[i]; b < utf8.RuneSelf {
		return ucd.ASCII[b], 1
	}
	r, w := utf8.DecodeRuneInString(s.text[i:])
	return ucd.Of(r), w
}

// run is the end of the characters from i on that have a class in mask.
func (s *scan) run(i int, mask ucd.Class) int {
	for {
		c, w := s.class(i)
		if c&mask == 0 {
			return i
		}
		i += w
	}
}

// runNot is the end of the characters from i on that have no class in mask.
func (s *scan) runNot(i int, mask ucd.Class) int {
	for {
		c, w := s.class(i)
		if w == 0 || c&mask != 0 {
			return i
		}
		i += w
	}
}

// runBytes is the end of the bytes from i on that are in set.
func (s *scan) runBytes(i int, set string) int {
	for i < len(s.text) && strings.IndexByte(set, s.text[i]) >= 0 {
		i++
	}
	if i == len(s.text) {
		s.open = true
	}
	return i
}

// digits matches \p{N}{1,limit} at i, where the first digit ends at end.
func (s *scan) digits(end, limit int) int {
	for n := 1; n < limit; n++ {
		c, w := s.class(end)
		if c&ucd.N == 0 {
			break
		}
		end += w
	}
	return end
}

// contraction returns the length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at i, 0 if it
// does not match. U+017F folds to s.
func (s *scan) contraction(i int) int {
	rest := s.text[min(i, len(s.text)):]
	if len(rest) < 3 && (rest == "" || rest[0] == '\'') {
		s.open = true
	}
	if len(rest) < 2 || rest[0] != '\'' {
		return 0
	}
	switch rest[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(rest) > 2 && rest[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(rest) > 2 && rest[2]|0x20 == 'l' {
			return 3
		}
	}
	if strings.HasPrefix(rest[1:], "\u017f") {
		return 1 + len("\u017f")
	}
	return 0
}

// spaces matches \s*[\r\n]+|\s+(?!\S)|\s+ at i, where a space stands: up to the
// last newline of the run, else all but its last character if something
// follows, else all of it. Without newlines the first part is not tried.
func (s *scan) spaces(i int, newlines bool) int {
	end, last, newline := i, i, -1
	for {
		c, w := s.class(end)
		if c&ucd.S == 0 {
			break
		}
		last = end
		end += w
		if newlines && c&ucd.Newline != 0 {
			newline = end
		}
	}
	switch {
	case newline >= 0:
		return newline
	case end == len(s.text) || last == i:
		return end
	}
	return last
}

// symbols matches " ?[^\s letters \p{N}]+[tail]*" at i, where a character of
// class c and length w stands; 0 if it does not match.
func (s *scan) symbols(i int, c ucd.Class, w int, letters ucd.Class, tail string) int {
	words := ucd.S | letters | ucd.N
	if c&words == 0 {
		return s.runBytes(s.runNot(i+w, words), tail)
	}
	if s.text[i] == ' ' {
		if c, w := s.class(i + 1); w > 0 && c&words == 0 {
			return s.runBytes(s.runNot(i+1+w, words), tail)
		}
	}
	return 0
}
