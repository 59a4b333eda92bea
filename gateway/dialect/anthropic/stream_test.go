package anthropic_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/anthropic"
	"turnlog.dev/gateway/dialect/dialecttest"
)

// FuzzStream asserts the state machine that Anthropic's SDK insists on, and
// that a client puts together exactly the answer.
func FuzzStream(f *testing.F) {
	f.Add("\x00\x01\x12\x00\x16", "hm yes é🚀 \x00\u2028\"\\", true)
	f.Add("\x04\x11\x12\x11\x12", "abcdef", false)
	f.Fuzz(func(t *testing.T, script, text string, calls bool) {
		var out []byte
		s := anthropic.NewStream(anthropic.Options{Model: "m"}, func(b []byte) error { out = append(out, b...); return nil })
		a := dialecttest.Write(t, s, script, text, calls)

		var thought, said, arguments strings.Builder
		open, next, kind, signed := -1, 0, "", false
		started, ended := false, false
		for _, e := range dialecttest.Events(t, string(out)) {
			require.Equal(t, e.Name, e.Get("type"))
			require.False(t, ended, "an event behind message_stop")
			if e.Name != "ping" {
				require.Equal(t, !started, e.Name == "message_start")
				started = true
			}
			switch e.Name {
			case "content_block_start":
				require.Equal(t, -1, open)
				open, kind, signed = next, e.Get("content_block", "type"), false
				require.Equal(t, strconv.Itoa(open), e.Get("index"))
			case "content_block_delta":
				require.Equal(t, strconv.Itoa(open), e.Get("index"))
				require.False(t, signed, "a delta behind the signature")
				switch d := e.Get("delta", "type"); d {
				case "thinking_delta":
					require.Equal(t, "thinking", kind)
					thought.WriteString(e.Get("delta", "thinking"))
				case "signature_delta":
					require.Equal(t, "thinking", kind)
					require.NotEmpty(t, e.Get("delta", "signature"))
					signed = true
				case "text_delta":
					require.Equal(t, "text", kind)
					said.WriteString(e.Get("delta", "text"))
				case "input_json_delta":
					require.Equal(t, "tool_use", kind)
					arguments.WriteString(e.Get("delta", "partial_json"))
				default:
					require.Fail(t, "unknown delta "+d)
				}
			case "content_block_stop":
				require.Equal(t, strconv.Itoa(open), e.Get("index"))
				require.Equal(t, kind == "thinking", signed)
				open, next = -1, next+1
			case "message_delta":
				require.Equal(t, -1, open)
				require.NotEmpty(t, e.Get("delta", "stop_reason"))
				require.NotEmpty(t, e.Get("usage", "output_tokens"))
			case "message_stop":
				ended = true
			}
		}
		require.True(t, ended)
		require.Equal(t, a.Message.Reasoning, thought.String())
		require.Equal(t, a.Message.Content.String(), said.String())
		if calls {
			require.Equal(t, strings.ToValidUTF8(text, "\ufffd") == text, arguments.String() == text)
		}
	})
}
