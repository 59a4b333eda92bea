package anthropic

import (
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// Stream writes an answer as server-sent events; it is a dialect.Stream. Blocks
// do not overlap and their indices have no gaps. Thinking and text leave as
// they come; tool_use blocks and what ends the message are written by Finish.
type Stream struct {
	write   func([]byte) error
	opt     Options
	turn    string
	prompt  int
	begun   bool // anything has been written
	started bool // message_start has
	open    block
	index   int // of the open block, or of the next
	sent    dialect.Sent
	buf     []byte
	data    []byte
}

var _ dialect.Stream = (*Stream)(nil)

// block is the kind of the open block.
type block uint8

const (
	none block = iota
	thinking
	spoken
)

// NewStream returns a stream that has written nothing yet; write sends bytes to
// the client at once.
func NewStream(opt Options, write func([]byte) error) *Stream {
	return &Stream{write: write, opt: opt}
}

// Begin implements dialect.Stream.
func (s *Stream) Begin(turn string, promptTokens int) { s.turn, s.prompt = turn, promptTokens }

// Begun implements dialect.Stream.
func (s *Stream) Begun() bool { return s.begun }

// Ping keeps the connection and the client's patience alive. A turn that has a
// name starts its message so: clients count from there.
func (s *Stream) Ping() error {
	if s.turn != "" {
		s.start()
	}
	s.event("ping", `{"type":"ping"`)
	return s.flush()
}

// Delta implements dialect.Stream.
func (s *Stream) Delta(d parse.Delta) error {
	s.start()
	s.delta(d)
	return s.flush()
}

func (s *Stream) delta(d parse.Delta) {
	s.sent.Add(d)
	kind := spoken
	if d.Kind == parse.Reasoning {
		kind = thinking
	}
	if s.open != kind {
		s.close()
		s.open = kind
		if kind == thinking {
			s.block("content_block_start", `"content_block":{"type":"thinking","thinking":"","signature":""}`)
		} else {
			s.block("content_block_start", `"content_block":{"type":"text","text":""}`)
		}
	}
	if kind == thinking {
		s.data = append(s.data[:0], `"delta":{"type":"thinking_delta","thinking":`...)
	} else {
		s.data = append(s.data[:0], `"delta":{"type":"text_delta","text":`...)
	}
	s.data = append(rawjson.AppendText(s.data, d.Text), '}')
	s.block("content_block_delta", string(s.data))
}

// close ends the open block, thinking with its signature.
func (s *Stream) close() {
	if s.open == none {
		return
	}
	if s.open == thinking {
		s.data = append(s.data[:0], `"delta":{"type":"signature_delta","signature":`...)
		s.data = append(rawjson.AppendText(s.data, dialect.Signature(s.turn)), '}')
		s.block("content_block_delta", string(s.data))
	}
	s.block("content_block_stop", "")
	s.open = none
	s.index++
}

// Finish implements dialect.Stream.
func (s *Stream) Finish(a *gateway.Answer) error {
	if s.turn == "" {
		s.Begin(a.Turn, a.PromptTokens)
	}
	s.start()
	for _, d := range s.sent.Rest(a) {
		s.delta(d)
	}
	s.close()
	for _, c := range a.Message.Calls {
		s.call(c)
	}
	s.data = append(appendStop(append(s.data[:0], `{"type":"message_delta","delta":{`...), a, s.opt), `},"usage":`...)
	s.event("message_delta", string(appendUsage(s.data, a)))
	s.event("message_stop", `{"type":"message_stop"`)
	return s.flush()
}

// call writes a whole call. Its arguments go out as the model wrote them, even
// if they are no JSON: the client says so to the model itself.
func (s *Stream) call(c message.Call) {
	s.data = append(appendCall(append(s.data[:0], `"content_block":{`...), c), `,"input":{}}`...)
	s.block("content_block_start", string(s.data))
	s.data = append(s.data[:0], `"delta":{"type":"input_json_delta","partial_json":`...)
	s.data = append(rawjson.AppendText(s.data, c.Arguments), '}')
	s.block("content_block_delta", string(s.data))
	s.block("content_block_stop", "")
	s.index++
}

// Fail sends an error event: no message_stop follows.
func (s *Stream) Fail(e *gateway.Error) error {
	s.data, _ = AppendError(s.data[:0], e, s.opt.Request)
	s.buf = dialect.AppendEvent(s.buf[:0], "error", s.data)
	return s.flush()
}

func (s *Stream) start() {
	if s.started {
		return
	}
	s.started = true
	s.data = appendHead(append(s.data[:0], `{"type":"message_start","message":`...), s.turn, s.opt.Model)
	s.data = append(s.data, `,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	s.data = append(appendCounts(s.data, s.prompt, 0, 1), '}')
	s.event("message_start", string(s.data))
	s.event("ping", `{"type":"ping"`)
}

// block queues an event about the current block; member is what it holds but
// for type and index.
func (s *Stream) block(name, member string) {
	s.buf = append(append(s.buf, "event: "...), name...)
	s.buf = append(append(s.buf, "\ndata: {\"type\":\""...), name...)
	s.buf = strconv.AppendInt(append(s.buf, `","index":`...), int64(s.index), 10)
	if member != "" {
		s.buf = append(append(s.buf, ','), member...)
	}
	s.buf = append(s.buf, "}\n\n"...)
}

// event queues an event; data lacks its last brace.
func (s *Stream) event(name, data string) {
	s.buf = append(append(s.buf, "event: "...), name...)
	s.buf = append(append(s.buf, "\ndata: "...), data...)
	s.buf = append(s.buf, "}\n\n"...)
}

func (s *Stream) flush() error {
	s.begun = true
	b := s.buf
	s.buf = s.buf[:0]
	return s.write(b)
}
