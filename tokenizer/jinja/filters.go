package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filterFunc is a filter: v | name(args, kw).
type filterFunc func(m *machine, v Value, args []Value, kw []kwarg) Value

// filters are jinja2's, with transformers' tojson; "random" is not one of them.
// Set in init, since some filters look others up.
var filters map[string]filterFunc

// anyArguments are those of a filter that looks at them by itself.
const anyArguments = "*"

func init() {
	filters = map[string]filterFunc{}
	for name, f := range map[string]struct {
		params string // separated by spaces, after the value
		needs  int    // how many have no default
		call   filterFunc
	}{
		"abs":            {call: filterAbs},
		"attr":           {"name", 1, filterAttr},
		"batch":          {"linecount fill_with", 1, filterBatch},
		"capitalize":     {call: onText(capitalize)},
		"center":         {"width", 0, filterCenter},
		"count":          {call: filterLength},
		"d":              {"default_value boolean", 0, filterDefault},
		"default":        {"default_value boolean", 0, filterDefault},
		"dictsort":       {"case_sensitive by reverse", 0, filterDictSort},
		"e":              {call: filterEscape},
		"escape":         {call: filterEscape},
		"filesizeformat": {"binary", 0, filterFileSize},
		"first":          {call: filterFirst},
		"float":          {"default", 0, filterFloat},
		"forceescape":    {call: filterForceEscape},
		"format":         {anyArguments, 0, filterFormat},
		"groupby":        {"attribute default case_sensitive", 1, filterGroupBy},
		"indent":         {"width first blank", 0, filterIndent},
		"int":            {"default base", 0, filterInt},
		"items":          {call: filterItems},
		"join":           {"d attribute", 0, filterJoin},
		"last":           {call: filterLast},
		"length":         {call: filterLength},
		"list":           {call: filterList},
		"lower":          {call: onText(lower)},
		"map":            {anyArguments, 0, filterMap},
		"max":            {"case_sensitive attribute", 0, extreme(func(m *machine, a, best Value) bool { return m.less(best, a) })},
		"min":            {"case_sensitive attribute", 0, extreme(func(m *machine, a, best Value) bool { return m.less(a, best) })},
		"pprint":         {call: filterPPrint},
		"reject":         {anyArguments, 0, selector(false, false)},
		"rejectattr":     {anyArguments, 0, selector(true, false)},
		"replace":        {"old new count", 2, filterReplace},
		"reverse":        {call: filterReverse},
		"round":          {"precision method", 0, filterRound},
		"safe":           {call: func(m *machine, v Value, _ []Value, _ []kwarg) Value { return markup(m.str(v)) }},
		"select":         {anyArguments, 0, selector(false, true)},
		"selectattr":     {anyArguments, 0, selector(true, true)},
		"slice":          {"slices fill_with", 1, filterSlice},
		"sort":           {"reverse case_sensitive attribute", 0, filterSort},
		"string":         {call: filterString},
		"striptags":      {call: filterStripTags},
		"sum":            {"attribute start", 0, filterSum},
		"title":          {call: func(m *machine, v Value, _ []Value, _ []kwarg) Value { return titleFilter(m.str(v)) }},
		"tojson":         {anyArguments, 0, filterToJSON},
		"trim":           {"chars", 0, filterTrim},
		"truncate":       {"length killwords end leeway", 0, filterTruncate},
		"unique":         {"case_sensitive attribute", 0, filterUnique},
		"upper":          {call: onText(upper)},
		"urlencode":      {call: filterURLEncode},
		"urlize":         {"trim_url_limit nofollow target rel extra_schemes", 0, filterURLize},
		"wordcount": {call: func(m *machine, v Value, _ []Value, _ []kwarg) Value {
			return int64(len(strings.FieldsFunc(m.str(v), noWord)))
		}},
		"wordwrap": {"width break_long_words wrapstring break_on_hyphens", 0, filterWordWrap},
		"xmlattr":  {"autospace", 0, filterXMLAttr},
	} {
		filters[name] = f.call
		if f.params != anyArguments {
			filters[name] = accepting(name, strings.Fields(f.params), f.needs, f.call)
		}
	}
}

// accepting makes f raise what Python raises of arguments that do not fit.
func accepting(name string, params []string, needs int, f filterFunc) filterFunc {
	return func(m *machine, v Value, args []Value, kw []kwarg) Value {
		accept(name, params, needs, args, kw)
		return f(m, v, args, kw)
	}
}

