package prompt

import (
	"slices"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/chat"
)

// render is the only way to the template.
func (a *Assembler) render(messages []message.Message, tools []message.Definition, generate bool, o Options) (string, error) {
	if a.textual {
		messages = textual(messages)
	}
	if a.listed {
		messages = listed(messages)
	}
	out, err := a.m.Renderer.Render(messages, tools, chat.Options{
		AddGenerationPrompt: generate, Kwargs: a.kwargs(o), Now: o.Time,
	})
	return out.Text, err
}

// kwargs are the request's arguments with the policy's on top.
func (a *Assembler) kwargs(o Options) []byte {
	pins := a.m.Family.Keep
	if a.m.Policy != Keep || pins == nil {
		return o.Kwargs
	}
	if rawjson.KindOf(o.Kwargs) != rawjson.Object {
		return pins
	}
	var sets []rawjson.Set
	for k, v := range rawjson.Members(pins) {
		sets = append(sets, rawjson.Set{Key: k, Value: v})
	}
	return rawjson.Splice(nil, o.Kwargs, sets...)
}

// textual shows a template the arguments of calls as text. A few templates put
// them together with text themselves, and fail on a mapping.
func textual(messages []message.Message) []message.Message {
	messages = slices.Clone(messages)
	for i, m := range messages {
		if len(m.Calls) == 0 {
			continue
		}
		calls := []byte(`[`)
		for j, c := range m.Calls {
			if j > 0 {
				calls = append(calls, ',')
			}
			calls = rawjson.AppendText(append(calls, `{"id":`...), c.ID)
			calls = rawjson.AppendText(append(calls, `,"type":"function","function":{"name":`...), c.Name)
			calls = rawjson.AppendText(append(calls, `,"arguments":`...), c.Arguments)
			calls = append(calls, "}}"...)
		}
		if m.Extra == nil {
			m.Extra = []byte(`{}`)
		}
		m.Extra = rawjson.Splice(nil, m.Extra, rawjson.Set{Key: "tool_calls", Value: append(calls, ']')})
		m.Calls = nil
		messages[i] = m
	}
	return messages
}

// listed gives templates of models that see images the lists of parts that they
// insist on.
func listed(messages []message.Message) []message.Message {
	messages = slices.Clone(messages)
	for i, m := range messages {
		if m.Content.Form == message.Text {
			messages[i].Content = message.Content{
				Form: message.List, Parts: []message.Part{{Type: "text", Text: m.Content.Text}},
			}
		}
	}
	return messages
}
