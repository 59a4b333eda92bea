package anthropic_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/anthropic"
	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/demo"
)

const path = "/v1/messages"

// decode returns the conversation of a body that must be good.
func decode(t *testing.T, body string) message.Conversation {
	t.Helper()
	req, _, err := anthropic.Decode([]byte(body))
	require.NoError(t, err)
	return req.Conversation
}

func errorOf(t *testing.T, r dialecttest.Response) (typ, text string) {
	t.Helper()
	outer, _ := rawjson.Get([]byte(r.Body), "type")
	require.Equal(t, "error", rawjson.Text(outer), r.Body)
	inner, _ := rawjson.Get([]byte(r.Body), "error")
	kind, _ := rawjson.Get(inner, "type")
	words, _ := rawjson.Get(inner, "message")
	return rawjson.Text(kind), rawjson.Text(words)
}

func TestBadInputIsRefusedInAnthropicsShapeAndLeavesNoTurn(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	user := `"messages":[{"role":"user","content":"hi"}]`
	block := func(role, b string) string { return `{"messages":[{"role":"` + role + `","content":[` + b + `]}]}` }
	for name, body := range map[string]string{
		"empty body":               ``,
		"no JSON":                  `{"messages":[`,
		"no object":                `"hi"`,
		"no messages":              `{"model":"m"}`,
		"null messages":            `{"messages":null}`,
		"empty messages":           `{"messages":[]}`,
		"message a number":         `{"messages":[1]}`,
		"no role":                  `{"messages":[{"content":"x"}]}`,
		"no content":               `{"messages":[{"role":"user"}]}`,
		"null content":             `{"messages":[{"role":"user","content":null}]}`,
		"block a number":           block("user", `1`),
		"block without type":       block("user", `{"text":"x"}`),
		"text block without text":  block("user", `{"type":"text"}`),
		"image":                    block("user", `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}`),
		"PDF":                      block("user", `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA"}}`),
		"result without id":        block("user", `{"type":"tool_result","content":"x"}`),
		"result content a number":  block("user", `{"type":"tool_result","tool_use_id":"a","content":4}`),
		"call without id":          block("assistant", `{"type":"tool_use","name":"f","input":{}}`),
		"unknown assistant block":  block("assistant", `{"type":"hologram"}`),
		"prefill":                  `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`,
		"system a number":          `{"system":4,` + user + `}`,
		"system with an image":     `{"system":[{"type":"image"}],` + user + `}`,
		"max_tokens 0":             `{"max_tokens":0,` + user + `}`,
		"temperature a string":     `{"temperature":"1",` + user + `}`,
		"stop_sequences a number":  `{"stop_sequences":4,` + user + `}`,
		"tools an object":          `{"tools":{},` + user + `}`,
		"tool without name":        `{"tools":[{"input_schema":{}}],` + user + `}`,
		"forced hosted tool":       `{"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8}],"tool_choice":{"type":"tool","name":"web_search"},` + user + `}`,
		"unknown choice":           `{"tool_choice":{"type":"maybe"},` + user + `}`,
		"unknown thinking":         `{"thinking":{"type":"sideways"},` + user + `}`,
		"unknown format":           `{"output_config":{"format":{"type":"xml"}},` + user + `}`,
		"stream a string":          `{"stream":"yes",` + user + `}`,
		"defer_loading a string":   `{"tools":[{"name":"f","defer_loading":"yes"}],` + user + `}`,
		"unparsable but for space": " \n ",
	} {
		r := w.Post(path+"?beta=true", body)
		require.Equal(t, http.StatusBadRequest, r.Status, "%s: %s", name, r.Body)
		typ, text := errorOf(t, r)
		require.Equal(t, "invalid_request_error", typ, name)
		require.NotEmpty(t, text, name)
	}
	require.Empty(t, w.Turns())
	r := w.Post(path, `{`+user+`}`, "Authorization: Bearer wrong")
	require.Equal(t, http.StatusUnauthorized, r.Status)
	typ, _ := errorOf(t, r)
	require.Equal(t, "authentication_error", typ)
	require.Equal(t, "req_0", r.Header.Get("request-id"))
	require.Contains(t, r.Body, `"request_id":"req_0"`)
}

