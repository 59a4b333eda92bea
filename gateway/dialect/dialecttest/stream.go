package dialecttest

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// Event is a server-sent event.
type Event struct {
	Name string
	Data []byte
}

// Get returns a member of the event's data, by path: a string decoded, anything
// else as it stands, "" if there is none.
func (e Event) Get(path ...string) string {
	raw := e.Data
	for _, key := range path {
		raw, _ = rawjson.Get(raw, key)
	}
	if rawjson.KindOf(raw) == rawjson.String {
		return rawjson.Text(raw)
	}
	return string(raw)
}

// Events reads a stream as strictly as a client could: events of at most one
// name and exactly one line of data, which is JSON but for [DONE], and comments.
func Events(t *testing.T, stream string) (list []Event) {
	t.Helper()
	require.True(t, stream == "" || strings.HasSuffix(stream, "\n\n"), "the last event is not ended")
	for block := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		var e Event
		for line := range strings.SplitSeq(block, "\n") {
			name, isName := strings.CutPrefix(line, "event: ")
			data, isData := strings.CutPrefix(line, "data: ")
			switch {
			case strings.HasPrefix(line, ":"):
			case isName:
				require.Empty(t, e.Name, block)
				e.Name = name
			case isData:
				require.Nil(t, e.Data, block)
				e.Data = []byte(data)
			default:
				require.Fail(t, "no line of an event: "+line)
			}
		}
		if e.Data == nil {
			continue
		}
		if string(e.Data) != "[DONE]" {
			require.NoError(t, rawjson.Valid(e.Data), block)
			require.True(t, utf8.Valid(e.Data), block)
		}
		list = append(list, e)
	}
	return list
}

// Write plays a script on a stream: each byte of it is a ping or a piece of the
// text, as reasoning or content, that leaves early or not. It returns the
// answer that Finish got.
func Write(t *testing.T, s dialect.Stream, script, text string, calls bool) *gateway.Answer {
	t.Helper()
	a := &gateway.Answer{Turn: "t-0001", FinishReason: "stop", PromptTokens: 9, CachedTokens: 4, CompletionTokens: 2}
	var content strings.Builder
	early, rest := true, []rune(strings.ToValidUTF8(text, ""))
	for i, op := range []byte(script) {
		if i == 1 {
			s.Begin(a.Turn, a.PromptTokens)
		}
		if op&3 == 0 {
			require.NoError(t, s.Ping())
			continue
		}
		n := min(len(rest), 1+int(op>>4))
		if i == 0 || n == 0 {
			continue
		}
		d := parse.Delta{Kind: parse.Content, Text: string(rest[:n])}
		rest = rest[n:]
		if op&1 == 1 {
			d.Kind = parse.Reasoning
			a.Message.Reasoning += d.Text
		} else {
			content.WriteString(d.Text)
		}
		// What was kept back once is followed by nothing that was not.
		if early = early && op&4 == 0; early {
			require.NoError(t, s.Delta(d))
		}
	}
	a.Message.Content = message.TextContent(content.String())
	if calls {
		a.FinishReason = "tool_calls"
		a.Message.Calls = []message.Call{{ID: "call_0001_0", Name: "f", Arguments: text}, {ID: "call_0001_1", Name: "g"}}
	}
	require.NoError(t, s.Finish(a))
	return a
}
