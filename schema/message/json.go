package message

import (
	"errors"
	"fmt"

	"turnlog.dev/schema/rawjson"
)

// ErrMalformed is a text that is no message in the canonical form.
var ErrMalformed = errors.New("message: malformed")

// AppendJSON appends the canonical encoding of m: the one form in which
// messages are stored and shown.
//
//	{"role":"assistant","content":null,"reasoning":"...",
//	 "calls":[{"id":"...","model_id":"...","name":"...","arguments":"..."}],
//	 "call_id":"...","name":"...","is_error":true,"extra":{...}}
//
// The keys stand in this order. All but role and content are left out when
// empty; content is null, a string, or a list of {"type":"text","text":"..."}
// and of foreign parts as the client wrote them.
func (m Message) AppendJSON(dst []byte) []byte {
	dst = rawjson.AppendText(append(dst, `{"role":`...), string(m.Role))
	dst = m.Content.AppendJSON(append(dst, `,"content":`...))
	if m.Reasoning != "" {
		dst = rawjson.AppendText(append(dst, `,"reasoning":`...), m.Reasoning)
	}
	for i, c := range m.Calls {
		if i == 0 {
			dst = append(dst, `,"calls":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(append(dst, `{"id":`...), c.ID)
		if c.ModelID != "" {
			dst = rawjson.AppendText(append(dst, `,"model_id":`...), c.ModelID)
		}
		dst = rawjson.AppendText(append(dst, `,"name":`...), c.Name)
		dst = rawjson.AppendText(append(dst, `,"arguments":`...), c.Arguments)
		dst = append(dst, '}')
		if i == len(m.Calls)-1 {
			dst = append(dst, ']')
		}
	}
	if m.CallID != "" {
		dst = rawjson.AppendText(append(dst, `,"call_id":`...), m.CallID)
	}
	if m.Name != "" {
		dst = rawjson.AppendText(append(dst, `,"name":`...), m.Name)
	}
	if m.IsError {
		dst = append(dst, `,"is_error":true`...)
	}
	if m.Extra != nil {
		dst = append(append(dst, `,"extra":`...), m.Extra...)
	}
	return append(dst, '}')
}

// AppendJSON appends the content as JSON: null, a string or a list.
func (c Content) AppendJSON(dst []byte) []byte {
	switch c.Form {
	case Text:
		return rawjson.AppendText(dst, c.Text)
	case List:
		dst = append(dst, '[')
		for i, p := range c.Parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			if p.Raw != nil {
				dst = append(dst, p.Raw...)
				continue
			}
			dst = rawjson.AppendText(append(dst, `{"type":"text","text":`...), p.Text)
			dst = append(dst, '}')
		}
		return append(dst, ']')
	default:
		return append(dst, "null"...)
	}
}

// Parse reads one message in the canonical form. The error wraps ErrMalformed.
func Parse(raw []byte) (Message, error) {
	if err := rawjson.Valid(raw); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if rawjson.KindOf(raw) != rawjson.Object {
		return Message{}, fmt.Errorf("%w: %s instead of an object", ErrMalformed, rawjson.KindOf(raw))
	}
	return parse(raw)
}

// ParseList reads a JSON array of messages. The error wraps ErrMalformed.
func ParseList(raw []byte) ([]Message, error) {
	if err := rawjson.Valid(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	var list []Message
	for e := range rawjson.Elements(raw) {
		m, err := parse(e)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// AppendList appends messages as a JSON array in the canonical form.
func AppendList(dst []byte, list []Message) []byte {
	dst = append(dst, '[')
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.AppendJSON(dst)
	}
	return append(dst, ']')
}

func parse(raw []byte) (m Message, err error) {
	for k, v := range rawjson.Members(raw) {
		switch k {
		case "role":
			m.Role = Role(rawjson.Text(v))
		case "content":
			m.Content, err = ParseContent(v)
		case "reasoning":
			m.Reasoning = rawjson.Text(v)
		case "calls":
			for e := range rawjson.Elements(v) {
				m.Calls = append(m.Calls, parseCall(e))
			}
		case "call_id":
			m.CallID = rawjson.Text(v)
		case "name":
			m.Name = rawjson.Text(v)
		case "is_error":
			m.IsError = string(v) == "true"
		case "extra":
			m.Extra = v
		default:
			err = fmt.Errorf("%w: unknown key %q", ErrMalformed, k)
		}
		if err != nil {
			return Message{}, err
		}
	}
	switch m.Role {
	case System, Developer, User, Assistant, Tool:
		return m, nil
	}
	return Message{}, fmt.Errorf("%w: role %q", ErrMalformed, m.Role)
}

func parseCall(raw []byte) (c Call) {
	for k, v := range rawjson.Members(raw) {
		switch k {
		case "id":
			c.ID = rawjson.Text(v)
		case "model_id":
			c.ModelID = rawjson.Text(v)
		case "name":
			c.Name = rawjson.Text(v)
		case "arguments":
			c.Arguments = rawjson.Text(v)
		}
	}
	return c
}

// ParseContent reads null, a string, or a list of parts, as OpenAI's clients
// write them too: a part of type text, input_text or output_text is text,
// every other part is kept as it is. The error wraps ErrMalformed.
func ParseContent(raw []byte) (Content, error) {
	switch kind := rawjson.KindOf(raw); kind {
	case rawjson.Null:
		return Content{}, nil
	case rawjson.String:
		return TextContent(rawjson.Text(raw)), nil
	case rawjson.Array:
		c := Content{Form: List}
		for e := range rawjson.Elements(raw) {
			p, err := parsePart(e)
			if err != nil {
				return Content{}, err
			}
			c.Parts = append(c.Parts, p)
		}
		return c, nil
	default:
		return Content{}, fmt.Errorf("%w: content is %s; it must be a string, an array of parts or null", ErrMalformed, kind)
	}
}

func parsePart(raw []byte) (Part, error) {
	if kind := rawjson.KindOf(raw); kind == rawjson.String {
		return Part{Type: "text", Text: rawjson.Text(raw)}, nil
	} else if kind != rawjson.Object {
		return Part{}, fmt.Errorf("%w: a content part is %s; it must be an object", ErrMalformed, kind)
	}
	typ, _ := rawjson.Get(raw, "type")
	p := Part{Type: rawjson.Text(typ)}
	switch p.Type {
	case "text", "input_text", "output_text":
		text, ok := rawjson.Get(raw, "text")
		if !ok || rawjson.KindOf(text) != rawjson.String {
			return Part{}, fmt.Errorf("%w: a content part of type %q has no text", ErrMalformed, p.Type)
		}
		return Part{Type: "text", Text: rawjson.Text(text)}, nil
	case "":
		return Part{}, fmt.Errorf("%w: a content part has no type", ErrMalformed)
	}
	p.Raw = raw
	return p, nil
}

// AppendTools appends tool definitions as a JSON array of the client's bytes.
func AppendTools(dst []byte, tools []Definition) []byte {
	dst = append(dst, '[')
	for i, t := range tools {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, t.Raw...)
	}
	return append(dst, ']')
}

// ParseTools reads what AppendTools wrote. The error wraps ErrMalformed.
func ParseTools(raw []byte) ([]Definition, error) {
	if err := rawjson.Valid(raw); err != nil {
		return nil, fmt.Errorf("%w: tools: %w", ErrMalformed, err)
	}
	var tools []Definition
	for e := range rawjson.Elements(raw) {
		fn, _ := rawjson.Get(e, "function")
		name, _ := rawjson.Get(fn, "name")
		tools = append(tools, Definition{Name: rawjson.Text(name), Raw: e})
	}
	return tools, nil
}
