package anthropic

import (
	"fmt"
	"strings"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

func (r *request) decodeMessages(raw []byte) (list []message.Message, err error) {
	if kind := rawjson.KindOf(raw); kind != rawjson.Array {
		return nil, gateway.Invalidf("messages", "messages is %s; it must be an array of at least one message", kind)
	}
	n := 0
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("messages.%d", n)
		n++
		if kind := rawjson.KindOf(e); kind != rawjson.Object {
			return nil, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
		}
		v := dialect.Pick(e, "role", "content")
		role, content := v[0], v[1]
		if rawjson.Text(role) == "" {
			return nil, gateway.Invalidf(at+".role", "%s has no role", at)
		}
		if kind := rawjson.KindOf(content); kind != rawjson.String && kind != rawjson.Array {
			return nil, gateway.Invalidf(at+".content", "%s.content must be a text or a list of blocks", at)
		}
		switch rawjson.Text(role) {
		case "assistant":
			m, err := r.decodeAssistant(at, content)
			if err != nil {
				return nil, err
			}
			list = append(list, m)
		case "system", "developer":
			m, err := r.decodeUser(at, message.System, content)
			if err != nil {
				return nil, err
			}
			list = append(list, m...)
		default:
			// Clients have been seen to invent roles; whoever speaks is not the
			// model.
			m, err := r.decodeUser(at, message.User, content)
			if err != nil {
				return nil, err
			}
			list = append(list, m...)
		}
	}
	switch {
	case n == 0:
		return nil, gateway.Invalidf("messages", "messages: at least one message is required")
	case list[len(list)-1].Role == message.Assistant:
		return nil, gateway.Invalidf("messages",
			"this model does not support assistant message prefill; the conversation must end with a user message")
	}
	return list, nil
}

// text is the content of blocks that are text alone.
func text(parts []message.Part, separator string) message.Content {
	texts := make([]string, len(parts))
	for i, p := range parts {
		if p.Type != "text" {
			return message.Content{Form: message.List, Parts: parts}
		}
		texts[i] = p.Text
	}
	return message.TextContent(strings.Join(texts, separator))
}

// decodeUser returns the tool results of a message, then the rest of it.
func (r *request) decodeUser(at string, role message.Role, content []byte) (list []message.Message, err error) {
	if rawjson.KindOf(content) == rawjson.String {
		return []message.Message{{Role: role, Content: message.TextContent(rawjson.Text(content))}}, nil
	}
	var rest []message.Part
	n := 0
	for e := range rawjson.Elements(content) {
		at := fmt.Sprintf("%s.content.%d", at, n)
		n++
		if typ, _ := rawjson.Get(e, "type"); rawjson.Text(typ) == "tool_result" {
			m, err := r.decodeResult(at, e)
			if err != nil {
				return nil, err
			}
			list = append(list, m)
			continue
		}
		if rest, err = r.appendPart(rest, at, e); err != nil {
			return nil, err
		}
	}
	if len(rest) > 0 || len(list) == 0 {
		list = append(list, message.Message{Role: role, Content: text(rest, "\n")})
	}
	return list, nil
}

func (r *request) decodeResult(at string, raw []byte) (m message.Message, err error) {
	m = message.Message{Role: message.Tool, Content: message.TextContent("")}
	for k, v := range rawjson.Members(raw) {
		switch k {
		case "tool_use_id":
			m.CallID, err = dialect.Text(at+".tool_use_id", v)
		case "is_error":
			m.IsError, err = dialect.Bool(at+".is_error", v)
		case "content":
			switch kind := rawjson.KindOf(v); kind {
			case rawjson.Null:
			case rawjson.String:
				m.Content = message.TextContent(rawjson.Text(v))
			case rawjson.Array:
				m.Content, err = r.decodeBlocks(at+".content", v)
			default:
				err = gateway.Invalidf(at+".content", "%s.content is %s; it must be a text or a list of blocks", at, kind)
			}
		}
		if err != nil {
			return m, err
		}
	}
	if m.CallID == "" {
		return m, gateway.Invalidf(at+".tool_use_id", "%s: a tool_result needs the tool_use_id that it answers", at)
	}
	return m, nil
}

// decodeBlocks reads the blocks of a tool result.
func (r *request) decodeBlocks(at string, raw []byte) (_ message.Content, err error) {
	var parts []message.Part
	n := 0
	for e := range rawjson.Elements(raw) {
		if parts, err = r.appendPart(parts, fmt.Sprintf("%s.%d", at, n), e); err != nil {
			return message.Content{}, err
		}
		n++
	}
	return text(parts, "\n"), nil
}

