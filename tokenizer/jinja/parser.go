package jinja

import (
	"slices"
	"strings"
)

// maxNesting bounds how deep a source may nest expressions and blocks, so that
// no source can overflow the stack. Python gives up at about 80.
const maxNesting = 200

// maxChain bounds operands in one chain such as a + b + c + ..., which parses
// to a tree as deep as it is long. Python gives up below 200.
const maxChain = 1000

// parser is a recursive descent over the tokens. Precedence, from weak to
// strong: if-else, or, and, not, comparison, + -, ~, * / // %, **, unary,
// postfix (attribute, call, filter, test).
type parser struct {
	tokens  []token
	pos     int
	nesting int
	symbols map[string]int // names of variables, numbered
	read    []string       // names read so far: tells what a macro body mentions
	calls   int            // calls parsed so far
	loops   int            // assignments to "loop" parsed so far
	keepers int            // statements parsed so far that keep their scope: macros, recursive loops
}

func (p *parser) symbol(name string) int {
	id, ok := p.symbols[name]
	if !ok {
		id = len(p.symbols)
		p.symbols[name] = id
	}
	return id
}

func (p *parser) enter() {
	if p.nesting++; p.nesting > maxNesting {
		syntaxError(p.cur().line, "nested more than %d deep", maxNesting)
	}
}

func (p *parser) leave() { p.nesting-- }

// chain checks the length of a chain of n operands.
func (p *parser) chain(n int) {
	if n > maxChain {
		syntaxError(p.cur().line, "more than %d operands in one expression", maxChain)
	}
}

func (p *parser) cur() *token  { return &p.tokens[p.pos] }
func (p *parser) peek() *token { return &p.tokens[min(p.pos+1, len(p.tokens)-1)] }

// next consumes a token; the last one, the end, stays.
func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEOF {
		p.pos++
	}
	return t
}

func (p *parser) isOp(op string) bool {
	return p.cur().kind == tokenOperator && p.cur().text == op
}

func (p *parser) isName(name string) bool {
	return p.cur().kind == tokenName && p.cur().text == name
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) unexpected(want string) {
	t := p.cur()
	got := "'" + t.text + "'"
	switch t.kind {
	case tokenEOF:
		got = "the end of the template"
	case tokenBlockEnd:
		got = "'%}'"
	case tokenVarEnd:
		got = "'}}'"
	}
	syntaxError(t.line, "expected %s, got %s", want, got)
}

func (p *parser) op(op string) {
	if !p.skipOp(op) {
		p.unexpected("'" + op + "'")
	}
}

func (p *parser) name() string {
	if p.cur().kind != tokenName {
		p.unexpected("a name")
	}
	return p.next().text
}

func (p *parser) blockEnd() {
	if p.cur().kind != tokenBlockEnd {
		p.unexpected("'%}'")
	}
	p.pos++
}

// body parses statements up to a block whose name is one of ends; the name is
// consumed and returned.
func (p *parser) body(ends ...string) ([]stmt, string) {
	p.enter()
	defer p.leave()
	var out []stmt
	for {
		switch t := p.cur(); t.kind {
		case tokenEOF:
			if len(ends) > 0 {
				syntaxError(t.line, "unexpected end of template, expected %s", strings.Join(ends, " or "))
			}
			return out, ""
		case tokenData:
			out = appendData(out, t.text)
			p.pos++
		case tokenVarBegin:
			p.pos++
			calls := p.calls
			x := p.tuple(true)
			if text, ok := constantText(x); ok {
				out = appendData(out, text)
			} else {
				out = append(out, &outputStmt{t.line, x, p.calls == calls})
			}
			if p.cur().kind != tokenVarEnd {
				p.unexpected("'}}'")
			}
			p.pos++
		case tokenBlockBegin:
			p.pos++
			name := p.name()
			if slices.Contains(ends, name) {
				return out, name
			}
			out = append(out, p.statement(name, t.line))
		default:
			p.unexpected("template data")
		}
	}
}

// appendData appends text to the statements, joined to text before it.
func appendData(out []stmt, text string) []stmt {
	if len(out) > 0 {
		if last, ok := out[len(out)-1].(*dataStmt); ok {
			last.text += text
			return out
		}
	}
	return append(out, &dataStmt{text})
}