// onText makes a filter of a function on strings.
func onText(f func(string) string) filterFunc {
	return func(m *machine, v Value, _ []Value, _ []kwarg) Value { return likeText(v, f(m.str(v))) }
}

// noWord is \W of Python's regular expressions.
func noWord(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }

// filterAttr reads an attribute, never an entry.
func filterAttr(_ *machine, v Value, args []Value, kw []kwarg) Value {
	name := needText(arg(args, kw, 0, "name", nil))
	if d, ok := v.(*Dict); ok {
		if dictMethods[name] {
			return &boundMethod{name, d}
		}
		return undefined
	}
	return attribute(v, name)
}

func filterFormat(m *machine, v Value, args []Value, kw []kwarg) Value {
	if len(kw) == 0 {
		return m.format(m.str(v), args, nil, false)
	}
	if len(args) > 0 {
		raise("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	return m.format(m.str(v), nil, makeDict(m, nil, kw), false)
}

// path reads what the attribute= of a filter names: "a.b", an index, or any
// other key. What is not there is def, if that is not None.
func (m *machine) path(v, attr, def Value) Value {
	get := func(v, key Value) Value {
		m.step()
		if v = m.item(v, key); isUndefined(v) && def != nil {
			return def
		}
		return v
	}
	s, ok := text(attr)
	switch {
	case attr == nil:
		return v
	case !ok:
		return get(v, attr)
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool { return !isDigit(r) }) {
			v = get(v, part)
			continue
		}
		i, ok := parseInt(part, 10)
		if !ok {
			raise("ValueError", "invalid literal for int() with base 10: '%s'", part)
		}
		v = get(v, i)
	}
	return v
}

// folded is v without case, for filters that ignore it.
func folded(v Value) Value {
	if s, ok := text(v); ok {
		if t := lower(s); t != s {
			return t
		}
	}
	return v
}

func filterToJSON(m *machine, v Value, args []Value, kw []kwarg) Value {
	w := m.writer()
	w.json(v, m.jsonFormat(args, kw), 0)
	return w.text()
}

// jsonFormat reads the arguments of |tojson.
func (m *machine) jsonFormat(args []Value, kw []kwarg) *jsonFormat {
	if len(args) == 0 && len(kw) == 0 {
		return &plainJSON
	}
	accept("tojson", jsonParams, 0, args, kw)
	f := &jsonFormat{item: ", ", key: ": "}
	f.ascii = truthy(arg(args, kw, 0, "ensure_ascii", false))
	switch indent := arg(args, kw, 1, "indent", nil).(type) {
	case nil:
	case string:
		f.pretty, f.indent, f.item = true, indent, ","
	default:
		n := int(min(max(needInt(indent), 0), math.MaxInt32))
		m.use(n)
		f.pretty, f.indent, f.item = true, strings.Repeat(" ", n), ","
	}
	if s := arg(args, kw, 2, "separators", nil); s != nil {
		pair := m.iterate(s)
		if len(pair) != 2 {
			raise("ValueError", "separators must be two strings")
		}
		f.item, f.key = needText(pair[0]), needText(pair[1])
	}
	f.sortKeys = truthy(arg(args, kw, 3, "sort_keys", false))
	return f
}

var jsonParams = []string{"ensure_ascii", "indent", "separators", "sort_keys"}

var plainJSON = jsonFormat{item: ", ", key: ": "}

func filterLength(_ *machine, v Value, _ []Value, _ []kwarg) Value { return length(v) }

func filterDefault(_ *machine, v Value, args []Value, kw []kwarg) Value {
	if isUndefined(v) || truthy(arg(args, kw, 1, "boolean", false)) && !truthy(v) {
		return arg(args, kw, 0, "default_value", "")
	}
	return v
}

func filterString(m *machine, v Value, _ []Value, _ []kwarg) Value {
	if _, ok := text(v); ok {
		return v
	}
	return m.str(v)
}

func filterTrim(m *machine, v Value, args []Value, kw []kwarg) Value {
	s := m.str(v)
	if chars := arg(args, kw, 0, "chars", nil); chars != nil {
		return likeText(v, strings.TrimFunc(s, m.anyOf(needText(chars))))
	}
	if t := trim(s); len(t) != len(s) {
		return likeText(v, t)
	}
	if _, ok := text(v); ok {
		return v // as it is, most of the time
	}
	return s
}

// trim is Python's str.strip().
func trim(s string) string {
	if s == "" || !mayBeSpace(s[0]) && !mayBeSpace(s[len(s)-1]) {
		return s
	}
	return strings.TrimFunc(s, isSpace)
}

// mayBeSpace reports whether a byte may be one of a white space character.
func mayBeSpace(c byte) bool { return c <= ' ' || c >= utf8.RuneSelf }

func filterReplace(m *machine, v Value, args []Value, kw []kwarg) Value {
	count := -1
	if c := arg(args, kw, 2, "count", nil); c != nil {
		count = int(needInt(c))
	}
	return m.replace(m.str(v), m.str(arg(args, kw, 0, "old", "")), m.str(arg(args, kw, 1, "new", "")), count)
}

// replace charges before it builds: the result may be far longer than s.
func (m *machine) replace(s, old, replacement string, count int) string {
	found := strings.Count(s, old)
	if count >= 0 {
		found = min(found, count)
	}
	m.use(len(s))
	m.useProduct(found, len(replacement))
	return strings.Replace(s, old, replacement, count)
}

func filterIndent(m *machine, v Value, args []Value, kw []kwarg) Value {
	pad := ""
	switch width := arg(args, kw, 0, "width", int64(4)).(type) {
	case string:
		pad = width
	default:
		n := int(min(max(needInt(width), 0), math.MaxInt32))
		m.use(n)
		pad = strings.Repeat(" ", n)
	}
	w := m.writer()
	if truthy(arg(args, kw, 1, "first", false)) {
		w.write(pad)
	}
	blank := truthy(arg(args, kw, 2, "blank", false))
	for i, line := range splitLines(needText(v)+"\n", false) {
		if i > 0 {
			w.write("\n")
			if blank || line != "" {
				w.write(pad)
			}
		}
		w.write(line)
	}
	return likeText(v, w.text())
}

func filterItems(m *machine, v Value, _ []Value, _ []kwarg) Value {
	switch v := v.(type) {
	case *undefinedType:
		return &generator{}
	case *Dict:
		return &generator{dict: v}
	}
	raise("TypeError", "Can only get item pairs from a mapping.")
	return nil
}

func filterList(m *machine, v Value, _ []Value, _ []kwarg) Value {
	return &List{append([]Value{}, m.iterate(v)...)}
}

func filterJoin(m *machine, v Value, args []Value, kw []kwarg) Value {
	separator := m.str(arg(args, kw, 0, "d", ""))
	attr := arg(args, kw, 1, "attribute", nil)
	w := m.writer()
	for i, x := range m.iterate(v) {
		m.step()
		if i > 0 {
			w.write(separator)
		}
		w.write(m.str(m.path(x, attr, nil)))
	}
	return w.text()
}

func filterFirst(m *machine, v Value, _ []Value, _ []kwarg) Value {
	if items := m.iterate(v); len(items) > 0 {
		return items[0]
	}
	return undefined
}

func filterLast(m *machine, v Value, _ []Value, _ []kwarg) Value {
	if _, ok := v.(*generator); ok {
		raise("TypeError", "'generator' object is not reversible")
	}
	if items := m.iterate(v); len(items) > 0 {
		return items[len(items)-1]
	}
	return undefined
}

func filterReverse(m *machine, v Value, _ []Value, _ []kwarg) Value {
	items := slices.Clone(m.iterate(v))
	slices.Reverse(items)
	if _, ok := text(v); ok {
		var b strings.Builder
		for _, x := range items {
			b.WriteString(x.(string))
		}
		return b.String()
	}
	if _, ok := v.(*generator); ok {
		return &List{items}
	}
	return &generator{items: items}
}

// filterBatch makes rows of n items. Like jinja2 it looks whether a row is full
// before it adds an item, so that a row is never full with an n below 1.
func filterBatch(m *machine, v Value, args []Value, kw []kwarg) Value {
	count := arg(args, kw, 0, "linecount", nil)
	fill := arg(args, kw, 1, "fill_with", nil)
	rest := m.iterate(v)
	n := int64(-1) // no row has a length that is no whole number
	if x, ok := asNumber(count); ok && !x.isFloat {
		n = needInt(count)
	} else if ok && m.equal(count, truncate(min(max(x.f, -1), math.MaxInt32))) {
		n = int64(x.f)
	}
	g := &generator{}
	if n == 0 && len(rest) > 0 {
		g.items = append(g.items, &List{})
	}
	for len(rest) > 0 {
		size := int64(len(rest))
		if n > 0 {
			size = min(n, size)
		}
		row := append([]Value{}, rest[:size]...)
		rest = rest[size:]
		if fill != nil && m.less(int64(len(row)), count) {
			for missing := needInt(count) - size; missing > 0; missing-- {
				m.use(valueSize)
				row = append(row, fill)
			}
		}
		g.items = append(g.items, &List{row})
	}
	return g
}

// filterSlice deals the items out to n lists, the first of which may have one
// more.
func filterSlice(m *machine, v Value, args []Value, kw []kwarg) Value {
	n := needInt(arg(args, kw, 0, "slices", nil))
	fill := arg(args, kw, 1, "fill_with", nil)
	rest := m.iterate(v)
	if n == 0 {
		raise("ZeroDivisionError", "integer division or modulo by zero")
	}
	size, more := int64(len(rest))/n, int64(len(rest))%n
	g := &generator{}
	for i := range n {
		m.step()
		m.use(2 * valueSize)
		end := size
		if i < more {
			end++
		}
		row := append([]Value{}, rest[:end]...)
		rest = rest[end:]
		if fill != nil && i >= more {
			row = append(row, fill)
		}
		g.items = append(g.items, &List{row})
	}
	return g
}

// selector makes select, reject, selectattr and rejectattr.
func selector(byAttribute, keep bool) filterFunc {
	return func(m *machine, v Value, args []Value, _ []kwarg) Value {
		var attr Value
		if byAttribute {
			if len(args) == 0 {
				raise("FilterArgumentError", "Missing parameter for attribute name")
			}
			attr, args = args[0], args[1:]
		}
		test := func(_ *machine, x Value, _ []Value) bool { return truthy(x) }
		if len(args) > 0 {
			name := needText(args[0])
			if test = tests[name]; test == nil {
				raise("TemplateRuntimeError", "no test named '%s'", name)
			}
			args = args[1:]
		}
		g := &generator{}
		if !truthy(v) {
			return g
		}
		for _, x := range m.iterate(v) {
			m.step()
			if test(m, m.path(x, attr, nil), args) == keep {
				g.items = append(g.items, x)
			}
		}
		return g
	}
}

func filterMap(m *machine, v Value, args []Value, kw []kwarg) Value {
	g := &generator{}
	if !truthy(v) {
		return g
	}
	if len(args) == 0 {
		attr, ok := keyword(kw, "attribute")
		if !ok {
			raise("FilterArgumentError", "map requires a filter argument")
		}
		def, _ := keyword(kw, "default")
		for _, x := range m.iterate(v) {
			m.step()
			g.items = append(g.items, m.path(x, attr, def))
		}
		return g
	}
	f := filters[needText(args[0])]
	if f == nil {
		raise("TemplateRuntimeError", "no filter named '%s'", m.str(args[0]))
	}
	for _, x := range m.iterate(v) {
		m.step()
		g.items = append(g.items, m.made(f(m, x, args[1:], kw)))
	}
	return g
}

// sorted is Python's sorted(items, key=key): stable, also when reversed.
func (m *machine) sorted(items []Value, key func(Value) Value, reverse bool) []Value {
	type entry struct{ key, item Value }
	m.use(len(items) * 2 * valueSize)
	entries := make([]entry, len(items))
	for i, x := range items {
		entries[i] = entry{key(x), x}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		if reverse {
			a, b = b, a
		}
		switch {
		case m.less(a.key, b.key):
			return -1
		case m.less(b.key, a.key):
			return 1
		}
		return 0
	})
	out := make([]Value, len(items))
	for i, e := range entries {
		out[i] = e.item
	}
	return out
}

