package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// str.format: '{} {0} {name.attr[key]!r:>8}'.format(...), in the form that the
// sandbox gives it: attributes and items are looked up as in a template.

// fieldFormatter is one call of str.format.
type fieldFormatter struct {
	m       *machine
	args    []Value
	kw      []kwarg
	next    int  // of the fields without a name
	counted bool // a field without a name was there
	indexed bool // a field with a number was there
}

func methodFormat(m *machine, s string, args []Value, kw []kwarg) Value {
	f := &fieldFormatter{m: m, args: args, kw: kw}
	return f.expand(s, 2)
}

// expand replaces the fields in s. A format specification may hold fields
// itself, one level deep.
func (f *fieldFormatter) expand(s string, levels int) string {
	if levels == 0 {
		raise("ValueError", "Max string recursion exceeded")
	}
	w := f.m.writer()
	for {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			w.write(s)
			return w.text()
		}
		w.write(s[:i])
		brace := s[i]
		s = s[i+1:]
		if s != "" && s[0] == brace {
			w.write(string(brace))
			s = s[1:]
			continue
		}
		if brace == '}' {
			raise("ValueError", "Single '}' encountered in format string")
		}
		end := fieldEnd(s)
		w.write(f.field(s[:end], levels))
		s = s[end+1:]
	}
}

// fieldEnd is where the field that s starts in ends.
func fieldEnd(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	raise("ValueError", "expected '}' before end of string")
	return 0
}

func (f *fieldFormatter) field(s string, levels int) string {
	f.m.step()
	name, spec := s, ""
	conversion := byte(0)
	if i := strings.IndexAny(s, "!:"); i >= 0 {
		name = s[:i]
		if s[i] == ':' {
			spec = s[i+1:]
		} else {
			if i+1 >= len(s) || i+2 < len(s) && s[i+2] != ':' {
				raise("ValueError", "expected ':' after conversion specifier")
			}
			conversion = s[i+1]
			spec = s[min(i+3, len(s)):]
		}
	}
	v := f.lookup(name)
	switch conversion {
	case 0:
	case 's':
		v = f.m.str(v)
	case 'r':
		v = f.m.repr(v)
	case 'a':
		v = f.m.ascii(v)
	default:
		raise("ValueError", "Unknown conversion specifier '%c'", conversion)
	}
	if spec != "" {
		spec = f.expand(spec, levels-1)
	}
	return f.m.formatValue(v, spec)
}

// lookup finds the value of a field: an argument, then attributes and items.
func (f *fieldFormatter) lookup(name string) Value {
	i := strings.IndexAny(name, ".[")
	if i < 0 {
		i = len(name)
	}
	if i == 0 && name != "" {
		raise("KeyError", "''")
	}
	v := f.argument(name[:i])
	for rest := name[i:]; rest != ""; {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			v = attribute(v, rest[1:1+end])
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if end < 0 || rest[0] != '[' {
			raise("ValueError", "Missing ']' in format string")
		}
		key := rest[1:end]
		if n, err := strconv.ParseInt(key, 10, 64); err == nil {
			v = f.m.item(v, n)
		} else {
			v = f.m.item(v, key)
		}
		rest = rest[end+1:]
	}
	return v
}

func (f *fieldFormatter) argument(name string) Value {
	index, err := strconv.Atoi(name)
	switch {
	case name == "":
		f.counted = true
		index = f.next
		f.next++
	case err == nil:
		f.indexed = true
	default:
		v, ok := keyword(f.kw, name)
		if !ok {
			raise("KeyError", "'%s'", name)
		}
		return v
	}
	if f.counted && f.indexed {
		raise("ValueError", "cannot switch between manual field specification and automatic field numbering")
	}
	if index < 0 || index >= len(f.args) {
		raise("IndexError", "Replacement index %d out of range for positional args tuple", index)
	}
	return f.args[index]
}

// formatSpec is [[fill]align][sign][#][0][width][grouping][.precision][type].
type formatSpec struct {
	fill      string
	align     byte // < > ^ =, 0 if not given
	sign      byte
	alternate bool
	width     int
	grouping  byte
	precision int // -1 if not given
	verb      byte
}

func parseSpec(s string) formatSpec {
	spec := formatSpec{fill: " ", precision: -1}
	if _, w := utf8.DecodeRuneInString(s); w > 0 && len(s) > w && strings.IndexByte("<>^=", s[w]) >= 0 {
		spec.fill, spec.align = s[:w], s[w]
		s = s[w+1:]
	} else if s != "" && strings.IndexByte("<>^=", s[0]) >= 0 {
		spec.align = s[0]
		s = s[1:]
	}
	take := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	number := func() int {
		n := 0
		for s != "" && isDecimal(s[0]) {
			if n = n*10 + int(s[0]-'0'); n > math.MaxInt32 {
				raise("ValueError", "Too many decimal digits in format string")
			}
			s = s[1:]
		}
		return n
	}
	spec.sign = take("+- ")
	spec.alternate = take("#") != 0
	if take("0") != 0 && spec.align == 0 {
		spec.fill, spec.align = "0", '='
	}
	spec.width = number()
	spec.grouping = take(",_")
	if take(".") != 0 {
		if s == "" || !isDecimal(s[0]) {
			raise("ValueError", "Format specifier missing precision")
		}
		spec.precision = number()
	}
	if len(s) > 1 {
		raise("ValueError", "Invalid format specifier")
	}
	if s != "" {
		spec.verb = s[0]
	}
	return spec
}

