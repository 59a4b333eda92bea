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
	} else {
		m.write(m.str(m.eval(s.x, sc)))
	}
	return fallThrough
}

// writeExpr writes what an expression prints, without building the whole text
// of a ~ b or a + b first. Nothing in the expression may call a macro: a
// generation block in there would count a part of this statement's output.
func (m *machine) writeExpr(x expr, sc *scope) {
	switch x := x.(type) {
	case *concatExpr:
		for _, part := range x.parts {
			m.write(m.str(m.eval(part, sc)))
		}
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

func (s *ifStmt) exec(m *machine, sc *scope) control {
	m.line = s.line
	for i, test := range s.tests {
		if truthy(m.eval(test, sc)) {
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
	before := m.out.Len()
	start := before
	if m.captures > 0 {
		start = m.outerLen
	}
	m.run(s.body, &scope{outer: sc})
	m.use(valueSize)
	m.spans = append(m.spans, Span{start, start + m.out.Len() - before})
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
	items := m.iterate(seq)
	if s.cond != nil {
		items = s.selected(m, sc, items)
	}
	if len(items) == 0 {
		return m.run(s.otherwise, sc)
	}
	l := &loop{items: items, depth0: depth}
	if s.recursive {
		l.recurse = func(seq Value, depth int) string {
			var out string
			m.nested(func() { out = m.capture(func() { s.iterate(m, sc, seq, depth) }) })
			return out
		}
	}
	inner := &scope{outer: sc, vars: make([]variable, 0, 4)}
	for i, x := range items {
		m.step()
		l.i = i
		// Iterations share a scope: a macro that outlives its iteration sees the
		// variables of the next one, as a closure in Python does.
		inner.vars = inner.vars[:0]
		m.set(inner, s.loopID, l)
		m.assign(inner, &s.target, x)
		if m.run(s.body, inner) == breakLoop {
			break
		}
	}
	return fallThrough
}

// selected applies "for ... if cond" before the loop starts, as loop.length
// and loop.last need.
func (s *forStmt) selected(m *machine, sc *scope, items []Value) []Value {
	m.use(len(items) * valueSize)
	kept := make([]Value, 0, len(items))
	for _, x := range items {
		inner := &scope{outer: sc}
		m.assign(inner, &s.target, x)
		if truthy(m.eval(s.cond, inner)) {
			kept = append(kept, x)
		}
	}
	return kept
}

// nested runs f one level deeper in the call stack of the template.
func (m *machine) nested(f func()) {
	if m.calls++; m.calls > m.maxCalls {
		exceeded(ErrDepth)
	}
	f()
	m.calls--
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

// callMacro binds arguments as jinja2 does: a parameter without an argument
// gets its default, evaluated in the macro's own scope, or stays undefined;
// surplus arguments need a body that mentions varargs or kwargs.
func (m *machine) callMacro(mac *macro, args []Value, kw []kwarg) Value {
	d := mac.def
	inner := &scope{outer: mac.scope, vars: make([]variable, 0, len(d.params)+2)}
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
	var out string
	m.nested(func() { out = m.capture(func() { m.run(d.body, inner) }) })
	return out
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