func filterDictSort(m *machine, v Value, args []Value, kw []kwarg) Value {
	d, ok := v.(*Dict)
	if !ok {
		raise("TypeError", "dictsort needs a mapping, not '%s'", typeName(v))
	}
	caseSensitive := truthy(arg(args, kw, 0, "case_sensitive", false))
	part := 0
	switch by := arg(args, kw, 1, "by", "key"); by {
	case "key":
	case "value":
		part = 1
	default:
		raise("FilterArgumentError", `You can only sort by either "key" or "value"`)
	}
	reverse := needInt(arg(args, kw, 2, "reverse", false)) != 0
	return &List{m.sorted((&dictView{viewItems, d}).items(), func(pair Value) Value {
		k := pair.(Tuple)[part]
		if !caseSensitive {
			k = folded(k)
		}
		return k
	}, reverse)}
}

func filterSort(m *machine, v Value, args []Value, kw []kwarg) Value {
	caseSensitive := truthy(arg(args, kw, 1, "case_sensitive", false))
	attr := arg(args, kw, 2, "attribute", nil)
	attrs := []Value{attr}
	if s, ok := attr.(string); ok {
		attrs = nil
		for part := range strings.SplitSeq(s, ",") {
			attrs = append(attrs, part)
		}
	}
	return &List{m.sorted(m.iterate(v), func(x Value) Value {
		// jinja2's key is always a list, so equal Nones never meet "<".
		key := Tuple{}
		for _, attr := range attrs {
			y := m.path(x, attr, nil)
			if !caseSensitive {
				y = folded(y)
			}
			key = append(key, y)
		}
		return key
	}, needInt(arg(args, kw, 0, "reverse", false)) != 0)}
}

