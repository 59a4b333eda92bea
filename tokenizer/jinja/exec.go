package jinja

import "slices"

func (s *dataStmt) exec(m *machine, _ *scope) control {
	m.write(s.text)
	return fallThrough
}

func (s *outputStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	if s.direct {
		m.writeExpr(s.x, sc)
		return fallThrough
	}
	if call, ok := s.x.(*callExpr); ok { // of a macro, most likely: it writes by itself
		m.steps--
		if mac, ok := m.eval(call.fn, sc).(*macro); ok {
			inner := call.bind(m, sc, mac)
			m.inside(func() { m.runMacro(mac, inner) })
			return fallThrough
		}
	}
	m.write(m.str(m.eval(s.x, sc)))
	return fallThrough
}

// writeExpr writes what an expression prints, without building the whole text
// of a ~ b or a + b first. Nothing in the expression may call a macro: a
// generation block in there would count a part of this statement's output.
func (m *machine) writeExpr(x expr, sc *scope) {
	switch x := x.(type) {
	case *concatExpr:
		for _, part := range x.parts {
			m.writeExpr(part, sc)
		}
	case *filterExpr:
		m.writeFilter(x, sc)
	case *sumExpr:
		var few [8]Value
		parts := x.evalParts(m, sc, few[:0])
		if _, ok := textLength(parts); !ok {
			m.write(m.str(m.sum(parts)))
			return
		}
		for _, part := range parts {
			m.write(part.(string))
		}
	default:
		m.write(m.str(m.eval(x, sc)))
	}
}

// writeFilter writes what the most common filters make without making it first.
func (m *machine) writeFilter(x *filterExpr, sc *scope) {
	m.step()
	switch {
	case x.name == "tojson":
		v := m.eval(x.x, sc)
		from := len(m.out)
		w := m.writer()
		w.json(v, m.jsonFormat(x.args.arguments(m, sc)), 0)
		n := len(m.out) - from
		m.out = m.out[:from]
		m.fits(n)
		m.out = m.out[:from+n]
	case x.args == nil && (x.name == "string" || x.name == "safe"):
		m.writeExpr(x.x, sc)
	case x.args == nil && x.name == "trim":
		m.write(trim(m.str(m.eval(x.x, sc))))
	default:
		m.write(m.str(x.apply(m, sc, m.eval(x.x, sc))))
	}
}

func (s *ifStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	for i, test := range s.tests {
		if m.truth(test, sc) {
			return m.run(s.bodies[i], sc)
		}
	}
	return m.run(s.otherwise, sc)
}

func (breakStmt) exec(*machine, *scope) control    { return breakLoop }
func (continueStmt) exec(*machine, *scope) control { return continueLoop }

func (s *setStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	m.assign(sc, &s.target, m.eval(s.x, sc))
	return fallThrough
}

