package mock

import (
	"strings"

	"turnlog.dev/schema/rawjson"
)

// Message is one message as a ChatML prompt spells it.
type Message struct {
	Role string // system, user, assistant, tool
	Text string
}

// messages cuts a decoded ChatML prompt into its messages. The open assistant
// message that the model has to write is not one of them. Tool results that a
// template wraps into a user message have the role tool.
func messages(prompt string) []Message {
	const open, end = "<|im_start|>", "<|im_end|>"
	var out []Message
	for part := range strings.SplitSeq(prompt, open) {
		text, _, closed := strings.Cut(part, end)
		role, text, ok := strings.Cut(text, "\n")
		if !ok || !closed {
			continue
		}
		if role == "user" && strings.HasPrefix(strings.TrimSpace(text), "<tool_response>") {
			role = "tool"
		}
		out = append(out, Message{role, text})
	}
	return out
}

// tool is a tool that the prompt offers: its name and the JSON schema of its
// parameters.
type tool struct {
	name       string
	parameters []byte
}

// tools reads the offered tools, one JSON object a line between <tools> tags,
// in either the bare or the wrapped form.
func tools(prompt string) []tool {
	var out []tool
	for {
		_, rest, ok := strings.Cut(prompt, "<tools>\n")
		if !ok {
			return out
		}
		list, after, ok := strings.Cut(rest, "</tools>")
		if !ok {
			return out
		}
		prompt = after
		for line := range strings.Lines(list) {
			raw := []byte(strings.TrimSpace(line))
			if rawjson.Valid(raw) != nil {
				continue
			}
			if f, ok := rawjson.Get(raw, "function"); ok {
				raw = f
			}
			name, _ := rawjson.Get(raw, "name")
			if t := (tool{name: rawjson.Text(name)}); t.name != "" {
				t.parameters, _ = rawjson.Get(raw, "parameters")
				out = append(out, t)
			}
		}
	}
}
