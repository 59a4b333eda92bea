package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// conversion is one %-conversion of Python's printf-style formatting:
// %[flags][width][.precision]type.
type conversion struct {
	minus, plus, space, zero, alternate bool
	width                               int
	precision                           int // -1 if not given
	verb                                byte
}

// format is Python's format % args; with escape it is that of Markup, which
// escapes the arguments that are not Markup. named is what %(name)s reads from.
func (m *machine) format(format string, args []Value, named *Dict, escape bool) string {
	w := m.writer()
	usedNames := false
	next := func() Value {
		if len(args) == 0 {
			raise("TypeError", "not enough arguments for format string")
		}
		v := args[0]
		args = args[1:]
		return v
	}
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			w.write(format)
			break
		}
		w.write(format[:i])
		var c conversion
		format = format[i+1:]
		name, isNamed := "", false
		if strings.HasPrefix(format, "(") {
			name, format = formatName(format[1:])
			isNamed, usedNames = true, true
		}
		c, format = parseConversion(format, func() int64 { return needStar(next()) })
		if c.verb == '%' {
			w.write("%")
			continue
		}
		m.use(c.width)
		m.use(max(c.precision, 0))
		var v Value
		if !isNamed {
			v = next()
		} else {
			if named == nil {
				raise("TypeError", "format requires a mapping")
			}
			var ok bool
			if v, ok = m.get(named, name); !ok {
				raise("KeyError", "'%s'", name)
			}
		}
		if escape {
			v = m.escapedArg(v, c.verb)
		}
		w.write(c.apply(m, v))
	}
	if len(args) > 0 && !usedNames && named == nil {
		raise("TypeError", "not all arguments converted during string formatting")
	}
	return w.text()
}

// formatName reads the name in %(name)s, which may hold parentheses.
func formatName(s string) (name, rest string) {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return s[:i], s[i+1:]
			}
		}
	}
	raise("ValueError", "incomplete format key")
	return "", ""
}

// needStar is the width or precision that * takes from the arguments.
func needStar(v Value) int64 {
	n, ok := asNumber(v)
	if !ok || n.isFloat {
		raise("TypeError", "* wants int")
	}
	if n.big != nil || n.i > math.MaxInt32 || n.i < -math.MaxInt32 {
		raise("OverflowError", "width or precision too large")
	}
	return n.i
}

// escapedArg is what a conversion to text sees of an argument of Markup.
func (m *machine) escapedArg(v Value, verb byte) Value {
	if verb != 's' {
		return v
	}
	return m.escaped(v)
}

func parseConversion(s string, star func() int64) (c conversion, rest string) {
	i := 0
flags:
	for ; i < len(s); i++ {
		switch s[i] {
		case '-':
			c.minus = true
		case '+':
			c.plus = true
		case ' ':
			c.space = true
		case '0':
			c.zero = true
		case '#':
			c.alternate = true
		default:
			break flags
		}
	}
	number := func() int {
		if i < len(s) && s[i] == '*' {
			i++
			return int(star())
		}
		n := 0
		for ; i < len(s) && isDecimal(s[i]); i++ {
			if n = n*10 + int(s[i]-'0'); n > math.MaxInt32 {
				raise("OverflowError", "width or precision too large")
			}
		}
		return n
	}
	if c.width = number(); c.width < 0 { // only * gives such
		c.minus, c.width = true, -c.width
	}
	c.precision = -1
	if i < len(s) && s[i] == '.' {
		i++
		c.precision = max(number(), 0)
	}
	for i < len(s) && (s[i] == 'l' || s[i] == 'h' || s[i] == 'L') {
		i++
	}
	if i >= len(s) {
		raise("ValueError", "incomplete format")
	}
	c.verb = s[i]
	return c, s[i+1:]
}

