package responses_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/responses"
	"turnlog.dev/schema/message"
)

// decodes asserts what holds for every body: it is refused as invalid, or it is
// a conversation that the log can hold.
func decodes(t *testing.T, body string) {
	req, _, err := responses.Decode([]byte(body), nil)
	if err != nil {
		var e *gateway.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, gateway.Invalid, e.Kind)
		return
	}
	all := req.Conversation.All()
	require.NotEmpty(t, all)
	again, err := message.ParseList(message.AppendList(nil, all))
	require.NoError(t, err)
	require.Len(t, again, len(all))
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"input":"hi"}`)
	f.Add(`{"instructions":"x","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"reasoning","summary":[{"text":"x"}]},{"type":"custom_tool_call","call_id":"a","name":"b","input":"x"},{"type":"function_call_output","call_id":"a","output":"x"}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}`)
	f.Fuzz(func(t *testing.T, body string) { decodes(t, body) })
}
