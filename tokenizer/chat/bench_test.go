package chat_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/jinja"
)

// longConversation has 201 messages: fifty times a question, a call, its result
// and an answer.
func longConversation() []message.Message {
	list := []message.Message{text(message.System, "You are a careful assistant.\n")}
	for i := range 50 {
		id := fmt.Sprintf("call_%d", i)
		list = append(list,
			text(message.User, fmt.Sprintf("Step %d: list the files in /repo/src/dir%d and explain line %d.\n", i, i, i*7)),
			message.Message{
				Role: message.Assistant, Reasoning: strings.Repeat("I should run ls first. ", 8),
				Calls: []message.Call{{ID: id, Name: "list_files", Arguments: fmt.Sprintf(`{"path": "dir%d", "all": true}`, i)}},
			},
			message.Message{Role: message.Tool, CallID: id, Content: message.TextContent(strings.Repeat(fmt.Sprintf("file_%d.go\nREADME.md\n", i), 12))},
			text(message.Assistant, strings.Repeat("There are two files in it. ", 10)))
	}
	return list
}

var tools = []message.Definition{{Name: "list_files", Raw: []byte(`{"type":"function","function":{"name":"list_files","description":"List files.","parameters":{"type":"object","properties":{"path":{"type":"string"},"all":{"type":"boolean"}},"required":["path"]}}}`)}}

func BenchmarkRender201Messages(b *testing.B) {
	tmpl, messages := template(b, demo.Template()), longConversation()
	out, err := tmpl.Render(messages, tools, chat.Options{AddGenerationPrompt: true})
	require.NoError(b, err)
	b.SetBytes(int64(len(out.Text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(messages, tools, chat.Options{AddGenerationPrompt: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRender201Values leaves out the conversion of the messages.
func BenchmarkRender201Values(b *testing.B) {
	tmpl := template(b, demo.Template())
	list, err := chat.Converter{}.Messages(longConversation())
	require.NoError(b, err)
	defs, err := chat.Tools(tools)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.RenderValues(list, defs, chat.Options{AddGenerationPrompt: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jinja.Compile(demo.Template()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestTheCostOfAMessageDoesNotGrow holds the promise that rendering is linear.
func TestTheCostOfAMessageDoesNotGrow(t *testing.T) {
	tmpl, messages := template(t, demo.Template()), longConversation()
	allocations := func(n int) float64 {
		return testing.AllocsPerRun(5, func() {
			_, err := tmpl.Render(messages[:n], tools, chat.Options{})
			require.NoError(t, err)
		})
	}
	few, many := allocations(41), allocations(201)
	require.Less(t, many, 5.5*few)
}