func filterGroupBy(m *machine, v Value, args []Value, kw []kwarg) Value {
	attr := arg(args, kw, 0, "attribute", nil)
	def := arg(args, kw, 1, "default", nil)
	caseSensitive := truthy(arg(args, kw, 2, "case_sensitive", false))
	key := func(x Value) Value {
		x = m.path(x, attr, def)
		if !caseSensitive {
			x = folded(x)
		}
		return x
	}
	groups := &List{}
	var last Value
	var items *List
	for _, x := range m.sorted(m.iterate(v), key, false) {
		m.use(valueSize)
		if k := key(x); items == nil || !m.equal(last, k) {
			m.use(6 * valueSize)
			last, items = k, &List{}
			groups.items = append(groups.items, newGroup(m.path(x, attr, def), items))
		}
		items.items = append(items.items, x)
	}
	return groups
}

func filterUnique(m *machine, v Value, args []Value, kw []kwarg) Value {
	caseSensitive := truthy(arg(args, kw, 0, "case_sensitive", false))
	attr := arg(args, kw, 1, "attribute", nil)
	seen := NewDict(0)
	g := &generator{}
	for _, x := range m.iterate(v) {
		m.step()
		y := m.path(x, attr, nil)
		if !caseSensitive {
			y = folded(y)
		}
		if id := m.key(y); seen.find(id) < 0 {
			m.use(entrySize)
			seen.put(y, id, nil)
			g.items = append(g.items, x)
		}
	}
	return g
}

