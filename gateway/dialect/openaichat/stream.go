package openaichat

import (
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// Stream writes answers as server-sent events. Text leaves as it comes; calls,
// finish reasons and [DONE] are written by Finish, after the turns have been
// acknowledged. Calls do not overlap.
type Stream struct {
	write   func([]byte) error
	opt     Options
	id      string
	created int64
	begun   bool // anything has been written
	choices []choice
	buf     []byte
}

// choice is how far one of the answers is.
type choice struct {
	sent dialect.Sent
	role bool // the first chunk, which says the role, has left
}

// NewStream returns a stream that has written nothing yet; write sends bytes
// to the client at once. Begin is called before anything else but Ping.
func NewStream(opt Options, created int64, write func([]byte) error) *Stream {
	return &Stream{write: write, opt: opt, created: created, choices: make([]choice, opt.N)}
}

// Begin names the answer after a turn. It writes nothing.
func (s *Stream) Begin(turn string) { s.id = "chatcmpl-" + turn }

// Begun reports whether anything has been written, so that an error can no
// longer be a status.
func (s *Stream) Begun() bool { return s.begun }

// Ping keeps the connection alive while nothing comes.
func (s *Stream) Ping() error { return s.send([]byte(": ping\n\n")) }

// Delta sends a piece of reasoning or content of one choice.
func (s *Stream) Delta(i int, d parse.Delta) error {
	s.choices[i].sent.Add(d)
	key := `"content":`
	if d.Kind == parse.Reasoning {
		key = `"reasoning_content":`
	}
	s.open(i)
	s.buf = rawjson.AppendText(append(s.buf, key...), d.Text)
	return s.close(nil)
}

// Finish sends the rest of the committed answers, one for each choice, and ends
// the stream.
func (s *Stream) Finish(answers []*gateway.Answer) error {
	for i, a := range answers {
		if err := s.finish(i, a); err != nil {
			return err
		}
	}
	if s.opt.IncludeUsage {
		s.buf = appendHead(append(s.buf[:0], "data: "...), "chat.completion.chunk", s.id, s.opt.Model, s.created)
		s.buf = appendUsage(append(s.buf, `,"choices":[],"usage":`...), answers)
		s.buf = append(s.buf, "}\n\n"...)
		if err := s.send(s.buf); err != nil {
			return err
		}
	}
	return s.send([]byte("data: [DONE]\n\n"))
}

func (s *Stream) finish(i int, a *gateway.Answer) error {
	for _, d := range s.choices[i].sent.Rest(a) {
		if err := s.Delta(i, d); err != nil {
			return err
		}
	}
	for k, c := range a.Message.Calls {
		s.open(i)
		s.buf = strconv.AppendInt(append(s.buf, `"tool_calls":[{"index":`...), int64(k), 10)
		s.buf = append(s.opt.appendCall(append(s.buf, ','), c), "}]"...)
		if err := s.close(nil); err != nil {
			return err
		}
	}
	s.open(i)
	return s.close(a)
}

// Fail ends the stream with an error: no finish reason, no [DONE].
func (s *Stream) Fail(e *gateway.Error) error {
	s.buf, _ = AppendError(append(s.buf[:0], "data: "...), e)
	s.buf = append(s.buf, "\n\n"...)
	return s.send(s.buf)
}

func (s *Stream) send(b []byte) error {
	s.begun = true
	return s.write(b)
}

// open begins a chunk, up to the members of its delta.
func (s *Stream) open(i int) {
	s.buf = appendHead(append(s.buf[:0], "data: "...), "chat.completion.chunk", s.id, s.opt.Model, s.created)
	s.buf = strconv.AppendInt(append(s.buf, `,"choices":[{"index":`...), int64(i), 10)
	s.buf = append(s.buf, `,"delta":{`...)
	if !s.choices[i].role {
		s.choices[i].role = true
		s.buf = append(s.buf, `"role":"assistant",`...)
	}
}

// close ends a chunk, with the finish reason if there is an answer, and sends
// it.
func (s *Stream) close(a *gateway.Answer) error {
	if n := len(s.buf); s.buf[n-1] == ',' {
		s.buf = s.buf[:n-1]
	}
	if a == nil {
		s.buf = append(s.buf, `},"finish_reason":null}]}`...)
	} else {
		s.buf = append(s.buf, '}')
		if s.opt.Logprobs {
			s.buf = appendLogprobs(append(s.buf, `,"logprobs":`...), a)
		}
		s.buf = append(appendFinish(s.buf, a, s.opt), "}]}"...)
	}
	s.buf = append(s.buf, "\n\n"...)
	return s.send(s.buf)
}