// formatValue is Python's format(v, spec).
func (m *machine) formatValue(v Value, spec string) string {
	if spec == "" {
		return m.str(v)
	}
	f := parseSpec(spec)
	m.useProduct(f.width, len(f.fill))
	m.use(max(f.precision, 0))
	if s, ok := text(v); ok {
		return f.text(s)
	}
	n, ok := asNumber(v)
	if !ok {
		raise("TypeError", "unsupported format string passed to %s.__format__", typeName(v))
	}
	if n.isFloat || strings.IndexByte("eEfFgG%", f.verb) >= 0 && f.verb != 0 {
		return f.float(n.float())
	}
	return f.integer(n.int())
}

func (f *formatSpec) unknown(typ string) {
	raise("ValueError", "Unknown format code '%c' for object of type '%s'", f.verb, typ)
}

func (f *formatSpec) text(s string) string {
	if f.verb != 0 && f.verb != 's' {
		f.unknown("str")
	}
	if f.sign != 0 || f.alternate || f.grouping != 0 || f.align == '=' && f.fill != "0" {
		raise("ValueError", "this format specification is not allowed for a string")
	}
	if f.precision >= 0 {
		s = s[:runeOffset(s, int64(f.precision))]
	}
	return f.pad("", s, '<')
}

func (f *formatSpec) integer(i *big.Int) string {
	if f.precision >= 0 {
		raise("ValueError", "Precision not allowed in integer format specifier")
	}
	if f.verb == 'c' {
		if !i.IsInt64() || i.Int64() < 0 || i.Int64() > utf8.MaxRune {
			raise("OverflowError", "%%c arg not in range(0x110000)")
		}
		return f.pad("", string(rune(i.Int64())), '<')
	}
	base, prefix, every := 10, "", 3
	switch f.verb {
	case 0, 'd', 'n':
	case 'b', 'o', 'x', 'X':
		base = map[byte]int{'b': 2, 'o': 8, 'x': 16, 'X': 16}[f.verb]
		every = 4
		if f.alternate {
			prefix = "0" + string(f.verb)
		}
		if f.grouping == ',' {
			raise("ValueError", "Cannot specify ',' with '%c'.", f.verb)
		}
	default:
		f.unknown("int")
	}
	digits := new(big.Int).Abs(i).Text(base)
	if f.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	return f.number(i.Sign() < 0, prefix, digits, "", every)
}

func (f *formatSpec) float(v float64) string {
	precision, verb := f.precision, f.verb
	if precision < 0 {
		precision = 6
	}
	digits := ""
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		digits = "nan"
	case math.IsInf(v, 0):
		digits = "inf"
	case verb == '%':
		digits = strconv.FormatFloat(a*100, 'f', precision, 64) + "%"
	case verb == 'f' || verb == 'F':
		digits = strconv.FormatFloat(a, 'f', precision, 64)
	case verb == 'e' || verb == 'E':
		digits = strconv.FormatFloat(a, verb, precision, 64)
	case verb == 0 && f.precision < 0:
		digits = floatText(a)
	case verb == 0 || verb == 'g' || verb == 'G' || verb == 'n':
		digits = generalFloat(a, max(precision, 1), f.alternate, verb == 0)
	default:
		f.unknown("float")
	}
	if verb == 'E' || verb == 'F' || verb == 'G' {
		digits = strings.ToUpper(digits)
	}
	whole, rest := digits, ""
	if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	if whole == "" { // nan, inf: nothing to group
		whole, rest = rest, ""
		f.grouping = 0
	}
	return f.number(math.Signbit(v) && !math.IsNaN(v), "", whole, rest, 3)
}

// generalFloat is the type g: precision significant digits, an exponent for
// large and small numbers, trailing zeros removed unless they are kept. A
// number without a type keeps one digit behind the point.
func generalFloat(a float64, precision int, keepZeros, onePlace bool) string {
	s := strconv.FormatFloat(a, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exponent)
	limit := precision
	if onePlace {
		limit-- // 1e+01 rather than 10., which would need a place more
	}
	if e < -4 || e >= max(limit, 1) && e >= limit {
		if !keepZeros && strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + "e" + exponent
	}
	s = strconv.FormatFloat(a, 'f', max(precision-1-e, 0), 64)
	if !keepZeros && strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if onePlace && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// number puts sign, prefix, grouped digits and padding together.
func (f *formatSpec) number(negative bool, prefix, whole, rest string, every int) string {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case f.sign == '+' || f.sign == ' ':
		sign = string(f.sign)
	}
	if f.grouping != 0 {
		if f.align == '=' && f.fill == "0" { // zeros are grouped, too
			for len(sign)+len(prefix)+grouped(len(whole), every)+len(rest) < f.width {
				whole = "0" + whole
			}
		}
		whole = group(whole, f.grouping, every)
	}
	return f.pad(sign+prefix, whole+rest, '>')
}

// grouped is the length of n digits with separators.
func grouped(n, every int) int { return n + (n-1)/every }

func group(digits string, separator byte, every int) string {
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%every == 0 {
			b.WriteByte(separator)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

// pad fills up to the width. The alignment "=" fills between sign and digits.
func (f *formatSpec) pad(sign, s string, align byte) string {
	if f.align != 0 {
		align = f.align
	}
	n := f.width - utf8.RuneCountInString(sign) - utf8.RuneCountInString(s)
	if n <= 0 {
		return sign + s
	}
	switch align {
	case '<':
		return sign + s + strings.Repeat(f.fill, n)
	case '^':
		return strings.Repeat(f.fill, n/2) + sign + s + strings.Repeat(f.fill, n-n/2)
	case '=':
		if sign == "" && f.fill == "0" && f.verb == 0 && !startsWithDigit(s) {
			return s + strings.Repeat(f.fill, n) // zero padding of text
		}
		return sign + strings.Repeat(f.fill, n) + s
	}
	return strings.Repeat(f.fill, n) + sign + s
}

func startsWithDigit(s string) bool { return s != "" && isDecimal(s[0]) }
