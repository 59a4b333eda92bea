package familytest

import (
	"fmt"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/jinja"
	"turnlog.dev/tokenizer/prompt"
)

// Renderer returns the checkpoint's template as what prompts are made with.
func (c Checkpoint) Renderer() prompt.Renderer {
	t, err := jinja.Compile(c.Template())
	if err != nil {
		panic(fmt.Sprintf("familytest: %s: %v", c.Name, err))
	}
	return renderer{t}
}

// Model returns the checkpoint as an assembler takes it.
func (c Checkpoint) Model() prompt.Model {
	return prompt.Model{Renderer: c.Renderer(), Tokenizer: c.Tokenizer(), Family: c.Family, StopTokens: c.StopTokens}
}

type renderer struct{ template *jinja.Template }

func (r renderer) Render(in prompt.Input) (string, error) {
	messages := []byte{'['}
	for i, m := range in.Messages {
		if i > 0 {
			messages = append(messages, ',')
		}
		messages = appendMessage(messages, m)
	}
	dates := strings.NewReplacer("%Y", in.Time.Format("2006"), "%m", in.Time.Format("01"), "%d", in.Time.Format("02"), "%b", in.Time.Format("Jan"))
	vars := jinja.Vars{
		"add_generation_prompt": in.Generate,
		"strftime_now": jinja.Func(func(args []jinja.Value) (jinja.Value, error) {
			return dates.Replace(fmt.Sprint(args...)), nil
		}),
	}
	for name, raw := range map[string][]byte{
		"messages": append(messages, ']'), "tools": message.AppendTools(nil, in.Tools),
	} {
		v, err := jinja.FromJSON(raw)
		if err != nil {
			return "", err
		}
		vars[name] = v
	}
	for k, raw := range rawjson.Members(in.Kwargs) {
		v, err := jinja.FromJSON(raw)
		if err != nil {
			return "", err
		}
		vars[k] = v
	}
	out, err := r.template.Render(vars, jinja.Limits{})
	return out.Text, err
}

func appendMessage(dst []byte, m message.Message) []byte {
	dst = rawjson.AppendText(append(dst, `{"role":`...), string(m.Role))
	dst = m.Content.AppendJSON(append(dst, `,"content":`...))
	if m.Reasoning != "" {
		dst = rawjson.AppendText(append(dst, `,"reasoning_content":`...), m.Reasoning)
	}
	for i, call := range m.Calls {
		if dst = append(dst, ','); i == 0 {
			dst = append(dst, `"tool_calls":[`...)
		}
		dst = rawjson.AppendText(append(dst, `{"id":`...), call.ID)
		dst = rawjson.AppendText(append(dst, `,"type":"function","function":{"name":`...), call.Name)
		dst = append(append(dst, `,"arguments":`...), call.Arguments...)
		if dst = append(dst, "}}"...); i == len(m.Calls)-1 {
			dst = append(dst, ']')
		}
	}
	if m.CallID != "" {
		dst = rawjson.AppendText(append(dst, `,"tool_call_id":`...), m.CallID)
	}
	if m.Name != "" {
		dst = rawjson.AppendText(append(dst, `,"name":`...), m.Name)
	}
	return append(dst, '}')
}
