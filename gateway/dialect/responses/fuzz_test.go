package responses_test

import (
	"testing"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/dialect/responses"
	"turnlog.dev/schema/message"
)

// known is a session in which every turn gave the same answer.
func known(string) (message.Message, bool) {
	return message.Message{
		Role: message.Assistant, Content: message.TextContent("x"), Reasoning: "hm",
		Calls: []message.Call{{ID: "call_1_0", Name: "f", Arguments: "{}"}},
	}, true
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"input":"hi"}`)
	f.Add(`{"instructions":"x","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"reasoning","summary":[{"text":"x"}]},{"type":"custom_tool_call","call_id":"a","name":"b","input":"x"},{"type":"function_call_output","call_id":"a","output":"x"}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}`)
	f.Add(`{"input":[{"id":"msg_t-1"},{"type":"item_reference","id":"fc_call_1_0"},{"type":"shell_call","call_id":"a","action":{}},{"type":"shell_call_output","call_id":"a","output":[{"stdout":"x"}]},{"type":"mcp_call","id":"m","name":"f","error":"x"},{"type":"web_search_call"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}}`)
	f.Fuzz(func(t *testing.T, body string) {
		req, _, err := responses.Decode([]byte(body), known)
		dialecttest.Decodes(t, req, err)
	})
}
