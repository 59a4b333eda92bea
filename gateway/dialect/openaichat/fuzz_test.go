package openaichat_test

import (
	"testing"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/dialect/openaichat"
)

func FuzzDecode(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","content":"hi"}]}`)
	f.Add(`{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]}],"tools":[{"function":{"name":"x"}}],"n":2}`)
	f.Add(`{"messages":[{"role":"ctx","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":[{"text":"x"}]},{"type":"refusal","refusal":"x"}],"tool_calls":[{"id":"a","custom":{"name":"c","input":"x"}}]}],"tools":[{"type":"custom","custom":{"name":"c","format":{"grammar":{"definition":"x"}}}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"custom":{"name":"c"},"type":"custom"}]}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		req, _, err := openaichat.Decode([]byte(body))
		dialecttest.Decodes(t, req, err)
	})
}
