package responses

import (
	"fmt"
	"strings"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// input is a list of items while it becomes a list of messages.
type input struct {
	tools *toolset
	list  []message.Message
	// open says that the last message is an assistant's that may go on.
	open bool
}

func decodeInput(raw []byte, tools *toolset) ([]message.Message, error) {
	switch kind := rawjson.KindOf(raw); kind {
	case rawjson.String:
		return []message.Message{{Role: message.User, Content: message.TextContent(rawjson.Text(raw))}}, nil
	case rawjson.Array:
	default:
		return nil, gateway.Invalidf("input", "input is %s; it must be a text or an array of items", kind)
	}
	in := input{tools: tools}
	n := 0
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("input[%d]", n)
		n++
		if kind := rawjson.KindOf(e); kind != rawjson.Object {
			return nil, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
		}
		if err := in.item(at, e); err != nil {
			return nil, err
		}
	}
	return in.list, nil
}

func (in *input) item(at string, raw []byte) error {
	typ, _ := rawjson.Get(raw, "type")
	switch t := rawjson.Text(typ); t {
	case "message", "":
		return in.message(at, raw)
	case "reasoning":
		return in.reasoning(at, raw)
	case "function_call", "custom_tool_call":
		return in.call(at, raw, t == "custom_tool_call")
	case "function_call_output", "custom_tool_call_output":
		return in.output(at, raw)
	default:
		return gateway.Invalidf(at, "%s: an item of type %q is not supported", at, t)
	}
}

// assistant is the message that the current items are parts of.
func (in *input) assistant() *message.Message {
	if !in.open {
		in.list = append(in.list, message.Message{Role: message.Assistant})
		in.open = true
	}
	return &in.list[len(in.list)-1]
}

func (in *input) add(m message.Message) {
	in.list = append(in.list, m)
	in.open = false
}

func (in *input) message(at string, raw []byte) error {
	v := dialect.Pick(raw, "role", "content")
	value, content := v[0], v[1]
	if content == nil {
		return gateway.Invalidf(at+".content", "%s has no content", at)
	}
	switch role := message.Role(rawjson.Text(value)); role {
	case message.Assistant:
		said, err := parts(at, content, "")
		if err != nil {
			return err
		}
		m := in.assistant()
		m.Content = message.TextContent(m.Content.String() + said.String())
	case message.System, message.Developer, message.User:
		said, err := parts(at, content, "\n")
		if err != nil {
			return err
		}
		in.add(message.Message{Role: role, Content: said})
	default:
		return gateway.Invalidf(at+".role", "%s.role is %q; it must be system, developer, user or assistant", at, role)
	}
	return nil
}

// parts reads content; texts alone become one text.
func parts(at string, raw []byte, separator string) (message.Content, error) {
	c, err := message.ParseContent(raw)
	if err != nil {
		return c, gateway.Invalidf(at+".content", "%s.content: %s", at, err)
	}
	var texts []string
	for i, p := range c.Parts {
		if p.Type == "refusal" {
			refusal, _ := rawjson.Get(p.Raw, "refusal")
			p = message.Part{Type: "text", Text: rawjson.Text(refusal)}
			c.Parts[i] = p
		}
		texts = append(texts, p.Text)
	}
	if c.Form == message.Null || c.Form == message.List && c.OnlyText() {
		return message.TextContent(strings.Join(texts, separator)), nil
	}
	return c, nil
}

// reasoning reads what the model thought: in full where it is there, else the
// summary, which for our own is the same. Our encrypted content names the turn.
func (in *input) reasoning(at string, raw []byte) error {
	sealed, _ := rawjson.Get(raw, "encrypted_content")
	turn := dialect.SignedTurn(rawjson.Text(sealed))
	// Two answers without anything between them: a client kept what it had of
	// one that was cut.
	if in.open && turn != "" && in.assistant().Turn != "" && in.assistant().Turn != turn {
		in.open = false
	}
	var thought strings.Builder
	for _, key := range []string{"content", "summary"} {
		list, _ := rawjson.Get(raw, key)
		if err := dialect.Array(at+"."+key, list); len(list) > 0 && err != nil {
			return err
		}
		for e := range rawjson.Elements(list) {
			text, _ := rawjson.Get(e, "text")
			thought.WriteString(rawjson.Text(text))
		}
		if thought.Len() > 0 {
			break
		}
	}
	m := in.assistant()
	m.Reasoning += thought.String()
	if m.Turn == "" {
		m.Turn = turn
	}
	return nil
}

func (in *input) call(at string, raw []byte, custom bool) error {
	v := dialect.Pick(raw, "call_id", "namespace", "name", "arguments", "input")
	c := message.Call{
		ID:        rawjson.Text(v[0]),
		Name:      in.tools.modelName(rawjson.Text(v[1]), rawjson.Text(v[2])),
		Arguments: rawjson.Text(v[3]),
	}
	if custom {
		c.Arguments = string(append(rawjson.AppendText([]byte(`{"input":`), rawjson.Text(v[4])), '}'))
	}
	if c.ID == "" || c.Name == "" {
		return gateway.Invalidf(at, "%s: a call needs a call_id and a name", at)
	}
	m := in.assistant()
	m.Calls = append(m.Calls, c)
	return nil
}

func (in *input) output(at string, raw []byte) error {
	v := dialect.Pick(raw, "call_id", "output")
	id, value := v[0], v[1]
	if rawjson.Text(id) == "" {
		return gateway.Invalidf(at+".call_id", "%s: an output needs the call_id that it answers", at)
	}
	if value == nil {
		value = []byte(`""`)
	}
	said, err := parts(at, value, "\n")
	if err != nil {
		return err
	}
	in.add(message.Message{Role: message.Tool, CallID: rawjson.Text(id), Content: said})
	return nil
}