// constantText is the value of an expression that is a string literal.
func constantText(x expr) (string, bool) {
	if c, ok := x.(*constExpr); ok {
		s, ok := c.value.(string)
		return s, ok
	}
	return "", false
}

// constantInt is the value of an expression that is an integer literal.
func constantInt(x expr) (int64, bool) {
	if c, ok := x.(*constExpr); ok {
		n, ok := c.value.(int64)
		return n, ok
	}
	return 0, false
}

// constants are the values of expressions, if all of them are constant.
func constants(xs []expr) ([]Value, bool) {
	var values []Value
	for _, x := range xs {
		c, ok := x.(*constExpr)
		if !ok {
			return nil, false
		}
		values = append(values, c.value)
	}
	return slices.Clip(values), true
}

func (p *parser) statement(name string, line int) stmt {
	switch name {
	case "if":
		return p.ifStatement(line)
	case "for":
		return p.forStatement(line)
	case "set":
		return p.setStatement(line)
	case "macro":
		m := &macroStmt{name: p.name()}
		m.id = p.symbol(m.name)
		p.signature(m)
		p.blockEnd()
		p.macroBody(m, "endmacro")
		return m
	case "call":
		return p.callStatement(line)
	case "filter":
		return p.filterStatement(line)
	case "generation":
		p.blockEnd()
		body, _ := p.body("endgeneration")
		p.blockEnd()
		return &generationStmt{body}
	case "with":
		return p.withStatement(line)
	case "break":
		p.blockEnd()
		return breakStmt{}
	case "continue":
		p.blockEnd()
		return continueStmt{}
	}
	syntaxError(line, "unknown tag '%s'", name)
	return nil
}

func (p *parser) ifStatement(line int) stmt {
	s := &ifStmt{line: line}
	for {
		s.tests = append(s.tests, p.tuple(true))
		p.blockEnd()
		body, end := p.body("elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		if end == "elif" {
			continue
		}
		if end == "else" {
			p.blockEnd()
			s.otherwise, _ = p.body("endif")
		}
		p.blockEnd()
		return s
	}
}

func (p *parser) forStatement(line int) stmt {
	s := &forStmt{line: line, loopID: p.symbol("loop")}
	loops := p.loops
	s.target = p.target(true)
	if !p.skipName("in") {
		p.unexpected("'in'")
	}
	s.seq = p.tuple(false)
	if p.skipName("if") {
		s.cond = p.expr()
	}
	s.recursive = p.skipName("recursive")
	p.blockEnd()
	keepers := p.keepers
	body, end := p.body("endfor", "else")
	s.body, s.closed = body, p.keepers == keepers
	if s.recursive {
		p.keepers++
		s.closed = false
	}
	if end == "else" {
		p.blockEnd()
		s.otherwise, _ = p.body("endfor")
	}
	if p.loops > loops {
		syntaxError(line, "can't assign to the special variable 'loop'")
	}
	p.blockEnd()
	return s
}

func (p *parser) setStatement(line int) stmt {
	t := p.target(true)
	if p.skipOp("=") {
		s := &setStmt{line, t, p.tuple(true)}
		p.blockEnd()
		return s
	}
	s := &setBlockStmt{line: line, target: t}
	for p.skipOp("|") {
		s.filters = append(s.filters, p.filter(nil))
	}
	p.blockEnd()
	s.body, _ = p.body("endset")
	p.blockEnd()
	return s
}

func (p *parser) callStatement(line int) stmt {
	block := &macroStmt{name: "caller"}
	if p.isOp("(") {
		p.signature(block)
	}
	call, ok := p.expr().(*callExpr)
	if !ok {
		p.unexpected("a call")
	}
	p.blockEnd()
	p.macroBody(block, "endcall")
	return &callStmt{line, call, block}
}

func (p *parser) filterStatement(line int) stmt {
	s := &filterStmt{line: line}
	s.filters = append(s.filters, p.filter(nil))
	for p.skipOp("|") {
		s.filters = append(s.filters, p.filter(nil))
	}
	p.blockEnd()
	s.body, _ = p.body("endfilter")
	p.blockEnd()
	return s
}

func (p *parser) withStatement(line int) stmt {
	s := &withStmt{line: line}
	for p.cur().kind != tokenBlockEnd {
		if len(s.targets) > 0 {
			p.op(",")
		}
		s.targets = append(s.targets, p.target(false))
		p.op("=")
		s.values = append(s.values, p.expr())
	}
	p.blockEnd()
	s.body, _ = p.body("endwith")
	p.blockEnd()
	return s
}

