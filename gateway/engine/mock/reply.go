package mock

import (
	"strings"

	"turnlog.dev/schema/rawjson"
)

// parsed is an answer as an engine's own parsers cut it.
type parsed struct {
	reasoning, content string
	calls              []parsedCall
}

type parsedCall struct {
	name      string
	arguments []byte
}

// parse cuts thinking and hermes calls out of a text. A call that is not
// finished or not JSON is content.
func parse(text string) (p parsed) {
	if rest, ok := strings.CutPrefix(text, "<think>\n"); ok {
		if r, after, ok := strings.Cut(rest, "\n</think>"); ok {
			p.reasoning, text = r, strings.TrimLeft(after, "\n")
		}
	}
	for {
		before, rest, ok := strings.Cut(text, "<tool_call>")
		call, after, closed := strings.Cut(rest, "</tool_call>")
		raw := []byte(strings.TrimSpace(call))
		if !ok || !closed || rawjson.Valid(raw) != nil {
			p.content += text
			break
		}
		name, _ := rawjson.Get(raw, "name")
		arguments, _ := rawjson.Get(raw, "arguments")
		p.calls = append(p.calls, parsedCall{rawjson.Text(name), arguments})
		p.content += before
		text = after
	}
	if len(p.calls) > 0 {
		p.content = strings.TrimSpace(p.content)
	}
	return p
}

// sayable is how much of the content of an unfinished text is certain.
func sayable(text string) string {
	if i := strings.Index(text, "<tool_call>"); i >= 0 {
		text = text[:i]
	}
	if strings.HasPrefix(text, "<think>") && !strings.Contains(text, "</think>") || strings.HasPrefix("<think>", text) {
		return ""
	}
	return strings.TrimRight(parse(text).content, "\n\ufffd")
}

// render is the prompt of a chat request, in ChatML.
func render(body []byte) string {
	var b strings.Builder
	if list, ok := rawjson.Get(body, "tools"); ok && rawjson.KindOf(list) == rawjson.Array {
		b.WriteString("<|im_start|>system\n<tools>\n")
		for t := range rawjson.Elements(list) {
			b.Write(t)
			b.WriteByte('\n')
		}
		b.WriteString("</tools><|im_end|>\n")
	}
	list, _ := rawjson.Get(body, "messages")
	for m := range rawjson.Elements(list) {
		role, _ := rawjson.Get(m, "role")
		content, _ := rawjson.Get(m, "content")
		text := textOf(content)
		switch rawjson.Text(role) {
		case "tool":
			b.WriteString("<|im_start|>user\n<tool_response>\n" + text + "\n</tool_response><|im_end|>\n")
			continue
		case "assistant":
			calls, _ := rawjson.Get(m, "tool_calls")
			for c := range rawjson.Elements(calls) {
				f, _ := rawjson.Get(c, "function")
				name, _ := rawjson.Get(f, "name")
				arguments, _ := rawjson.Get(f, "arguments")
				text += CallText(rawjson.Text(name), rawjson.Text(arguments))
			}
		}
		b.WriteString("<|im_start|>" + rawjson.Text(role) + "\n" + text + "<|im_end|>\n")
	}
	return b.String() + "<|im_start|>assistant\n"
}

func textOf(content []byte) string {
	if rawjson.KindOf(content) != rawjson.Array {
		return rawjson.Text(content)
	}
	var b strings.Builder
	for part := range rawjson.Elements(content) {
		text, _ := rawjson.Get(part, "text")
		b.WriteString(rawjson.Text(text))
	}
	return b.String()
}
