package openaichat_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/dialect/openaichat"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// one is a stream of one choice, as a dialect.Stream.
type one struct{ *openaichat.Stream }

func (o one) Begin(turn string, _ int)       { o.Stream.Begin(turn) }
func (o one) Delta(d parse.Delta) error      { return o.Stream.Delta(0, d) }
func (o one) Finish(a *gateway.Answer) error { return o.Stream.Finish([]*gateway.Answer{a}) }

// FuzzStream asserts what OpenAI's SDK insists on, and that a client puts
// together exactly the answer.
func FuzzStream(f *testing.F) {
	f.Add("\x00\x01\x12\x00\x16", "hm yes é🚀 \x00\u2028\"\\", true)
	f.Add("\x04\x11\x12\x11\x12", "abcdef", false)
	f.Fuzz(func(t *testing.T, script, text string, calls bool) {
		var out []byte
		s := openaichat.NewStream(openaichat.Options{Model: "m", N: 1, IncludeUsage: true}, 1, func(b []byte) error { out = append(out, b...); return nil })
		a := dialecttest.Write(t, one{s}, script, text, calls)

		var thought, said strings.Builder
		roles, finished, named := 0, "", 0
		list := dialecttest.Events(t, string(out))
		require.Equal(t, "[DONE]", string(list[len(list)-1].Data))
		for i, e := range list[:len(list)-1] {
			require.Equal(t, "chat.completion.chunk", e.Get("object"))
			choices, _ := rawjson.Get(e.Data, "choices")
			if i == len(list)-2 {
				require.Equal(t, "[]", string(choices))
				require.Equal(t, "11", e.Get("usage", "total_tokens"))
				break
			}
			require.Empty(t, finished, "a chunk behind the last")
			for c := range rawjson.Elements(choices) {
				chunk := dialecttest.Event{Data: c}
				require.Equal(t, roles == 0, chunk.Get("delta", "role") == "assistant")
				roles++
				thought.WriteString(chunk.Get("delta", "reasoning_content"))
				said.WriteString(chunk.Get("delta", "content"))
				if chunk.Get("delta", "tool_calls") != "" {
					named++
				}
				if r := chunk.Get("finish_reason"); r != "null" {
					finished = r
				}
			}
		}
		require.Equal(t, a.FinishReason, finished)
		require.Equal(t, len(a.Message.Calls), named)
		require.Equal(t, a.Message.Reasoning, thought.String())
		require.Equal(t, a.Message.Content.String(), said.String())
	})
}
