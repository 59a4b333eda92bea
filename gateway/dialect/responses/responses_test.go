package responses_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/dialect/responses"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

const path = "/v1/responses"

func decode(t *testing.T, body string) message.Conversation {
	t.Helper()
	req, _, err := responses.Decode([]byte(body), nil)
	require.NoError(t, err)
	return req.Conversation
}

func TestBadInputIsRefusedInOpenAIsShapeAndLeavesNoTurn(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	item := func(i string) string { return `{"input":[` + i + `]}` }
	for name, body := range map[string]string{
		"empty body":              ``,
		"no JSON":                 `{"input":`,
		"no object":               `3`,
		"no input":                `{"model":"m"}`,
		"null input":              `{"input":null}`,
		"empty input":             `{"input":[]}`,
		"input a number":          `{"input":5}`,
		"item a number":           item(`5`),
		"unknown item":            item(`{"type":"hologram"}`),
		"sealed compaction":       item(`{"type":"compaction","encrypted_content":"x"}`),
		"forced hosted tool":      `{"input":"hi","tool_choice":{"type":"web_search"}}`,
		"choice of no tool":       `{"input":"hi","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}}`,
		"item reference":          item(`{"type":"item_reference","id":"x"}`),
		"message without role":    item(`{"type":"message","content":"x"}`),
		"message without content": item(`{"role":"user"}`),
		"content a number":        item(`{"role":"user","content":4}`),
		"image":                   item(`{"role":"user","content":[{"type":"input_image","image_url":"data:,"}]}`),
		"call without id":         item(`{"type":"function_call","name":"f","arguments":"{}"}`),
		"output without id":       item(`{"type":"function_call_output","output":"x"}`),
		"previous response":       `{"input":"hi","previous_response_id":"resp_1"}`,
		"conversation":            `{"input":"hi","conversation":"c"}`,
		"stored prompt":           `{"input":"hi","prompt":{"id":"pmpt_1"}}`,
		"top_logprobs":            `{"input":"hi","top_logprobs":2}`,
		"logprobs":                `{"input":"hi","include":["message.output_text.logprobs"]}`,
		"background":              `{"input":"hi","background":true}`,
		"tools an object":         `{"input":"hi","tools":{}}`,
		"tool a number":           `{"input":"hi","tools":[1]}`,
		"tool without name":       `{"input":"hi","tools":[{"type":"function"}]}`,
		"forced choice of none":   `{"input":"hi","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}}`,
		"unknown choice":          `{"input":"hi","tool_choice":"maybe"}`,
		"unknown format":          `{"input":"hi","text":{"format":{"type":"xml"}}}`,
		"temperature a string":    `{"input":"hi","temperature":"1"}`,
		"tokens below 1":          `{"input":"hi","max_output_tokens":0}`,
		"stream a string":         `{"input":"hi","stream":"yes"}`,
		"instructions a number":   `{"input":"hi","instructions":7}`,
	} {
		r := w.Post(path, body)
		require.Equal(t, http.StatusBadRequest, r.Status, "%s: %s", name, r.Body)
		require.True(t, strings.HasPrefix(r.Body, `{"error":{"message":`), "%s: %s", name, r.Body)
	}
	require.Empty(t, w.Turns())
}

func TestOddButLegalInputIsAccepted(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	for name, body := range map[string]string{
		"a text":           `{"input":"hi"}`,
		"unknown fields":   `{"input":"hi","store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","client_metadata":{},"truncation":"auto"}`,
		"nulls":            `{"input":"hi","instructions":null,"tools":null,"tool_choice":null,"reasoning":null,"text":null,"previous_response_id":null,"stream":null}`,
		"hosted tools":     `{"input":"hi","tools":[{"type":"web_search"},{"type":"file_search","vector_store_ids":[]}]}`,
		"bare items":       `{"input":[{"role":"user","content":"hi"}]}`,
		"refusal":          `{"input":[{"role":"user","content":"a"},{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"b"}]}`,
		"empty reasoning":  `{"input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},{"role":"user","content":"b"}]}`,
		"broken arguments": `{"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":"},{"type":"function_call_output","call_id":"c","output":"bad"}]}`,
		"image in output":  `{"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:,"}]}]}`,
	} {
		r := w.Post(path, body)
		require.Equal(t, http.StatusOK, r.Status, "%s: %s", name, r.Body)
		require.Contains(t, r.Body, `{"type":"output_text","text":"ok"`, name)
	}
}

