package responses

import (
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// Stream writes an answer as server-sent events; it is a dialect.Stream. What
// the model thinks and says leaves as it comes. No item is done before Finish:
// Codex keeps done items in its history even when the answer is never
// completed.
type Stream struct {
	write   func([]byte) error
	opt     Options
	turn    string
	begun   bool // anything has been written
	started bool // response.created has
	seq     int64
	items   []item // added so far; the last one is open
	sent    dialect.Sent
	buf     []byte
}

var _ dialect.Stream = (*Stream)(nil)

// NewStream returns a stream that has written nothing yet; write sends bytes to
// the client at once.
func NewStream(opt Options, write func([]byte) error) *Stream {
	return &Stream{write: write, opt: opt}
}

// Begin implements dialect.Stream.
func (s *Stream) Begin(turn string, _ int) { s.turn = turn }

// Begun implements dialect.Stream.
func (s *Stream) Begun() bool { return s.begun }

// Ping implements dialect.Stream. The protocol has no event for it, but Codex
// gives up after some minutes without any: that the answer is in progress can
// be said again. Before the turn has a name a comment has to do.
func (s *Stream) Ping() error {
	switch {
	case s.turn == "":
		s.buf = append(s.buf, ": ping\n\n"...)
	case !s.started:
		s.start()
	default:
		s.progress("response.in_progress")
	}
	return s.flush()
}

// Delta implements dialect.Stream.
func (s *Stream) Delta(d parse.Delta) error {
	s.start()
	s.delta(d)
	return s.flush()
}

func (s *Stream) start() {
	if s.started {
		return
	}
	s.started = true
	s.progress("response.created")
	s.progress("response.in_progress")
}

func (s *Stream) progress(name string) {
	s.event(name)
	s.buf = appendHead(append(s.buf, `,"response":`...), s.turn, s.opt)
	s.buf = append(s.buf, `,"status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}`...)
	s.end()
}

func (s *Stream) delta(d parse.Delta) {
	s.sent.Add(d)
	k, id, name := spoken, "msg_", "response.output_text.delta"
	if d.Kind == parse.Reasoning {
		k, id, name = reasoning, "rs_", "response.reasoning_summary_text.delta"
	}
	if n := len(s.items); n == 0 || s.items[n-1].kind != k {
		id += s.turn
		if n > 1 {
			id += "_" + strconv.Itoa(n)
		}
		s.add(item{kind: k, id: id})
		s.part("added", len(s.items)-1, item{kind: k})
	}
	i := len(s.items) - 1
	s.items[i].text = append(s.items[i].text, d.Text...)
	s.about(name, i)
	s.buf = rawjson.AppendText(append(s.buf, `,"delta":`...), d.Text)
	if k == spoken {
		s.buf = append(s.buf, `,"logprobs":[]`...)
	}
	s.end()
}

// add announces the next item.
func (s *Stream) add(it item) {
	s.items = append(s.items, it)
	s.item("response.output_item.added", len(s.items)-1, inProgress)
}

func (s *Stream) item(name string, i int, is status) {
	s.event(name)
	s.buf = strconv.AppendInt(append(s.buf, `,"output_index":`...), int64(i), 10)
	s.buf = s.items[i].append(append(s.buf, `,"item":`...), s.turn, is)
	s.end()
}

// part announces, or ends, the one part of an item; it is as in as.
func (s *Stream) part(what string, i int, as item) {
	name := "response.content_part."
	if as.kind == reasoning {
		name = "response.reasoning_summary_part."
	}
	s.about(name+what, i)
	s.buf = as.appendPart(append(s.buf, `,"part":`...))
	s.end()
}

// done ends an item.
func (s *Stream) done(i int, is status) {
	it := s.items[i]
	name, member, value := "response.output_text.done", `,"text":`, string(it.text)
	switch it.kind {
	case reasoning:
		name = "response.reasoning_summary_text.done"
	case functionCall:
		name, member, value = "response.function_call_arguments.done", `,"arguments":`, it.value()
	case customCall:
		name, member, value = "response.custom_tool_call_input.done", `,"input":`, it.value()
	}
	s.about(name, i)
	s.buf = rawjson.AppendText(append(s.buf, member...), value)
	if it.kind == spoken {
		s.buf = append(s.buf, `,"logprobs":[]`...)
	}
	s.end()
	if it.kind == reasoning || it.kind == spoken {
		s.part("done", i, it)
	}
	s.item("response.output_item.done", i, is)
}

// Finish implements dialect.Stream.
func (s *Stream) Finish(a *gateway.Answer) error {
	if s.turn == "" {
		s.turn = a.Turn
	}
	s.start()
	for _, d := range s.sent.Rest(a) {
		s.delta(d)
	}
	said := len(s.items)
	for i := range s.items {
		s.done(i, ended(a, i, said))
	}
	for k, c := range a.Message.Calls {
		it := s.opt.call(c)
		s.add(it)
		i := said + k
		if it.kind == customCall {
			s.about("response.custom_tool_call_input.delta", i)
		} else {
			s.about("response.function_call_arguments.delta", i)
		}
		s.buf = rawjson.AppendText(append(s.buf, `,"delta":`...), it.value())
		s.end()
		s.done(i, completed)
	}
	name := "response.completed"
	if incomplete(a) != "" {
		name = "response.incomplete"
	}
	s.event(name)
	s.buf = appendFinal(append(s.buf, `,"response":`...), a, s.opt, s.items, said)
	s.end()
	return s.flush()
}

// Fail implements dialect.Stream.
func (s *Stream) Fail(e *gateway.Error) error {
	s.start()
	s.event("response.failed")
	s.buf = appendFailed(append(s.buf, `,"response":`...), s.turn, s.opt, e)
	s.end()
	return s.flush()
}

// event queues the beginning of an event, up to its own members; end ends it.
func (s *Stream) event(name string) {
	s.buf = append(append(s.buf, "event: "...), name...)
	s.buf = append(append(s.buf, "\ndata: {\"type\":\""...), name...)
	s.buf = strconv.AppendInt(append(s.buf, `","sequence_number":`...), s.seq, 10)
	s.seq++
}

// about queues the beginning of an event about an item.
func (s *Stream) about(name string, i int) {
	s.event(name)
	s.buf = append(append(append(s.buf, `,"item_id":"`...), s.items[i].id...), `","output_index":`...)
	s.buf = strconv.AppendInt(s.buf, int64(i), 10)
	switch s.items[i].kind {
	case reasoning:
		s.buf = append(s.buf, `,"summary_index":0`...)
	case spoken:
		s.buf = append(s.buf, `,"content_index":0`...)
	}
}

func (s *Stream) end() { s.buf = append(s.buf, "}\n\n"...) }

func (s *Stream) flush() error {
	s.begun = true
	b := s.buf
	s.buf = s.buf[:0]
	return s.write(b)
}