// hosted reports whether a block belongs to a tool that Anthropic runs: a call
// of it, or its result. The model did not make the one and cannot read the
// other.
func hosted(typ string) bool {
	return typ == "server_tool_use" || typ == "mcp_tool_use" || typ == "container_upload" || strings.HasSuffix(typ, "_tool_result")
}

// appendPart reads a block of a user message or of a tool result.
func (r *request) appendPart(parts []message.Part, at string, raw []byte) ([]message.Part, error) {
	v := dialect.Pick(raw, "type", "text", "tool_name")
	p := message.Part{Type: "text"}
	switch t := rawjson.Text(v[0]); {
	case t == "text", t == "input_text", t == "output_text": // as the canonical form has them
		if rawjson.KindOf(v[1]) != rawjson.String {
			return nil, gateway.Invalidf(at, "%s: a text block needs a text", at)
		}
		p.Text = rawjson.Text(v[1])
	case t == "tool_reference":
		p.Text = referenced(rawjson.Text(v[2]), r.Tools)
	case t == "search_result":
		p.Text = searchResult(raw)
	case hosted(t):
		r.LeaveOut(t)
		return parts, nil
	case t == "":
		return nil, gateway.Invalidf(at, "%s is %s without a type; it must be a content block", at, rawjson.KindOf(raw))
	default:
		p = message.Part{Type: t, Raw: raw}
		if s, ok := documentText(raw); ok && t == "document" {
			p = message.Part{Type: "text", Text: s}
		}
	}
	return append(parts, p), nil
}

// searchResult is a result that the client's own search found, as text.
func searchResult(raw []byte) string {
	v := dialect.Pick(raw, "title", "source", "content")
	lines := []string{rawjson.Text(v[0]), rawjson.Text(v[1])}
	for e := range rawjson.Elements(v[2]) {
		line, _ := rawjson.Get(e, "text")
		lines = append(lines, rawjson.Text(line))
	}
	return strings.Join(lines, "\n")
}

// referenced is what a model reads where a result refers to a tool.
func referenced(name string, tools []message.Definition) string {
	for _, t := range tools {
		if t.Name == name {
			return string(t.Raw)
		}
	}
	return "[no tool of the name " + name + " is defined]"
}

// documentText is the text of a document that is text.
func documentText(raw []byte) (string, bool) {
	source, _ := rawjson.Get(raw, "source")
	typ, _ := rawjson.Get(source, "type")
	switch rawjson.Text(typ) {
	case "text":
		data, ok := rawjson.Get(source, "data")
		return rawjson.Text(data), ok
	case "content":
		content, _ := rawjson.Get(source, "content")
		c, err := message.ParseContent(content)
		return text(c.Parts, "\n").String() + c.Text, err == nil && c.OnlyText()
	}
	return "", false
}

// decodeAssistant reads an answer. What it thought, said and called are kept
// apart, in order; a signature of ours names the turn.
func (r *request) decodeAssistant(at string, content []byte) (m message.Message, err error) {
	m.Role = message.Assistant
	if rawjson.KindOf(content) == rawjson.String {
		m.Content = message.TextContent(rawjson.Text(content))
		return m, nil
	}
	var said, thought strings.Builder
	texts, n := 0, 0
	for e := range rawjson.Elements(content) {
		at := fmt.Sprintf("%s.content.%d", at, n)
		n++
		v := dialect.Pick(e, "type", "text", "thinking", "signature", "id", "name", "input")
		switch t := rawjson.Text(v[0]); {
		case t == "text":
			said.WriteString(rawjson.Text(v[1]))
			texts++
		case t == "thinking":
			thought.WriteString(rawjson.Text(v[2]))
			if m.Turn == "" {
				m.Turn = dialect.SignedTurn(rawjson.Text(v[3]))
			}
		case t == "redacted_thinking":
			r.LeaveOut(t) // nobody but its author can read it
		case t == "compaction":
			// What stood before, in short.
			summary, _ := rawjson.Get(e, "content")
			said.WriteString(rawjson.Text(summary))
			texts++
		case hosted(t):
			r.LeaveOut(t)
		case t == "tool_use":
			c := message.Call{ID: rawjson.Text(v[4]), Name: rawjson.Text(v[5]), Arguments: string(v[6])}
			if c.ID == "" || c.Name == "" || v[6] == nil {
				return m, gateway.Invalidf(at, "%s: a tool_use needs an id, a name and an input", at)
			}
			m.Calls = append(m.Calls, c)
		default:
			return m, gateway.Invalidf(at, "%s: a block of type %q is not supported in an assistant message", at, t)
		}
	}
	m.Reasoning = thought.String()
	if texts > 0 || len(m.Calls) == 0 {
		m.Content = message.TextContent(said.String())
	}
	return m, nil
}
