package dialect

import (
	"turnlog.dev/gateway"
	"turnlog.dev/tokenizer/parse"
)

// Stream writes one answer as server-sent events. A caller calls Begin once,
// Delta for what may leave before the turn is acknowledged, then Finish or
// Fail; Ping whenever nothing came for a while. The calls do not overlap.
type Stream interface {
	// Begin tells the stream what the answer will be called and how long the
	// prompt is. It writes nothing.
	Begin(turn string, promptTokens int)
	// Begun reports whether anything has been written, so that an error can no
	// longer be a status.
	Begun() bool
	Ping() error
	Delta(parse.Delta) error
	// Finish sends what is left of a committed answer, its calls among it, and
	// ends the stream.
	Finish(*gateway.Answer) error
	// Fail ends the stream so that no client takes what it got for an answer.
	Fail(*gateway.Error) error
}

// Sent counts how much of an answer a stream has sent.
type Sent struct{ reasoning, content int }

// Add counts a delta.
func (s *Sent) Add(d parse.Delta) {
	if d.Kind == parse.Reasoning {
		s.reasoning += len(d.Text)
	} else {
		s.content += len(d.Text)
	}
}

// Rest returns the deltas that are still to be sent of a committed answer: all
// of them where nothing left early.
func (s *Sent) Rest(a *gateway.Answer) (rest []parse.Delta) {
	if text := a.Message.Reasoning; len(text) > s.reasoning {
		rest = append(rest, parse.Delta{Kind: parse.Reasoning, Text: text[s.reasoning:]})
	}
	if text := a.Message.Content.String(); len(text) > s.content {
		rest = append(rest, parse.Delta{Kind: parse.Content, Text: text[s.content:]})
	}
	return rest
}

// AppendEvent appends a server-sent event; data must hold no line break, which
// JSON without space does not.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	dst = append(append(dst, "event: "...), name...)
	dst = append(append(dst, "\ndata: "...), data...)
	return append(dst, "\n\n"...)
}
