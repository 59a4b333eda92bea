package openaichat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/openaichat"
	"turnlog.dev/schema/message"
)

// decodes asserts what holds for every body: it is refused as invalid, or it is
// a conversation that the log can hold.
func decodes(t *testing.T, body string) {
	req, _, err := openaichat.Decode([]byte(body))
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
	f.Add(`{"messages":[{"role":"user","content":"hi"}]}`)
	f.Add(`{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]}],"tools":[{"function":{"name":"x"}}],"n":2}`)
	f.Fuzz(func(t *testing.T, body string) { decodes(t, body) })
}
