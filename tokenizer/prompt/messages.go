package prompt

import (
	"fmt"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// prepare gives messages the form in which templates get them. head is how many
// system messages lead.
//
//   - Content that is a list of texts becomes one text: to a text model they
//     are the same, and most templates know only one of the two.
//   - A reference to a deferred tool becomes the tool's definition, in the
//     client's bytes.
//   - Calls and results carry the ids that the model wrote, where it wrote any.
//   - What OpenAI calls a developer message is a system message.
func (a *Assembler) prepare(messages []message.Message, head int, deferred []message.Definition) ([]message.Message, error) {
	out := make([]message.Message, len(messages))
	own := map[string]string{}
	for i, m := range messages {
		if m.Role == message.Developer {
			m.Role = message.System
		}
		if m.Role == message.System && i >= head && !a.ability.SystemInside && a.learned {
			return nil, fmt.Errorf("message %d: %w", i, ErrSystemInside)
		}
		var err error
		if m.Content, err = a.content(m.Content, deferred); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		if len(m.Calls) > 0 {
			m.Calls = append([]message.Call(nil), m.Calls...)
			for j, call := range m.Calls {
				if call.ModelID != "" {
					own[call.ID] = call.ModelID
					m.Calls[j].ID = call.ModelID
				}
			}
		}
		if id, ok := own[m.CallID]; ok {
			m.CallID = id
		}
		out[i] = m
	}
	return out, nil
}

func (a *Assembler) content(c message.Content, deferred []message.Definition) (message.Content, error) {
	if c.Form != message.List {
		return c, nil
	}
	parts := make([]message.Part, len(c.Parts))
	for i, p := range c.Parts {
		if p.Type == "tool_reference" {
			name, _ := rawjson.Get(p.Raw, "tool_name")
			tool, ok := find(deferred, rawjson.Text(name))
			if !ok {
				return c, fmt.Errorf("%w: %s", ErrUnknownTool, name)
			}
			p = message.Part{Type: "text", Text: string(tool.Raw) + "\n"}
		}
		parts[i] = p
	}
	c.Parts = parts
	if c.OnlyText() {
		return message.TextContent(c.String()), nil
	}
	if !a.ability.Parts {
		return c, ErrContent
	}
	return c, nil
}

func find(tools []message.Definition, name string) (message.Definition, bool) {
	for _, t := range tools {
		if t.Name == name {
			return t, true
		}
	}
	return message.Definition{}, false
}
