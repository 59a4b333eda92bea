package jinja

import (
	"html"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// The filters that read and write HTML and addresses.

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escapeHTML is markupsafe.escape.
func escapeHTML(s string) string { return htmlEscaper.Replace(s) }

// escaped is v as text, which is escaped unless it is Markup.
func (m *machine) escaped(v Value) string {
	if safe, ok := v.(markup); ok {
		return string(safe)
	}
	s := escapeHTML(m.str(v))
	m.use(len(s))
	return s
}

func filterEscape(m *machine, v Value, _ []Value, _ []kwarg) Value { return markup(m.escaped(v)) }

func filterForceEscape(m *machine, v Value, _ []Value, _ []kwarg) Value {
	return markup(m.escaped(m.str(v)))
}

func filterXMLAttr(m *machine, v Value, args []Value, kw []kwarg) Value {
	d, ok := v.(*Dict)
	if !ok {
		raise("TypeError", "xmlattr needs a mapping, not '%s'", typeName(v))
	}
	space := truthy(arg(args, kw, 0, "autospace", true))
	w := m.writer()
	for i, k := range d.keys {
		m.step()
		if d.vals[i] == nil || isUndefined(d.vals[i]) {
			continue
		}
		if strings.ContainsAny(needText(k), " \t\n\v\f\r/>=") {
			raise("ValueError", "Invalid character in attribute name: %s", m.repr(k))
		}
		if space {
			w.write(" ")
		}
		space = true
		w.write(m.escaped(k) + `="` + m.escaped(d.vals[i]) + `"`)
	}
	return w.text()
}

func filterURLEncode(m *machine, v Value, _ []Value, _ []kwarg) Value {
	var pairs []Value
	switch x := v.(type) {
	case *undefinedType, Tuple, *List, *dictView, *generator, *rangeValue:
		pairs = m.iterate(v)
	case *Dict:
		pairs = (&dictView{viewItems, x}).items()
	default:
		return m.quoteURL(v, "/")
	}
	w := m.writer()
	for i, pair := range pairs {
		m.step()
		kv := m.iterate(pair)
		if len(kv) != 2 {
			raise("ValueError", "cannot unpack %d values into a name and a value", len(kv))
		}
		if i > 0 {
			w.write("&")
		}
		w.write(strings.ReplaceAll(m.quoteURL(kv[0], "")+"="+m.quoteURL(kv[1], ""), "%20", "+"))
	}
	return w.text()
}

// quoteURL is urllib.parse.quote(str(v), safe).
func (m *machine) quoteURL(v Value, safe string) string {
	const hex = "0123456789ABCDEF"
	s := m.str(v)
	m.use(3 * len(s))
	w := m.writer()
	for i := range len(s) {
		switch c := s[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z', isDecimal(c), strings.IndexByte("_.-~", c) >= 0, strings.IndexByte(safe, c) >= 0:
			w.putByte(c)
		default:
			w.putByte('%')
			w.putByte(hex[c>>4])
			w.putByte(hex[c&15])
		}
	}
	return w.text()
}

// filterStripTags removes tags and comments, makes white space single spaces,
// and reads character references.
func filterStripTags(m *machine, v Value, _ []Value, _ []kwarg) Value {
	rest := m.str(v)
	var b strings.Builder
	for {
		start := strings.IndexByte(rest, '<')
		if start < 0 {
			break
		}
		from, closing := start, ">"
		if strings.HasPrefix(rest[start:], "<!--") {
			from, closing = start+4, "-->"
		}
		end := strings.Index(rest[from:], closing)
		if end < 0 {
			break
		}
		b.WriteString(rest[:start])
		rest = rest[from+end+len(closing):]
	}
	b.WriteString(rest)
	m.use(2 * b.Len())
	return unescapeHTML(strings.Join(splitSpace(b.String(), -1, false), " "))
}

// unescapeHTML is Python's html.unescape. Go's differs in numeric references.
func unescapeHTML(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		n, replacement := reference(s)
		b.WriteString(replacement)
		s = s[n:]
	}
}

