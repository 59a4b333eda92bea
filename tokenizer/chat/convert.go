package chat

import (
	"fmt"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/jinja"
)

// Converter turns messages into what templates see.
type Converter struct {
	// ReasoningKey is the member that holds an assistant's thinking. The empty
	// one means reasoning_content, which most templates read.
	ReasoningKey string
}

// ReasoningKey finds out which member of a message a template reads thinking
// from: reasoning_content, else thinking (gpt-oss), else reasoning.
func ReasoningKey(source string) string {
	if !strings.Contains(source, "reasoning_content") {
		for _, key := range []string{"thinking", "reasoning"} {
			for _, form := range []string{"." + key, "['" + key + "']", `["` + key + `"]`} {
				if strings.Contains(source, form) {
					return key
				}
			}
		}
	}
	return "reasoning_content"
}

// Messages converts messages, in order.
func (c Converter) Messages(list []message.Message) (*jinja.List, error) {
	values := make([]jinja.Value, len(list))
	for i, m := range list {
		v, err := c.Message(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		values[i] = v
	}
	return jinja.NewList(values...), nil
}

// Message converts one message. Null content is None. Members that this
// project does not know come last, as the client wrote them.
func (c Converter) Message(m message.Message) (*jinja.Dict, error) {
	d := jinja.NewDict(6)
	d.Set("role", string(m.Role))
	content, err := convertContent(m.Content)
	if err != nil {
		return nil, err
	}
	d.Set("content", content)
	if m.Reasoning != "" {
		key := c.ReasoningKey
		if key == "" {
			key = "reasoning_content"
		}
		d.Set(key, m.Reasoning)
	}
	if len(m.Calls) > 0 {
		calls := make([]jinja.Value, len(m.Calls))
		for i, call := range m.Calls {
			calls[i] = convertCall(call)
		}
		d.Set("tool_calls", jinja.NewList(calls...))
	}
	if m.CallID != "" {
		d.Set("tool_call_id", m.CallID)
	}
	if m.Name != "" {
		d.Set("name", m.Name)
	}
	for key, raw := range rawjson.Members(m.Extra) {
		if _, ok := d.Get(key); ok {
			continue
		}
		v, err := jinja.FromJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		d.Set(key, v)
	}
	return d, nil
}

func convertContent(c message.Content) (jinja.Value, error) {
	switch c.Form {
	case message.Text:
		return c.Text, nil
	case message.List:
		parts := make([]jinja.Value, len(c.Parts))
		for i, p := range c.Parts {
			if p.Raw == nil {
				part := jinja.NewDict(2)
				part.Set("type", p.Type)
				part.Set("text", p.Text)
				parts[i] = part
				continue
			}
			v, err := jinja.FromJSON(p.Raw)
			if err != nil {
				return nil, fmt.Errorf("content part %d: %w", i, err)
			}
			parts[i] = v
		}
		return jinja.NewList(parts...), nil
	default:
		return nil, nil
	}
}

// convertCall shows the model the id that it wrote itself, if it wrote one.
func convertCall(call message.Call) *jinja.Dict {
	function := jinja.NewDict(2)
	function.Set("name", call.Name)
	function.Set("arguments", arguments(call.Arguments))
	d := jinja.NewDict(3)
	id := call.ID
	if call.ModelID != "" {
		id = call.ModelID
	}
	if id != "" {
		d.Set("id", id)
	}
	d.Set("type", "function")
	d.Set("function", function)
	return d
}

// arguments reads a call's arguments: an object, or the text if it is none. No
// text at all means no arguments.
func arguments(text string) jinja.Value {
	if strings.TrimSpace(text) == "" {
		return jinja.NewDict(0)
	}
	v, err := jinja.FromJSON([]byte(text))
	if d, ok := v.(*jinja.Dict); ok && err == nil {
		return d
	}
	return text
}

// Tools converts tool definitions; none at all are None.
func Tools(defs []message.Definition) (jinja.Value, error) {
	if len(defs) == 0 {
		return nil, nil
	}
	values := make([]jinja.Value, len(defs))
	for i, d := range defs {
		v, err := jinja.FromJSON(d.Raw)
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", d.Name, err)
		}
		values[i] = v
	}
	return jinja.NewList(values...), nil
}
