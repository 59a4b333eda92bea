package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenBlockBegin // {%
	tokenBlockEnd   // %}
	tokenVarBegin   // {{
	tokenVarEnd     // }}
	tokenName
	tokenString
	tokenNumber
	tokenOperator
)

type token struct {
	kind  tokenKind
	text  string // of data, name, string (unescaped), number, operator
	value Value  // of a number
	line  int
}

// lexer turns a source into tokens the way jinja2's lexer does with
// trim_blocks and lstrip_blocks on, which is how transformers sets it up:
//
//   - the newline after a block tag or comment is dropped (trim_blocks)
//   - white space between the start of a line and a block tag or comment is
//     dropped (lstrip_blocks); not before {{
//   - "-" beside a delimiter strips all white space on that side, "+" turns the
//     two rules off there
//   - one newline at the end of the source is dropped, \r\n and \r become \n
type lexer struct {
	src    string
	pos    int
	line   int
	tokens []token
}

func lex(src string) []token {
	if strings.Contains(src, "\r") {
		src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	}
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1}
	for l.pos < len(l.src) {
		l.dataAndTag()
	}
	l.emit(tokenEOF, "")
	return l.tokens
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line})
}

// moveTo advances to pos and counts the lines passed.
func (l *lexer) moveTo(pos int) {
	l.line += strings.Count(l.src[l.pos:pos], "\n")
	l.pos = pos
}

// dataAndTag reads the text up to the next tag, and the tag.
func (l *lexer) dataAndTag() {
	start := nextTag(l.src, l.pos)
	if start == len(l.src) {
		l.emit(tokenData, l.src[l.pos:])
		l.moveTo(start)
		return
	}
	kind, inside := l.src[start+1], start+2
	var sign byte
	if inside < len(l.src) && (l.src[inside] == '-' || l.src[inside] == '+') {
		sign = l.src[inside]
		inside++
	}
	l.data(l.pos, start, sign, kind == '{')
	l.moveTo(start)
	switch kind {
	case '#':
		l.moveTo(l.commentEnd(inside))
	case '%':
		if body, ok := l.rawBody(inside); ok {
			l.raw(body)
			return
		}
		l.emit(tokenBlockBegin, "")
		l.expression(inside, l.blockEnd, tokenBlockEnd)
	default:
		l.emit(tokenVarBegin, "")
		l.expression(inside, l.varEnd, tokenVarEnd)
	}
}

// nextTag finds {{, {% or {# at or after pos.
func nextTag(s string, pos int) int {
	for {
		i := strings.IndexByte(s[pos:], '{')
		if i < 0 || pos+i+1 >= len(s) {
			return len(s)
		}
		pos += i
		switch s[pos+1] {
		case '{', '%', '#':
			return pos
		}
		pos++
	}
}

// data emits the text before a tag. sign is the character after the tag's
// delimiter.
func (l *lexer) data(from, to int, sign byte, beforeVar bool) {
	t := l.src[from:to]
	switch {
	case sign == '-':
		t = strings.TrimRightFunc(t, isSpace)
	case sign != '+' && !beforeVar:
		line := strings.LastIndexByte(t, '\n') + 1
		atLineStart := line > 0 || from == 0 || l.src[from-1] == '\n'
		if atLineStart && line < len(t) && spacePrefix(t[line:]) == len(t)-line {
			t = t[:line]
		}
	}
	if t != "" {
		l.emit(tokenData, t)
	}
}

// blockEnd returns the position after the %} at p, trim_blocks applied; -1 if
// there is none.
func (l *lexer) blockEnd(p int) int { return l.trimmedEnd(p, "%}") }

func (l *lexer) trimmedEnd(p int, delimiter string) int {
	rest := l.src[p:]
	switch {
	case strings.HasPrefix(rest, delimiter):
		p += len(delimiter)
		if p < len(l.src) && l.src[p] == '\n' {
			p++
		}
		return p
	case strings.HasPrefix(rest, "+"+delimiter):
		return p + 1 + len(delimiter)
	case strings.HasPrefix(rest, "-"+delimiter):
		p += 1 + len(delimiter)
		return p + spacePrefix(l.src[p:])
	}
	return -1
}

