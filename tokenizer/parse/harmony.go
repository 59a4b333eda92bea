package parse

import (
	"slices"
	"strings"
)

var harmonyMarks = []string{
	"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>",
}

// harmony reads messages: a header, then a body up to an end mark. The prompt
// has already written the start of the first header.
type harmony struct {
	g      *Grammar
	reader reader
	text   []byte
	seen   int // how much of text has no mark that is looked for
	header string
	// kind is what the body at hand adds to; to is the tool that a call is for.
	kind Kind
	to   string
	body bool // inside a body, not a header
	over bool // the turn has ended
	// first: the header at hand is the one that the prompt began.
	first bool

	output
}

func newHarmony(g *Grammar, _ Options) *harmony {
	p := &harmony{g: g, first: true}
	p.reader = reader{vocabulary: g.vocabulary, flags: &p.flags}
	return p
}

func (p *harmony) Push(ids []uint32) []Delta {
	for _, id := range ids {
		if p.over {
			p.flags.set(AfterStop)
			break
		}
		p.text = p.reader.read(p.text, id)
		for p.step() {
		}
	}
	return p.flush()
}

// step settles one header or one piece of a body.
func (p *harmony) step() bool {
	if !p.body {
		at, name := p.next("<|message|>", "<|end|>", "<|call|>", "<|return|>")
		switch name {
		case "":
			return false
		case "<|message|>":
			p.header = string(p.text[:at])
			p.text = p.text[at+2:]
			p.open()
		default:
			// A message without a body.
			p.stray(string(p.text[:at+2]))
			p.ended(at, name)
		}
		return true
	}
	at, name := p.next("<|end|>", "<|call|>", "<|return|>")
	switch {
	case name == "" && p.kind == CallArguments:
		return false
	case name == "":
		p.say(string(p.text))
		p.text, p.seen = p.text[:0], 0
		return false
	case p.kind == CallArguments:
		p.called(string(p.text[:at]), name)
	default:
		p.say(string(p.text[:at]))
		if name == "<|call|>" {
			// Nothing here is a call.
			p.flags.set(StrayMark)
		}
	}
	p.ended(at, name)
	return true
}

// next finds the first of the marks, each two bytes long, in what was not
// looked at before.
func (p *harmony) next(marks ...string) (at int, name string) {
	for i := p.seen; ; i += 2 {
		k := p.reader.index(p.text[i:], markByte)
		if k < 0 || i+k+1 >= len(p.text) {
			p.seen = len(p.text)
			return -1, ""
		}
		i += k
		if s := p.g.vocabulary.spell[p.text[i+1]]; slices.Contains(marks, s) {
			return i, s
		}
	}
}

// ended takes a message off the text.
func (p *harmony) ended(at int, name string) {
	p.over = name != "<|end|>"
	p.text, p.seen, p.body, p.first = p.text[at+2:], 0, false, false
}

// open reads a header:
//
//	[<|start|>assistant][ to=…]<|channel|>…[ to=…][ <|constrain|>json| json]
//
// The prompt has written the start of the first one. A header that says
// anything else is none.
func (p *harmony) open() {
	p.body, p.seen = true, 0
	header := p.g.vocabulary.text(p.header)
	channel, to, ok := p.read(header)
	p.to = to
	switch {
	case ok && to != "" && (channel == "commentary" || channel == "analysis"):
		p.kind = CallArguments
	case strings.Contains(header, " to="):
		// Meant as a call, and none.
		p.kind, p.to = CallArguments, ""
	case ok && to == "" && channel == "analysis":
		p.kind = Reasoning
		p.join(&p.thought)
	case ok && to == "" && (channel == "final" || channel == "commentary"):
		p.kind = Content
		p.join(&p.content)
	default:
		p.kind = Content
		p.stray(p.header + p.g.vocabulary.mark("<|message|>"))
	}
}

func (p *harmony) read(header string) (channel, to string, ok bool) {
	if !p.first {
		if header, ok = strings.CutPrefix(header, "<|start|>assistant"); !ok {
			return "", "", false
		}
	}
	author, rest, ok := strings.Cut(header, "<|channel|>")
	rest, kind, constrained := strings.Cut(rest, "<|constrain|>")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 || constrained && strings.TrimSpace(kind) != "json" {
		return "", "", false
	}
	for i, w := range append(words[1:], strings.Fields(author)...) {
		name, is := strings.CutPrefix(w, "to=")
		switch {
		case is && to == "" && name != "":
			to = name
		case w == "json" && i == len(words)-2 && !constrained:
		default:
			return "", "", false
		}
	}
	return words[0], to, true
}

// join parts two messages that add to the same text.
func (p *harmony) join(b *strings.Builder) {
	if b.Len() > 0 {
		p.add(p.kind, "\n")
	}
}

// called reads the body of a call, which ends with the given mark.
func (p *harmony) called(body, end string) {
	body = p.g.vocabulary.text(body)
	name, ok := strings.CutPrefix(p.to, "functions.")
	if !ok || !isName(name) || !isObject(body) || end != "<|call|>" {
		p.flags.set(MalformedCall)
		p.kind = Content
		p.add(p.kind, p.g.vocabulary.text(p.header)+"<|message|>"+body+end)
		return
	}
	p.call(Call{Name: name, Arguments: body})
}

// stray keeps what is no message as content.
func (p *harmony) stray(s string) {
	p.flags.set(StrayMark)
	p.kind = Content
	p.add(p.kind, p.g.vocabulary.text(s))
}

func (p *harmony) say(s string) {
	plain := p.g.vocabulary.text(s)
	if plain != s {
		p.flags.set(StrayMark)
	}
	if p.kind == Content && len(p.calls) > 0 && plain != "" {
		p.flags.set(ContentAfterCall)
	}
	p.add(p.kind, plain)
}

func (p *harmony) Finish(string) (Reply, []Delta) {
	if !p.over {
		p.text = p.reader.end(p.text)
		for p.step() {
		}
		rest := string(p.text)
		switch {
		case p.body && p.kind == CallArguments:
			p.flags.set(UnclosedCall)
			p.kind = Content
			p.add(p.kind, p.g.vocabulary.text(p.header+p.g.vocabulary.mark("<|message|>")+rest))
		case p.body && p.kind == Reasoning:
			p.flags.set(UnclosedReasoning)
		case !p.body && rest != "":
			p.stray(rest)
		}
	}
	return p.reply(), p.flush()
}
