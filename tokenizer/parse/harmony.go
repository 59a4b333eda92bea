package parse

import (
	"bytes"
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
	seen   int // how much of text, in a body that is held, has no end mark
	header string
	// kind is what the body at hand adds to; to is the tool that a call is for.
	kind Kind
	to   string
	body bool // inside a body, not a header
	over bool // the turn has ended

	output
}

func newHarmony(g *Grammar, _ Options) *harmony {
	p := &harmony{g: g}
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
		at := index(p.text, p.g.vocabulary.mark("<|message|>"))
		end, n := p.end()
		switch {
		case end >= 0 && (at < 0 || end < at):
			// A message without a body.
			p.stray(string(p.text[:end+n]))
			p.ended(end, n)
			return true
		case at < 0:
			return false
		}
		p.header = string(p.text[:at])
		p.text = p.text[at+len(p.g.vocabulary.mark("<|message|>")):]
		p.open()
		return true
	}
	end, n := p.end()
	if p.kind == CallArguments {
		if end < 0 {
			return false
		}
		p.called(string(p.text[:end]), string(p.text[end:end+n]))
		p.ended(end, n)
		return true
	}
	if end < 0 {
		p.say(string(p.text))
		p.text, p.seen = p.text[:0], 0
		return false
	}
	p.say(string(p.text[:end]))
	p.ended(end, n)
	return true
}

// end finds the first end mark.
func (p *harmony) end() (at, n int) {
	at = -1
	for i := p.seen; ; {
		k := bytes.IndexByte(p.text[i:], mark)
		if k < 0 || i+k+1 >= len(p.text) {
			p.seen = len(p.text)
			return at, 0
		}
		i += k
		switch p.g.vocabulary.spell[p.text[i+1]] {
		case "<|end|>", "<|call|>", "<|return|>":
			return i, 2
		}
		i += 2
	}
}

// ended takes a message off the text.
func (p *harmony) ended(at, n int) {
	name := p.g.vocabulary.text(string(p.text[at : at+n]))
	p.over = name != "<|end|>"
	p.text, p.seen, p.body = p.text[at+n:], 0, false
}

// open reads a header: [<|start|>]assistant[ to=…]<|channel|>…[ to=…][ <|constrain|>json].
func (p *harmony) open() {
	p.body, p.seen = true, 0
	h := strings.TrimPrefix(p.g.vocabulary.text(p.header), "<|start|>")
	role, rest, ok := strings.Cut(h, "<|channel|>")
	rest, _, _ = strings.Cut(rest, "<|constrain|>")
	words := strings.Fields(rest)
	p.to = ""
	for _, w := range append(strings.Fields(role), words...) {
		if to, ok := strings.CutPrefix(w, "to="); ok {
			p.to = to
		}
	}
	channel := ""
	if len(words) > 0 {
		channel = words[0]
	}
	switch {
	case ok && p.to != "":
		p.kind = CallArguments
	case ok && channel == "analysis":
		p.kind = Reasoning
		p.join(&p.thought)
	case ok && (channel == "final" || channel == "commentary"):
		p.kind = Content
		p.join(&p.content)
	default:
		p.kind = Content
		p.stray(p.header + p.g.vocabulary.mark("<|message|>"))
	}
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
	if !ok || name == "" || !isObject(body) {
		p.flags.set(MalformedCall)
		p.kind = Content
		p.add(p.kind, p.g.vocabulary.text(p.header)+"<|message|>"+body+p.g.vocabulary.text(end))
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
