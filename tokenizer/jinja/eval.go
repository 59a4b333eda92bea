package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

func (x *constExpr) eval(*machine, *scope) Value       { return x.value }
func (x *nameExpr) eval(m *machine, sc *scope) Value   { return m.lookup(sc, x.id) }
func (x *notExpr) eval(m *machine, sc *scope) Value    { return !m.truth(x.x, sc) }
func (x *tupleExpr) eval(m *machine, sc *scope) Value  { return Tuple(m.evalAll(x.items, sc)) }
func (x *listExpr) eval(m *machine, sc *scope) Value   { return &List{m.evalAll(x.items, sc)} }
func (x *filterExpr) eval(m *machine, sc *scope) Value { return x.apply(m, sc, m.eval(x.x, sc)) }

func (x *attrExpr) eval(m *machine, sc *scope) Value {
	v := m.eval(x.x, sc)
	if d, ok := v.(*Dict); ok && !x.ofDict { // by far the most common: message.role
		if y, ok := d.Get(x.name); ok {
			return y
		}
		return undefined
	}
	return attribute(v, x.name)
}

func (x *itemExpr) eval(m *machine, sc *scope) Value {
	if x.part != nil {
		return x.part.eval(m, sc)
	}
	v := m.eval(x.x, sc)
	if d, ok := v.(*Dict); ok && x.name != "" { // as common as message.role
		if i := d.findText(x.name); i >= 0 {
			return d.vals[i]
		}
	}
	return m.item(v, m.eval(x.key, sc))
}

func (x *splitPart) eval(m *machine, sc *scope) Value {
	v := m.eval(x.x, sc)
	s, ok := v.(string)
	if !ok { // Markup, or something that fails
		key, method := int64(0), attribute(v, "split")
		if x.last {
			key = -1
		}
		return m.item(m.call(method, []Value{x.separator}, nil), key)
	}
	m.scan(len(s))
	i := strings.Index(s, x.separator)
	switch {
	case i < 0:
		return v
	case x.last:
		return s[strings.LastIndex(s, x.separator)+len(x.separator):]
	}
	return s[:i]
}

func (x *binaryExpr) eval(m *machine, sc *scope) Value {
	a := m.eval(x.a, sc)
	return m.binary(x.op, a, m.eval(x.b, sc))
}

// eval joins strings at once; what else can be added is added pair by pair.
func (x *sumExpr) eval(m *machine, sc *scope) Value {
	var few [8]Value
	parts := x.evalParts(m, sc, few[:0])
	n, ok := textLength(parts)
	if !ok {
		return m.sum(parts)
	}
	m.use(n)
	var b strings.Builder
	b.Grow(n)
	for _, part := range parts {
		b.WriteString(part.(string))
	}
	return b.String()
}

func (x *sumExpr) evalParts(m *machine, sc *scope, dst []Value) []Value {
	for _, part := range x.parts {
		dst = append(dst, m.eval(part, sc))
	}
	return dst
}

// textLength is the length of parts together; ok is false if one is not a str.
func textLength(parts []Value) (n int, ok bool) {
	for _, part := range parts {
		s, ok := part.(string)
		if !ok {
			return 0, false
		}
		n += len(s)
	}
	return n, true
}

func (m *machine) sum(parts []Value) Value {
	total := parts[0]
	for _, part := range parts[1:] {
		total = m.binary(opAdd, total, part)
	}
	return total
}

func (x *andExpr) eval(m *machine, sc *scope) Value {
	if a := m.eval(x.a, sc); !truthy(a) {
		return a
	}
	return m.eval(x.b, sc)
}

func (x *orExpr) eval(m *machine, sc *scope) Value {
	if a := m.eval(x.a, sc); truthy(a) {
		return a
	}
	return m.eval(x.b, sc)
}

func (x *condExpr) eval(m *machine, sc *scope) Value {
	if m.truth(x.test, sc) {
		return m.eval(x.then, sc)
	}
	if x.otherwise == nil {
		return undefined
	}
	return m.eval(x.otherwise, sc)
}

func (x *dictExpr) eval(m *machine, sc *scope) Value {
	m.use(len(x.keys) * entrySize)
	d := NewDict(len(x.keys))
	for i := range x.keys {
		k := m.eval(x.keys[i], sc)
		m.put(d, k, m.eval(x.vals[i], sc))
	}
	return d
}