func TestWhatOthersRanIsLeftOutAndSaidToBe(t *testing.T) {
	req, _, err := anthropic.Decode([]byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		`{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"b"}]},` +
		`{"role":"user","content":[{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}]}]}]}`))
	require.NoError(t, err)
	require.Equal(t, `[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"t\ns\nx"}]`,
		string(message.AppendList(nil, req.Conversation.Messages)))
	require.Equal(t, `{"left_out":["server_tool_use","web_search_tool_result"]}`, string(req.Other))
}

func TestOddButLegalInputIsAccepted(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	user := `"messages":[{"role":"user","content":"hi"}]`
	for name, body := range map[string]string{
		"unknown fields and betas": `{"metadata":{"user_id":"{}"},"context_management":{"edits":[]},"service_tier":"auto","x":1,` + user + `}`,
		"nulls":                    `{"system":null,"tools":null,"tool_choice":null,"thinking":null,"stop_sequences":null,` + user + `}`,
		"invented roles":           `{"messages":[{"role":"ctx","content":"a"},{"role":"msg","content":"b"}]}`,
		"empty content":            `{"messages":[{"role":"user","content":""},{"role":"user","content":[]}]}`,
		"empty assistant":          `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[]},{"role":"user","content":"b"}]}`,
		"result without content":   `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"f","input":{}}]},{"role":"user","content":[{"tool_use_id":"x","type":"tool_result"}]}]}`,
		"input that is no object":  `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"f","input":[1]}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"1"}]}]}`,
		"tools that others ran":    `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"mcp_tool_use","id":"m","name":"x","input":{}},{"type":"mcp_tool_result","tool_use_id":"m","content":[]},{"type":"text","text":"b"}]},{"role":"user","content":[{"type":"container_upload","file_id":"f"},{"type":"text","text":"c"}]}]}`,
		"a search result":          `{"messages":[{"role":"user","content":[{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}]}]}]}`,
		"redacted thinking":        `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`,
		"server tools":             `{"tools":[{"type":"web_search_20250305","name":"web_search"}],` + user + `}`,
		"no parallel calls":        `{"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},` + user + `}`,
		"disabled but an effort":   `{"thinking":{"type":"disabled"},"output_config":{"effort":"high"},` + user + `}`,
	} {
		r := w.Post(path, body)
		require.Equal(t, http.StatusOK, r.Status, "%s: %s", name, r.Body)
		require.Contains(t, r.Body, `{"type":"text","text":"ok"}`, name)
	}
}

