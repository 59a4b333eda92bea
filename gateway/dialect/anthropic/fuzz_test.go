package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/anthropic"
	"turnlog.dev/schema/message"
)

// decodes asserts what holds for every body: it is refused as invalid, or it is
// a conversation that the log can hold.
func decodes(t *testing.T, body string) {
	req, _, err := anthropic.Decode([]byte(body))
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
	f.Add(`{"system":[{"type":"text","text":"x-anthropic-billing-header: a"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"tool_reference","tool_name":"t"}]}]}],"tools":[{"name":"t","input_schema":{},"defer_loading":true}]}`)
	f.Add(`{"thinking":{"type":"enabled","budget_tokens":1e3},"messages":[{"role":"user","content":""},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"dHVybmxvZzoxOnQtMDAwMQ=="},{"type":"tool_use","id":"a","name":"b","input":{}}]},{"role":"system","content":"x"}]}`)
	f.Fuzz(func(t *testing.T, body string) { decodes(t, body) })
}
