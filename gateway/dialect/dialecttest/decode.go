package dialecttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// Decodes asserts what holds for every body, given what a dialect made of it: it
// was refused as invalid, or it is a conversation that the log can hold.
func Decodes(t *testing.T, req gateway.Request, err error) {
	t.Helper()
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
	if req.Other != nil {
		require.NoError(t, rawjson.Valid(req.Other))
	}
}
