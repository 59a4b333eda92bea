package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is Python's str().
func (m *machine) str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case nil:
		return "None"
	case *undefinedType:
		return ""
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return m.repr(v)
}

// repr is Python's repr().
func (m *machine) repr(v Value) string {
	w := m.writer()
	w.repr(v, 0)
	return w.text()
}

// textWriter builds a string within the render's memory budget, at the end of
// the machine's buffer.
type textWriter struct {
	m     *machine
	start int
}

func (m *machine) writer() textWriter { return textWriter{m, len(m.out)} }

// text is what was written. Nothing may be written after it.
func (w textWriter) text() string {
	s := string(w.m.out[w.start:])
	w.m.out = w.m.out[:w.start]
	return s
}

func (w textWriter) write(s string) {
	w.m.use(len(s))
	w.m.out = append(w.m.out, s...)
}

// put writes text that is charged already.
func (w textWriter) put(s string) { w.m.out = append(w.m.out, s...) }

func (w textWriter) putByte(c byte) { w.m.out = append(w.m.out, c) }

func (w textWriter) putRune(r rune) { w.m.out = utf8.AppendRune(w.m.out, r) }

func (w textWriter) putf(format string, args ...any) {
	w.m.out = fmt.Appendf(w.m.out, format, args...)
}

func (w textWriter) repr(v Value, depth int) {
	w.m.step()
	if depth > valueDepth {
		exceeded(ErrDepth)
	}
	switch v := v.(type) {
	case string:
		w.reprString(v)
	case markup:
		w.write("Markup(")
		w.reprString(string(v))
		w.write(")")
	case *undefinedType:
		w.write("Undefined")
	case float64:
		w.write(floatText(v))
	case *big.Int:
		w.m.scan(number{big: v}.words() * number{big: v}.words())
		w.write(bigText(v))
	case Tuple:
		if len(v) == 1 {
			w.reprItems("(", ",)", v, depth)
		} else {
			w.reprItems("(", ")", v, depth)
		}
	case *List:
		w.reprItems("[", "]", v.items, depth)
	case *Dict:
		w.reprDict(v, depth)
	case *dictView:
		open := [...]string{viewKeys: "dict_keys([", viewValues: "dict_values([", viewItems: "dict_items(["}
		w.reprItems(open[v.kind], "])", v.items(), depth)
	case *rangeValue:
		if v.step == 1 {
			w.write(fmt.Sprintf("range(%d, %d)", v.start, v.stop))
		} else {
			w.write(fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step))
		}
	case *namespace:
		w.write("<Namespace ")
		w.reprDict(&v.vars, depth)
		w.write(">")
	case *loop:
		w.write(fmt.Sprintf("<LoopContext %d/%d>", v.i+1, v.n))
	case nil, bool, int64:
		w.write(w.m.str(v))
	default:
		w.write("<" + typeName(v) + ">")
	}
}

func (w textWriter) reprItems(open, end string, items []Value, depth int) {
	w.write(open)
	for i, x := range items {
		if i > 0 {
			w.write(", ")
		}
		w.repr(x, depth+1)
	}
	w.write(end)
}

func (w textWriter) reprDict(d *Dict, depth int) {
	w.write("{")
	for i, k := range d.keys {
		if i > 0 {
			w.write(", ")
		}
		w.repr(k, depth+1)
		w.write(": ")
		w.repr(d.vals[i], depth+1)
	}
	w.write("}")
}

func (w textWriter) reprString(s string) {
	w.m.use(len(s) + 2)
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	w.putRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			w.putByte('\\')
			w.putRune(r)
		case r == '\n':
			w.put(`\n`)
		case r == '\r':
			w.put(`\r`)
		case r == '\t':
			w.put(`\t`)
		case printable(r):
			w.putRune(r)
		case r < 0x100:
			w.putf(`\x%02x`, r)
		case r < 0x10000:
			w.putf(`\u%04x`, r)
		default:
			w.putf(`\U%08x`, r)
		}
	}
	w.putRune(quote)
}

// printable is Python's str.isprintable for one character.
func printable(r rune) bool {
	if r < 0x7f {
		return r >= ' '
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}

// floatText is repr(float): the shortest digits that read back the same, with
// an exponent below 1e-4 and from 1e16.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	if a := math.Abs(f); a < 1e-4 || a >= 1e16 {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func bigText(i *big.Int) string {
	s := i.String()
	if len(strings.TrimPrefix(s, "-")) > maxIntDigits {
		raise("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	return s
}

// isSpace is Python's str.isspace for one character. It differs from
// unicode.IsSpace in U+001C to U+001F.
func isSpace(r rune) bool {
	switch {
	case r >= 0x09 && r <= 0x0d, r >= 0x1c && r <= 0x20, r == 0x85, r == 0xa0, r == 0x1680, r >= 0x2000 && r <= 0x200a,
		r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}

// spacePrefix is the length of the white space that s starts with.
func spacePrefix(s string) int {
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		if !isSpace(r) {
			return i
		}
		i += w
	}
	return len(s)
}

// splitLines is str.splitlines.
func splitLines(s string, keepEnds bool) []string {
	var lines []string
	start := 0
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		switch r {
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		case '\r':
			if i+1 < len(s) && s[i+1] == '\n' {
				w = 2
			}
		default:
			i += w
			continue
		}
		end := i
		if keepEnds {
			end = i + w
		}
		lines = append(lines, s[start:end])
		i += w
		start = i
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

// IsSpace is what Python's str.strip and str.isspace take for white space.
func IsSpace(r rune) bool { return isSpace(r) }
