package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The sandbox of transformers is immutable: methods that change a list or a
// dict exist, and raise SecurityError when called.

var dictMethods = map[string]bool{
	"items": true, "keys": true, "values": true, "get": true, "copy": true,
	"update": true, "pop": true, "clear": true, "setdefault": true, "popitem": true, "fromkeys": true,
}

var listMethods = map[string]bool{
	"index": true, "count": true, "copy": true,
	"append": true, "extend": true, "insert": true, "remove": true, "pop": true, "clear": true, "sort": true, "reverse": true,
}

func unsafeMethod(name, typ string) {
	raise("SecurityError", "access to attribute '%s' of '%s' object is unsafe.", name, typ)
}

func (m *machine) callMethod(b *boundMethod, args []Value, kw []kwarg) Value {
	switch v := b.recv.(type) {
	case *Dict:
		return m.callDictMethod(v, b.name, args, kw)
	case string:
		m.scan(len(v))
		return stringMethods[b.name](m, v, args, kw)
	case markup:
		return m.callMarkupMethod(string(v), b.name, args, kw)
	case *List:
		return m.callListMethod(v.items, b.name, args)
	case Tuple:
		return m.callListMethod(v, b.name, args)
	case *cycler:
		return v.call(b.name)
	}
	raise("TypeError", "'%s' object is not callable", b.name)
	return nil
}

// callMarkupMethod gives text that comes out the type Markup, and escapes text
// that goes in.
func (m *machine) callMarkupMethod(s, name string, args []Value, kw []kwarg) Value {
	escaped := func(v Value) Value {
		if _, plain := v.(string); plain {
			return escapeHTML(v.(string))
		}
		return v
	}
	switch {
	case name == "join":
		var parts []Value
		for _, x := range m.iterate(first(args)) {
			parts = append(parts, escaped(m.str(x)))
			if x, ok := x.(markup); ok {
				parts[len(parts)-1] = x
			}
		}
		m.made(&List{parts})
		args = []Value{&List{parts}}
	case name == "replace" && len(args) > 1:
		args = slices.Clone(args)
		args[1] = escaped(args[1])
	}
	asMarkup := func(items []Value) []Value {
		out := make([]Value, len(items))
		for i, x := range items {
			out[i] = markup(x.(string))
		}
		return out
	}
	switch r := stringMethods[name](m, s, args, kw).(type) {
	case string:
		return markup(r)
	case *List:
		return &List{asMarkup(r.items)}
	case Tuple:
		return Tuple(asMarkup(r))
	default:
		return r
	}
}

func (m *machine) callDictMethod(d *Dict, name string, args []Value, kw []kwarg) Value {
	switch name {
	case "items":
		return &dictView{viewItems, d}
	case "keys":
		return &dictView{viewKeys, d}
	case "values":
		return &dictView{viewValues, d}
	case "get":
		if len(args) == 0 || len(args) > 2 || len(kw) > 0 {
			raise("TypeError", "get expected 1 or 2 arguments")
		}
		if v, ok := m.get(d, args[0]); ok {
			return v
		}
		if len(args) > 1 {
			return args[1]
		}
		return nil
	case "copy":
		m.use(d.Len() * entrySize)
		return d.Clone()
	}
	unsafeMethod(name, "dict")
	return nil
}

func (m *machine) callListMethod(items []Value, name string, args []Value) Value {
	switch name {
	case "copy":
		return &List{slices.Clone(items)}
	case "count":
		n := int64(0)
		for _, x := range items {
			if m.equal(x, first(args)) {
				n++
			}
		}
		return n
	case "index":
		for i, x := range items {
			if m.equal(x, first(args)) {
				return int64(i)
			}
		}
		raise("ValueError", "value is not in list")
	}
	unsafeMethod(name, "list")
	return nil
}

type stringMethod func(m *machine, s string, args []Value, kw []kwarg) Value

