package gateway

import (
	"bytes"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// Wire is what a model's engines are given and give back.
type Wire string

// The wires.
const (
	// IDs: token ids in and out; replies are parsed here.
	IDs Wire = ""
	// Parsed: token ids in and out; the engine parses its replies, for models
	// whose format has no parser of ours. Nothing leaves early.
	Parsed Wire = "parsed"
	// Text: text in and out: turns are of grade D, and can be continued by text
	// turns only.
	Text Wire = "text"
)

// body is the conversation as an OpenAI chat request, for engines that read
// messages. The adapter says the model and how to sample.
func (t *turn) body() []byte {
	var starts []int
	b := t.memory.take(func(b []byte) []byte {
		at := len(b)
		b = append(b, `{"messages":[`...)
		starts = append(starts, len(b)-at)
		for _, m := range t.req.Conversation.All() {
			b = append(appendChatMessage(b, m), ',')
			starts = append(starts, len(b)-at)
		}
		return t.appendRest(append(bytes.TrimSuffix(b, []byte{','}), ']'))
	})
	t.chat = chatMessages{b, starts}
	return b
}

// appendRest appends what stands behind the messages.
func (t *turn) appendRest(b []byte) []byte {
	c := t.req.Conversation
	if tools := append(append([]message.Definition(nil), c.Head.Tools...), c.Deferred...); len(tools) > 0 {
		b = message.AppendTools(append(b, `,"tools":`...), tools)
		b = t.req.ToolChoice.appendChoice(b)
	}
	if len(t.options.Kwargs) > 0 {
		b = append(append(b, `,"chat_template_kwargs":`...), t.options.Kwargs...)
	}
	return append(b, '}')
}

// chatMessages are messages as an engine was given them, with where each starts
// and where one more would.
type chatMessages struct {
	raw    []byte
	starts []int
}

// canonical returns the message m, the nth from the end, if what the engine was
// given is the canonical form too: a long text is spelled but once then.
func (c chatMessages) canonical(nth int, m message.Message) ([]byte, bool) {
	at := len(c.starts) - 1 - nth
	if at < 0 || m.Reasoning != "" || m.Calls != nil || m.CallID != "" || m.IsError || m.Extra != nil {
		return nil, false
	}
	end := c.starts[at+1] - 1 // a comma or a bracket stands between
	return c.raw[c.starts[at]:end:end], true
}

// appendChatMessage appends a message in OpenAI's form.
func appendChatMessage(dst []byte, m message.Message) []byte {
	dst = rawjson.AppendText(append(dst, `{"role":`...), string(m.Role))
	dst = m.Content.AppendJSON(append(dst, `,"content":`...))
	if m.Reasoning != "" {
		dst = rawjson.AppendText(append(dst, `,"reasoning_content":`...), m.Reasoning)
	}
	for i, c := range m.Calls {
		if i == 0 {
			dst = append(dst, `,"tool_calls":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(append(dst, `{"id":`...), c.ID)
		dst = rawjson.AppendText(append(dst, `,"type":"function","function":{"name":`...), c.Name)
		dst = rawjson.AppendText(append(dst, `,"arguments":`...), c.Arguments)
		dst = append(dst, "}}"...)
		if i == len(m.Calls)-1 {
			dst = append(dst, ']')
		}
	}
	if m.CallID != "" {
		dst = rawjson.AppendText(append(dst, `,"tool_call_id":`...), m.CallID)
	}
	if m.Name != "" {
		dst = rawjson.AppendText(append(dst, `,"name":`...), m.Name)
	}
	return append(dst, '}')
}

// textReply gathers the answer of an engine that reads and writes messages.
type textReply struct {
	reasoning, content pieces
}

// pieces is a text that comes in parts.
type pieces []string

// String joins the parts, once.
func (p *pieces) String() string {
	if len(*p) > 1 {
		*p = pieces{strings.Join(*p, "")}
	}
	return strings.Join(*p, "")
}

// push takes a chunk and returns what it adds to the answer.
func (r *textReply) push(c engine.Chunk) (deltas []parse.Delta) {
	if c.Reasoning != "" {
		r.reasoning = append(r.reasoning, c.Reasoning)
		deltas = append(deltas, parse.Delta{Kind: parse.Reasoning, Text: c.Reasoning})
	}
	if c.Text != "" {
		r.content = append(r.content, c.Text)
		deltas = append(deltas, parse.Delta{Kind: parse.Content, Text: c.Text})
	}
	return deltas
}

// written is what the engine wrote, where that is not what the answer says.
func (t *turn) written(answer message.Message) string {
	if text := t.text.content.String(); text != answer.Content.String() {
		return text
	}
	return ""
}

// finish returns the whole answer: the engine's own message where it gives
// one, else what was streamed.
func (r *textReply) finish(generated pool.Result) parse.Reply {
	if generated.Message == nil {
		return parse.Reply{Reasoning: r.reasoning.String(), Content: r.content.String(), Calls: generated.Calls}
	}
	var out parse.Reply
	for k, v := range rawjson.Members(generated.Message) {
		switch k {
		case "content":
			if c, err := message.ParseContent(v); err == nil {
				out.Content = c.String()
			}
		case "reasoning_content", "reasoning":
			if text := rawjson.Text(v); text != "" {
				out.Reasoning = text
			}
		case "tool_calls":
			for e := range rawjson.Elements(v) {
				fn, _ := rawjson.Get(e, "function")
				id, _ := rawjson.Get(e, "id")
				name, _ := rawjson.Get(fn, "name")
				arguments, _ := rawjson.Get(fn, "arguments")
				out.Calls = append(out.Calls, parse.Call{
					ModelID: rawjson.Text(id), Name: rawjson.Text(name), Arguments: rawjson.Text(arguments),
				})
			}
		}
	}
	return out
}
