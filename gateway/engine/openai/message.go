package openai

import (
	"fmt"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// maxCalls bounds the index of a call in a stream.
const maxCalls = 1024

// assembly reads the deltas of a stream. Texts go on as they come; calls come in
// parts and are whole in the end.
type assembly struct {
	spoke bool // there was a text
	calls []call
}

type call struct {
	id, name  string
	arguments []byte
}

// add takes a delta, or a whole message, and returns its texts. A refusal is
// what the engine says instead of content.
func (m *assembly) add(raw []byte) (c engine.Chunk, err error) {
	for k, v := range rawjson.Members(raw) {
		if rawjson.KindOf(v) == rawjson.Null {
			continue
		}
		switch k {
		case "content", "refusal":
			if rawjson.KindOf(v) != rawjson.String {
				return c, fmt.Errorf("%s is %s, not a string", k, rawjson.KindOf(v))
			}
			c.Text += rawjson.Text(v)
			m.spoke = m.spoke || c.Text != ""
		case "reasoning_content", "reasoning":
			// Some servers send the same under both names.
			if c.Reasoning == "" {
				c.Reasoning = rawjson.Text(v)
			}
		case "tool_calls":
			at := 0
			for part := range rawjson.Elements(v) {
				if err := m.call(part, at); err != nil {
					return c, err
				}
				at++
			}
		}
	}
	return c, nil
}

// call takes a part of a call. One without an index stands at its place in the
// list.
func (m *assembly) call(raw []byte, at int) error {
	if index, ok := rawjson.Get(raw, "index"); ok {
		n, err := wire.Int(index)
		if err != nil {
			return fmt.Errorf("tool_calls: index: %w", err)
		}
		at = n
	}
	if at > len(m.calls) || at >= maxCalls {
		return fmt.Errorf("tool_calls: index %d comes after %d calls", at, len(m.calls))
	}
	if at == len(m.calls) {
		m.calls = append(m.calls, call{})
	}
	c := &m.calls[at]
	if id, _ := rawjson.Get(raw, "id"); rawjson.KindOf(id) == rawjson.String && c.id == "" {
		c.id = rawjson.Text(id)
	}
	f, _ := rawjson.Get(raw, "function")
	if name, _ := rawjson.Get(f, "name"); rawjson.KindOf(name) == rawjson.String {
		c.name += rawjson.Text(name)
	}
	arguments, _ := rawjson.Get(f, "arguments")
	if rawjson.KindOf(arguments) == rawjson.Object {
		c.arguments = append(c.arguments, arguments...)
	} else {
		c.arguments = append(c.arguments, rawjson.Text(arguments)...)
	}
	return nil
}

// empty reports whether there was neither a text nor a call.
func (m *assembly) empty() bool { return !m.spoke && len(m.calls) == 0 }

// whole are the calls of the answer.
func (m *assembly) whole() (list []parse.Call) {
	for _, c := range m.calls {
		list = append(list, parse.Call{ModelID: c.id, Name: c.name, Arguments: string(c.arguments)})
	}
	return list
}