// extreme makes min and max.
func extreme(better func(m *machine, x, best Value) bool) filterFunc {
	return func(m *machine, v Value, args []Value, kw []kwarg) Value {
		items := m.iterate(v)
		if len(items) == 0 {
			return undefined
		}
		caseSensitive := truthy(arg(args, kw, 0, "case_sensitive", false))
		attr := arg(args, kw, 1, "attribute", nil)
		key := func(x Value) Value {
			x = m.path(x, attr, nil)
			if !caseSensitive {
				x = folded(x)
			}
			return x
		}
		best := items[0]
		for _, x := range items[1:] {
			if better(m, key(x), key(best)) {
				best = x
			}
		}
		return best
	}
}

func filterSum(m *machine, v Value, args []Value, kw []kwarg) Value {
	attr := arg(args, kw, 0, "attribute", nil)
	total := arg(args, kw, 1, "start", int64(0))
	if _, ok := text(total); ok {
		raise("TypeError", "sum() can't sum strings")
	}
	for _, x := range m.iterate(v) {
		total = m.binary(opAdd, total, m.path(x, attr, nil))
	}
	return total
}

func filterAbs(_ *machine, v Value, _ []Value, _ []kwarg) Value {
	n, ok := asNumber(v)
	switch {
	case isUndefined(v):
		raise("UndefinedError", "undefined value")
	case !ok:
		raise("TypeError", "bad operand type for abs(): '%s'", typeName(v))
	case n.isFloat:
		return math.Abs(n.f)
	}
	return normalInt(new(big.Int).Abs(n.int()))
}

func filterRound(_ *machine, v Value, args []Value, kw []kwarg) Value {
	n, ok := asNumber(v)
	if !ok {
		raise("TypeError", "cannot round a '%s'", typeName(v))
	}
	digits := needInt(arg(args, kw, 0, "precision", int64(0)))
	method := arg(args, kw, 1, "method", "common")
	if digits > 300 || digits < -300 {
		raise("OverflowError", "precision out of range")
	}
	f := n.float()
	scale := floatPower(10, float64(digits))
	switch method {
	case "ceil":
		return scaledDown(math.Ceil(f*scale), digits)
	case "floor":
		return scaledDown(math.Floor(f*scale), digits)
	case "common":
	default:
		raise("FilterArgumentError", "method must be common, ceil or floor")
	}
	if !n.isFloat {
		return roundInt(n.int(), digits)
	}
	if digits >= 0 && !math.IsInf(f, 0) && !math.IsNaN(f) {
		// Python rounds the exact decimal value, half to even; so does strconv.
		r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
		return r
	}
	return math.RoundToEven(f*scale) / scale
}

