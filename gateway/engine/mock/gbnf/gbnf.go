// Package gbnf reads grammars as llama.cpp has them (grammars/README.md there)
// and says what they allow: literals, classes, tokens such as <[7]> and !<[7]>,
// groups, alternatives, and repetition by ?, *, + and {m,n}.
package gbnf

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Grammar is a grammar that was read. It is safe for concurrent use.
type Grammar struct {
	rules map[string]*node
	// height is how deep the flattest tree of a rule is.
	height map[string]int
}

// Piece is a part of what a grammar allows: a text, the token, or any token but
// the token.
type Piece struct {
	Text        string
	Token       uint32
	IsToken, No bool
}

type kind uint8

const (
	text kind = iota
	class
	token
	rule
	all    // parts in order
	either // one of the parts
	many   // the one part, lo to hi times
)

type node struct {
	kind   kind
	text   string // or a rule's name
	no     bool   // a class or a token that is not meant
	id     uint32
	ranges [][2]rune
	parts  []*node
	lo, hi int
}

// unbounded is as often as anybody asks for.
const unbounded = math.MaxInt32

// Parse reads a grammar. All rules that it names must be there, and each must
// come to an end.
func Parse(source string) (*Grammar, error) {
	p := parser{rest: source, source: source}
	g := &Grammar{rules: map[string]*node{}, height: map[string]int{}}
	for p.space(true); p.rest != ""; p.space(true) {
		name := p.name()
		p.space(true)
		if name == "" || !p.take("::=") {
			return nil, p.fault("a rule")
		}
		n, err := p.alternatives(false)
		if err != nil {
			return nil, err
		}
		g.rules[name] = n
	}
	if g.rules["root"] == nil {
		return nil, errors.New("gbnf: there is no rule root")
	}
	for _, n := range g.rules {
		if err := g.named(n); err != nil {
			return nil, err
		}
	}
	for changed := true; changed; {
		changed = false
		for name, n := range g.rules {
			if h := g.heightOf(n); h < unbounded && (g.height[name] == 0 || h+1 < g.height[name]) {
				g.height[name], changed = h+1, true
			}
		}
	}
	for name := range g.rules {
		if g.height[name] == 0 {
			return nil, fmt.Errorf("gbnf: the rule %s has no end", name)
		}
	}
	return g, nil
}

func (g *Grammar) named(n *node) error {
	if n.kind == rule && g.rules[n.text] == nil {
		return fmt.Errorf("gbnf: there is no rule %s", n.text)
	}
	for _, p := range n.parts {
		if err := g.named(p); err != nil {
			return err
		}
	}
	return nil
}

func (g *Grammar) heightOf(n *node) int {
	switch n.kind {
	case rule:
		if h := g.height[n.text]; h > 0 {
			return h
		}
		return unbounded
	case either:
		h := unbounded
		for _, p := range n.parts {
			h = min(h, g.heightOf(p))
		}
		return h
	case many:
		if n.lo == 0 {
			return 0
		}
	}
	h := 0
	for _, p := range n.parts {
		h = max(h, g.heightOf(p))
	}
	return h
}

// Say returns something that the grammar allows. pick chooses one of n ways;
// after depth rules inside each other the flattest way is taken. A nil pick is
// the flattest throughout.
func (g *Grammar) Say(pick func(n int) int, depth int) []Piece {
	return g.say(nil, g.rules["root"], pick, depth)
}

func (g *Grammar) say(dst []Piece, n *node, pick func(int) int, depth int) []Piece {
	if depth <= 0 {
		pick = nil
	}
	add := func(s string) []Piece {
		if k := len(dst); k > 0 && !dst[k-1].IsToken {
			dst[k-1].Text += s
			return dst
		}
		return append(dst, Piece{Text: s})
	}
	switch n.kind {
	case text:
		return add(n.text)
	case class:
		return add(string(n.member(pick)))
	case token:
		return append(dst, Piece{IsToken: true, Token: n.id, No: n.no})
	case rule:
		return g.say(dst, g.rules[n.text], pick, depth-1)
	case all:
		for _, p := range n.parts {
			dst = g.say(dst, p, pick, depth)
		}
		return dst
	case either:
		if pick != nil {
			return g.say(dst, n.parts[pick(len(n.parts))], pick, depth)
		}
		best := n.parts[0]
		for _, p := range n.parts {
			if g.heightOf(p) < g.heightOf(best) {
				best = p
			}
		}
		return g.say(dst, best, nil, depth)
	}
	times := n.lo
	if pick != nil {
		times += pick(min(n.hi-n.lo, 4) + 1)
	}
	for range times {
		dst = g.say(dst, n.parts[0], pick, depth)
	}
	return dst
}

// member is a character of a class: of one that is not meant, a printable one
// that is not in it.
func (n *node) member(pick func(int) int) rune {
	if pick == nil {
		pick = func(int) int { return 0 }
	}
	if !n.no {
		r := n.ranges[pick(len(n.ranges))]
		return r[0] + rune(pick(int(r[1]-r[0])+1))
	}
	const printable = '~' - ' ' + 1
	first := rune(pick(printable))
	for i := range rune(printable) {
		r := ' ' + (first+i)%printable
		if !n.has(r) {
			return r
		}
	}
	return 'é'
}