func (p *parser) signature(m *macroStmt) {
	p.op("(")
	for !p.isOp(")") {
		if len(m.params) > 0 {
			p.op(",")
		}
		name := p.name()
		if slices.Contains(m.names, name) {
			syntaxError(p.cur().line, "the parameter '%s' is there twice", name)
		}
		m.params = append(m.params, p.symbol(name))
		m.names = append(m.names, name)
		if p.skipOp("=") {
			m.defaults = append(m.defaults, p.expr())
		} else if len(m.defaults) > 0 {
			p.unexpected("a default: parameters without one come first")
		}
	}
	p.op(")")
}

// macroBody parses the body and finds out which implicit names it reads.
func (p *parser) macroBody(m *macroStmt, end string) {
	m.caller, m.varargs, m.kwargs = p.symbol("caller"), p.symbol("varargs"), p.symbol("kwargs")
	from, keepers := len(p.read), p.keepers
	m.body, _ = p.body(end)
	m.closed = p.keepers == keepers
	p.keepers++
	p.blockEnd()
	for _, name := range p.read[from:] {
		switch name {
		case "caller":
			m.usesCaller = true
		case "varargs":
			m.usesVarargs = true
		case "kwargs":
			m.usesKwargs = true
		}
	}
}

func (p *parser) target(withTuple bool) target {
	p.enter()
	defer p.leave()
	first := p.singleTarget()
	if !withTuple || !p.isOp(",") {
		return first
	}
	t := target{tuple: []target{first}}
	for p.skipOp(",") {
		if p.cur().kind != tokenName && !p.isOp("(") || p.isName("in") {
			break
		}
		t.tuple = append(t.tuple, p.singleTarget())
	}
	return t
}

func (p *parser) singleTarget() target {
	if p.skipOp("(") {
		t := p.target(true)
		p.op(")")
		return t
	}
	name := p.name()
	switch name {
	case "true", "True", "false", "False", "none", "None":
		syntaxError(p.cur().line, "can't assign to '%s'", name)
	}
	t := target{id: p.symbol(name)}
	if p.skipOp(".") {
		t.attr = p.name()
	} else if name == "loop" {
		p.loops++
	}
	return t
}

// tuple parses an expression, or several as a tuple without parentheses.
// Without withCond an "if" ends the expression (for x in a if b).
func (p *parser) tuple(withCond bool) expr {
	one := func() expr {
		if withCond {
			return p.expr()
		}
		p.enter()
		defer p.leave()
		return p.or()
	}
	x := one()
	if !p.isOp(",") {
		return x
	}
	t := &tupleExpr{[]expr{x}}
	for p.skipOp(",") {
		if k := p.cur().kind; k == tokenVarEnd || k == tokenBlockEnd || p.isOp(")") {
			break
		}
		t.items = append(t.items, one())
	}
	return t
}

func (p *parser) expr() expr {
	p.enter()
	defer p.leave()
	x := p.or()
	for n := 0; p.skipName("if"); n++ {
		p.chain(n)
		c := &condExpr{test: p.or(), then: x}
		if p.skipName("else") {
			c.otherwise = p.expr()
		}
		x = c
	}
	return x
}