// scaledDown is int(f) / 10**digits.
func scaledDown(f float64, digits int64) Value {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		raise("OverflowError", "cannot convert float %s to integer", floatText(f))
	}
	if digits < 0 {
		return f / floatPower(10, float64(digits))
	}
	whole, _ := big.NewFloat(f).Int(nil)
	quotient, _ := new(big.Rat).SetFrac(whole, new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil)).Float64()
	return quotient
}

// roundInt is round(int, digits), an int: to the nearest multiple of a power of
// ten, half to even.
func roundInt(i *big.Int, digits int64) Value {
	if digits >= 0 {
		return normalInt(i)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(-digits), nil)
	q, r := new(big.Int).DivMod(i, unit, new(big.Int))
	switch r.Lsh(r, 1).Cmp(unit) {
	case 0:
		q.Add(q, big.NewInt(int64(q.Bit(0))))
	case 1:
		q.Add(q, big.NewInt(1))
	}
	return normalInt(q.Mul(q, unit))
}

// filterFileSize writes a number of bytes with a unit.
func filterFileSize(m *machine, v Value, args []Value, kw []kwarg) Value {
	base, names := int64(1000), "kB MB GB TB PB EB ZB YB"
	if truthy(arg(args, kw, 0, "binary", false)) {
		base, names = 1024, "KiB MiB GiB TiB PiB EiB ZiB YiB"
	}
	size, ok := 0.0, false
	if s, isText := text(v); isText {
		size, ok = parseFloat(s)
	} else if n, isNumber := asNumber(v); isNumber {
		size, ok = n.float(), true
	}
	switch {
	case isUndefined(v):
		raise("UndefinedError", "undefined value")
	case !ok:
		raise("ValueError", "'%s' object is not a number of bytes", typeName(v))
	case size == 1:
		return "1 Byte"
	case math.IsInf(size, -1):
		raise("OverflowError", "cannot convert float infinity to integer")
	case size < float64(base):
		return m.str(truncate(size)) + " Bytes"
	}
	unit := big.NewInt(base)
	text := ""
	for name := range strings.FieldsSeq(names) {
		unit.Mul(unit, big.NewInt(base))
		text = strconv.FormatFloat(float64(base)*size/number{big: unit}.float(), 'f', 1, 64) + " " + name
		if order, ordered := compareNumbers(number{isFloat: true, f: size}, number{big: unit}); ordered && order < 0 {
			break
		}
	}
	return strings.NewReplacer("+Inf", "inf", "NaN", "nan").Replace(text)
}

func filterInt(m *machine, v Value, args []Value, kw []kwarg) Value {
	def := arg(args, kw, 0, "default", int64(0))
	base := needInt(arg(args, kw, 1, "base", int64(10)))
	if base < 2 || base > 36 {
		raise("ValueError", "int() base must be >= 2 and <= 36")
	}
	if isUndefined(v) {
		raise("UndefinedError", "undefined value")
	}
	if s, ok := text(v); ok {
		if i, ok := parseInt(s, int(base)); ok {
			return i
		}
		// jinja2 tries int(float(value)) next.
		if f, ok := parseFloat(s); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return truncate(f)
		}
		return def
	}
	n, ok := asNumber(v)
	switch {
	case !ok:
		return def
	case !n.isFloat:
		return normalInt(n.int())
	case math.IsNaN(n.f):
		return def
	case math.IsInf(n.f, 0): // the one error that jinja2 lets through
		raise("OverflowError", "cannot convert float infinity to integer")
	}
	return truncate(n.f)
}

func filterFloat(_ *machine, v Value, args []Value, kw []kwarg) Value {
	def := arg(args, kw, 0, "default", 0.0)
	if isUndefined(v) {
		raise("UndefinedError", "undefined value")
	}
	if s, ok := text(v); ok {
		if f, ok := parseFloat(s); ok {
			return f
		}
		return def
	}
	if n, ok := asNumber(v); ok {
		return n.float()
	}
	return def
}
