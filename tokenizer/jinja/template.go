// Package jinja renders Hugging Face chat templates as Python's jinja2 does,
// byte for byte, in the set-up that transformers uses: an immutable sandbox,
// trim_blocks and lstrip_blocks, loop controls, the generation tag, and tojson
// without HTML escaping.
//
// It is a tree-walking interpreter with Python's value semantics: ordered
// dicts, integers of any size, floats that print as in Python, undefined
// values. What a chat template cannot use (include, import, extends, block,
// async) is a syntax error.
//
// Templates and data may come from strangers. A render reads nothing but its
// variables, changes none of them, and stops with an error when it exceeds its
// Limits: no template and no data can crash, hang or exhaust the process.
package jinja

import (
	"math"
	"sync"
)

// Template is a compiled template. It is immutable; any number of goroutines
// may render it at once.
type Template struct {
	body    []stmt
	symbols map[string]int // variable name -> slot
	globals []Value        // by slot: the engine's own functions, else unset
}

// Compile parses a template. The error is a *SyntaxError.
func Compile(src string) (t *Template, err error) {
	defer func() {
		if e := caught(recover(), 0); e != nil {
			t, err = nil, e
		}
	}()
	p := &parser{tokens: lex(src), symbols: map[string]int{}}
	body, _ := p.body()
	t = &Template{body: body, symbols: p.symbols, globals: make([]Value, len(p.symbols))}
	for i := range t.globals {
		t.globals[i] = unset
	}
	for name, f := range globals {
		if slot, ok := t.symbols[name]; ok {
			t.globals[slot] = &builtin{name, f}
		}
	}
	return t, nil
}

// Mentions reports whether the template names a variable anywhere.
func (t *Template) Mentions(name string) bool {
	_, ok := t.symbols[name]
	return ok
}

// Vars are the variables that a template starts with.
type Vars map[string]Value

// Limits bounds one render. A zero field means its default.
type Limits struct {
	// Steps is how many nodes, iterations and comparisons may be evaluated:
	// by default 200 million, some seconds. A conversation of 200 messages
	// takes about 20,000; but many real templates look at every message for
	// every message, and take 50 million for one of 6,000.
	Steps int
	// Depth is how deep macro calls and recursive loops may nest: by default
	// 250, which is where Python raises RecursionError.
	Depth int
	// Output is the length of the rendered text in bytes: by default 64 MiB.
	Output int
	// Memory is how many bytes of intermediate values may be made in all,
	// freed ones included: by default 1 GiB. The same templates and
	// conversations take up to 300 MB of it.
	Memory int
}

func (l Limits) withDefaults() Limits {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&l.Steps, 200_000_000)
	set(&l.Depth, 250)
	set(&l.Output, 64<<20)
	set(&l.Memory, 1<<30)
	return l
}

// Output is a rendered template.
type Output struct {
	Text string
	// Spans are the {% generation %} blocks in the order in which they ended.
	// transformers takes a block's start from the output emitted so far, so a
	// block inside a macro gets the offset of the text around the macro call;
	// the same is done here.
	Spans []Span
	// Steps and Memory are what the render took of its Limits.
	Steps, Memory int
}

// Span is a half-open range of bytes of Output.Text.
type Span struct{ Start, End int }

// Render runs the template. The error is an *Error or a *RaiseError.
func (t *Template) Render(vars Vars, limits Limits) (out Output, err error) {
	limits = limits.withDefaults()
	m := machines.Get().(*machine)
	m.steps, m.memory, m.maxOutput, m.maxCalls = limits.Steps, limits.Memory, limits.Output, limits.Depth
	m.root = append(m.root, t.globals...)
	defer func() {
		if p := recover(); p != nil { // else m is another render's by now
			out, err = Output{}, caught(p, m.line)
		}
	}()
	for name, v := range vars {
		if slot, ok := t.symbols[name]; ok {
			m.root[slot] = v
		}
	}
	m.run(t.body, nil)
	out = Output{
		Text: string(m.out), Spans: m.spans,
		Steps: limits.Steps - m.steps, Memory: limits.Memory - m.memory,
	}
	m.recycle()
	return out, nil
}

// machines are kept for their buffers. One that a panic stopped is not.
var machines = sync.Pool{New: func() any { return &machine{} }}

// maxKept is how long a buffer may be that is kept.
const maxKept = 1 << 20

func (m *machine) recycle() {
	clear(m.root)
	kept := machine{root: m.root[:0], free: m.free}
	if cap(m.out) <= maxKept {
		kept.out = m.out[:0]
	}
	*m = kept
	machines.Put(m)
}

// machine is the state of one render.
type machine struct {
	root []Value  // the outermost scope, by slot
	free []*scope // to be used again
	// out is the text, and above it what is being captured or built: one buffer
	// for all, since what began last is always done first.
	out       []byte
	start     int // where the innermost capture starts in out
	captures  int // nesting of captures
	outerLen  int // length of the text below the captures
	maxOutput int
	spans     []Span

	steps    int // left
	memory   int // left
	depth    int // of evaluation
	calls    int // of macros and recursive loops
	maxCalls int
	line     int // of the running statement
}

// maxEvalDepth bounds the recursion of eval itself. The parser and maxCalls
// keep real templates far below.
const maxEvalDepth = 20_000

