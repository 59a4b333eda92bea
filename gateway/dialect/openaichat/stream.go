package openaichat

import (
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// Stream writes an answer as server-sent events. Text leaves as it comes; calls,
// the finish reason and [DONE] are written by Finish, after the turn has been
// acknowledged.
type Stream struct {
	// Write sends bytes to the client at once.
	Write func([]byte) error

	opt     Options
	id      string
	created int64
	begun   bool // anything has been written
	role    bool // the first delta has been
	buf     []byte
}

// NewStream returns a stream that has written nothing yet. id is any name for
// the answer: the turn is not known before it is committed.
func NewStream(id string, opt Options, created int64, write func([]byte) error) *Stream {
	return &Stream{Write: write, opt: opt, id: id, created: created}
}

// Begun reports whether anything has been written, so that an error can no
// longer be a status.
func (s *Stream) Begun() bool { return s.begun }

// Ping keeps the connection alive while nothing comes.
func (s *Stream) Ping() error {
	s.begun = true
	return s.Write([]byte(": ping\n\n"))
}

// Delta sends a piece of reasoning or content.
func (s *Stream) Delta(d parse.Delta) error {
	key := `"content":`
	if d.Kind == parse.Reasoning {
		key = `"reasoning_content":`
	}
	s.open()
	s.buf = rawjson.AppendText(append(s.buf, key...), d.Text)
	return s.close(nil)
}

// Finish sends the rest of a committed answer and ends the stream.
func (s *Stream) Finish(a *gateway.Answer) error {
	for i, c := range a.Message.Calls {
		s.open()
		s.buf = strconv.AppendInt(append(s.buf, `"tool_calls":[{"index":`...), int64(i), 10)
		s.buf = append(appendCall(append(s.buf, ','), c), "}]"...)
		if err := s.close(nil); err != nil {
			return err
		}
	}
	s.open()
	if err := s.close(a); err != nil {
		return err
	}
	if s.opt.IncludeUsage {
		s.buf = appendHead(append(s.buf[:0], "data: "...), "chat.completion.chunk", s.id, s.opt.Model, s.created)
		s.buf = appendUsage(append(s.buf, `,"choices":[],"usage":`...), a)
		if err := s.Write(append(s.buf, "}\n\n"...)); err != nil {
			return err
		}
	}
	return s.Write([]byte("data: [DONE]\n\n"))
}

// Fail ends the stream with an error: no finish reason, no [DONE].
func (s *Stream) Fail(e *gateway.Error) error {
	s.begun = true
	s.buf, _ = AppendError(append(s.buf[:0], "data: "...), e)
	return s.Write(append(s.buf, "\n\n"...))
}

// open begins a chunk, up to the members of its delta.
func (s *Stream) open() {
	s.buf = appendHead(append(s.buf[:0], "data: "...), "chat.completion.chunk", s.id, s.opt.Model, s.created)
	s.buf = append(s.buf, `,"choices":[{"index":0,"delta":{`...)
	if !s.role {
		s.buf = append(s.buf, `"role":"assistant",`...)
	}
}

// close ends a chunk, with the finish reason if there is an answer, and sends
// it.
func (s *Stream) close(a *gateway.Answer) error {
	if n := len(s.buf); s.buf[n-1] == ',' {
		s.buf = s.buf[:n-1]
	}
	s.role, s.begun = true, true
	if a == nil {
		s.buf = append(s.buf, `},"finish_reason":null}]}`...)
	} else {
		s.buf = append(s.buf, '}')
		if s.opt.Logprobs {
			s.buf = appendLogprobs(append(s.buf, `,"logprobs":`...), a)
		}
		s.buf = rawjson.AppendText(append(s.buf, `,"finish_reason":`...), a.FinishReason)
		s.buf = append(s.buf, "}]}"...)
	}
	return s.Write(append(s.buf, "\n\n"...))
}