func (n *node) has(r rune) bool {
	for _, x := range n.ranges {
		if x[0] <= r && r <= x[1] {
			return true
		}
	}
	return false
}

type parser struct{ rest, source string }

func (p *parser) fault(want string) error {
	return fmt.Errorf("gbnf: at byte %d: %s was expected", len(p.source)-len(p.rest), want)
}

func (p *parser) take(s string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, s)
	return ok
}

// space skips white space and comments. Outside of groups a line break ends a
// rule.
func (p *parser) space(lines bool) {
	for {
		set := " \t"
		if lines {
			set = " \t\r\n"
		}
		p.rest = strings.TrimLeft(p.rest, set)
		if !strings.HasPrefix(p.rest, "#") {
			return
		}
		_, p.rest, _ = strings.Cut(p.rest, "\n")
		p.rest = "\n" + p.rest
	}
}

func (p *parser) name() string {
	rest := strings.TrimLeft(p.rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
	name := p.rest[:len(p.rest)-len(rest)]
	p.rest = rest
	return name
}

func (p *parser) alternatives(group bool) (*node, error) {
	out := &node{kind: either}
	for {
		n, err := p.sequence(group)
		if err != nil {
			return nil, err
		}
		out.parts = append(out.parts, n)
		if !p.take("|") {
			break
		}
		p.space(true)
	}
	if len(out.parts) == 1 {
		return out.parts[0], nil
	}
	return out, nil
}

func (p *parser) sequence(group bool) (*node, error) {
	out := &node{kind: all}
	for {
		p.space(group)
		if p.rest == "" || strings.ContainsAny(p.rest[:1], "|)\r\n") {
			return out, nil
		}
		n, err := p.element()
		if err != nil {
			return nil, err
		}
		if n, err = p.repeated(n); err != nil {
			return nil, err
		}
		out.parts = append(out.parts, n)
	}
}

func (p *parser) element() (*node, error) {
	switch {
	case p.take(`"`):
		var b strings.Builder
		for !p.take(`"`) {
			r, err := p.character()
			if err != nil {
				return nil, err
			}
			b.WriteRune(r)
		}
		return &node{kind: text, text: b.String()}, nil
	case p.take("["):
		return p.class()
	case p.take("("):
		p.space(true)
		n, err := p.alternatives(true)
		if err == nil && !p.take(")") {
			err = p.fault("a closing parenthesis")
		}
		return n, err
	case strings.HasPrefix(p.rest, "!<["), strings.HasPrefix(p.rest, "<["):
		n := &node{kind: token, no: p.take("!")}
		digits, rest, ok := strings.Cut(p.rest[2:], "]>")
		id, err := strconv.ParseUint(digits, 10, 32)
		if !ok || err != nil {
			return nil, p.fault("a token such as <[7]>")
		}
		n.id, p.rest = uint32(id), rest
		return n, nil
	}
	if name := p.name(); name != "" {
		return &node{kind: rule, text: name}, nil
	}
	return nil, p.fault("an element")
}

func (p *parser) class() (*node, error) {
	n := &node{kind: class, no: p.take("^")}
	for !p.take("]") {
		from, err := p.character()
		if err != nil {
			return nil, err
		}
		to := from
		if strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
			p.take("-")
			if to, err = p.character(); err != nil {
				return nil, err
			}
		}
		n.ranges = append(n.ranges, [2]rune{from, to})
	}
	if len(n.ranges) == 0 && !n.no {
		return nil, p.fault("a character")
	}
	return n, nil
}

func (p *parser) repeated(n *node) (*node, error) {
	lo, hi := 0, unbounded
	switch {
	case p.take("?"):
		hi = 1
	case p.take("*"):
	case p.take("+"):
		lo = 1
	case p.take("{"):
		inside, rest, _ := strings.Cut(p.rest, "}")
		from, to, ranged := strings.Cut(inside, ",")
		var err error
		if lo, err = strconv.Atoi(from); err != nil {
			return nil, p.fault("a number")
		}
		switch {
		case !ranged:
			hi = lo
		case to != "":
			if hi, err = strconv.Atoi(to); err != nil || hi < lo {
				return nil, p.fault("a number that is not smaller")
			}
		}
		p.rest = rest
	default:
		return n, nil
	}
	return &node{kind: many, lo: lo, hi: hi, parts: []*node{n}}, nil
}

// hexes are how many digits follow an escape.
var hexes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

func (p *parser) character() (rune, error) {
	if !p.take(`\`) {
		r, n := utf8.DecodeRuneInString(p.rest)
		if n == 0 {
			return 0, p.fault("a character")
		}
		p.rest = p.rest[n:]
		return r, nil
	}
	if p.rest == "" {
		return 0, p.fault("a character")
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	switch c {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case '\\', '"', '[', ']':
		return rune(c), nil
	}
	n := hexes[c]
	if n == 0 || len(p.rest) < n {
		return 0, p.fault("an escape")
	}
	v, err := strconv.ParseUint(p.rest[:n], 16, 32)
	if err != nil {
		return 0, p.fault("an escape")
	}
	p.rest = p.rest[n:]
	return rune(v), nil
}