func (c *conversion) apply(m *machine, v Value) string {
	switch c.verb {
	case 's':
		return c.padText(c.cut(m.str(v)))
	case 'r':
		return c.padText(c.cut(m.repr(v)))
	case 'a':
		return c.padText(c.cut(m.ascii(v)))
	case 'c':
		if s, ok := text(v); ok {
			if utf8.RuneCountInString(s) != 1 {
				raise("TypeError", "%%c requires an int or a unicode character, not a string of another length")
			}
			return c.padText(s)
		}
		n := needInt(v)
		if n < 0 || n > utf8.MaxRune || n >= 0xd800 && n <= 0xdfff {
			raise("OverflowError", "%%c arg not in range(0x110000), or half a surrogate pair")
		}
		return c.padText(string(rune(n)))
	case 'd', 'i', 'u':
		return c.padNumber(c.integer(v, true).Text(10), "")
	case 'x', 'X', 'o':
		return c.padNumber(c.based(c.integer(v, false)))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		return c.float(v)
	}
	raise("ValueError", "unsupported format character '%c'", c.verb)
	return ""
}

// ascii is Python's ascii(): repr with escapes beyond ASCII.
func (m *machine) ascii(v Value) string {
	s := m.repr(v)
	if isASCII(s) {
		return s
	}
	w := m.writer()
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			w.putByte(byte(r))
		case r < 0x100:
			w.putf(`\x%02x`, r)
		case r < 0x10000:
			w.putf(`\u%04x`, r)
		default:
			w.putf(`\U%08x`, r)
		}
	}
	s = w.text()
	m.use(len(s))
	return s
}

// cut applies the precision of %s.
func (c *conversion) cut(s string) string {
	if c.precision >= 0 {
		return s[:runeOffset(s, int64(c.precision))]
	}
	return s
}

func (c *conversion) integer(v Value, floats bool) *big.Int {
	n, ok := asNumber(v)
	if !ok || n.isFloat && !floats {
		raise("TypeError", "%%%c format: a number is required, not %s", c.verb, typeName(v))
	}
	if n.isFloat {
		if math.IsNaN(n.f) || math.IsInf(n.f, 0) {
			raise("ValueError", "cannot convert float %s to integer", floatText(n.f))
		}
		n, _ = asNumber(truncate(n.f))
	}
	return n.int()
}

func (c *conversion) based(i *big.Int) (digits, prefix string) {
	base := 16
	if c.verb == 'o' {
		base = 8
	}
	digits = i.Text(base)
	if c.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if c.alternate {
		prefix = "0" + string(c.verb)
	}
	return digits, prefix
}

func (c *conversion) float(v Value) string {
	n, ok := asNumber(v)
	if !ok {
		raise("TypeError", "must be real number, not %s", typeName(v))
	}
	f := n.float()
	precision := c.precision
	if precision < 0 {
		precision = 6
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		c.zero = false
		return c.padNumber(strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+"), "")
	}
	if c.alternate {
		raise("ValueError", "the flag # is not supported for floats")
	}
	switch c.verb {
	case 'F':
		return c.padNumber(strconv.FormatFloat(f, 'f', precision, 64), "")
	case 'g', 'G':
		return c.padNumber(fmt.Sprintf("%.*"+string(c.verb), max(precision, 1), f), "")
	}
	return c.padNumber(strconv.FormatFloat(f, c.verb, precision, 64), "")
}

// padNumber adds sign, prefix and padding to digits, which may start with "-".
func (c *conversion) padNumber(digits, prefix string) string {
	sign := ""
	switch {
	case strings.HasPrefix(digits, "-"):
		sign, digits = "-", digits[1:]
	case c.plus:
		sign = "+"
	case c.space:
		sign = " "
	}
	if c.precision > len(digits) && strings.IndexByte("diuxXo", c.verb) >= 0 {
		digits = strings.Repeat("0", c.precision-len(digits)) + digits
	}
	if n := c.width - len(sign) - len(prefix) - len(digits); n > 0 && c.zero && !c.minus {
		digits = strings.Repeat("0", n) + digits
	}
	return c.padText(sign + prefix + digits)
}

func (c *conversion) padText(s string) string {
	n := c.width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s
	}
	if c.minus {
		return s + strings.Repeat(" ", n)
	}
	return strings.Repeat(" ", n) + s
}