func TestTheAttributionLineIsNoPartOfTheSystemText(t *testing.T) {
	const attribution = `{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=%s;"},`
	a := decode(t, `{"system":[`+fmt.Sprintf(attribution, "aa")+`{"type":"text","text":"one"},{"type":"text","text":"two","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"hi"}]}`)
	b := decode(t, `{"system":[`+fmt.Sprintf(attribution, "bb")+`{"type":"text","text":"one"},{"type":"text","text":"two"}],"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, a.Head.Hash(), b.Head.Hash())
	require.Equal(t, "one\ntwo", a.Head.System[0].Content.Text)
}

func TestCacheMarksAndTheFormOfContentDoNotCount(t *testing.T) {
	a := decode(t, `{"messages":[{"role":"user","content":"hi"}]}`)
	b := decode(t, `{"messages":[{"role":"user","content":[{"cache_control":{"type":"ephemeral"},"text":"hi","type":"text"}]}]}`)
	require.Equal(t, a, b)
}

func TestResultsStandBeforeWhatTheUserSays(t *testing.T) {
	c := decode(t, `{"messages":[{"role":"user","content":[{"type":"text","text":"by the way"},{"type":"tool_result","tool_use_id":"x","is_error":true,"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}]}`)
	require.Len(t, c.Messages, 2)
	require.Equal(t, message.Message{Role: message.Tool, CallID: "x", IsError: true, Content: message.TextContent("a\nb")}, c.Messages[0])
	require.Equal(t, "by the way", c.Messages[1].Content.Text)
}

func TestADeferredToolIsReadWhereAResultRefersToIt(t *testing.T) {
	tools := `"tools":[{"name":"find","input_schema":{"type":"object"}},{"name":"late","description":"d","input_schema":{"type":"object" },"defer_loading":true}]`
	history := `{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"find","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"tool_reference","tool_name":"late"},{"type":"tool_reference","tool_name":"gone"}]}]}`
	c := decode(t, `{"messages":[`+history+`],`+tools+`}`)
	require.Len(t, c.Head.Tools, 1)
	require.Len(t, c.Deferred, 1)
	require.Equal(t, `{"type":"function","function":{"name":"late","description":"d","parameters":{"type":"object" }}}`+
		"\n[no tool of the name gone is defined]", c.Messages[2].Content.Text)
	// Tools that appear in the middle of a conversation do not change its head.
	before := decode(t, `{"messages":[{"role":"user","content":"a"}],"tools":[{"name":"find","input_schema":{"type":"object"}}]}`)
	require.Equal(t, before.Head.Hash(), c.Head.Hash())
}

func TestADocumentIsReadOrNamedOrRefused(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.SayText(dialecttest.Call("Read", `{}`))
	const first = `{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain words"}},{"type":"text","text":"read"}]}`
	w.Post(path, `{"messages":[`+first+`],"tools":[{"name":"Read","input_schema":{}}]}`)
	require.Contains(t, w.Engine.Prompts()[0], "plain words\nread")

	r := w.Post(path, `{"messages":[`+first+`,{"role":"assistant","content":[{"type":"tool_use","id":"call_0001_0","name":"Read","input":{}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_0001_0","content":[{"type":"image","source":{"type":"base64","data":"AA"}}]},`+
		`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA"}}]}],"tools":[{"name":"Read","input_schema":{}}]}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	require.Equal(t, "extend", w.Turns()[1].Decision)
	require.Contains(t, w.Engine.Prompts()[1], "[image left out: the model reads text only]")
	require.Contains(t, w.Engine.Prompts()[1], "[document left out: the model reads text only]")

	r = w.Post(path, `{"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`)
	_, text := errorOf(t, r)
	require.Contains(t, text, `the model "demo" reads text only`)
}

// refusing is a template that takes a system message at the beginning only.
func refusing() string {
	return strings.Replace(demo.Template(), "{%- elif message.role in ('system', 'developer') %}",
		"{%- elif message.role in ('system', 'developer') %}{{- raise_exception('System message must be at the beginning.') }}", 1)
}

func TestASystemMessageInsideIsKeptOrFoldedAsTheTemplateCan(t *testing.T) {
	const body = `{"system":"head","messages":[{"role":"user","content":"hi"},{"role":"system","content":[{"type":"text","text":"mind"}]}]}`
	keeps := dialecttest.New(t, dialecttest.Options{})
	require.Equal(t, http.StatusOK, keeps.Post(path, body).Status)
	require.Contains(t, keeps.Engine.Prompts()[0], "hi<|im_end|>\n<|im_start|>system\nmind<|im_end|>")

	folds := dialecttest.New(t, dialecttest.Options{Template: refusing()})
	r := folds.Post(path, body)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	require.Contains(t, folds.Engine.Prompts()[0], "hi\n\n<system>\nmind\n</system><|im_end|>")
	// What was folded stays a beginning of the longer history.
	r = folds.Post(path, `{"system":"head","messages":[{"role":"user","content":"hi"},{"role":"system","content":"mind"},{"role":"assistant","content":"ok"},{"role":"user","content":"more"}]}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	require.Equal(t, "extend", folds.Turns()[1].Decision)
}

func TestThinkingComesBackVerbatimAndNamesItsTurn(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	// Two equal answers to equal questions: the signature says which one.
	w.Engine.SayText("<think>\n hm \n</think>\n\nyes", "<think>\n hm \n</think>\n\nyes")
	const ask = `{"messages":[{"role":"user","content":"hi"}]}`
	first := w.Post(path, ask)
	w.Post(path, ask)
	content, _ := rawjson.Get([]byte(first.Body), "content")
	r := w.Post(path, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":`+string(content)+`},{"role":"user","content":"and"}]}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	turns := w.Turns()
	require.Equal(t, turns[0].ID, turns[2].Parent)
	require.Empty(t, turns[2].Tolerances)

	// A signature of somebody else says nothing.
	r = w.Post(path, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"c2ln"},{"type":"text","text":"yes"}]},{"role":"user","content":"and"}]}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	require.Equal(t, turns[1].ID, w.Turns()[3].Parent)
}

func TestCountAndUsageAreTheSameNumber(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.Say(dialecttest.Reply{Text: "ok", Cached: 7})
	const body = `{"system":"be good","messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","description":"a tool with words","input_schema":{"type":"object","properties":{}}}]}`
	count := w.Post(path+"/count_tokens?beta=true", body)
	require.Equal(t, http.StatusOK, count.Status, count.Body)
	n, _ := rawjson.Get([]byte(count.Body), "input_tokens")
	require.Empty(t, w.Turns(), "a count is no turn")
	r := w.Post(path, body)
	prompt := w.Turns()[0].Prompt
	require.Equal(t, fmt.Sprint(prompt), string(n))
	require.Contains(t, r.Body, fmt.Sprintf(`"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,`, prompt-7))
}

func TestWhyAnAnswerEndedIsSaidInAnthropicsWords(t *testing.T) {
	for _, c := range []struct {
		reply    dialecttest.Reply
		expected string
	}{
		{dialecttest.Reply{Text: "ok"}, `"stop_reason":"end_turn","stop_sequence":null`},
		{dialecttest.Reply{Text: "ok", Cut: true}, `"stop_reason":"max_tokens","stop_sequence":null`},
		{dialecttest.Reply{Text: "ok END", Stop: "END"}, `"stop_reason":"stop_sequence","stop_sequence":"END"`},
		{dialecttest.Reply{Text: dialecttest.Call("f", "{}")}, `"stop_reason":"tool_use","stop_sequence":null`},
		{dialecttest.Reply{Text: dialecttest.Call("f", "{}"), Cut: true}, `"stop_reason":"max_tokens","stop_sequence":null`},
	} {
		for _, stream := range []string{"true", "false"} {
			w := dialecttest.New(t, dialecttest.Options{})
			w.Engine.Say(c.reply)
			r := w.Post(path, `{"stop_sequences":["END"],"stream":`+stream+`,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{}}]}`)
			require.Contains(t, r.Body, c.expected)
			require.NotContains(t, r.Body, `ok END`)
		}
	}
}

func TestOverflowIsSaidInTheWordsThatMakeClaudeCodeCompact(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{Window: 64})
	r := w.Post(path, `{"messages":[{"role":"user","content":"`+strings.Repeat("word ", 200)+`"}]}`)
	require.Equal(t, http.StatusBadRequest, r.Status)
	typ, text := errorOf(t, r)
	require.Equal(t, "invalid_request_error", typ)
	require.Regexp(t, `^prompt is too long: \d+ tokens > 64 maximum$`, text)

	// And where only the engine knows.
	w = dialecttest.New(t, dialecttest.Options{})
	w.Engine.Say(dialecttest.Reply{Err: &engine.Error{Class: engine.TooLong}})
	_, text = errorOf(t, w.Post(path, `{"messages":[{"role":"user","content":"hi"}]}`))
	require.Regexp(t, `^prompt is too long: \d+ tokens > \d+ maximum$`, text)
}

func TestSilenceIsFilledWithPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := dialecttest.New(t, dialecttest.Options{PingEvery: 10 * time.Second})
		ready := make(chan struct{})
		w.Engine.Say(dialecttest.Reply{Text: "late", Wait: ready})
		time.AfterFunc(35*time.Second, func() { close(ready) })
		r := w.Do(context.Background(), http.MethodPost, path, `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		// One comes with message_start.
		require.Equal(t, 4, strings.Count(r.Body, "event: ping\n"), r.Body)
		require.True(t, strings.HasPrefix(r.Body, "event: message_start\n"))
		require.Equal(t, 1, strings.Count(r.Body, "event: message_start\n"))
	})
}

func TestThinkingSwitchesStayConstantInAConversation(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Post(path, `{"thinking":{"type":"disabled"},"output_config":{"effort":"high"},"messages":[{"role":"user","content":"hi"}]}`)
	w.Post(path, `{"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ok"},{"role":"user","content":"more"}]}`)
	w.Post(path, `{"thinking":{"type":"enabled","budget_tokens":5000},"messages":[{"role":"user","content":"other"}]}`)
	turns := w.Turns()
	require.JSONEq(t, `{"enable_thinking":false}`, turns[0].Kwargs)
	require.Equal(t, "extend", turns[1].Decision)
	require.JSONEq(t, `{"enable_thinking":false}`, turns[1].Kwargs)
	require.JSONEq(t, `{"enable_thinking":true,"reasoning_effort":"medium"}`, turns[2].Kwargs)
}

func TestClaudeCodesRequestsAreTold(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	const main = `{"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{}}]}`
	const sess, agent = "x-claude-code-session-id: S", "x-claude-code-agent-id: A"
	w.Post(path, main, sess)
	w.Post(path, main, sess, agent)
	w.Post(path, `{"messages":[{"role":"user","content":"hi"}],"tools":[],"thinking":{"type":"disabled"},"output_config":{"format":{"type":"json_schema","schema":{}}}}`, sess)
	// Others ask for JSON without tools as their work.
	const format = `{"messages":[{"role":"user","content":"hi"}],"output_config":{"format":{"type":"json_schema","schema":{}}}}`
	w.Post(path, format)
	w.Post(path, format, sess)
	w.Post(path, `{"max_tokens":1,"messages":[{"role":"user","content":"foo"}]}`, sess)
	w.Post(path, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ok"},{"role":"user","content":"Write a detailed summary of the conversation."},`+
		`{"role":"system","content":"mind"}],"tools":[{"name":"f","input_schema":{}}]}`, sess, "user-agent: claude-cli/2.1.332 (external, cli)")
	var told []string
	for _, turn := range w.Turns() {
		told = append(told, turn.Class+" "+turn.Thread)
	}
	require.Equal(t, []string{"main S", "subagent S/A", "side S", "main ", "main S", "probe S", "compaction S"}, told)
}

func TestModelsHaveTheShapeOfTheClientsProtocol(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	r := w.Do(t.Context(), http.MethodGet, "/v1/models?limit=1000", "", "anthropic-version: 2023-06-01")
	require.Equal(t, `{"data":[{"type":"model","id":"demo","display_name":"demo","created_at":"2026-01-02T03:04:05Z"}],"has_more":false,"first_id":"demo","last_id":"demo"}`, r.Body)
	r = w.Do(t.Context(), http.MethodGet, "/v1/models", "")
	require.Contains(t, r.Body, `"object":"list"`)
	require.Equal(t, http.StatusOK, w.Do(t.Context(), http.MethodHead, "/", "").Status)
}