func TestItemsBetweenTwoOfOthersAreOneAnswer(t *testing.T) {
	c := decode(t, `{"instructions":"be good","input":[
		{"type":"message","role":"developer","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
		{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"`+"dHVybmxvZzoxOnQtMDAwMQ=="+`"},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"look"}]},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{ \"a\" : 1.0 }"},
		{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
		{"type":"function_call_output","call_id":"c2","output":"two"},
		{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"one"}]}]}`)
	require.Len(t, c.Head.System, 2)
	require.Equal(t, "a\nb", c.Head.System[1].Content.Text)
	require.Equal(t, []message.Message{
		{Role: message.User, Content: message.TextContent("hi")},
		{
			Role: message.Assistant, Content: message.TextContent("look"), Reasoning: "hm", Turn: "t-0001",
			Calls: []message.Call{{ID: "c1", Name: "f", Arguments: `{ "a" : 1.0 }`}, {ID: "c2", Name: "g", Arguments: "{}"}},
		},
		{Role: message.Tool, CallID: "c2", Content: message.TextContent("two")},
		{Role: message.Tool, CallID: "c1", Content: message.TextContent("one")},
	}, c.Messages)
}

func TestNamespacesAndCustomToolsKeepTheirNamesOnBothSides(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.SayText(strings.Join([]string{
		dialecttest.Call("apply_patch", `{"input": "*** Begin\n"}`), dialecttest.Call("spawn", `{"a": 1}`), dialecttest.Call("agents__run", `{}`),
		dialecttest.Call("run", `{}`),
	}, "\n"))
	const tools = `"tools":[{"type":"custom","name":"apply_patch","description":"Patch.","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
		{"type":"namespace","name":"agents","tools":[{"type":"function","name":"spawn","parameters":{"type":"object"}},{"type":"function","name":"run"}]},
		{"type":"function","name":"run","strict":true}]`
	r := w.Post(path, `{"input":"hi",`+tools+`}`)
	for _, item := range []string{
		`"type":"custom_tool_call","id":"ctc_call_0001_0","status":"completed","call_id":"call_0001_0","name":"apply_patch","input":"*** Begin\n"`,
		`"call_id":"call_0001_1","name":"spawn","namespace":"agents","arguments":"{\"a\": 1}"`,
		`"call_id":"call_0001_2","name":"run","namespace":"agents"`,
		`"call_id":"call_0001_3","name":"run","arguments"`,
	} {
		require.Contains(t, r.Body, item)
	}
	require.Contains(t, w.Engine.Prompts()[0], `Patch.\n\nThe input must follow this lark grammar:\nstart: x`)

	output, _ := rawjson.Get([]byte(r.Body), "output")
	items := strings.TrimSuffix(strings.TrimPrefix(string(output), "["), "]")
	for i, typ := range []string{"custom_tool_call_output", "function_call_output", "function_call_output", "function_call_output"} {
		items += `,{"type":"` + typ + `","call_id":"call_0001_` + string(rune('0'+i)) + `","output":"done"}`
	}
	r = w.Post(path, `{"input":[{"role":"user","content":"hi"},`+items+`],`+tools+`}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	turn := w.Turns()[1]
	require.Equal(t, "extend", turn.Decision)
	require.False(t, turn.Rewritten)
}

var eventName = regexp.MustCompile(`(?m)^event: (.*)$`)

func events(body string) (names []string) {
	for _, m := range eventName.FindAllStringSubmatch(body, -1) {
		if len(names) == 0 || names[len(names)-1] != m[1] {
			names = append(names, m[1])
		}
	}
	return names
}

func TestAStreamHasEveryEventInOrder(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.SayText("<think>\nhm\n</think>\n\nLook.\n" + dialecttest.Call("f", `{"a":1}`))
	r := w.Post(path, `{"stream":true,"input":"hi","tools":[{"type":"function","name":"f"}]}`)
	require.Equal(t, []string{
		"response.created", "response.in_progress",
		"response.output_item.added", "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
		"response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done",
		"response.output_text.done", "response.content_part.done", "response.output_item.done",
		"response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done",
		"response.completed",
	}, events(r.Body))
}

func TestACutAnswerIsIncomplete(t *testing.T) {
	for _, stream := range []string{"true", "false"} {
		w := dialecttest.New(t, dialecttest.Options{})
		w.Engine.Say(dialecttest.Reply{Text: "and so on", Cut: true})
		r := w.Post(path, `{"input":"hi","stream":`+stream+`}`)
		require.Contains(t, r.Body, `"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"}`)
		require.Equal(t, stream == "true", strings.Contains(r.Body, "event: response.incomplete\n"))
	}
}

func TestOverflowHasTheCodeThatCodexKnows(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{Window: 64})
	r := w.Post(path, `{"stream":true,"input":"`+strings.Repeat("word ", 200)+`"}`)
	require.Equal(t, http.StatusBadRequest, r.Status)
	require.Contains(t, r.Body, `"code":"context_length_exceeded"`)
}

func TestCodexAndOthersRequestsAreTold(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	for _, headers := range [][]string{
		{"session-id: S", "thread-id: S"},
		{"session-id: S", "thread-id: T", "x-codex-parent-thread-id: S", "x-openai-subagent: collab_spawn"},
		{"session-id: S", "thread-id: S", `x-codex-turn-metadata: {"request_kind":"compaction"}`},
		{"session_id: P"},
		{"x-session-id: O", "x-session-affinity: O"},
		nil,
	} {
		w.Post(path, `{"input":"hi","prompt_cache_key":"K"}`, headers...)
	}
	var told []string
	for _, turn := range w.Turns() {
		told = append(told, turn.Class+" "+turn.Thread)
	}
	require.Equal(t, []string{"main S", "subagent S/T", "compaction S", "main P", "side O", "main K"}, told)
}

func TestSilenceIsFilledWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := dialecttest.New(t, dialecttest.Options{PingEvery: 10 * time.Second})
		ready := make(chan struct{})
		w.Engine.Say(dialecttest.Reply{Text: "late", Wait: ready})
		time.AfterFunc(35*time.Second, func() { close(ready) })
		r := w.Do(context.Background(), http.MethodPost, path, `{"stream":true,"input":"hi"}`)
		require.Equal(t, 1, strings.Count(r.Body, "event: response.created\n"), r.Body)
		require.Equal(t, 3, strings.Count(r.Body, "event: response.in_progress\n"), r.Body)
		require.Contains(t, r.Body, "late")
	})
}

func TestAResponseRepeatsWhatWasAskedFor(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	const asked = `"metadata":{"a":"b"},"parallel_tool_calls":false,"tool_choice":"none","temperature":0.50,"top_p":null,"max_output_tokens":90`
	for _, stream := range []string{"false", "true"} {
		r := w.Post(path, `{"input":"hi","stream":`+stream+`,`+strings.ReplaceAll(asked, ":", ":\n")+`}`)
		require.Contains(t, r.Body, asked)
	}
	r := w.Post(path, `{"input":"hi"}`)
	require.Contains(t, r.Body, `"metadata":{},"parallel_tool_calls":true,"tool_choice":"auto","temperature":null,"top_p":null,"max_output_tokens":null`)
}

func TestItemsOfOthersAreReadOrLeftOut(t *testing.T) {
	const asked, more = `{"role":"user","content":"a"}`, `{"role":"user","content":"b"}`
	for name, c := range map[string]struct{ items, want string }{
		"a shell's call": {
			`{"type":"local_shell_call","call_id":"c1","action":{"type":"exec","command":["ls"]}},{"type":"local_shell_call_output","id":"c1","output":"x"}`,
			`{"role":"assistant","content":null,"calls":[{"id":"c1","name":"local_shell","arguments":"{\"type\":\"exec\",\"command\":[\"ls\"]}"}]},{"role":"tool","content":"x","call_id":"c1"}`,
		},
		"a result of a shape of its own": {
			`{"type":"shell_call","call_id":"c1","action":{"commands":["ls"]}},{"type":"shell_call_output","call_id":"c1","output":[{"stdout":"x"}]}`,
			`{"role":"assistant","content":null,"calls":[{"id":"c1","name":"shell","arguments":"{\"commands\":[\"ls\"]}"}]},{"role":"tool","content":"[{\"stdout\":\"x\"}]","call_id":"c1"}`,
		},
		"a patch": {
			`{"type":"apply_patch_call","call_id":"c1","operation":{"type":"delete_file","path":"p"}},{"type":"apply_patch_call_output","call_id":"c1","status":"completed","output":"done"}`,
			`{"role":"assistant","content":null,"calls":[{"id":"c1","name":"apply_patch","arguments":"{\"type\":\"delete_file\",\"path\":\"p\"}"}]},{"role":"tool","content":"done","call_id":"c1"}`,
		},
		"a call over MCP": {
			`{"type":"mcp_call","id":"mcp_1","name":"f","arguments":"{}","server_label":"s","output":"x"}`,
			`{"role":"assistant","content":null,"calls":[{"id":"mcp_1","name":"f","arguments":"{}"}]},{"role":"tool","content":"x","call_id":"mcp_1"}`,
		},
		"a call over MCP that failed": {
			`{"type":"mcp_call","id":"mcp_1","name":"f","arguments":"{}","error":"no"}`,
			`{"role":"assistant","content":null,"calls":[{"id":"mcp_1","name":"f","arguments":"{}"}]},{"role":"tool","content":"\"no\"","call_id":"mcp_1","is_error":true}`,
		},
		"an invented role": {`{"role":"ctx","content":"x"}`, `{"role":"user","content":"x"}`},
	} {
		conv := decode(t, `{"input":[`+asked+`,`+c.items+`,`+more+`]}`)
		require.Equal(t, `[{"role":"user","content":"a"},`+c.want+`,{"role":"user","content":"b"}]`, string(message.AppendList(nil, conv.Messages)), name)
	}
	req, _, err := responses.Decode([]byte(`{"input":[`+asked+`,{"type":"web_search_call","id":"ws_1","status":"completed"},{"type":"ghost_snapshot"},`+more+`],"store":true}`), nil)
	require.NoError(t, err)
	require.Len(t, req.Conversation.Messages, 2)
	require.JSONEq(t, `{"store":true,"left_out":["web_search_call","ghost_snapshot"]}`, string(req.Other))
}

func TestAnItemThatIsOnlyReferredToIsTheOneThatWasAnswered(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.SayText("<think>\nhm\n</think>\n\nLook:\n"+dialecttest.Call("f", `{"a": 1}`), "done")
	const tools = `,"tools":[{"type":"function","name":"f","parameters":{}}]`
	first := w.Post(path, `{"input":[{"role":"user","content":"a"}]`+tools+`}`)
	require.Equal(t, http.StatusOK, first.Status, first.Body)
	second := w.Post(path, `{"input":[{"role":"user","content":"a"},{"type":"item_reference","id":"rs_t-0001"},{"type":"item_reference","id":"msg_t-0001"},`+
		`{"id":"fc_call_0001_0"},{"type":"function_call_output","call_id":"call_0001_0","output":"x"}]`+tools+`}`)
	require.Equal(t, http.StatusOK, second.Status, second.Body)
	turns := w.Turns()
	require.Equal(t, "extend", turns[1].Decision)
	require.Equal(t, "t-0001", turns[1].Parent)
	require.Empty(t, turns[1].Tolerances)
	require.False(t, turns[1].Rewritten)

	unknown := w.Post(path, `{"input":[{"role":"user","content":"a"},{"type":"item_reference","id":"msg_t-9999"}]}`)
	require.Equal(t, http.StatusBadRequest, unknown.Status)
	require.Contains(t, unknown.Body, `no answer in this session has an item \"msg_t-9999\"; send the item itself`)
}
