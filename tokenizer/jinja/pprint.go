package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// filterPPrint is Python's pprint.pformat: 80 columns, dicts in the order of
// their keys.
func filterPPrint(m *machine, v Value, _ []Value, _ []kwarg) Value {
	w := m.writer()
	prettyPrinter{w}.print(v, 0, 0, 0)
	return w.text()
}

const prettyWidth = 80

type prettyPrinter struct{ textWriter }

// print writes v where indent characters of the line are taken and allowance
// will be, after it.
func (p prettyPrinter) print(v Value, indent, allowance, depth int) {
	short := p.line(v, depth)
	if utf8.RuneCountInString(short) > prettyWidth-indent-allowance {
		switch x := v.(type) {
		case string:
			p.text(x, indent, allowance, depth+1)
			return
		case *List:
			p.items("[", "]", x.items, indent, allowance, depth+1)
			return
		case *Dict:
			p.dict(x, indent, allowance, depth+1)
			return
		case Tuple:
			switch {
			case x.isGroup(): // which has a repr of its own
			case len(x) == 1:
				p.items("(", ",)", x, indent, allowance, depth+1)
				return
			default:
				p.items("(", ")", x, indent, allowance, depth+1)
				return
			}
		}
	}
	p.write(short)
}

// line is v on one line.
func (p prettyPrinter) line(v Value, depth int) string {
	w := p.m.writer()
	prettyPrinter{w}.inline(v, depth)
	return w.text()
}

func (p prettyPrinter) inline(v Value, depth int) {
	p.m.step()
	if depth > valueDepth {
		exceeded(ErrDepth)
	}
	list := func(open, end string, items []Value) {
		p.write(open)
		for i, x := range items {
			if i > 0 {
				p.write(", ")
			}
			p.inline(x, depth+1)
		}
		p.write(end)
	}
	switch x := v.(type) {
	case *List:
		list("[", "]", x.items)
		return
	case Tuple:
		switch {
		case x.isGroup():
		case len(x) == 1:
			list("(", ",)", x)
			return
		default:
			list("(", ")", x)
			return
		}
	case *Dict:
		p.write("{")
		for i, pair := range p.sorted(x) {
			if i > 0 {
				p.write(", ")
			}
			p.inline(pair[0], depth+1)
			p.write(": ")
			p.inline(pair[1], depth+1)
		}
		p.write("}")
		return
	}
	p.repr(v, depth)
}

func (p prettyPrinter) items(open, end string, items []Value, indent, allowance, depth int) {
	p.write(open)
	indent++
	for i, x := range items {
		after := 1
		if i == len(items)-1 {
			after = allowance + len(end)
		}
		if i > 0 {
			p.newLine(",", indent)
		}
		p.print(x, indent, after, depth)
	}
	p.write(end)
}

func (p prettyPrinter) dict(d *Dict, indent, allowance, depth int) {
	p.write("{")
	indent++
	for i, pair := range p.sorted(d) {
		after := 1
		if i == d.Len()-1 {
			after = allowance + 1
		}
		if i > 0 {
			p.newLine(",", indent)
		}
		key := p.line(pair[0], depth)
		p.write(key)
		p.write(": ")
		p.print(pair[1], indent+utf8.RuneCountInString(key)+2, after, depth)
	}
	p.write("}")
}

func (p prettyPrinter) newLine(before string, indent int) {
	p.write(before)
	p.write("\n")
	p.m.use(indent)
	p.put(strings.Repeat(" ", indent))
}

// text writes a long text as several literals, cut after lines and words.
func (p prettyPrinter) text(s string, indent, allowance, depth int) {
	if depth == 1 { // it will stand in parentheses
		indent++
		allowance++
	}
	width := prettyWidth - indent
	var chunks []string
	short := ""
	lines := splitLines(s, true)
	for i, line := range lines {
		last := i == len(lines)-1
		room := width
		if last {
			room -= allowance
		}
		if short = p.m.repr(line); utf8.RuneCountInString(short) <= room {
			chunks = append(chunks, short)
			continue
		}
		chunks = append(chunks, p.words(line, width, allowance, last)...)
	}
	if len(chunks) == 1 {
		p.write(short)
		return
	}
	if depth == 1 {
		p.write("(")
	}
	for i, chunk := range chunks {
		if i > 0 {
			p.newLine("", indent)
		}
		p.write(chunk)
	}
	if depth == 1 {
		p.write(")")
	}
}

// words cuts a line into literals of as many words as fit.
func (p prettyPrinter) words(line string, width, allowance int, lastLine bool) []string {
	var chunks []string
	current := ""
	for line != "" {
		n := strings.IndexFunc(line, isSpace)
		if n < 0 {
			n = len(line)
		}
		n += spacePrefix(line[n:])
		part := line[:n]
		if line = line[n:]; line == "" && lastLine {
			width -= allowance
		}
		if utf8.RuneCountInString(p.m.repr(current+part)) <= width {
			current += part
			continue
		}
		if current != "" {
			chunks = append(chunks, p.m.repr(current))
		}
		current = part
	}
	return append(chunks, p.m.repr(current))
}

// sorted is the entries of a dict by their keys; keys that cannot be compared
// stand by the name of their type.
func (p prettyPrinter) sorted(d *Dict) [][2]Value {
	m := p.m
	m.use(d.Len() * 2 * valueSize)
	pairs := make([][2]Value, d.Len())
	for i, k := range d.keys {
		pairs[i] = [2]Value{k, d.vals[i]}
	}
	less := func(a, b Value) bool {
		if comparable, ok := m.tryLess(a, b); ok {
			return comparable
		}
		x, y := typeName(a), typeName(b)
		if x == y && a != nil {
			raise("TypeError", "pprint cannot order keys of type '%s': Python takes their addresses", x)
		}
		return x < y
	}
	slices.SortStableFunc(pairs, func(a, b [2]Value) int {
		switch {
		case less(a[0], b[0]):
			return -1
		case less(b[0], a[0]):
			return 1
		}
		return 0
	})
	return pairs
}

// tryLess is less; ok is false where that raises a TypeError.
func (m *machine) tryLess(a, b Value) (less, ok bool) {
	_, aText := text(a)
	_, bText := text(b)
	if aText && bText {
		return m.less(a, b), true
	}
	defer func() {
		if p := recover(); p != nil {
			if e, isError := p.(*Error); !isError || e.Kind != "TypeError" {
				panic(p)
			}
			less, ok = false, false
		}
	}()
	return m.less(a, b), true
}