func (m *machine) assign(sc *scope, t *target, v Value) {
	switch {
	case t.tuple != nil:
		items := m.iterate(v)
		if len(items) != len(t.tuple) {
			raise("ValueError", "cannot unpack %d values into %d names", len(items), len(t.tuple))
		}
		for i := range t.tuple {
			m.assign(sc, &t.tuple[i], items[i])
		}
	case t.attr != "":
		ns, ok := m.lookup(sc, t.id).(*namespace)
		if !ok {
			raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
		ns.vars.Set(t.attr, v)
	default:
		m.set(sc, t.id, v)
	}
}

// filtered captures a body and puts it through filters.
func (m *machine) filtered(body []stmt, filters []*filterExpr, sc *scope) Value {
	var v Value = m.capture(func() { m.run(body, &scope{outer: sc}) })
	for _, f := range filters {
		v = f.apply(m, sc, v)
	}
	return v
}

func (s *setBlockStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	m.assign(sc, &s.target, m.filtered(s.body, s.filters, sc))
	return fallThrough
}

func (s *filterStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	m.write(m.str(m.filtered(s.body, s.filters, sc)))
	return fallThrough
}

func (s *generationStmt) exec(m *machine, sc *scope) control {
	before := len(m.out)
	start := before
	if m.captures > 0 {
		start = m.outerLen
	}
	m.run(s.body, &scope{outer: sc})
	m.use(valueSize)
	m.spans = append(m.spans, Span{start, start + len(m.out) - before})
	return fallThrough
}

func (s *withStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	inner := &scope{outer: sc}
	values := m.evalAll(s.values, sc) // in the outer scope: names do not see each other
	for i := range s.targets {
		m.assign(inner, &s.targets[i], values[i])
	}
	return m.run(s.body, inner)
}

// loop is the value of "loop" inside a for.
type loop struct {
	items   []Value
	pairs   *Dict // instead of items: a loop over its entries
	n       int   // how many
	i       int
	depth0  int
	recurse func(seq Value, depth int) string // nil unless the for is recursive
	last    []Value                           // arguments of the last changed()
}

func (s *forStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	return s.iterate(m, sc, m.eval(s.seq, sc), 0)
}

func (s *forStmt) iterate(m *machine, sc *scope, seq Value, depth int) control {
	l := &loop{depth0: depth}
	if l.pairs = s.entries(m, seq); l.pairs != nil {
		l.n = l.pairs.Len()
	} else {
		l.items = m.iterate(seq)
		if s.cond != nil {
			l.items = s.selected(m, sc, l.items)
		}
		l.n = len(l.items)
	}
	if l.n == 0 {
		return m.run(s.otherwise, sc)
	}
	if s.recursive {
		l.recurse = func(seq Value, depth int) string {
			if m.calls++; m.calls > m.maxCalls {
				exceeded(ErrDepth)
			}
			out := m.capture(func() { s.iterate(m, sc, seq, depth) })
			m.calls--
			return out
		}
	}
	inner := m.inner(sc)
	for l.i = 0; l.i < l.n; l.i++ {
		m.step()
		// Iterations share a scope: a macro that outlives its iteration sees the
		// variables of the next one, as a closure in Python does.
		inner.vars = inner.vars[:0]
		m.set(inner, s.loopID, l)
		if l.pairs != nil {
			m.set(inner, s.target.tuple[0].id, l.pairs.keys[l.i])
			m.set(inner, s.target.tuple[1].id, l.pairs.vals[l.i])
		} else {
			m.assign(inner, &s.target, l.items[l.i])
		}
		if m.run(s.body, inner) == breakLoop {
			break
		}
	}
	if s.closed {
		m.release(inner)
	}
	return fallThrough
}

// entries is the dict that a loop "for k, v in d.items()" goes through: no need
// to make pairs and take them apart.
func (s *forStmt) entries(m *machine, seq Value) *Dict {
	if t := s.target.tuple; len(t) != 2 || !t[0].plain() || !t[1].plain() || s.cond != nil {
		return nil
	}
	var d *Dict
	switch v := seq.(type) {
	case *dictView:
		if v.kind == viewItems {
			d = v.dict
		}
	case *generator:
		d, v.dict = v.dict, nil
	}
	if d != nil {
		m.use(d.Len() * valueSize)
	}
	return d
}

// plain is a target that is only a name.
func (t *target) plain() bool { return t.tuple == nil && t.attr == "" }

// at is item i of the loop.
func (l *loop) at(i int) Value {
	if l.pairs != nil {
		return Tuple{l.pairs.keys[i], l.pairs.vals[i]}
	}
	return l.items[i]
}

// selected applies "for ... if cond" before the loop starts, as loop.length
// and loop.last need.
func (s *forStmt) selected(m *machine, sc *scope, items []Value) []Value {
	m.use(len(items) * valueSize)
	kept := make([]Value, 0, len(items))
	inner := m.inner(sc)
	for _, x := range items {
		inner.vars = inner.vars[:0]
		m.assign(inner, &s.target, x)
		if m.truth(s.cond, inner) {
			kept = append(kept, x)
		}
	}
	m.release(inner)
	return kept
}

// macro is a macro together with the scope that defined it.
type macro struct {
	def   *macroStmt
	scope *scope
}

func (s *macroStmt) exec(m *machine, sc *scope) control {
	m.set(sc, s.id, &macro{s, sc})
	return fallThrough
}

// attribute is what a template may ask a macro.
func (mac *macro) attribute(name string) Value {
	d := mac.def
	switch name {
	case "name":
		return d.name
	case "arguments":
		names := make(Tuple, len(d.names))
		for i, n := range d.names {
			names[i] = n
		}
		return names
	case "catch_kwargs":
		return d.usesKwargs
	case "catch_varargs":
		return d.usesVarargs
	case "caller":
		return d.usesCaller
	}
	return undefined
}

// bind binds arguments as jinja2 does: a parameter without an argument
// gets its default, evaluated in the macro's own scope, or stays undefined;
// surplus arguments need a body that mentions varargs or kwargs.
func (m *machine) bind(mac *macro, args []Value, kw []kwarg) *scope {
	d := mac.def
	inner := m.inner(mac.scope)
	given := min(len(args), len(d.params))
	used := 0
	for i, id := range d.params {
		if i < given {
			m.set(inner, id, args[i])
			continue
		}
		v, ok := keyword(kw, d.names[i])
		switch fromEnd := i - (len(d.params) - len(d.defaults)); {
		case ok:
			used++
		case fromEnd >= 0:
			v = m.eval(d.defaults[fromEnd], inner)
		default:
			v = undefined
		}
		m.set(inner, id, v)
	}
	if d.usesCaller {
		v, ok := keyword(kw, "caller")
		if ok {
			used++
		} else {
			v = undefined
		}
		m.set(inner, d.caller, v)
	}
	m.surplus(d, inner, args, kw, used)
	return inner
}

// bind evaluates the arguments of a call of mac in sc.
func (c *callExpr) bind(m *machine, sc *scope, mac *macro) *scope {
	if len(c.args) <= len(mac.def.params) && len(c.kwNames) == 0 && c.star == nil && c.starStar == nil && !mac.def.implicit() {
		inner := m.inner(mac.scope)
		for i, id := range mac.def.params {
			v := undefined
			if i < len(c.args) {
				v = m.eval(c.args[i], sc)
			} else if fromEnd := i - (len(mac.def.params) - len(mac.def.defaults)); fromEnd >= 0 {
				v = m.eval(mac.def.defaults[fromEnd], inner)
			}
			m.set(inner, id, v)
		}
		return inner
	}
	args, kw := c.arguments(m, sc)
	return m.bind(mac, args, kw)
}

// implicit reports whether the body reads a name that the macro has without
// declaring it.
func (s *macroStmt) implicit() bool { return s.usesCaller || s.usesVarargs || s.usesKwargs }

// runMacro runs the body of a macro in a scope that bind made.
func (m *machine) runMacro(mac *macro, inner *scope) {
	if m.calls++; m.calls > m.maxCalls {
		exceeded(ErrDepth)
	}
	m.run(mac.def.body, inner)
	m.calls--
	if mac.def.closed {
		m.release(inner)
	}
}

// captured is what a macro returns.
func (m *machine) captured(mac *macro, inner *scope) Value {
	return m.capture(func() { m.runMacro(mac, inner) })
}

// surplus handles the arguments that no parameter took.
func (m *machine) surplus(d *macroStmt, inner *scope, args []Value, kw []kwarg, used int) {
	given := min(len(args), len(d.params))
	taken := func(name string) bool {
		return slices.Contains(d.names[given:], name) || d.usesCaller && name == "caller"
	}
	switch {
	case d.usesKwargs:
		rest := NewDict(len(kw))
		for _, k := range kw {
			if !taken(k.name) {
				rest.Set(k.name, k.value)
			}
		}
		m.set(inner, d.kwargs, rest)
	case used < len(kw):
		raise("TypeError", "macro '%s' takes no such keyword argument", d.name)
	}
	switch {
	case d.usesVarargs:
		m.set(inner, d.varargs, Tuple(args[given:]))
	case len(args) > given:
		raise("TypeError", "macro '%s' takes not more than %d argument(s)", d.name, len(d.params))
	}
}

func keyword(kw []kwarg, name string) (Value, bool) {
	for _, k := range kw {
		if k.name == name {
			return k.value, true
		}
	}
	return nil, false
}

func (s *callStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	fn := m.eval(s.call.fn, sc)
	args, kw := s.call.arguments(m, sc)
	kw = append(kw, kwarg{"caller", &macro{s.block, sc}})
	m.write(m.str(m.call(fn, args, kw)))
	return fallThrough
}
