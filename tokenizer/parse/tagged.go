package parse

import (
	"bytes"
	"strings"
)

// tagged reads the formats that enclose reasoning and calls in marks: all but
// harmony.
type tagged struct {
	g      *Grammar
	opts   Options
	reader reader
	state  state
	// text is what was read and is not settled yet.
	text []byte
	// seen is how much of text needs no second look: at the start it is white
	// space, in a block it holds no close mark.
	seen int
	// held is white space whose meaning depends on what follows.
	held []byte
	// lead: white space at the start of this part is not part of it.
	lead bool

	output
}

type state uint8

const (
	atStart state = iota // nothing but white space so far
	inReasoning
	inContent
	inBlock // of calls
	inBare  // a reply that may be one call
)

const space = " \t\r\n"

func newTagged(g *Grammar, o Options) *tagged {
	p := &tagged{g: g, opts: o}
	p.reader = reader{vocabulary: g.vocabulary, flags: &p.flags}
	if g.ThinkOpen == "" {
		return p
	}
	switch end := strings.TrimRight(o.Prompt, space); {
	case strings.HasSuffix(end, g.ThinkOpen):
		p.state, p.lead = inReasoning, true
	case strings.HasSuffix(end, g.ThinkClose):
		p.state, p.lead = inContent, true
	}
	return p
}

func (p *tagged) Push(ids []uint32) []Delta {
	for _, id := range ids {
		p.text = p.reader.read(p.text, id)
		for p.step() {
		}
	}
	return p.flush()
}

// step settles one part of the text. It reports whether there may be more.
func (p *tagged) step() bool {
	switch p.state {
	case atStart:
		return p.start()
	case inReasoning:
		return p.reasoning()
	case inContent:
		return p.contents()
	case inBlock:
		if p.g.callClose == "" {
			return false
		}
		at := p.reader.index(p.text[p.seen:], p.g.callClose)
		if at < 0 {
			p.seen = max(p.seen, len(p.text)-len(p.g.callClose)+1)
			return false
		}
		at += p.seen
		p.blockEnds(string(p.text[:at]), at+len(p.g.callClose))
		return true
	}
	return false
}

// start decides what a reply begins with. White space waits: before thinking
// it means nothing.
func (p *tagged) start() bool {
	p.reader.looked += len(p.text) - p.seen
	rest := bytes.TrimLeft(p.text[p.seen:], space)
	p.seen = len(p.text) - len(rest)
	switch {
	case len(rest) == 0:
		return false
	case p.g.thinkOpen != "" && bytes.HasPrefix(rest, []byte(p.g.thinkOpen)):
		p.text = rest[len(p.g.thinkOpen):]
		p.state, p.lead = inReasoning, true
	case p.g.thinkOpen != "" && strings.HasPrefix(p.g.thinkOpen, string(rest)):
		return false
	case p.g.Bare && len(p.opts.Tools) > 0 && rest[0] == '{':
		p.state = inBare
	default:
		p.text = bytes.TrimPrefix(p.text, []byte(p.opts.Lead))
		p.state = inContent
	}
	p.seen = 0
	return true
}

func (p *tagged) reasoning() bool {
	end := p.reader.index(p.text, p.g.thinkClose)
	if p.g.CallEndsThinking {
		if call := p.reader.index(p.text, p.g.callOpen); call >= 0 && (end < 0 || call < end) {
			p.flags.set(ImplicitReasoningEnd)
			p.say(Reasoning, p.cut(call, 0))
			p.thinkingEnds()
			return true
		}
	}
	if end < 0 {
		marks := []string{p.g.thinkClose, ""}
		if p.g.CallEndsThinking {
			marks[1] = p.g.callOpen
		}
		p.say(Reasoning, p.cut(settled(p.text, marks...), 0))
		return false
	}
	p.say(Reasoning, p.cut(end, len(p.g.thinkClose)))
	p.thinkingEnds()
	return true
}

func (p *tagged) thinkingEnds() {
	p.add(Reasoning, strings.TrimRight(string(p.held), p.g.Thinking))
	p.held, p.lead, p.state = nil, true, inContent
}