// varEnd is blockEnd for }}: trim_blocks does not apply.
func (l *lexer) varEnd(p int) int {
	if strings.HasPrefix(l.src[p:], "-}}") {
		return p + 3 + spacePrefix(l.src[p+3:])
	}
	if strings.HasPrefix(l.src[p:], "}}") {
		return p + 2
	}
	return -1
}

func (l *lexer) commentEnd(p int) int {
	for ; p < len(l.src); p++ {
		switch l.src[p] {
		case '#', '-', '+':
			if end := l.trimmedEnd(p, "#}"); end >= 0 {
				return end
			}
		}
	}
	syntaxError(l.line, "missing end of comment tag")
	return 0
}

// rawBody recognises {% raw %} after its delimiter and returns where its body
// starts. trim_blocks does not apply to it.
func (l *lexer) rawBody(p int) (int, bool) {
	p += spacePrefix(l.src[p:])
	if !strings.HasPrefix(l.src[p:], "raw") {
		return 0, false
	}
	p += len("raw")
	p += spacePrefix(l.src[p:])
	if strings.HasPrefix(l.src[p:], "-%}") {
		p += len("-%}")
		return p + spacePrefix(l.src[p:]), true
	}
	return p + len("%}"), strings.HasPrefix(l.src[p:], "%}")
}

// raw emits everything up to {% endraw %} as data.
func (l *lexer) raw(body int) {
	if body == len(l.src) { // jinja2 does not miss the end of nothing
		l.moveTo(body)
		return
	}
	for start := body; ; start += 2 {
		i := strings.Index(l.src[start:], "{%")
		if i < 0 {
			syntaxError(l.line, "missing end of raw directive")
		}
		start += i
		p := start + 2
		var sign byte
		if p < len(l.src) && (l.src[p] == '-' || l.src[p] == '+') {
			sign = l.src[p]
			p++
		}
		p += spacePrefix(l.src[p:])
		if !strings.HasPrefix(l.src[p:], "endraw") {
			continue
		}
		p += len("endraw")
		p += spacePrefix(l.src[p:])
		if end := l.blockEnd(p); end >= 0 {
			l.data(body, start, sign, false)
			l.moveTo(end)
			return
		}
	}
}

// operators, longest first.
var operators = []string{
	"**", "//", "==", "!=", "<=", ">=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", "=", "<", ">", ".", ":", "|", ",", ";",
}

// expression reads the inside of a tag from p up to its end, which counts only
// outside of brackets.
func (l *lexer) expression(p int, end func(int) int, endKind tokenKind) {
	l.moveTo(p)
	var open []byte
	for {
		l.moveTo(l.pos + spacePrefix(l.src[l.pos:]))
		if l.pos >= len(l.src) {
			syntaxError(l.line, "unexpected end of template inside a tag")
		}
		if len(open) == 0 {
			if after := end(l.pos); after >= 0 {
				l.emit(endKind, "")
				l.moveTo(after)
				return
			}
		}
		switch c := l.src[l.pos]; {
		case c == '"' || c == '\'':
			l.stringLiteral(c)
		case c >= '0' && c <= '9':
			l.numberLiteral()
		default:
			if !l.name() {
				open = l.operator(open)
			}
		}
	}
}

func (l *lexer) name() bool {
	rest := l.src[l.pos:]
	n := strings.IndexFunc(rest, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r)
	})
	if n < 0 {
		n = len(rest)
	}
	first, _ := utf8.DecodeRuneInString(rest)
	if n == 0 || first != '_' && !unicode.IsLetter(first) {
		return false
	}
	l.emit(tokenName, rest[:n])
	l.moveTo(l.pos + n)
	return true
}

var closing = map[string]byte{")": '(', "]": '[', "}": '{'}

// operator reads one operator and keeps track of the open brackets.
func (l *lexer) operator(open []byte) []byte {
	for _, op := range operators {
		if !strings.HasPrefix(l.src[l.pos:], op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			open = append(open, op[0])
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != closing[op] {
				syntaxError(l.line, "unexpected '%s'", op)
			}
			open = open[:len(open)-1]
		}
		l.emit(tokenOperator, op)
		l.pos += len(op)
		return open
	}
	r, _ := utf8.DecodeRuneInString(l.src[l.pos:])
	syntaxError(l.line, "unexpected character %q", r)
	return nil
}

