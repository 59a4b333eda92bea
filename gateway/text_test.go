package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// TestWhatTheEngineWasGivenIsTheLogsOwnFormWhereItIsTaken holds every shape of a
// message, wherever it stands, against its canonical encoding.
func TestWhatTheEngineWasGivenIsTheLogsOwnFormWhereItIsTaken(t *testing.T) {
	text := message.TextContent
	shapes := []message.Message{
		{Role: message.User, Content: text("plain")},
		{Role: message.User, Content: text("a \"quote\", a \\, a\ttab, \x00 and é 世界 \u2028")},
		{Role: message.User, Content: text("broken \xff"), Name: "ann \"b\""},
		{Role: message.User, Content: text("")},
		{Role: message.Assistant},
		{Role: message.Assistant, Content: text("said"), Reasoning: "because"},
		{Role: message.Assistant, Calls: []message.Call{{ID: "c", Name: "f", Arguments: "{}"}}},
		{Role: message.Assistant, Content: text("and"), Calls: []message.Call{}},
		{Role: message.Tool, Content: text("result"), CallID: "c"},
		{Role: message.Tool, Content: text("failed"), CallID: "c", IsError: true},
		{Role: message.System, Content: text("in the middle")},
		{Role: message.Developer, Content: text("too")},
		{Role: message.User, Content: message.Content{Form: message.List}},
		{Role: message.User, Content: message.Content{Form: message.List, Parts: []message.Part{
			{Type: "text", Text: "see"}, {Type: "image_url", Raw: []byte(`{"type":"image_url", "image_url":{"url":"data:,"}}`)},
		}}},
		{Role: message.User, Content: text("more"), Extra: []byte(`{"n": 1.50}`)},
		{Role: message.User, Content: text("turn"), Turn: "t-1"},
	}
	taken := 0
	for from := range shapes {
		for to := from; to <= len(shapes); to++ {
			turn := &turn{}
			turn.req.Conversation.Head.System = shapes[10:11]
			turn.req.Conversation.Messages = shapes[from:to]
			turn.memory.encode(shapes[0]) // the memory may hold something already
			body := turn.body()
			require.NoError(t, rawjson.Valid(body))
			for i, m := range shapes[from:to] {
				if raw, ok := turn.chat.canonical(to-from-i, m); ok {
					taken++
					require.Equal(t, string(m.AppendJSON(nil)), string(raw))
				}
			}
			// What is appended behind does not write over it.
			before := string(body)
			turn.memory.encode(shapes[1])
			require.Equal(t, before, string(body))
			turn.memory.giveBack()
		}
	}
	require.Positive(t, taken)
	_, ok := chatMessages{}.canonical(1, shapes[0])
	require.False(t, ok, "an engine that was given ids")
}
