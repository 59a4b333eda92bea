package gateway

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/prompt"
)

// Thinking is what a client says about the model's thinking. The zero value
// leaves it to the model.
type Thinking struct {
	// Mode is on, off or empty.
	Mode string
	// Effort is low, medium, high or empty.
	Effort string
}

// kwargs are the template's arguments: what the client gave as such, over what
// its thinking switches mean to the model's family. A conversation that has
// begun keeps its switches: a flip would change the end of the prompt under
// the history.
func (t *turn) kwargs(parent *tree.Turn) []byte {
	base := t.model.switches(t.req.Thinking)
	if parent != nil {
		base = parent.Committed.GetConversation().GetTemplateKwargs()
	}
	if rawjson.KindOf(base) != rawjson.Object {
		return t.req.Kwargs
	}
	var own []rawjson.Set
	for k, v := range rawjson.Members(t.req.Kwargs) {
		own = append(own, rawjson.Set{Key: k, Value: v})
	}
	return rawjson.Splice(nil, base, own...)
}

// switches are the template arguments for what a client says about thinking;
// nil if the model's family has none. That thinking is off wins over effort.
func (m *Model) switches(asked Thinking) []byte {
	var sets []rawjson.Set
	if asked.Mode != "" {
		if f, err := family.ByName(m.Family); err == nil && f.Thinking != "" {
			sets = append(sets, rawjson.Set{Key: f.Thinking, Value: strconv.AppendBool(nil, asked.Mode == "on")})
		}
	}
	if asked.Effort != "" && asked.Mode != "off" {
		sets = append(sets, rawjson.Set{Key: "reasoning_effort", Value: rawjson.AppendText(nil, asked.Effort)})
	}
	if sets == nil {
		return nil
	}
	return rawjson.Splice(nil, []byte("{}"), sets...)
}

// fit changes a conversation to what the model can read, in ways that depend on
// nothing but the messages so far, so that a history stays a beginning of the
// next one:
//
//   - Where the template takes no system message behind other messages, one that
//     stands there is put at the end of the user message or tool result before
//     it. (Of several that lead, prompts make one themselves.)
//   - Images and documents that come with tool results are replaced by a note.
//     Anywhere else they are an error: the client can leave them out.
func (m *Model) fit(c message.Conversation) (message.Conversation, error) {
	for _, s := range c.Head.System {
		if p := foreign(s.Content); p != nil {
			return c, m.textOnly("system", p)
		}
	}
	var out []message.Message
	results := false
	for i, msg := range c.Messages {
		results = msg.Role == message.Tool || results && msg.Role == message.User
		inside := msg.Role == message.System || msg.Role == message.Developer
		p := foreign(msg.Content)
		fold := inside && !m.Prompts.Ability().SystemInside
		if p != nil && !results {
			return c, m.textOnly("messages", p)
		}
		if out == nil && (p != nil || fold) {
			out = slices.Clone(c.Messages[:i])
		}
		if p != nil {
			msg.Content = note(msg.Content)
		}
		switch {
		case fold:
			out = foldSystem(out, msg)
		case out != nil:
			out = append(out, msg)
		}
	}
	if out != nil {
		c.Messages = out
	}
	return c, nil
}

func (m *Model) textOnly(param string, p *message.Part) error {
	return Invalidf(param, "the model %q reads text only; the request holds a part of type %q", m.Name, p.Type)
}

// foreign is the first part that is no text.
func foreign(c message.Content) *message.Part {
	i := slices.IndexFunc(c.Parts, func(p message.Part) bool { return p.Type != "text" })
	if i < 0 {
		return nil
	}
	return &c.Parts[i]
}

// note replaces what a text model cannot read by a word about it, on a line of
// its own.
func note(c message.Content) message.Content {
	lines := make([]string, len(c.Parts))
	for i, p := range c.Parts {
		switch lines[i] = p.Text; {
		case p.Type == "text":
		case strings.Contains(p.Type, "image"):
			lines[i] = "[image left out: the model reads text only]"
		default:
			lines[i] = "[document left out: the model reads text only]"
		}
	}
	return message.TextContent(strings.Join(lines, "\n"))
}

// foldSystem puts a system message at the end of the message before it.
func foldSystem(out []message.Message, system message.Message) []message.Message {
	text := "<system>\n" + system.Content.String() + "\n</system>"
	n := len(out) - 1
	if n < 0 || out[n].Role != message.User && out[n].Role != message.Tool {
		return append(out, message.Message{Role: message.User, Content: message.TextContent(text)})
	}
	last := &out[n].Content
	if last.Form == message.List {
		last.Parts = append(slices.Clip(last.Parts), message.Part{Type: "text", Text: "\n\n" + text})
	} else {
		*last = message.TextContent(last.Text + "\n\n" + text)
	}
	return out
}

// tooLong says how long the prompt was, where the engine found out that it is
// too long.
func (t *turn) tooLong(err error) error {
	e := AsError(err)
	if e.Kind != TooLong || e.Prompt > 0 {
		return err
	}
	more := *e
	more.Prompt, more.Window = len(t.ids), t.model.ContextLength
	if more.Window == 0 || more.Window > more.Prompt {
		more.Window = more.Prompt - 1
	}
	return &more
}

// promptError says that a conversation cannot be rendered: the template
// refused it, which is the client's to know.
func promptError(err error) error {
	message := "the model's chat template cannot render this conversation: " + err.Error()
	if errors.Is(err, prompt.ErrSystemInside) {
		// Claude Code knows these words, and sends the request again without
		// such messages.
		message = "role 'system' is not supported on this model inside messages"
	}
	return &Error{Kind: Invalid, Param: "messages", Message: message, Err: err}
}
