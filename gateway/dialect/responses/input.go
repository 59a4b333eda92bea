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
	*request
	list []message.Message
	// open says that the last message is an assistant's that may go on.
	open bool
}

func (r *request) decodeInput() ([]message.Message, error) {
	switch kind := rawjson.KindOf(r.input); kind {
	case rawjson.String:
		return []message.Message{{Role: message.User, Content: message.TextContent(rawjson.Text(r.input))}}, nil
	case rawjson.Array:
	default:
		return nil, gateway.Invalidf("input", "input is %s; it must be a text or an array of items", kind)
	}
	in := input{request: r}
	n := 0
	for e := range rawjson.Elements(r.input) {
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
	case "message":
		return in.message(at, raw)
	case "":
		// Some clients leave the type out of messages and of references.
		if role, _ := rawjson.Get(raw, "role"); role == nil {
			return in.reference(at, raw)
		}
		return in.message(at, raw)
	case "item_reference":
		return in.reference(at, raw)
	case "reasoning":
		return in.reasoning(at, raw)
	case "function_call", "custom_tool_call":
		return in.call(at, raw, t == "custom_tool_call")
	case "local_shell_call", "shell_call", "apply_patch_call", "computer_call":
		return in.kindCall(at, raw, strings.TrimSuffix(t, "_call"))
	case "function_call_output", "custom_tool_call_output":
		return in.output(at, raw, false)
	case "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "computer_call_output":
		return in.output(at, raw, true)
	case "mcp_call":
		return in.mcp(at, raw)
	case "web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call", "tool_search_call",
		"tool_search_output", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "ghost_snapshot":
		in.LeaveOut(t)
		return nil
	case "compaction", "compaction_summary", "context_compaction":
		return gateway.Invalidf(at, "%s: what stood before is sealed in this %s by whoever made it; send the conversation itself, "+
			"or compact it on the client", at, t)
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

// begin keeps the answer of a turn apart from that of another without anything
// between them: a client kept what it had of one that was cut.
func (in *input) begin(turn string) {
	if in.open && turn != "" && in.assistant().Turn != "" && in.assistant().Turn != turn {
		in.open = false
	}
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
	case "":
		return gateway.Invalidf(at+".role", "%s has no role", at)
	default:
		// Whoever else speaks is not the model.
		said, err := parts(at, content, "\n")
		if err != nil {
			return err
		}
		in.add(message.Message{Role: message.User, Content: said})
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
	in.begin(turn)
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
		Name:      in.opt.tools.modelName(rawjson.Text(v[1]), rawjson.Text(v[2])),
		Arguments: rawjson.Text(v[3]),
	}
	if rawjson.KindOf(v[3]) == rawjson.Object {
		c.Arguments = string(v[3]) // some clients send the object itself
	}
	if custom {
		c.Arguments = dialect.CustomArguments(rawjson.Text(v[4]))
	}
	return in.addCall(at, c)
}

func (in *input) addCall(at string, c message.Call) error {
	if c.ID == "" || c.Name == "" {
		return gateway.Invalidf(at, "%s: a call needs a call_id and a name", at)
	}
	m := in.assistant()
	m.Calls = append(m.Calls, c)
	return nil
}

// kindCall reads a call whose item has a type of its own: what the call does
// stands in it as an object.
func (in *input) kindCall(at string, raw []byte, name string) error {
	v := dialect.Pick(raw, "call_id", "id", "action", "operation")
	c := message.Call{ID: rawjson.Text(v[0]), Name: name, Arguments: string(v[2])}
	if c.ID == "" {
		c.ID = rawjson.Text(v[1])
	}
	if v[2] == nil {
		c.Arguments = string(v[3])
	}
	return in.addCall(at, c)
}

// mcp reads a call that somebody else made for the model, and its result.
func (in *input) mcp(at string, raw []byte) error {
	v := dialect.Pick(raw, "id", "name", "arguments", "output", "error")
	c := message.Call{ID: rawjson.Text(v[0]), Name: rawjson.Text(v[1]), Arguments: rawjson.Text(v[2])}
	if err := in.addCall(at, c); err != nil {
		return err
	}
	m := message.Message{Role: message.Tool, CallID: c.ID, Content: message.TextContent(rawjson.Text(v[3]))}
	if m.IsError = rawjson.KindOf(v[4]) != rawjson.Invalid && !dialect.IsNull(v[4]); m.IsError && v[3] == nil {
		m.Content = message.TextContent(string(v[4]))
	}
	in.add(m)
	return nil
}

// output reads a result. One of a call whose item has a type of its own may be
// JSON of any shape, which is then what the model reads.
func (in *input) output(at string, raw []byte, shaped bool) error {
	v := dialect.Pick(raw, "call_id", "output", "id")
	id, value := v[0], v[1]
	if rawjson.Text(id) == "" {
		id = v[2] // what a local shell's call was called
	}
	if rawjson.Text(id) == "" {
		return gateway.Invalidf(at+".call_id", "%s: an output needs the call_id that it answers", at)
	}
	if value == nil {
		value = []byte(`""`)
	}
	m := message.Message{Role: message.Tool, CallID: rawjson.Text(id)}
	if rawjson.KindOf(value) == rawjson.Object {
		// What a computer shows is a part by itself.
		value = append(append([]byte{'['}, value...), ']')
	}
	var err error
	if m.Content, err = parts(at, value, "\n"); err != nil && shaped {
		m.Content, err = message.TextContent(string(value)), nil
	}
	if err != nil {
		return err
	}
	in.add(m)
	return nil
}

// reference reads an item of which only the id is there: a client takes what
// was answered to be stored here, which in the log of the session it is.
func (in *input) reference(at string, raw []byte) error {
	value, _ := rawjson.Get(raw, "id")
	id := rawjson.Text(value)
	kind, rest, _ := strings.Cut(id, "_")
	turn, _, _ := strings.Cut(rest, "_")
	if kind == "fc" || kind == "ctc" {
		// fc_call_TURN_N, after the id of the call
		turn, _, _ = strings.Cut(strings.TrimPrefix(rest, "call_"), "_")
		turn = "t-" + turn
	}
	m, known := message.Message{}, false
	if in.turn != nil && id != "" {
		m, known = in.turn(turn)
	}
	if !known {
		return gateway.Invalidf(at, "%s: no answer in this session has an item %q; send the item itself (store: false)", at, id)
	}
	in.begin(turn)
	to := in.assistant()
	switch kind {
	case "rs":
		to.Reasoning, to.Turn = m.Reasoning, turn
	case "msg":
		to.Content = m.Content
	default:
		for _, c := range m.Calls {
			if c.ID == rest {
				to.Calls = append(to.Calls, c)
			}
		}
	}
	return nil
}
