package bpe

import "turnlog.dev/tokenizer/bpe/internal/ucd"

// Patterns of tokenizers that ship their ranks without them (tiktoken files).
// Loaders compare patterns as texts with the ones listed here.
const (
	// PatternCL100K is GPT-4's and Llama 3's.
	PatternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternQwen is that of Qwen to Qwen3: one digit at a time.
	PatternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternQwen35 is that of Qwen3.5 and 3.6: marks count as letters.
	PatternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternO200K is GPT-4o's, gpt-oss's and Llama 4's.
	PatternO200K = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternTekken is Mistral's.
	PatternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternKimi is that of Kimi K2 and its successors: runs of Han apart.
	PatternKimi = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternGPT2 is GPT-2's, which the pre-tokenizer ByteLevel uses by itself.
	PatternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// The three patterns that DeepSeek V3 and its successors apply in turn.
const (
	deepseekNumbers = `\p{N}{1,3}`
	deepseekCJK     = `[一-龥぀-ゟ゠-ヿ]+`
	deepseekWords   = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// splitters are the patterns that this package implements.
var splitters = map[string]splitter{
	PatternCL100K: cl100k(ucd.L, 3),
	PatternQwen:   cl100k(ucd.L, 1),
	PatternQwen35: cl100k(ucd.L|ucd.M, 1),
	PatternO200K:  caseSplit{digits: 3, contractions: true, tail: "\r\n/"}.split,
	PatternTekken: caseSplit{digits: 1, tail: "\r\n/"}.split,
	PatternKimi:   caseSplit{digits: 3, contractions: true, tail: "\r\n", hanApart: true}.split,
	PatternGPT2:   splitGPT2,
}

// cl100k is the family of GPT-4's pattern. letters are \p{L}, or \p{L} and
// \p{M}; digits is how many \p{N} make one pre-token.
func cl100k(letters ucd.Class, digits int) splitter {
	return func(s *scan) {
		for i := 0; i < len(s.text); {
			end := s.cl100k(i, letters, digits)
			s.emit(i, end)
			i = end
		}
	}
}

func (s *scan) cl100k(i int, letters ucd.Class, digits int) int {
	c, w := s.class(i)
	switch {
	case c&letters != 0:
		return s.run(i+w, letters)
	case c&ucd.N != 0:
		return s.digits(i+w, digits)
	}
	if s.text[i] == '\'' {
		if n := s.contraction(i); n > 0 {
			return i + n
		}
	}
	if c&ucd.Newline == 0 { // [^\r\n\p{L}\p{N}]?\p{L}+
		if c, n := s.class(i + w); c&letters != 0 {
			return s.run(i+w+n, letters)
		}
	}
	if end := s.symbols(i, c, w, letters, "\r\n"); end > 0 {
		return end
	}
	return s.spaces(i, true)
}

// splitGPT2 has contractions in lower case only, and no rule for newlines.
func splitGPT2(s *scan) {
	for i := 0; i < len(s.text); {
		end := s.gpt2(i)
		s.emit(i, end)
		i = end
	}
}

func (s *scan) gpt2(i int) int {
	if n := s.contraction(i); n > 0 {
		if t := s.text[i : i+n]; t[1] >= 'a' && t[n-1] >= 'a' && t[n-1] <= 'z' {
			return i + n
		}
	}
	c, w := s.class(i)
	from := i
	if s.text[i] == ' ' {
		if next, n := s.class(i + 1); n > 0 && next&ucd.S == 0 {
			c, w, from = next, n, i+1
		}
	}
	switch {
	case c&ucd.L != 0:
		return s.run(from+w, ucd.L)
	case c&ucd.N != 0:
		return s.run(from+w, ucd.N)
	case c&ucd.S == 0:
		return s.runNot(from+w, ucd.S|ucd.L|ucd.N)
	}
	return s.spaces(i, false)
}

// caseSplit is the family of GPT-4o's pattern, which cuts words where lower
// case turns to upper case.
type caseSplit struct {
	digits       int
	contractions bool
	tail         string // what may follow symbols
	hanApart     bool   // runs of Han are pre-tokens, and no letters otherwise
}

func (p caseSplit) split(s *scan) {
	for i := 0; i < len(s.text); {
		end := p.next(s, i)
		s.emit(i, end)
		i = end
	}
}

func (p caseSplit) next(s *scan, i int) int {
	c, w := s.class(i)
	if p.hanApart && c&ucd.Han != 0 {
		return s.run(i+w, ucd.Han)
	}
	prefix := c&(ucd.Newline|ucd.L|ucd.N) == 0
	end := 0
	if prefix {
		end = p.lowerWord(s, i+w)
	}
	if end == 0 {
		end = p.lowerWord(s, i)
	}
	if end == 0 && prefix {
		end = p.upperWord(s, i+w)
	}
	if end == 0 {
		end = p.upperWord(s, i)
	}
	if end > 0 {
		if p.contractions {
			end += s.contraction(end)
		}
		return end
	}
	if c&ucd.N != 0 {
		return s.digits(i+w, p.digits)
	}
	if end := s.symbols(i, c, w, ucd.L, p.tail); end > 0 {
		return end
	}
	return s.spaces(i, true)
}

// letter is class, with Han not counting as letters where it stands apart.
func (p caseSplit) letter(s *scan, i int, mask ucd.Class) int {
	c, w := s.class(i)
	if c&mask == 0 || p.hanApart && c&ucd.Han != 0 {
		return 0
	}
	return w
}

func (p caseSplit) run(s *scan, i int, mask ucd.Class) int {
	for w := p.letter(s, i, mask); w > 0; w = p.letter(s, i, mask) {
		i += w
	}
	return i
}

// lowerWord matches [upper]*[lower]+ at i; 0 if it does not match. Letters
// without case are in both sets, so the greedy first part may have to give
// some back.
func (p caseSplit) lowerWord(s *scan, i int) int {
	giveBack := 0
	for w := p.letter(s, i, ucd.U); w > 0; w = p.letter(s, i, ucd.U) {
		if c, _ := s.class(i); c&ucd.W != 0 {
			giveBack = i + w
		}
		i += w
	}
	if w := p.letter(s, i, ucd.W); w > 0 {
		return p.run(s, i+w, ucd.W)
	}
	return giveBack
}

// upperWord matches [upper]+[lower]* at i; 0 if it does not match.
func (p caseSplit) upperWord(s *scan, i int) int {
	w := p.letter(s, i, ucd.U)
	if w == 0 {
		return 0
	}
	return p.run(s, p.run(s, i+w, ucd.U), ucd.W)
}