var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"capitalize":   mapText(capitalize),
		"casefold":     methodCasefold,
		"center":       pad(padBoth),
		"count":        methodCount,
		"encode":       unsupportedMethod,
		"endswith":     affix(strings.HasSuffix),
		"expandtabs":   methodExpandTabs,
		"find":         find(strings.Index, false),
		"format":       methodFormat,
		"format_map":   unsupportedMethod,
		"index":        find(strings.Index, true),
		"isalnum":      every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isalpha":      every(unicode.IsLetter),
		"isascii":      func(_ *machine, s string, _ []Value, _ []kwarg) Value { return isASCII(s) },
		"isdecimal":    every(unicode.IsDigit),
		"isdigit":      every(isDigit),
		"isidentifier": func(_ *machine, s string, _ []Value, _ []kwarg) Value { return isIdentifier(s) },
		"islower":      func(_ *machine, s string, _ []Value, _ []kwarg) Value { return isLower(s) },
		"isnumeric":    every(unicode.IsNumber),
		"isprintable":  func(_ *machine, s string, _ []Value, _ []kwarg) Value { return !strings.ContainsFunc(s, notPrintable) },
		"isspace":      every(isSpace),
		"istitle":      func(_ *machine, s string, _ []Value, _ []kwarg) Value { return isTitle(s) },
		"isupper":      func(_ *machine, s string, _ []Value, _ []kwarg) Value { return isUpper(s) },
		"join":         methodJoin,
		"ljust":        pad(padRight),
		"lower":        mapText(lower),
		"lstrip":       strip(true, false),
		"maketrans":    unsupportedMethod,
		"partition":    partition(strings.Index, false),
		"removeprefix": func(_ *machine, s string, args []Value, _ []kwarg) Value {
			return strings.TrimPrefix(s, needText(first(args)))
		},
		"removesuffix": func(_ *machine, s string, args []Value, _ []kwarg) Value {
			return strings.TrimSuffix(s, needText(first(args)))
		},
		"replace":    methodReplace,
		"rfind":      find(strings.LastIndex, false),
		"rindex":     find(strings.LastIndex, true),
		"rjust":      pad(padLeft),
		"rpartition": partition(strings.LastIndex, true),
		"rsplit":     split(true),
		"rstrip":     strip(false, true),
		"split":      split(false),
		"splitlines": methodSplitLines,
		"startswith": affix(strings.HasPrefix),
		"strip":      strip(true, true),
		"swapcase":   mapText(swapCase),
		"title":      mapText(titleWords),
		"translate":  unsupportedMethod,
		"upper":      mapText(upper),
		"zfill":      methodZfill,
	}
}

func unsupportedMethod(*machine, string, []Value, []kwarg) Value {
	raise("TypeError", "this string method is not supported")
	return nil
}

func mapText(f func(string) string) stringMethod {
	return func(_ *machine, s string, _ []Value, _ []kwarg) Value { return f(s) }
}

func every(f func(rune) bool) stringMethod {
	return func(_ *machine, s string, _ []Value, _ []kwarg) Value {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !f(r) })
	}
}

// anyOf reports whether a character is one of chars.
func (m *machine) anyOf(chars string) func(rune) bool {
	return func(r rune) bool {
		m.scan(len(chars))
		return strings.ContainsRune(chars, r)
	}
}

