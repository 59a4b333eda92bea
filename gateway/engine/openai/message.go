package openai

import (
	"fmt"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// maxCalls bounds the index of a call in a stream.
const maxCalls = 1024

// assembly joins the deltas of a stream to one message.
type assembly struct {
	content, reasoning, refusal []byte
	said                        bool // content was a string, if an empty one
	calls                       []call
}

type call struct {
	id, name  string
	arguments []byte
}

// add takes a delta, or a whole message, and returns its text and reasoning.
func (m *assembly) add(raw []byte) (text, reasoning string, err error) {
	for k, v := range rawjson.Members(raw) {
		if rawjson.KindOf(v) == rawjson.Null {
			continue
		}
		switch k {
		case "content":
			if rawjson.KindOf(v) != rawjson.String {
				return "", "", fmt.Errorf("content is %s, not a string", rawjson.KindOf(v))
			}
			text, m.said = rawjson.Text(v), true
			m.content = append(m.content, text...)
		case "reasoning_content", "reasoning":
			// Some servers send the same under both names.
			if reasoning == "" {
				reasoning = rawjson.Text(v)
				m.reasoning = append(m.reasoning, reasoning...)
			}
		case "refusal":
			m.refusal = append(m.refusal, rawjson.Text(v)...)
		case "tool_calls":
			at := 0
			for c := range rawjson.Elements(v) {
				if err := m.call(c, at); err != nil {
					return "", "", err
				}
				at++
			}
		}
	}
	return text, reasoning, nil
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

func (m *assembly) empty() bool {
	return len(m.content) == 0 && len(m.calls) == 0 && len(m.refusal) == 0
}

// json is the message in OpenAI's form.
func (m *assembly) json() []byte {
	o := wire.NewObject(nil)
	o.Text("role", "assistant")
	if m.said && (len(m.content) > 0 || len(m.calls) == 0) {
		o.Raw("content", rawjson.AppendText(nil, string(m.content)))
	} else {
		o.Raw("content", []byte("null"))
	}
	o.Text("reasoning_content", string(m.reasoning))
	o.Text("refusal", string(m.refusal))
	if len(m.calls) == 0 {
		return o.End()
	}
	list := []byte{'['}
	for i, c := range m.calls {
		if i > 0 {
			list = append(list, ',')
		}
		one := wire.NewObject(list)
		one.Text("id", c.id)
		one.Text("type", "function")
		one.Object("function", func(o *wire.Object) {
			o.Text("name", c.name)
			o.Raw("arguments", rawjson.AppendText(nil, string(c.arguments)))
		})
		list = one.End()
	}
	o.Raw("tool_calls", append(list, ']'))
	return o.End()
}
