package prompt

import (
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// prepare gives messages the form in which templates get them. head is how many
// system messages lead. from returns the place that a prepared message had.
//
//   - Content that is a list of texts becomes one text: to a text model they
//     are the same, and most templates know only one of the two. No content is
//     an empty text, which templates do not write as "None".
//   - A reference to a deferred tool becomes the tool's definition, in the
//     client's bytes.
//   - Calls and results carry the ids that the model wrote, where it wrote any.
//   - What OpenAI calls a developer message is a system message.
//   - Several leading system messages become one, where the template knows one.
//   - Several calls become messages of one call, each before its result, where
//     the template writes one call to a message.
func (a *Assembler) prepare(messages []message.Message, head int, deferred []message.Definition) (out []message.Message, from func(int) int, err error) {
	out = make([]message.Message, len(messages))
	own := map[string]string{}
	for i, m := range messages {
		if m.Role == message.Developer {
			m.Role = message.System
		}
		if m.Role == message.System && i >= head && !a.ability.SystemInside && a.learned {
			return nil, nil, fmt.Errorf("message %d: %w", i, ErrSystemInside)
		}
		if m.Content, err = a.content(m.Content, deferred); err != nil {
			return nil, nil, fmt.Errorf("message %d: %w", i, err)
		}
		if m.Content.Form == message.Null && (len(m.Calls) == 0 || a.nulls) {
			m.Content = message.TextContent("")
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
	from = func(i int) int { return i }
	if !a.learned {
		return out, from, nil
	}
	if head > 1 && !a.ability.Systems {
		for i, m := range out[:head] {
			if !m.Content.OnlyText() {
				return nil, nil, fmt.Errorf("message %d: %w: more than text in one of several system messages", i, ErrContent)
			}
		}
		out = append([]message.Message{merge(out[:head])}, out[head:]...)
		from = func(i int) int {
			if i == 0 {
				return 0
			}
			return i + head - 1
		}
	}
	if !a.ability.Parallel && slices.ContainsFunc(out, func(m message.Message) bool { return len(m.Calls) > 1 }) {
		var places []int
		merged := from
		out, places = oneByOne(out)
		from = func(i int) int { return merged(places[i]) }
	}
	return out, from, nil
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
		if p.Type != "text" && !slices.Contains(a.ability.Parts, p.Type) {
			return c, fmt.Errorf("%w: a part of type %q", ErrContent, p.Type)
		}
		parts[i] = p
	}
	c.Parts = parts
	if c.OnlyText() {
		return message.TextContent(c.String()), nil
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

// merge makes one system message of several, with a blank line between them.
func merge(list []message.Message) message.Message {
	out := list[0]
	texts := make([]string, len(list))
	for i, m := range list {
		texts[i] = m.Content.String()
	}
	out.Content = message.TextContent(strings.Join(texts, "\n\n"))
	return out
}

// oneByOne splits answers of several calls. What the answer says stays with its
// first call; the results of a call, which follow the answer, follow the call.
// Those that name no call of the answer stay behind its last one.
func oneByOne(messages []message.Message) (out []message.Message, places []int) {
	put := func(i int, m message.Message) {
		out, places = append(out, m), append(places, i)
	}
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if len(m.Calls) < 2 {
			put(i, m)
			continue
		}
		end := i + 1
		for end < len(messages) && messages[end].Role == message.Tool {
			end++
		}
		rest := map[int]bool{}
		for k := i + 1; k < end; k++ {
			rest[k] = true
		}
		for j, call := range m.Calls {
			one := m
			if j > 0 {
				one = message.Message{Role: m.Role, Content: message.Content{Form: m.Content.Form}}
			}
			one.Calls = []message.Call{call}
			put(i, one)
			for k := i + 1; k < end; k++ {
				if rest[k] && (messages[k].CallID == call.ID || j == len(m.Calls)-1) {
					put(k, messages[k])
					delete(rest, k)
				}
			}
		}
		i = end - 1
	}
	return out, places
}
