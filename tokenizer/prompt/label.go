package prompt

import (
	"strings"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
)

// part is where text of a provenance begins; it runs to the next part.
type part struct {
	start int
	from  event.Provenance
}

// label says where in a rendered text each message begins: first what stands
// before all messages, then the messages, then the generation prompt. A message
// that the template leaves out has no part. Labels are information: no token of
// a prompt is trained, whoever it belongs to.
func (a *Assembler) label(text string, first event.Provenance, messages []message.Message) []part {
	parts := []part{{0, first}}
	at := 0
	heads := finder{}
	for i, m := range messages {
		head, n := heads.find(text[at:], a.openers(m.Role, i > 0 && messages[i-1].Role == message.Tool)...)
		if head < 0 {
			continue
		}
		at += head
		parts = append(parts, part{at, provenance(m.Role)})
		at += n
		// What looks like the start of a message inside this one is none.
		if content := strings.TrimSpace(m.Content.String()); content != "" {
			if skip := strings.Index(text[at:min(len(text), at+len(content)+contentSlack)], content); skip >= 0 {
				at += skip + len(content)
			}
		}
	}
	if g := a.heads.assistant; g != "" {
		if last := strings.LastIndex(text[at:], g); last >= 0 {
			parts = append(parts, part{at + last, event.Provenance_PROVENANCE_GENERATION_PROMPT})
		}
	}
	return parts
}

// contentSlack is how far behind a message's head its content may begin: more
// than any template writes between the two.
const contentSlack = 4096

// openers are what a message may begin with; again says that a tool result
// stands before it.
func (a *Assembler) openers(r message.Role, again bool) []string {
	switch {
	case r == message.System || r == message.Developer:
		return []string{a.heads.system}
	case r == message.User && again:
		return []string{a.heads.user, a.heads.after}
	case r == message.User:
		return []string{a.heads.user}
	case r == message.Assistant:
		return []string{a.heads.assistant}
	case again:
		return []string{a.heads.tool, a.heads.again}
	default:
		return []string{a.heads.tool}
	}
}

// finder looks for texts in a text whose start only moves on. It holds what was
// not found: that is not looked for again.
type finder map[string]bool

// find returns where the first of the heads is, and its length; -1 for none.
func (f finder) find(text string, heads ...string) (at, n int) {
	at = -1
	for _, h := range heads {
		if h == "" || f[h] {
			continue
		}
		i := strings.Index(text, h)
		if i < 0 {
			f[h] = true
		} else if at < 0 || i < at {
			at, n = i, len(h)
		}
	}
	return at, n
}

func provenance(r message.Role) event.Provenance {
	switch r {
	case message.System, message.Developer:
		return event.Provenance_PROVENANCE_SYSTEM
	case message.Tool:
		return event.Provenance_PROVENANCE_TOOL
	case message.Assistant:
		return event.Provenance_PROVENANCE_ASSISTANT_RERENDERED
	default:
		return event.Provenance_PROVENANCE_USER
	}
}

// segments gives each token to the part in which it begins. Neighbours of one
// provenance become one segment.
func segments(spans []tokenizer.Span, parts []part) (out []Segment) {
	all := make([]uint32, len(spans))
	next, start := 0, 0
	from := event.Provenance_PROVENANCE_UNSPECIFIED
	flush := func(end int) {
		if end > start {
			out = append(out, Segment{from, all[start:end:end]})
		}
		start = end
	}
	for i, s := range spans {
		all[i] = s.ID
		for next < len(parts) && parts[next].start <= s.Start {
			if parts[next].from != from {
				flush(i)
				from = parts[next].from
			}
			next++
		}
	}
	flush(len(spans))
	return out
}