func methodCasefold(_ *machine, s string, _ []Value, _ []kwarg) Value {
	if !isASCII(s) {
		raise("TypeError", "casefold() of text beyond ASCII is not supported")
	}
	return lower(s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func notPrintable(r rune) bool { return !printable(r) }

func strip(left, right bool) stringMethod {
	return func(m *machine, s string, args []Value, _ []kwarg) Value {
		cut := isSpace
		if len(args) > 0 && args[0] != nil {
			cut = m.anyOf(needText(args[0]))
		}
		if left {
			s = strings.TrimLeftFunc(s, cut)
		}
		if right {
			s = strings.TrimRightFunc(s, cut)
		}
		return s
	}
}

// affix makes startswith and endswith: a string or a tuple of them, and
// optional bounds.
func affix(has func(s, part string) bool) stringMethod {
	return func(m *machine, s string, args []Value, _ []kwarg) Value {
		part := first(args)
		if len(args) > 1 {
			start, stop := optionalInt(args, 1), optionalInt(args, 2)
			s = m.slice(s, start, stop, nil).(string)
		}
		parts, ok := part.(Tuple)
		if !ok {
			return has(s, needText(part))
		}
		for _, p := range parts {
			if has(s, needText(p)) {
				return true
			}
		}
		return false
	}
}

// optionalInt is an integer argument that may be missing or None.
func optionalInt(args []Value, i int) *int64 {
	if i >= len(args) || args[i] == nil {
		return nil
	}
	n := needInt(args[i])
	return &n
}

// find makes find, rfind, index and rindex.
func find(index func(s, part string) int, must bool) stringMethod {
	return func(m *machine, s string, args []Value, _ []kwarg) Value {
		part := needText(first(args))
		offset := int64(0)
		if len(args) > 1 {
			start, stop := optionalInt(args, 1), optionalInt(args, 2)
			offset, _ = sliceBounds(int64(utf8.RuneCountInString(s)), start, stop, 1)
			s = m.slice(s, start, stop, nil).(string)
		}
		if i := index(s, part); i >= 0 {
			return offset + int64(utf8.RuneCountInString(s[:i]))
		}
		if must {
			raise("ValueError", "substring not found")
		}
		return int64(-1)
	}
}

func methodCount(m *machine, s string, args []Value, _ []kwarg) Value {
	if len(args) > 1 {
		s = m.slice(s, optionalInt(args, 1), optionalInt(args, 2), nil).(string)
	}
	return int64(strings.Count(s, needText(first(args))))
}

func methodReplace(m *machine, s string, args []Value, kw []kwarg) Value {
	if len(args) < 2 || len(args) > 3 {
		raise("TypeError", "replace expected 2 or 3 arguments")
	}
	count := arg(args, kw, 2, "count", int64(-1))
	return m.replace(s, needText(args[0]), needText(args[1]), int(needInt(count)))
}

func methodJoin(m *machine, s string, args []Value, _ []kwarg) Value {
	w := m.writer()
	for i, x := range m.iterate(first(args)) {
		m.step()
		if i > 0 {
			w.write(s)
		}
		w.write(needText(x))
	}
	return w.text()
}

func methodSplitLines(_ *machine, s string, args []Value, kw []kwarg) Value {
	return listOfText(splitLines(s, truthy(arg(args, kw, 0, "keepends", false))))
}

func listOfText(parts []string) *List {
	l := &List{make([]Value, len(parts))}
	for i, s := range parts {
		l.items[i] = s
	}
	return l
}

func partition(index func(s, part string) int, right bool) stringMethod {
	return func(_ *machine, s string, args []Value, _ []kwarg) Value {
		sep := needText(first(args))
		if sep == "" {
			raise("ValueError", "empty separator")
		}
		switch i := index(s, sep); {
		case i >= 0:
			return Tuple{s[:i], sep, s[i+len(sep):]}
		case right:
			return Tuple{"", "", s}
		}
		return Tuple{s, "", ""}
	}
}

// split makes split and rsplit.
func split(right bool) stringMethod {
	return func(m *machine, s string, args []Value, kw []kwarg) Value {
		separator := arg(args, kw, 0, "sep", nil)
		limit := int(needInt(arg(args, kw, 1, "maxsplit", int64(-1))))
		if separator == nil {
			m.useProduct(len(s)/2+1, valueSize)
			return listOfText(splitSpace(s, limit, right))
		}
		sep := needText(separator)
		if sep == "" {
			raise("ValueError", "empty separator")
		}
		m.useProduct(len(s)/len(sep)+1, valueSize)
		switch {
		case limit < 0:
			return listOfText(strings.Split(s, sep))
		case !right:
			return listOfText(strings.SplitN(s, sep, min(limit, len(s))+1))
		}
		var parts []string
		for ; limit > 0; limit-- {
			i := strings.LastIndex(s, sep)
			if i < 0 {
				break
			}
			parts = append(parts, s[i+len(sep):])
			s = s[:i]
		}
		parts = append(parts, s)
		slices.Reverse(parts)
		return listOfText(parts)
	}
}

// splitSpace splits at runs of white space, at most limit times unless limit
// is negative, from the right if asked.
func splitSpace(s string, limit int, right bool) []string {
	if limit < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var parts []string
	if !right {
		s = strings.TrimLeftFunc(s, isSpace)
		for ; limit > 0 && s != ""; limit-- {
			i := strings.IndexFunc(s, isSpace)
			if i < 0 {
				break
			}
			parts = append(parts, s[:i])
			s = strings.TrimLeftFunc(s[i:], isSpace)
		}
		if s != "" {
			parts = append(parts, s)
		}
		return parts
	}
	s = strings.TrimRightFunc(s, isSpace)
	for ; limit > 0 && s != ""; limit-- {
		i := strings.LastIndexFunc(s, isSpace)
		if i < 0 {
			break
		}
		_, w := utf8.DecodeRuneInString(s[i:])
		parts = append(parts, s[i+w:])
		s = strings.TrimRightFunc(s[:i], isSpace)
	}
	if s != "" {
		parts = append(parts, s)
	}
	slices.Reverse(parts)
	return parts
}

type padding uint8

const (
	padRight padding = iota
	padLeft
	padBoth
)

// pad makes ljust, rjust and center.
func pad(where padding) stringMethod {
	return func(m *machine, s string, args []Value, _ []kwarg) Value {
		width := needInt(first(args))
		fill := " "
		if len(args) > 1 {
			if fill = needText(args[1]); utf8.RuneCountInString(fill) != 1 {
				raise("TypeError", "The fill character must be exactly one character long")
			}
		}
		length := int64(utf8.RuneCountInString(s))
		n := width - length
		if n <= 0 {
			return s
		}
		m.useProduct(int(n), len(fill))
		left := int64(0)
		switch where {
		case padLeft:
			left = n
		case padBoth:
			left = n/2 + n&width&1 // CPython's rounding
		}
		return strings.Repeat(fill, int(left)) + s + strings.Repeat(fill, int(n-left))
	}
}

func methodZfill(m *machine, s string, args []Value, _ []kwarg) Value {
	n := needInt(first(args)) - int64(utf8.RuneCountInString(s))
	if n <= 0 {
		return s
	}
	m.use(int(n))
	zeros := strings.Repeat("0", int(n))
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1] + zeros + s[1:]
	}
	return zeros + s
}

func methodExpandTabs(m *machine, s string, args []Value, kw []kwarg) Value {
	size := needInt(arg(args, kw, 0, "tabsize", int64(8)))
	w := m.writer()
	column := int64(0)
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				m.use(int(n))
				w.write(strings.Repeat(" ", int(n)))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		w.putRune(r)
		column++
	}
	return w.text()
}
