package gateway

import (
	"strings"

	"turnlog.dev/tokenizer/parse"
)

// StopText flags an answer that ended at a stop text of the client's: its ids
// hold the text, what the client is given does not, as its protocol has it.
const StopText = "stop_text"

// stops ends an answer at a stop text, and keeps the text out of what a client
// is given. Only content is looked at. An engine that got the texts itself would
// stop in the middle of a thought or of a call's arguments, too; so it gets none
// where the reply is read here, and is told to end when a text has come.
type stops struct {
	texts []string
	// held is content that may be the beginning of a stop text.
	held string
	over bool
	// calls are complete so far.
	calls int
}

// cut returns content up to the first stop text, and the text: empty if there
// was none.
func (s *stops) cut(content string) (before, matched string) {
	at := len(content)
	for _, text := range s.texts {
		if i := strings.Index(content, text); text != "" && i >= 0 && i < at {
			at, matched = i, text
		}
	}
	return content[:at], matched
}

// end takes a stop text, and what came behind it, off a reply.
func (s *stops) end(r *parse.Reply) (matched string) {
	if r.Content, matched = s.cut(r.Content); matched != "" {
		r.Flags = append(r.Flags, StopText)
		if s.over {
			r.Calls = r.Calls[:min(s.calls, len(r.Calls))]
		}
	}
	return matched
}

// pass returns what may leave of a delta, which is held back as long as it may
// turn into a stop text. What is still held in the end is part of the answer,
// and with it for the caller to send.
func (s *stops) pass(d parse.Delta) parse.Delta {
	if d.Kind == parse.CallEnd && !s.over {
		s.calls++
	}
	if len(s.texts) == 0 || d.Kind != parse.Content {
		return d
	}
	if s.over {
		d.Text = ""
		return d
	}
	text := s.held + d.Text
	var matched string
	if d.Text, matched = s.cut(text); matched != "" {
		s.held, s.over = "", true
		return d
	}
	n := 0
	for _, stop := range s.texts {
		for k := min(len(stop)-1, len(text)); k > n; k-- {
			if strings.HasSuffix(text, stop[:k]) {
				n = k
			}
		}
	}
	d.Text, s.held = text[:len(text)-n], text[len(text)-n:]
	return d
}
