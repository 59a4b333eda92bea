package prompt

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

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
//
// It also returns which messages the template left something of out: what a
// message says, or a call, is nowhere behind the messages before it.
func (a *Assembler) label(text string, first event.Provenance, messages []message.Message) (parts []part, omits []int) {
	parts = []part{{0, first}}
	at := 0
	heads := finder{}
	search := seeker{text: text, budget: searchBudget + 32*len(text)}
	for i, m := range messages {
		head, n := heads.find(text[at:], a.openers(m.Role, i > 0 && messages[i-1].Role == message.Tool)...)
		if head >= 0 {
			at += head
			parts = append(parts, part{at, provenance(m.Role)})
			at += n
		}
		// What looks like the start of a message inside this one is none.
		end, ok := search.content(at, strings.TrimSpace(m.Content.String()))
		if ok && head >= 0 {
			at = end
		}
		for _, c := range m.Calls {
			ok = ok && search.anywhere(at, c.Name)
		}
		if !ok {
			omits = append(omits, i)
		}
	}
	if g := a.heads.assistant; g != "" {
		if last := strings.LastIndex(text[at:], g); last >= 0 {
			parts = append(parts, part{at + last, event.Provenance_PROVENANCE_GENERATION_PROMPT})
		}
	}
	return parts, omits
}

// seeker finds what messages say in a rendered text. What is not near where it
// should be is looked for in all of the rest; the budget, in bytes, keeps many
// of those from taking time with the square of the text. What is not looked for
// any more counts as left out.
type seeker struct {
	text   string
	budget int
}

// contentSlack is how far behind a message's head its content may begin: more
// than any template writes between the two.
const contentSlack = 4096

// searchBudget is how much is always searched.
const searchBudget = 1 << 20

// content returns where the content ends that stands somewhere behind at.
func (s *seeker) content(at int, content string) (end int, ok bool) {
	if content == "" {
		return at, true
	}
	for i, spelled := range spellings(content) {
		if i > 0 && spelled == content {
			continue
		}
		near := s.text[at:min(len(s.text), at+len(spelled)+contentSlack)]
		if skip := strings.Index(near, spelled); skip >= 0 {
			return at + skip + len(spelled), true
		}
	}
	for i, spelled := range spellings(content) {
		if (i == 0 || spelled != content) && s.anywhere(at, spelled) {
			return at, true
		}
	}
	return at, false
}

func (s *seeker) anywhere(at int, what string) bool {
	if s.budget -= len(s.text) - at; s.budget < 0 {
		return false
	}
	return strings.Contains(s.text[at:], what)
}

// spellings are the forms in which templates write a text: as it is, and inside
// a JSON string, as Python writes those for people and for machines.
func spellings(content string) [3]string {
	return [3]string{content, quoted(content, utf8.MaxRune), quoted(content, utf8.RuneSelf-1)}
}

// quoted is the inside of Python's JSON string of s; characters above last are
// escaped.
func quoted(s string, last rune) string {
	special := func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r > last }
	if strings.IndexFunc(s, special) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		short := strings.IndexRune("\"\\\n\r\t\b\f", r)
		switch {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\nrtbf`[short])
		case r > 0xffff && r > last:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		case special(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

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
