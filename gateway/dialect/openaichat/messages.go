package openaichat

import (
	"fmt"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

func decodeMessages(raw []byte) (list []message.Message, err error) {
	if err := dialect.Array("messages", raw); err != nil {
		return nil, err
	}
	for e := range rawjson.Elements(raw) {
		m, err := decodeMessage(fmt.Sprintf("messages[%d]", len(list)), e)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func decodeMessage(at string, raw []byte) (m message.Message, err error) {
	if kind := rawjson.KindOf(raw); kind != rawjson.Object {
		return m, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
	}
	refusal := ""
	for k, v := range rawjson.Members(raw) {
		switch k {
		case "role":
			var role string
			role, err = dialect.Text(at+".role", v)
			m.Role = message.Role(role)
		case "content":
			m.Content, err = message.ParseContent(v)
			if err != nil {
				err = gateway.Invalidf(at+".content", "%s.content: %s", at, err)
			}
		case "refusal":
			refusal, err = dialect.Text(at+".refusal", v)
		case "reasoning_content", "reasoning":
			// Two spellings of the same; some clients send both.
			if m.Reasoning == "" {
				m.Reasoning = rawjson.Text(v)
			}
		case "tool_calls":
			m.Calls, err = decodeCalls(at+".tool_calls", v)
		case "function_call":
			if !dialect.IsNull(v) {
				err = gateway.Invalidf(at+".function_call", "%s.function_call is not supported; use tool_calls", at)
			}
		case "tool_call_id":
			m.CallID, err = dialect.Text(at+".tool_call_id", v)
		case "name":
			m.Name, err = dialect.Text(at+".name", v)
		}
		if err != nil {
			return m, err
		}
	}
	spoken(&m, refusal)
	return m, checkMessage(at, &m)
}

// spoken makes text of what an answer says in other parts than text: refusals,
// and thinking that stands in the content.
func spoken(m *message.Message, refusal string) {
	if m.Role != message.Assistant {
		return
	}
	if m.Content.Form == message.Null && refusal != "" {
		m.Content = message.TextContent(refusal)
	}
	parts := m.Content.Parts[:0]
	for _, p := range m.Content.Parts {
		switch p.Type {
		case "refusal":
			text, _ := rawjson.Get(p.Raw, "refusal")
			p = message.Part{Type: "text", Text: rawjson.Text(text)}
		case "thinking":
			text, _ := rawjson.Get(p.Raw, "thinking")
			m.Reasoning += rawjson.Text(text)
			for e := range rawjson.Elements(text) {
				text, _ = rawjson.Get(e, "text")
				m.Reasoning += rawjson.Text(text)
			}
			continue
		}
		parts = append(parts, p)
	}
	m.Content.Parts = parts
}

func checkMessage(at string, m *message.Message) error {
	switch m.Role {
	case "":
		return gateway.Invalidf(at+".role", "%s has no role", at)
	case message.Assistant:
		return nil
	case message.Tool:
		if m.CallID == "" {
			return gateway.Invalidf(at+".tool_call_id", "%s: a tool message needs the tool_call_id that it answers", at)
		}
		// A tool that says nothing.
		if m.Content.Form == message.Null {
			m.Content = message.TextContent("")
		}
		return nil
	case message.System, message.Developer, message.User:
	default:
		// Clients have been seen to invent roles; whoever speaks is not the
		// model.
		m.Role = message.User
	}
	if m.Content.Form == message.Null {
		return gateway.Invalidf(at+".content", "%s: a %s message needs content", at, m.Role)
	}
	return nil
}

func decodeCalls(at string, raw []byte) (calls []message.Call, err error) {
	if err := dialect.Array(at, raw); err != nil {
		return nil, err
	}
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("%s[%d]", at, len(calls))
		v := dialect.Pick(e, "id", "function", "custom")
		c := message.Call{ID: rawjson.Text(v[0])}
		switch fn := dialect.Pick(v[1], "name", "arguments"); {
		case rawjson.KindOf(v[1]) == rawjson.Object:
			c.Name, c.Arguments = rawjson.Text(fn[0]), rawjson.Text(fn[1])
			// Some clients send the arguments as the object itself.
			if rawjson.KindOf(fn[1]) == rawjson.Object {
				c.Arguments = string(fn[1])
			}
		case rawjson.KindOf(v[2]) == rawjson.Object:
			custom := dialect.Pick(v[2], "name", "input")
			c.Name, c.Arguments = rawjson.Text(custom[0]), dialect.CustomArguments(rawjson.Text(custom[1]))
		default:
			return nil, gateway.Invalidf(at, "%s needs a function object", at)
		}
		if c.ID == "" || c.Name == "" {
			return nil, gateway.Invalidf(at, "%s needs an id and function.name", at)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// decodeTools reads functions and custom tools. Those of other types are run by
// whoever serves a model elsewhere; here nobody would, and they are skipped.
func decodeTools(raw []byte) (tools []message.Definition, custom map[string]bool, err error) {
	if err := dialect.Array("tools", raw); err != nil {
		return nil, nil, err
	}
	n := 0
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("tools[%d]", n)
		n++
		if kind := rawjson.KindOf(e); kind != rawjson.Object {
			return nil, nil, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
		}
		v := dialect.Pick(e, "type", "function", "custom")
		typ, name := rawjson.Text(v[0]), toolName(e)
		switch {
		case typ == "function" || typ == "" && v[1] != nil, typ == "custom":
			if name == "" {
				return nil, nil, gateway.Invalidf(at, "%s must be {\"type\":\"function\",\"function\":{\"name\":...}}", at)
			}
		case typ == "":
			return nil, nil, gateway.Invalidf(at, "%s has no type", at)
		default:
			continue
		}
		if typ == "custom" {
			if custom == nil {
				custom = map[string]bool{}
			}
			custom[name] = true
			e = customTool(name, v[2])
		}
		tools = append(tools, message.Definition{Name: name, Raw: e})
	}
	return tools, custom, nil
}

func customTool(name string, raw []byte) []byte {
	v := dialect.Pick(raw, "description", "format")
	grammar, _ := rawjson.Get(v[1], "grammar")
	return dialect.CustomFunction(name, v[0], grammar)
}
