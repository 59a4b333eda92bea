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
	"strings"
	"sync/atomic"
)

// Template is a compiled template. It is immutable; any number of goroutines
// may render it at once.
type Template struct {
	body    []stmt
	symbols map[string]int // variable name -> slot
	globals []Value        // by slot: the engine's own functions, else unset
	// lastSize is how long the last output was, a good guess for the next one.
	lastSize atomic.Int64
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
	m := &machine{
		steps: limits.Steps, memory: limits.Memory, maxOutput: limits.Output, maxCalls: limits.Depth,
		root: make([]Value, len(t.globals)), out: &strings.Builder{},
	}
	m.out.Grow(int(min(t.lastSize.Load()*9/8, int64(limits.Output))))
	defer func() {
		if e := caught(recover(), m.line); e != nil {
			out, err = Output{}, e
		}
	}()
	copy(m.root, t.globals)
	for name, v := range vars {
		if slot, ok := t.symbols[name]; ok {
			m.root[slot] = v
		}
	}
	m.run(t.body, nil)
	t.lastSize.Store(int64(m.out.Len()))
	return Output{
		Text: m.out.String(), Spans: m.spans,
		Steps: limits.Steps - m.steps, Memory: limits.Memory - m.memory,
	}, nil
}

// machine is the state of one render.
type machine struct {
	root      []Value          // the outermost scope, by slot
	out       *strings.Builder // where output goes: the text, or the innermost capture
	captures  int              // nesting of captures
	outerLen  int              // length of the text below the captures
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

// valueSize is what a Value in a list is charged.
const valueSize = 16

// step charges one unit of work.
func (m *machine) step() {
	if m.steps--; m.steps < 0 {
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
	if len(s) > m.maxOutput-m.out.Len() {
		exceeded(ErrOutput)
	}
	m.out.WriteString(s)
}

// capture runs f with an output of its own and returns what it wrote.
func (m *machine) capture(f func()) string {
	if m.captures == 0 {
		m.outerLen = m.out.Len()
	}
	outer := m.out
	m.captures++
	m.out = &strings.Builder{}
	f()
	s := m.out.String()
	m.use(len(s))
	m.out = outer
	m.captures--
	return s
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
