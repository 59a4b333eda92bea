package anthropic_test

import (
	"testing"

	"turnlog.dev/gateway/dialect/anthropic"
	"turnlog.dev/gateway/dialect/dialecttest"
)

func FuzzDecode(f *testing.F) {
	f.Add(`{"system":[{"type":"text","text":"x-anthropic-billing-header: a"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"tool_reference","tool_name":"t"}]}]}],"tools":[{"name":"t","input_schema":{},"defer_loading":true}]}`)
	f.Add(`{"thinking":{"type":"enabled","budget_tokens":1e3},"messages":[{"role":"user","content":""},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"dHVybmxvZzoxOnQtMDAwMQ=="},{"type":"tool_use","id":"a","name":"b","input":{}}]},{"role":"system","content":"x"}]}`)
	f.Add(`{"messages":[{"role":"assistant","content":[{"type":"server_tool_use"},{"type":"compaction","content":"x"}]},{"role":"user","content":[{"type":"search_result","content":[{"text":"x"}]},{"type":"container_upload"}]}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`)
	f.Fuzz(func(t *testing.T, body string) {
		req, _, err := anthropic.Decode([]byte(body))
		dialecttest.Decodes(t, req, err)
	})
}