func (l *lexer) stringLiteral(quote byte) {
	p := l.pos + 1
	for p < len(l.src) && l.src[p] != quote {
		if l.src[p] == '\\' {
			p++
		}
		p++
	}
	if p >= len(l.src) {
		syntaxError(l.line, "unterminated string")
	}
	l.emit(tokenString, l.unescape(l.src[l.pos+1:p]))
	l.moveTo(p + 1)
}

// numberLiteral reads what jinja2 reads: 1_000, 0x1f, 1.5, 2e3. After a dot
// (x.0.1) a number is an integer.
func (l *lexer) numberLiteral() {
	rest := l.src[l.pos:]
	afterDot := false
	if n := len(l.tokens); n > 0 {
		afterDot = l.tokens[n-1].kind == tokenOperator && l.tokens[n-1].text == "."
	}
	if n := floatPrefix(rest); n > 0 && !afterDot {
		digits := strings.ReplaceAll(rest[:n], "_", "")
		f, _ := strconv.ParseFloat(digits, 64)
		l.tokens = append(l.tokens, token{kind: tokenNumber, text: rest[:n], value: f, line: l.line})
		l.pos += n
		return
	}
	n := integerPrefix(rest)
	if n > maxIntDigits {
		syntaxError(l.line, "integer of more than %d digits", maxIntDigits)
	}
	i, ok := new(big.Int).SetString(rest[:n], 0)
	if !ok { // leading zeros of "000" would make base 0 think of octal
		i = new(big.Int)
	}
	l.tokens = append(l.tokens, token{kind: tokenNumber, text: rest[:n], value: normalInt(i), line: l.line})
	l.pos += n
}

// digitRun is the length of a run of digits with single underscores between.
func digitRun(s string, isDigit func(byte) bool) int {
	i := 0
	for i < len(s) && (isDigit(s[i]) || i > 0 && s[i] == '_' && i+1 < len(s) && isDigit(s[i+1])) {
		i++
	}
	return i
}

func isDecimal(c byte) bool { return c >= '0' && c <= '9' }

func floatPrefix(s string) int {
	i := digitRun(s, isDecimal)
	isFloat := false
	if i < len(s) && s[i] == '.' {
		if n := digitRun(s[i+1:], isDecimal); n > 0 {
			isFloat = true
			i += 1 + n
		}
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		e := i + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if n := digitRun(s[e:], isDecimal); n > 0 {
			isFloat = true
			i = e + n
		}
	}
	if !isFloat {
		return 0
	}
	return i
}

func integerPrefix(s string) int {
	if s[0] != '0' {
		return digitRun(s, isDecimal)
	}
	if len(s) > 2 {
		var valid func(byte) bool
		switch s[1] | 0x20 {
		case 'x':
			valid = func(c byte) bool { return isDecimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		case 'o':
			valid = func(c byte) bool { return c >= '0' && c <= '7' }
		case 'b':
			valid = func(c byte) bool { return c == '0' || c == '1' }
		}
		if valid != nil {
			if n := digitRun(s[2:], valid); n > 0 {
				return 2 + n
			}
		}
	}
	return digitRun(s, func(c byte) bool { return c == '0' })
}

// unescape follows Python's unicode-escape codec, which jinja2 uses for string
// literals.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'a':
			b.WriteByte('\a')
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'v':
			b.WriteByte('\v')
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n >= len(s) {
				syntaxError(l.line, "truncated \\%c escape", c)
			}
			v, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32)
			if err != nil || v > unicode.MaxRune {
				syntaxError(l.line, "bad \\%c escape", c)
			}
			b.WriteRune(rune(v))
			i += n
		case 'N':
			syntaxError(l.line, "\\N{...} escapes are not supported")
		case '0', '1', '2', '3', '4', '5', '6', '7':
			end := i
			v := rune(0)
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				v = v*8 + rune(s[end]-'0')
				end++
			}
			b.WriteRune(v)
			i = end - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}
