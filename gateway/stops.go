package gateway

import (
	"strings"

	"turnlog.dev/tokenizer/parse"
)

// StopText flags an answer that ended at a stop text of the client's: its ids
// hold the text, what the client is given does not, as its protocol has it.
const StopText = "stop_text"

// stops keeps stop texts out of what a client is given. Engines are asked to
// leave them in, since no id may be missing from the log.
type stops struct {
	texts []string
	// held is content that may be the beginning of a stop text.
	held string
	over bool
}

// cut returns content up to the first stop text, and whether there was one.
func (s *stops) cut(content string) (string, bool) {
	at := -1
	for _, text := range s.texts {
		if i := strings.Index(content, text); text != "" && i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return content, false
	}
	return content[:at], true
}

// pass returns what may leave of a delta, which is held back as long as it may
// turn into a stop text. What is still held in the end is part of the answer,
// and with it for the caller to send.
func (s *stops) pass(d parse.Delta) parse.Delta {
	if len(s.texts) == 0 || d.Kind != parse.Content {
		return d
	}
	if s.over {
		d.Text = ""
		return d
	}
	text := s.held + d.Text
	if d.Text, s.over = s.cut(text); s.over {
		s.held = ""
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
