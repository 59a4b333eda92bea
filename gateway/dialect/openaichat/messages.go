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
		case "reasoning_content", "reasoning":
			// Two spellings of the same; some clients send both.
			if m.Reasoning == "" {
				m.Reasoning = rawjson.Text(v)
			}
		case "tool_calls":
			m.Calls, err = decodeCalls(at+".tool_calls", v)
		case "tool_call_id":
			m.CallID, err = dialect.Text(at+".tool_call_id", v)
		case "name":
			m.Name, err = dialect.Text(at+".name", v)
		}
		if err != nil {
			return m, err
		}
	}
	return m, checkMessage(at, &m)
}

func checkMessage(at string, m *message.Message) error {
	switch m.Role {
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
		if m.Content.Form == message.Null {
			return gateway.Invalidf(at+".content", "%s: a %s message needs content", at, m.Role)
		}
		return nil
	case "":
		return gateway.Invalidf(at+".role", "%s has no role", at)
	}
	return gateway.Invalidf(at+".role", "%s.role is %q; it must be system, developer, user, assistant or tool", at, m.Role)
}

func decodeCalls(at string, raw []byte) (calls []message.Call, err error) {
	if err := dialect.Array(at, raw); err != nil {
		return nil, err
	}
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("%s[%d]", at, len(calls))
		var c message.Call
		v := dialect.Pick(e, "id", "function")
		id, fn := v[0], v[1]
		if rawjson.KindOf(fn) != rawjson.Object {
			return nil, gateway.Invalidf(at, "%s needs a function object", at)
		}
		v = dialect.Pick(fn, "name", "arguments")
		name, arguments := v[0], v[1]
		c.ID, c.Name = rawjson.Text(id), rawjson.Text(name)
		// Some clients send the arguments as the object itself.
		if c.Arguments = rawjson.Text(arguments); rawjson.KindOf(arguments) == rawjson.Object {
			c.Arguments = string(arguments)
		}
		if c.ID == "" || c.Name == "" {
			return nil, gateway.Invalidf(at, "%s needs an id and function.name", at)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

func decodeTools(raw []byte) (tools []message.Definition, err error) {
	if err := dialect.Array("tools", raw); err != nil {
		return nil, err
	}
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("tools[%d]", len(tools))
		if kind := rawjson.KindOf(e); kind != rawjson.Object {
			return nil, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
		}
		fn, _ := rawjson.Get(e, "function")
		name, _ := rawjson.Get(fn, "name")
		if typ, ok := rawjson.Get(e, "type"); ok && rawjson.Text(typ) != "function" || rawjson.Text(name) == "" {
			return nil, gateway.Invalidf(at, "%s must be {\"type\":\"function\",\"function\":{\"name\":...}}", at)
		}
		tools = append(tools, message.Definition{Name: rawjson.Text(name), Raw: e})
	}
	return tools, nil
}