// reference reads the character reference that s starts with, if it does: its
// length and what it stands for.
func reference(s string) (n int, replacement string) {
	span := func(from, most int, in func(c rune) bool) int {
		end := from
		for ; most > 0 && end < len(s); most-- {
			c, w := utf8.DecodeRuneInString(s[end:])
			if !in(c) {
				break
			}
			end += w
		}
		return end
	}
	semicolon := func(end int) int {
		if end < len(s) && s[end] == ';' {
			return end + 1
		}
		return end
	}
	digit := func(c rune) bool { return c >= '0' && c <= '9' }
	if strings.HasPrefix(s, "&#") {
		if end := span(2, len(s), digit); end > 2 {
			if end-2 > maxIntDigits {
				raise("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
			}
			return semicolon(end), numericReference(s[2:end], 10)
		}
		if len(s) > 2 && s[2]|0x20 == 'x' {
			end := span(3, len(s), func(c rune) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' })
			if end > 3 {
				return semicolon(end), numericReference(s[3:end], 16)
			}
		}
		return 1, "&"
	}
	// No name is longer than 32 characters with its semicolon.
	end := semicolon(span(1, 32, func(c rune) bool { return !strings.ContainsRune("\t\n\f <&#;", c) }))
	switch s[:end] {
	case "&nGt;": // Go knows all names but these
		return end, "≫\u20d2"
	case "&nLt;":
		return end, "≪\u20d2"
	}
	return end, html.UnescapeString(s[:end])
}

func numericReference(digits string, base int) string {
	digits = strings.TrimLeft(digits, "0")
	if len(digits) > 8 {
		return "\ufffd"
	}
	i, _ := new(big.Int).SetString("0"+digits, base)
	c := rune(i.Int64())
	switch {
	case c == 0, c > utf8.MaxRune, c >= 0xd800 && c <= 0xdfff:
		return "\ufffd"
	case c >= 0x80 && c <= 0x9f: // a byte of Windows-1252
		return html.UnescapeString("&#" + i.String() + ";")
	case c < ' ' && c != '\t' && c != '\n' && c != '\f' && c != '\r', c == 0x7f, c >= 0xfdd0 && c <= 0xfdef, c&0xfffe == 0xfffe:
		return ""
	}
	return string(c)
}

// filterURLize makes links of the addresses in a text.
func filterURLize(m *machine, v Value, args []Value, kw []kwarg) Value {
	l := linker{m: m, limit: arg(args, kw, 0, "trim_url_limit", nil)}
	rel := []string{"noopener"} // jinja2's policy
	if names := arg(args, kw, 3, "rel", nil); truthy(names) {
		rel = append(rel, splitSpace(needText(names), -1, false)...)
	}
	if truthy(arg(args, kw, 1, "nofollow", false)) {
		rel = append(rel, "nofollow")
	}
	slices.Sort(rel)
	l.attributes = ` rel="` + escapeHTML(strings.Join(slices.Compact(rel), " ")) + `"`
	if target := arg(args, kw, 2, "target", nil); truthy(target) {
		l.attributes += ` target="` + m.escaped(target) + `"`
	}
	if schemes := arg(args, kw, 4, "extra_schemes", nil); schemes != nil {
		for _, scheme := range m.iterate(schemes) {
			if !patterns().scheme.MatchString(needText(scheme)) {
				raise("FilterArgumentError", "%s is not a valid URI scheme prefix.", m.repr(scheme))
			}
		}
		for _, scheme := range m.iterate(schemes) { // a generator is empty by now
			l.schemes = append(l.schemes, needText(scheme))
		}
	}
	s := m.escaped(v)
	w := m.writer()
	for s != "" {
		n := strings.IndexFunc(s, isSpace)
		if n < 0 {
			n = len(s)
		}
		l.word(w, s[:n])
		s = s[n:]
		blanks := spacePrefix(s)
		w.write(s[:blanks])
		s = s[blanks:]
	}
	return w.text()
}

// linker makes links for |urlize.
type linker struct {
	m          *machine
	limit      Value // of the characters shown, or nil
	attributes string
	schemes    []string
}

func (l *linker) word(w textWriter, word string) {
	head, middle, tail := brackets(word)
	w.write(head)
	if middle != "" {
		l.link(w, middle)
	}
	w.write(tail)
}

// brackets takes a word from what stands around it. A bracket that was opened
// inside keeps its end.
func brackets(word string) (head, middle, tail string) {
	middle = word
	for {
		rest := strings.TrimLeft(middle, "(<")
		rest = strings.TrimPrefix(rest, "&lt;")
		if len(rest) == len(middle) {
			break
		}
		middle = rest
	}
	head = word[:len(word)-len(middle)]
	inner := middle
	for {
		rest := strings.TrimSuffix(strings.TrimRight(inner, ")>.,"), "&gt;")
		if len(rest) == len(inner) {
			break
		}
		inner = rest
	}
	middle, tail = inner, middle[len(inner):]
	for _, pair := range [...][2]string{{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}} {
		opened := strings.Count(middle, pair[0])
		if opened <= strings.Count(middle, pair[1]) {
			continue
		}
		end := 0
		for ; opened > 0; opened-- {
			i := strings.Index(tail[end:], pair[1])
			if i < 0 {
				break
			}
			end += i + len(pair[1])
		}
		middle, tail = middle+tail[:end], tail[end:]
	}
	return head, middle, tail
}

// link writes a word, as a link if it is an address.
func (l *linker) link(w textWriter, s string) {
	// What a byte may cost a regular expression, in steps.
	l.m.scan(len(s) << 10)
	p := patterns()
	switch {
	case p.web.MatchString(s):
		address := s
		if !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
			address = "https://" + s
		}
		l.anchor(w, address, l.attributes, l.trimmed(s))
	case strings.HasPrefix(s, "mailto:") && p.mail.MatchString(s[len("mailto:"):]):
		l.anchor(w, s, "", s[len("mailto:"):])
	case strings.Contains(s, "@") && !strings.HasPrefix(s, "www.") && s[0] != '@' && !strings.Contains(s, ":") && p.mail.MatchString(s):
		l.anchor(w, "mailto:"+s, "", s)
	default:
		for _, scheme := range l.schemes {
			if s != scheme && strings.HasPrefix(s, scheme) {
				l.anchor(w, s, l.attributes, s)
				return
			}
		}
		w.write(s)
	}
}

func (l *linker) anchor(w textWriter, address, attributes, shown string) {
	for _, part := range [...]string{`<a href="`, address, `"`, attributes, ">", shown, "</a>"} {
		w.write(part)
	}
}

// trimmed is what is shown of an address.
func (l *linker) trimmed(s string) string {
	if l.limit == nil || !l.m.less(l.limit, length(s)) {
		return s
	}
	n := needInt(l.limit)
	return l.m.slice(s, nil, &n, nil).(string) + "..."
}

// addressPatterns are what |urlize takes for addresses: jinja2's rules in the
// words of Go's regexp, where \w and \d are ASCII, and case folds without the
// dotted and the dotless i of Turkish.
type addressPatterns struct{ web, mail, scheme *regexp.Regexp }

var patterns = sync.OnceValue(func() addressPatterns {
	const (
		word   = `\pL\pN_`
		number = `\p{Nd}`
		letter = `[a-zıİ]`
		web    = `(?:https?://|www\.)(?:[` + word + `%-]+\.)*(?:` + letter + `{2,63}|xn--[` + word + `%]{2,59})`
		known  = `(?:[` + word + `%-]{2,63}\.)+(?:com|net|[iıİ]nt|edu|gov|org|[iıİ]nfo|m[iıİ]l)`
		four   = number + `{1,3}(?:\.` + number + `{1,3}){3}`
		six    = `\[(?:[` + number + `a-f]{0,4}:){2}(?:[` + number + `a-f]{0,4}:?){1,6}\]`
	)
	return addressPatterns{
		web: regexp.MustCompile(`(?is)^(?:` + web + `|` + known + `|https?://(?:` + four + `|` + six + `))` +
			`(?::` + number + `{1,5})?(?:[/?#].*)?$`),
		mail:   regexp.MustCompile(`(?s)^.+@[` + word + `][` + word + `.-]*\.[` + word + `]+$`),
		scheme: regexp.MustCompile(`^[` + word + `.+-]{2,}:/{0,2}$`),
	}
})