func (x *signExpr) eval(m *machine, sc *scope) Value {
	v := m.eval(x.x, sc)
	n, ok := asNumber(v)
	switch {
	case isUndefined(v):
		raise("UndefinedError", "undefined value")
	case !ok:
		raise("TypeError", "bad operand type for a sign: '%s'", typeName(v))
	case n.isFloat && x.negate:
		return -n.f
	case n.isFloat:
		return n.f
	case x.negate:
		return normalInt(new(big.Int).Neg(n.int()))
	}
	return normalInt(n.int())
}

func (x *concatExpr) eval(m *machine, sc *scope) Value {
	w := m.writer()
	for _, p := range x.parts {
		w.write(m.str(m.eval(p, sc)))
	}
	return w.text()
}

func (x *compareExpr) eval(m *machine, sc *scope) Value { return x.holds(m, sc) }

func (x *compareExpr) holds(m *machine, sc *scope) bool {
	a := m.eval(x.first, sc)
	for i, op := range x.ops {
		b := m.eval(x.rest[i], sc)
		if !m.compare(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (m *machine) compare(op operator, a, b Value) bool {
	if op == opEqual || op == opNotEqual {
		if x, ok := a.(string); ok { // by far the most common: message.role == "user"
			if y, ok := b.(string); ok {
				if len(x) == len(y) {
					m.scan(len(x))
				}
				return (x == y) == (op == opEqual)
			}
		}
		return m.equal(a, b) == (op == opEqual)
	}
	switch op {
	case opLess:
		return m.less(a, b)
	case opLessEqual:
		return m.lessOrEqual(a, b)
	case opGreater:
		return m.less(b, a)
	case opGreaterEqual:
		return m.lessOrEqual(b, a)
	case opIn:
		return m.contains(b, a)
	default: // opNotIn
		return !m.contains(b, a)
	}
}

func (m *machine) binary(op operator, a, b Value) Value {
	if x, ok := asNumber(a); ok {
		if y, ok := asNumber(b); ok {
			m.scan(x.words() * y.words())
			return arithmetic(op, x, y)
		}
	}
	switch op {
	case opAdd:
		if v, ok := m.add(a, b); ok {
			return v
		}
	case opMul:
		if v, ok := m.repeat(a, b); ok {
			return v
		}
		if v, ok := m.repeat(b, a); ok {
			return v
		}
	case opMod:
		if s, ok := text(a); ok {
			args := []Value{b}
			var named *Dict
			switch b := b.(type) {
			case Tuple:
				args = b
			case *Dict:
				named = b
			case *List: // could be a mapping, for all that Python knows
				named = NewDict(0)
			}
			_, escape := a.(markup)
			return likeText(a, m.format(s, args, named, escape))
		}
	}
	if isUndefined(a) || isUndefined(b) {
		raise("UndefinedError", "undefined operand of %s", operatorNames[op])
	}
	raise("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", operatorNames[op], typeName(a), typeName(b))
	return nil
}

// add joins sequences. Markup escapes the plain text that it is joined with.
func (m *machine) add(a, b Value) (Value, bool) {
	switch x := a.(type) {
	case string:
		switch y := b.(type) {
		case string:
			m.use(len(x) + len(y))
			return x + y, true
		case markup:
			x = escapeHTML(x)
			m.use(len(x) + len(y))
			return markup(x) + y, true
		}
	case markup:
		y, ok := text(b)
		if _, plain := b.(string); plain {
			y = escapeHTML(y)
		}
		m.use(len(x) + len(y))
		return x + markup(y), ok
	case *List:
		if y, ok := b.(*List); ok {
			return &List{m.joined(x.items, y.items)}, true
		}
	case Tuple:
		if y, ok := b.(Tuple); ok {
			return Tuple(m.joined(x, y)), true
		}
	}
	return nil, false
}

func (m *machine) joined(a, b []Value) []Value {
	m.use((len(a) + len(b)) * valueSize)
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...)
}

// repeat is a sequence times an integer.
func (m *machine) repeat(seq, times Value) (Value, bool) {
	n, ok := asNumber(times)
	if !ok || n.isFloat {
		return nil, false
	}
	count := 0
	if n.big != nil && n.big.Sign() > 0 {
		exceeded(ErrMemory)
	} else if n.i > 0 {
		count = int(n.i)
	}
	repeatItems := func(items []Value) []Value {
		m.useProduct(len(items)*valueSize, count)
		out := make([]Value, 0, len(items)*count)
		for len(items) > 0 && len(out) < cap(out) {
			out = append(out, items...)
		}
		return out
	}
	switch x := seq.(type) {
	case string:
		m.useProduct(len(x), count)
		return strings.Repeat(x, count*min(len(x), 1)), true
	case markup:
		m.useProduct(len(x), count)
		return markup(strings.Repeat(string(x), count*min(len(x), 1))), true
	case *List:
		return &List{repeatItems(x.items)}, true
	case Tuple:
		return Tuple(repeatItems(x)), true
	}
	return nil, false
}

// attribute is v.name.
func attribute(v Value, name string) Value {
	switch v := v.(type) {
	case *Dict:
		if dictMethods[name] {
			return &boundMethod{name, v}
		}
		if x, ok := v.Get(name); ok {
			return x
		}
	case string, markup:
		if stringMethods[name] != nil {
			return &boundMethod{name, v}
		}
	case *namespace:
		if x, ok := v.vars.Get(name); ok {
			return x
		}
	case *loop:
		return v.attribute(name)
	case *List:
		if listMethods[name] {
			return &boundMethod{name, v}
		}
	case Tuple:
		switch {
		case name == "count" || name == "index":
			return &boundMethod{name, v}
		case name == "grouper" && v.isGroup():
			return v[0]
		case name == "list" && v.isGroup():
			return v[1]
		}
	case *cycler:
		switch name {
		case "next", "reset":
			return &boundMethod{name, v}
		case "current":
			return v.items[v.i]
		}
	case *macro:
		return v.attribute(name)
	case bool, int64, *big.Int, float64:
		if numberAttributes[name] {
			raise("TypeError", "the attribute '%s' of numbers is not supported", name)
		}
	case *undefinedType:
		raise("UndefinedError", "an undefined value has no attribute '%s'", name)
	}
	return undefined
}

// numberAttributes are what numbers have in Python, where undefined would be
// wrong.
var numberAttributes = map[string]bool{
	"real": true, "imag": true, "numerator": true, "denominator": true, "conjugate": true, "is_integer": true,
	"as_integer_ratio": true, "bit_length": true, "bit_count": true, "to_bytes": true, "from_bytes": true,
	"hex": true, "fromhex": true,
}

// item is v[k]. Like jinja2 it falls back to the attribute of that name, so
// d['items'] without such a key is the method, and true.
func (m *machine) item(v, k Value) Value {
	switch x := v.(type) {
	case *Dict:
		if y, ok := m.get(x, k); ok {
			return y
		}
	case *undefinedType:
		raise("UndefinedError", "an undefined value has no elements")
	default:
		if n, ok := asNumber(k); ok && !n.isFloat && n.big == nil {
			if y, ok := m.at(v, n.i); ok {
				return y
			}
			return undefined
		}
	}
	name, ok := text(k)
	if !ok {
		return undefined
	}
	if d, isDict := v.(*Dict); isDict {
		if dictMethods[name] {
			return &boundMethod{name, d}
		}
		return undefined
	}
	return attribute(v, name)
}

// at is element i of a sequence, negative from the end.
func (m *machine) at(v Value, i int64) (Value, bool) {
	index := func(n int64) (int64, bool) {
		if i < 0 {
			return i + n, i+n >= 0
		}
		return i, i < n
	}
	switch x := v.(type) {
	case *List:
		if i, ok := index(int64(len(x.items))); ok {
			return x.items[i], true
		}
	case Tuple:
		if i, ok := index(int64(len(x))); ok {
			return x[i], true
		}
	case *rangeValue:
		if i, ok := index(x.len()); ok {
			return x.at(i), true
		}
	case string, markup:
		s, _ := text(x)
		m.scan(len(s))
		if i, ok := index(int64(utf8.RuneCountInString(s))); ok {
			from := runeOffset(s, i)
			_, w := utf8.DecodeRuneInString(s[from:])
			return likeText(x, s[from:from+w]), true
		}
	}
	return nil, false
}

// runeOffset is the byte offset of character n.
func runeOffset(s string, n int64) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

func (x *sliceExpr) eval(m *machine, sc *scope) Value {
	v := m.eval(x.x, sc)
	bound := func(e expr) *int64 {
		if e == nil {
			return nil
		}
		v := m.eval(e, sc)
		if v == nil {
			return nil
		}
		n, ok := asNumber(v)
		if !ok || n.isFloat {
			raise("TypeError", "slice indices must be integers or None, not %s", typeName(v))
		}
		if n.big != nil { // beyond any sequence
			n.i = int64(n.big.Sign()) << 62
		}
		return &n.i
	}
	return m.slice(v, bound(x.start), bound(x.stop), bound(x.step))
}

// slice is v[start:stop:step]; nil is a bound that was left out.
func (m *machine) slice(v Value, start, stop, step *int64) Value {
	by := int64(1)
	if step != nil {
		by = *step
	}
	if by == 0 {
		raise("ValueError", "slice step cannot be zero")
	}
	switch x := v.(type) {
	case *List:
		return &List{m.sliceItems(x.items, start, stop, by)}
	case Tuple:
		return Tuple(m.sliceItems(x, start, stop, by))
	case string, markup:
		s, _ := text(x)
		m.scan(len(s))
		if by == 1 {
			from, to := sliceBounds(int64(utf8.RuneCountInString(s)), start, stop, 1)
			if from >= to {
				return likeText(x, "")
			}
			rest := s[runeOffset(s, from):]
			return likeText(x, rest[:runeOffset(rest, to-from)])
		}
		w := m.writer()
		for _, c := range m.sliceItems(m.characters(s), start, stop, by) {
			w.write(c.(string))
		}
		return likeText(x, w.text())
	case *rangeValue:
		return x.slice(start, stop, by)
	case *undefinedType:
		raise("UndefinedError", "an undefined value has no elements")
	}
	raise("TypeError", "'%s' object is not subscriptable", typeName(v))
	return nil
}

func (m *machine) sliceItems(items []Value, start, stop *int64, step int64) []Value {
	from, to := sliceBounds(int64(len(items)), start, stop, step)
	if step == 1 {
		to = max(from, to)
		return items[from:to:to]
	}
	n := int64(0) // counted first, since from + i*step could overflow in a loop on bounds
	switch {
	case step > 0 && from < to:
		n = (to-from-1)/step + 1
	case step < 0 && from > to:
		n = (from-to-1)/-max(step, math.MinInt64+1) + 1
	}
	m.use(int(n) * valueSize)
	out := make([]Value, n)
	for i := range out {
		out[i] = items[from+int64(i)*step]
	}
	return out
}

// sliceBounds resolves bounds as Python's slice.indices(n) does.
func sliceBounds(n int64, start, stop *int64, step int64) (from, to int64) {
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	resolve := func(p *int64, missing int64) int64 {
		if p == nil {
			return missing
		}
		i := *p
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step < 0 {
		return resolve(start, high), resolve(stop, low)
	}
	return resolve(start, low), resolve(stop, high)
}

// arguments evaluates the arguments of a call, which may be none: nil.
func (c *callExpr) arguments(m *machine, sc *scope) ([]Value, []kwarg) {
	if c == nil || c.constant {
		return c.constants()
	}
	args := m.evalAll(c.args, sc)
	if c.star != nil {
		args = m.joined(args, m.iterate(m.eval(c.star, sc)))
	}
	var kw []kwarg
	if len(c.kwNames) > 0 {
		kw = make([]kwarg, 0, len(c.kwNames)+1)
	}
	for i, name := range c.kwNames {
		kw = append(kw, kwarg{name, m.eval(c.kwValues[i], sc)})
	}
	if c.starStar != nil {
		d, ok := m.eval(c.starStar, sc).(*Dict)
		if !ok {
			raise("TypeError", "argument after ** must be a mapping")
		}
		m.use(d.Len() * 2 * valueSize)
		for i, k := range d.keys {
			name, ok := k.(string)
			if !ok {
				raise("TypeError", "keywords must be strings")
			}
			kw = append(kw, kwarg{name, d.vals[i]})
		}
	}
	return args, kw
}

// constants are the arguments of a call that has no others.
func (c *callExpr) constants() ([]Value, []kwarg) {
	if c == nil {
		return nil, nil
	}
	return c.constArgs, c.constKwargs
}

func (c *callExpr) eval(m *machine, sc *scope) Value {
	if a, ok := c.fn.(*attrExpr); ok { // a method call: no need to build the method as a value
		v := m.eval(a.x, sc)
		switch x := v.(type) {
		case *Dict:
			if a.ofDict {
				args, kw := c.arguments(m, sc)
				return m.callDictMethod(x, a.name, args, kw)
			}
		case string:
			if a.ofString != nil {
				args, kw := c.arguments(m, sc)
				m.scan(len(x))
				return m.made(a.ofString(m, x, args, kw))
			}
		}
		args, kw := c.arguments(m, sc)
		return m.call(attribute(v, a.name), args, kw)
	}
	fn := m.eval(c.fn, sc)
	if mac, ok := fn.(*macro); ok {
		return m.captured(mac, c.bind(m, sc, mac))
	}
	args, kw := c.arguments(m, sc)
	return m.call(fn, args, kw)
}

// made charges a value that a filter or a method has just made. What it makes
// is of the order of its input, unless it charges by itself beforehand.
func (m *machine) made(v Value) Value {
	switch x := v.(type) {
	case string:
		m.use(len(x))
	case *List:
		m.use(len(x.items) * valueSize)
	case *generator:
		m.use(len(x.items) * valueSize)
	}
	return v
}

func (m *machine) call(fn Value, args []Value, kw []kwarg) Value {
	switch f := fn.(type) {
	case *macro:
		return m.captured(f, m.bind(f, args, kw))
	case *builtin:
		return f.call(m, args, kw)
	case Func:
		v, err := f(args)
		if err != nil {
			panic(&Error{Kind: "TemplateRuntimeError", Msg: err.Error(), Err: err})
		}
		return v
	case *boundMethod:
		return m.made(m.callMethod(f, args, kw))
	case *loop:
		if f.recurse != nil && len(args) == 1 {
			return f.recurse(args[0], f.depth0+1)
		}
	case *joiner:
		if f.used {
			return f.separator
		}
		f.used = true
		return ""
	case *undefinedType:
		raise("UndefinedError", "an undefined value is not callable")
	}
	raise("TypeError", "'%s' object is not callable", typeName(fn))
	return nil
}

func (l *loop) attribute(name string) Value {
	n := l.n
	switch name {
	case "index":
		return int64(l.i + 1)
	case "index0":
		return int64(l.i)
	case "revindex":
		return int64(n - l.i)
	case "revindex0":
		return int64(n - l.i - 1)
	case "first":
		return l.i == 0
	case "last":
		return l.i == n-1
	case "length":
		return int64(n)
	case "depth":
		return int64(l.depth0 + 1)
	case "depth0":
		return int64(l.depth0)
	case "previtem":
		if l.i > 0 {
			return l.at(l.i - 1)
		}
	case "nextitem":
		if l.i+1 < n {
			return l.at(l.i + 1)
		}
	case "cycle":
		return &builtin{name, func(_ *machine, args []Value, _ []kwarg) Value {
			if len(args) == 0 {
				raise("TypeError", "no items for cycling given")
			}
			return args[l.i%len(args)]
		}}
	case "changed":
		return &builtin{name, func(m *machine, args []Value, _ []kwarg) Value {
			if l.last != nil && m.equalItems(l.last, args, 0) {
				return false
			}
			l.last = append([]Value{}, args...)
			return true
		}}
	}
	return undefined
}

// apply runs the filter on v. A filter that does not exist fails only here, as
// in jinja2, where templates may name filters that they never reach.
func (x *filterExpr) apply(m *machine, sc *scope, v Value) Value {
	if x.fn == nil {
		raise("TemplateRuntimeError", "no filter named '%s'", x.name)
	}
	args, kw := x.args.arguments(m, sc)
	if s, ok := text(v); ok {
		m.scan(len(s))
	}
	return m.made(x.fn(m, v, args, kw))
}

func (x *testExpr) eval(m *machine, sc *scope) Value { return x.holds(m, sc) }

func (x *testExpr) holds(m *machine, sc *scope) bool {
	if x.fn == nil {
		raise("TemplateRuntimeError", "no test named '%s'", x.name)
	}
	v := m.eval(x.x, sc)
	args, _ := x.args.arguments(m, sc)
	if s, ok := text(v); ok && x.scans {
		m.scan(len(s))
	}
	return x.fn(m, v, args) != x.negate
}