// What a Value in a list and an entry of a dict are charged.
const (
	valueSize = 16
	entrySize = 128
)

// step charges one unit of work.
func (m *machine) step() {
	if m.steps--; m.steps < 0 {
		exceeded(ErrSteps)
	}
}

// scan charges for reading n bytes of text, beyond what every step may read.
func (m *machine) scan(n int) {
	if m.steps -= n >> 5; m.steps < 0 {
		exceeded(ErrSteps)
	}
}

// use charges n bytes of intermediate values, before they are made.
func (m *machine) use(n int) {
	if n < 0 || n > m.memory {
		exceeded(ErrMemory)
	}
	m.memory -= n
}

// useProduct charges a*b bytes.
func (m *machine) useProduct(a, b int) {
	if a > 0 && b > math.MaxInt/a {
		exceeded(ErrMemory)
	}
	m.use(a * b)
}

// write appends to the output.
func (m *machine) write(s string) {
	m.fits(len(s))
	m.out = append(m.out, s...)
}

// fits checks that n more bytes of output are allowed.
func (m *machine) fits(n int) {
	if n > m.maxOutput-(len(m.out)-m.start) {
		exceeded(ErrOutput)
	}
}

// capture runs f with an output of its own and returns what it wrote.
func (m *machine) capture(f func()) string {
	outer := m.start
	m.start = len(m.out)
	m.inside(f)
	m.use(len(m.out) - m.start)
	s := string(m.out[m.start:])
	m.out, m.start = m.out[:m.start], outer
	return s
}

// inside runs f, whose generation blocks do not know where their text ends up.
func (m *machine) inside(f func()) {
	if m.captures == 0 {
		m.outerLen = len(m.out)
	}
	m.captures++
	f()
	m.captures--
}

func (m *machine) run(body []stmt, sc *scope) control {
	for _, s := range body {
		if c := s.exec(m, sc); c != fallThrough {
			return c
		}
	}
	return fallThrough
}

// eval evaluates an expression within the budget. Constants and names, half of
// all expressions, are cheap enough to be free.
func (m *machine) eval(x expr, sc *scope) Value {
	switch x := x.(type) {
	case *constExpr:
		return x.value
	case *nameExpr:
		return m.lookup(sc, x.id)
	}
	m.steps--
	m.depth++
	if m.steps < 0 || m.depth > maxEvalDepth {
		m.overrun()
	}
	v := x.eval(m, sc)
	m.depth--
	return v
}

// truth is truthy(m.eval(x, sc)), without making values of bools.
func (m *machine) truth(x expr, sc *scope) bool {
	m.steps--
	m.depth++
	if m.steps < 0 || m.depth > maxEvalDepth {
		m.overrun()
	}
	var is bool
	switch x := x.(type) {
	case *compareExpr:
		is = x.holds(m, sc)
	case *testExpr:
		is = x.holds(m, sc)
	case *notExpr:
		is = !m.truth(x.x, sc)
	case *andExpr:
		is = m.truth(x.a, sc) && m.truth(x.b, sc)
	case *orExpr:
		is = m.truth(x.a, sc) || m.truth(x.b, sc)
	default:
		is = truthy(m.eval(x, sc))
	}
	m.depth--
	return is
}

func (m *machine) overrun() {
	if m.steps < 0 {
		exceeded(ErrSteps)
	}
	exceeded(ErrDepth)
}

func (m *machine) evalAll(xs []expr, sc *scope) []Value {
	if len(xs) == 0 {
		return nil
	}
	m.use(len(xs) * valueSize)
	vs := make([]Value, len(xs))
	for i, x := range xs {
		vs[i] = m.eval(x, sc)
	}
	return vs
}

// scope holds the variables set inside a for, macro, call, with, filter,
// generation or block set; nil is the template's outermost scope.
type scope struct {
	outer *scope
	vars  []variable
}

type variable struct {
	id    int
	value Value
}

type unsetType struct{}

// unset marks a slot of the outermost scope that has no value.
var unset Value = &unsetType{}

// inner makes a scope inside sc. The caller releases it when no macro can have
// kept it.
func (m *machine) inner(sc *scope) *scope {
	if n := len(m.free); n > 0 {
		s := m.free[n-1]
		m.free = m.free[:n-1]
		s.outer = sc
		return s
	}
	return &scope{outer: sc, vars: make([]variable, 0, 6)}
}

func (m *machine) release(s *scope) {
	clear(s.vars[:cap(s.vars)])
	s.outer, s.vars = nil, s.vars[:0]
	m.free = append(m.free, s)
}

func (m *machine) lookup(sc *scope, id int) Value {
	for s := sc; s != nil; s = s.outer {
		for i := range s.vars {
			if s.vars[i].id == id {
				return s.vars[i].value
			}
		}
	}
	if v := m.root[id]; v != unset {
		return v
	}
	return undefined
}

func (m *machine) set(sc *scope, id int, v Value) {
	if sc == nil {
		m.root[id] = v
		return
	}
	for i := range sc.vars {
		if sc.vars[i].id == id {
			sc.vars[i].value = v
			return
		}
	}
	sc.vars = append(sc.vars, variable{id, v})
}