func (p *tagged) contents() bool {
	call := p.reader.index(p.text, p.g.callOpen)
	if call < 0 {
		p.say(Content, p.cut(settled(p.text, p.g.callOpen), 0))
		return false
	}
	p.say(Content, p.cut(call, len(p.g.callOpen)))
	p.seen, p.state = 0, inBlock
	return true
}

// blockEnds reads the block and takes its first n bytes off the text.
func (p *tagged) blockEnds(s string, n int) {
	b := &block{vocabulary: p.g.vocabulary, tools: p.opts.Tools, rest: s}
	calls := p.g.block(b)
	p.state = inContent
	if len(calls) == 0 {
		p.flags.set(MalformedCall)
		p.say(Content, p.g.CallOpen+p.g.vocabulary.text(string(p.text[:n])))
		p.text = p.text[n:]
		return
	}
	p.text = p.text[n:]
	for _, f := range b.flags {
		p.flags.set(f)
	}
	if len(p.calls) == 0 {
		if p.g.Trims {
			p.held = nil
		}
		p.add(Content, strings.TrimSuffix(string(p.held), p.g.Joint))
	}
	p.held, p.lead = nil, false
	p.call(calls...)
}

// cut takes the first n bytes off the text, and drops the next.
func (p *tagged) cut(n, drop int) string {
	s := string(p.text[:n])
	p.text = p.text[n+drop:]
	return s
}

// say adds text to a part. The white space at its end waits for what follows.
func (p *tagged) say(k Kind, s string) {
	if plain := p.g.vocabulary.text(s); plain != s {
		p.flags.set(StrayMark)
		s = plain
	}
	if p.lead {
		s = strings.TrimLeft(s, p.g.Thinking)
		if s == "" {
			return
		}
		p.lead = false
	}
	if s == "" {
		return
	}
	body := strings.TrimRight(s, space)
	if body == "" {
		p.held = append(p.held, s...)
		return
	}
	if k == Content && len(p.calls) > 0 {
		p.flags.set(ContentAfterCall)
	}
	p.add(k, string(p.held))
	p.add(k, body)
	p.held = append(p.held[:0], s[len(body):]...)
}

func (p *tagged) Finish(string) (Reply, []Delta) {
	p.text = p.reader.end(p.text)
	for p.step() {
	}
	rest := string(p.text)
	switch p.state {
	case atStart:
		p.say(Content, strings.TrimPrefix(rest, p.opts.Lead))
	case inReasoning:
		p.flags.set(UnclosedReasoning)
		p.say(Reasoning, rest)
	case inContent:
		p.say(Content, rest)
	case inBlock:
		if p.g.callClose == "" {
			p.blockEnds(rest, len(rest))
		} else {
			p.flags.set(UnclosedCall)
			p.say(Content, p.g.CallOpen+p.g.vocabulary.text(rest))
		}
	case inBare:
		p.bare(rest)
	}
	if p.state == inReasoning {
		p.add(Reasoning, string(p.held))
	} else if len(p.calls) == 0 {
		p.add(Content, string(p.held))
	}
	return p.reply(), p.flush()
}

// bare reads a reply that is either a call or a JSON answer: an object that is
// no call is no fault.
func (p *tagged) bare(s string) {
	b := &block{vocabulary: p.g.vocabulary, tools: p.opts.Tools, rest: s}
	if calls := p.g.block(b); len(calls) > 0 {
		p.call(calls...)
		return
	}
	for _, f := range b.flags {
		p.flags.set(f)
	}
	p.say(Content, s)
}

// settled is how much of b cannot be a part of one of the marks, whatever
// follows.
func settled(b []byte, marks ...string) int {
	n := len(b)
	for _, m := range marks {
		for k := min(len(m)-1, len(b)); k > len(b)-n; k-- {
			if strings.HasPrefix(m, string(b[len(b)-k:])) {
				n = len(b) - k
				break
			}
		}
	}
	return n
}
