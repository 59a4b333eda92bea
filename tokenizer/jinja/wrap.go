package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The filters that fit text into a width.

func filterCenter(m *machine, v Value, args []Value, kw []kwarg) Value {
	return likeText(v, pad(padBoth)(m, m.str(v), []Value{arg(args, kw, 0, "width", int64(80))}, nil).(string))
}

// filterTruncate cuts v, which may be anything with a length; only text can be
// too long.
func filterTruncate(m *machine, v Value, args []Value, kw []kwarg) Value {
	limit := arg(args, kw, 0, "length", int64(255))
	end := arg(args, kw, 2, "end", "...")
	leeway := arg(args, kw, 3, "leeway", nil)
	if leeway == nil {
		leeway = int64(5) // jinja2's policy
	}
	if m.less(limit, length(end)) || m.less(leeway, int64(0)) {
		raise("AssertionError", "length and leeway must not be smaller than the end, and 0")
	}
	if m.lessOrEqual(length(v), m.binary(opAdd, limit, leeway)) {
		return v
	}
	if _, ok := text(v); !ok {
		raise("TypeError", "'%s' object cannot be truncated", typeName(v))
	}
	kept := needInt(limit) - length(end)
	cut := m.slice(v, nil, &kept, nil)
	if s, _ := text(cut); !truthy(arg(args, kw, 1, "killwords", false)) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			cut = likeText(v, s[:i])
		}
	}
	return m.binary(opAdd, cut, end)
}

// filterWordWrap wraps every line of a text by itself, as Python's textwrap
// does.
func filterWordWrap(m *machine, v Value, args []Value, kw []kwarg) Value {
	w := wrapper{m: m, width: arg(args, kw, 0, "width", int64(79))}
	w.breakWords = truthy(arg(args, kw, 1, "break_long_words", true))
	newline := arg(args, kw, 2, "wrapstring", nil)
	if newline == nil {
		newline = "\n"
	}
	separator := needText(newline)
	hyphens := arg(args, kw, 3, "break_on_hyphens", true)
	w.breakHyphens, w.splitHyphens = truthy(hyphens), hyphens == true
	_, escape := newline.(markup) // as Markup.join does
	out := m.writer()
	for i, line := range splitLines(needText(v), false) {
		if i > 0 {
			out.write(separator)
		}
		for j, wrapped := range w.wrap(line) {
			if j > 0 {
				out.write(separator)
			}
			if escape {
				wrapped = escapeHTML(wrapped)
			}
			out.write(wrapped)
		}
	}
	return likeText(newline, out.text())
}

// wrapper is Python's TextWrapper in the set-up of |wordwrap.
type wrapper struct {
	m                          *machine
	width                      Value
	breakWords                 bool
	breakHyphens, splitHyphens bool // splitHyphens only for exactly True
}

// chunk is what stays together, and how many characters that is.
type chunk struct {
	s string
	n int
}

func (w *wrapper) wrap(line string) []string {
	m := w.m
	if !m.less(int64(0), w.width) {
		raise("ValueError", "invalid width (must be > 0)")
	}
	m.useProduct(len(line), 2*valueSize)
	split := splitBlanks
	if w.splitHyphens {
		split = splitWords
	}
	var chunks []chunk
	for _, s := range split(line) {
		m.step()
		chunks = append(chunks, chunk{s, utf8.RuneCountInString(s)})
	}
	fits := func(n int) bool { return !m.less(w.width, int64(n)) }
	var lines []string
	for len(chunks) > 0 {
		if len(lines) > 0 && trim(chunks[0].s) == "" {
			chunks = chunks[1:]
		}
		var parts []string
		length := 0
		for len(chunks) > 0 {
			next := chunks[0]
			if !fits(length + next.n) {
				break
			}
			parts, chunks, length = append(parts, next.s), chunks[1:], length+next.n
		}
		if len(chunks) > 0 && !fits(chunks[0].n) {
			m.step()
			word := &chunks[0]
			switch {
			case w.breakWords:
				end := w.cut(word.s, int(needInt(w.width))-length)
				parts = append(parts, word.s[:end])
				word.s, word.n = word.s[end:], word.n-utf8.RuneCountInString(word.s[:end])
			case len(parts) == 0:
				parts, chunks = append(parts, word.s), chunks[1:]
			}
		}
		if n := len(parts); n > 0 && trim(parts[n-1]) == "" {
			parts = parts[:n-1]
		}
		if len(parts) > 0 {
			lines = append(lines, strings.Join(parts, ""))
		}
	}
	return lines
}

// cut is how much of a long word there is space for: up to a hyphen if there is
// one after something else.
func (w *wrapper) cut(word string, space int) int {
	end := runeOffset(word, int64(space))
	if i := strings.LastIndexByte(word[:end], '-'); w.breakHyphens && i > 0 && strings.Trim(word[:i], "-") != "" {
		return i + 1
	}
	return end
}

// blank is what textwrap takes for white space.
func blank(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

// splitBlanks cuts between white space and other text.
func splitBlanks(s string) []string {
	var chunks []string
	for s != "" {
		first, _ := utf8.DecodeRuneInString(s)
		i := strings.IndexFunc(s, func(r rune) bool { return blank(r) != blank(first) })
		if i < 0 {
			i = len(s)
		}
		chunks = append(chunks, s[:i])
		s = s[i:]
	}
	return chunks
}

// splitWords cuts at white space, after the hyphen of a compound word, and
// around a dash between words, which is written as two hyphens or more.
func splitWords(line string) []string {
	s := []rune(line)
	letter := func(i int) bool {
		return i >= 0 && i < len(s) && !noWord(s[i]) && !unicode.IsDigit(s[i])
	}
	// dash is where a dash between words that starts at i ends, else i.
	dash := func(i int) int {
		if i == 0 || noWord(s[i-1]) && !strings.ContainsRune(`!"'&.,?`, s[i-1]) {
			return i
		}
		end := i
		for end < len(s) && s[end] == '-' {
			end++
		}
		if end-i < 2 || end == len(s) || noWord(s[end]) {
			return i
		}
		return end
	}
	// compound reports whether the hyphen at i joins two words of letters.
	compound := func(i int) bool {
		before := letter(i-1) && (letter(i-2) || i > 1 && s[i-2] == '-' && letter(i-3))
		return before && letter(i+1) && (letter(i+2) || i+2 < len(s) && s[i+2] == '-' && letter(i+3))
	}
	// next is where the chunk that starts at i ends.
	next := func(i int) int {
		end := i
		for end < len(s) && blank(s[end]) {
			end++
		}
		if end > i {
			return end
		}
		if end = dash(i); end > i {
			return end
		}
		for end = i + 1; end < len(s) && !blank(s[end]); end++ {
			if s[end] == '-' && compound(end) {
				return end + 1
			}
			if s[end] == '-' && dash(end) > end {
				return end
			}
		}
		return end
	}
	var chunks []string
	for i := 0; i < len(s); {
		end := next(i)
		chunks = append(chunks, string(s[i:end]))
		i = end
	}
	return chunks
}