func (p *parser) or() expr {
	x := p.and()
	for n := 0; p.skipName("or"); n++ {
		p.chain(n)
		x = &orExpr{x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for n := 0; p.skipName("and"); n++ {
		p.chain(n)
		x = &andExpr{x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	if !p.skipName("not") {
		return p.compare()
	}
	p.enter()
	defer p.leave()
	return &notExpr{p.not()}
}

func (p *parser) compare() expr {
	first := p.sum()
	c := &compareExpr{first: first}
	for {
		var op operator
		switch t := p.cur(); {
		case t.kind == tokenOperator && comparisons[t.text] != 0:
			op = comparisons[t.text]
			p.pos++
		case p.skipName("in"):
			op = opIn
		case p.isName("not") && p.peek().kind == tokenName && p.peek().text == "in":
			op = opNotIn
			p.pos += 2
		default:
			if len(c.ops) == 0 {
				return first
			}
			return c
		}
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, p.sum())
	}
}

func (p *parser) sum() expr {
	x := p.concat()
	for n := 0; ; n++ {
		p.chain(n)
		switch {
		case p.skipOp("+"):
			y := p.concat()
			a, aIsText := constantText(x)
			b, bIsText := constantText(y)
			switch sum, ok := x.(*sumExpr); {
			case ok:
				sum.parts = append(sum.parts, y)
			case aIsText && bIsText:
				x = &constExpr{a + b}
			default:
				x = &sumExpr{[]expr{x, y}}
			}
		case p.skipOp("-"):
			x = &binaryExpr{opSub, x, p.concat()}
		default:
			return x
		}
	}
}

func (p *parser) concat() expr {
	x := p.product()
	if !p.isOp("~") {
		return x
	}
	c := &concatExpr{[]expr{x}}
	for p.skipOp("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr {
	x := p.power()
	for n := 0; ; n++ {
		p.chain(n)
		op, ok := products[p.cur().text]
		if !ok || p.cur().kind != tokenOperator {
			return x
		}
		p.pos++
		x = &binaryExpr{op, x, p.power()}
	}
}

func (p *parser) power() expr {
	x := p.unary(true)
	for n := 0; p.skipOp("**"); n++ {
		p.chain(n)
		x = &binaryExpr{opPow, x, p.unary(true)}
	}
	return x
}

func (p *parser) unary(withFilter bool) expr {
	p.enter()
	defer p.leave()
	var x expr
	switch {
	case p.skipOp("-"):
		x = p.unary(false)
		if n, ok := constantInt(x); ok && n > 0 {
			x = &constExpr{-n}
		} else {
			x = &signExpr{x, true}
		}
	case p.skipOp("+"):
		x = &signExpr{p.unary(false), false}
	default:
		x = p.primary()
	}
	x = p.postfix(x)
	if withFilter {
		x = p.filtersAndTests(x)
	}
	return x
}

func (p *parser) primary() expr {
	t := p.cur()
	switch t.kind {
	case tokenName:
		p.pos++
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		if t.text == "self" {
			syntaxError(t.line, "self is not supported: there are no blocks")
		}
		p.read = append(p.read, t.text)
		return &nameExpr{p.symbol(t.text)}
	case tokenString:
		s := t.text
		for p.pos++; p.cur().kind == tokenString; p.pos++ {
			s += p.cur().text
		}
		return &constExpr{s}
	case tokenNumber:
		p.pos++
		return &constExpr{t.value}
	}
	switch {
	case p.skipOp("("):
		if p.skipOp(")") {
			return &tupleExpr{}
		}
		x := p.tuple(true)
		p.op(")")
		return x
	case p.skipOp("["):
		l := &listExpr{}
		for !p.isOp("]") {
			if len(l.items) > 0 {
				p.op(",")
			}
			if p.isOp("]") {
				break
			}
			l.items = append(l.items, p.expr())
		}
		p.op("]")
		if values, ok := constants(l.items); ok {
			return &constExpr{&List{values}} // no template can change a list
		}
		return l
	case p.skipOp("{"):
		d := &dictExpr{}
		for !p.isOp("}") {
			if len(d.keys) > 0 {
				p.op(",")
			}
			if p.isOp("}") {
				break
			}
			d.keys = append(d.keys, p.expr())
			p.op(":")
			d.vals = append(d.vals, p.expr())
		}
		p.op("}")
		return d
	}
	p.unexpected("an expression")
	return nil
}

func (p *parser) postfix(x expr) expr {
	for n := 0; ; n++ {
		p.chain(n)
		switch {
		case p.skipOp("."):
			switch t := p.cur(); t.kind {
			case tokenName:
				x = &attrExpr{x, t.text, dictMethods[t.text], stringMethods[t.text]}
			case tokenNumber:
				x = &itemExpr{x: x, key: &constExpr{t.value}}
			default:
				p.unexpected("a name or a number")
			}
			p.pos++
		case p.skipOp("["):
			x = p.subscript(x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) subscript(x expr) expr {
	var items []expr
	for !p.isOp("]") {
		if len(items) > 0 {
			p.op(",")
		}
		items = append(items, p.indexOrSlice(x))
	}
	p.op("]")
	switch len(items) {
	case 0:
		p.unexpected("a subscript")
	case 1:
		if s, ok := items[0].(*sliceExpr); ok {
			return s
		}
		name, _ := constantText(items[0])
		return &itemExpr{x, items[0], name, partOfSplit(x, items[0])}
	}
	return &itemExpr{x: x, key: &tupleExpr{items}}
}

// partOfSplit recognizes x.split('separator')[0] and [-1], without which few
// templates get by. It is nil for anything else.
func partOfSplit(x, key expr) *splitPart {
	call, ok := x.(*callExpr)
	if !ok || !call.constant || len(call.constArgs) != 1 || len(call.constKwargs) > 0 {
		return nil
	}
	method, ok := call.fn.(*attrExpr)
	separator, isText := call.constArgs[0].(string)
	n, isInt := constantInt(key)
	if !ok || method.name != "split" || !isText || separator == "" || !isInt || n < -1 || n > 0 {
		return nil
	}
	return &splitPart{method.x, separator, n < 0}
}

func (p *parser) indexOrSlice(x expr) expr {
	s := &sliceExpr{x: x}
	if !p.skipOp(":") {
		e := p.expr()
		if !p.skipOp(":") {
			return e
		}
		s.start = e
	}
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.stop = p.expr()
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.step = p.expr()
	}
	return s
}

func (p *parser) call(fn expr) *callExpr {
	c := &callExpr{fn: fn}
	if fn != nil { // not the arguments of a filter or a test
		p.calls++
	}
	p.op("(")
	for first := true; !p.isOp(")"); first = false {
		if !first {
			p.op(",")
			if p.isOp(")") {
				break
			}
		}
		switch {
		case p.skipOp("*"):
			if c.star != nil || c.starStar != nil {
				p.unexpected("one *argument, before **arguments")
			}
			c.star = p.expr()
		case p.skipOp("**"):
			if c.starStar != nil {
				p.unexpected("one **argument")
			}
			c.starStar = p.expr()
		case p.cur().kind == tokenName && p.peek().kind == tokenOperator && p.peek().text == "=":
			if c.starStar != nil {
				p.unexpected("keyword arguments before **arguments")
			}
			c.kwNames = append(c.kwNames, p.next().text)
			p.pos++
			c.kwValues = append(c.kwValues, p.expr())
		default:
			if len(c.kwNames) > 0 || c.star != nil || c.starStar != nil {
				p.unexpected("positional arguments before the others")
			}
			c.args = append(c.args, p.expr())
		}
	}
	p.op(")")
	c.fold()
	return c
}

// fold finds out whether all arguments are constant.
func (c *callExpr) fold() {
	args, constant := constants(c.args)
	values, constantKw := constants(c.kwValues)
	if !constant || !constantKw || c.star != nil || c.starStar != nil {
		return
	}
	c.constant, c.constArgs = true, args
	for i, name := range c.kwNames {
		c.constKwargs = append(c.constKwargs, kwarg{name, values[i]})
	}
	c.constKwargs = slices.Clip(c.constKwargs)
}

func (p *parser) filtersAndTests(x expr) expr {
	for n := 0; ; n++ {
		p.chain(n)
		switch {
		case p.skipOp("|"):
			x = p.filter(x)
		case p.skipName("is"):
			x = p.test(x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) dottedName() string {
	name := p.name()
	for p.skipOp(".") {
		name += "." + p.name()
	}
	return name
}

func (p *parser) filter(x expr) *filterExpr {
	f := &filterExpr{x: x, name: p.dottedName()}
	f.fn = filters[f.name]
	if p.isOp("(") {
		f.args = p.call(nil)
	}
	return f
}

func (p *parser) test(x expr) expr {
	t := &testExpr{x: x, negate: p.skipName("not"), name: p.dottedName()}
	t.fn = tests[t.name]
	t.scans = t.name == "lower" || t.name == "upper" || t.name == "in"
	switch c := p.cur(); {
	case p.isOp("("):
		// The filters take keywords; no test does.
		t.args = &callExpr{args: p.call(nil).args}
		t.args.fold()
	case c.kind == tokenName && (c.text == "else" || c.text == "or" || c.text == "and"):
	case c.kind == tokenName || c.kind == tokenString || c.kind == tokenNumber || p.isOp("[") || p.isOp("{"):
		if p.isName("is") {
			p.unexpected("no chain of tests")
		}
		t.args = &callExpr{args: []expr{p.postfix(p.primary())}}
		t.args.fold()
	}
	return t
}
