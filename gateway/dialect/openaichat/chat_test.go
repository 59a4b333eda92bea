package openaichat_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/dialect/openaichat"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/demo"
)

const path = "/v1/chat/completions"

func get(t *testing.T, body string, keys ...string) string {
	t.Helper()
	raw := []byte(body)
	for _, k := range keys {
		if rawjson.KindOf(raw) == rawjson.Array {
			for e := range rawjson.Elements(raw) {
				raw = e
				break
			}
		}
		v, ok := rawjson.Get(raw, k)
		require.True(t, ok, "no %s in %s", k, body)
		raw = v
	}
	if rawjson.KindOf(raw) == rawjson.String {
		return rawjson.Text(raw)
	}
	return string(raw)
}

func TestBadInputIsRefusedInOpenAIsShapeAndLeavesNoTurn(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{Window: 200})
	user := `"messages":[{"role":"user","content":"hi"}]`
	for name, c := range map[string]struct {
		body, param string
	}{
		"empty body":             {``, ""},
		"no JSON":                {`{"model":`, ""},
		"no object":              {`[1]`, ""},
		"trailing text":          {`{` + user + `} x`, ""},
		"too deep":               {`{"messages":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, ""},
		"no messages":            {`{"model":"m"}`, "messages"},
		"null messages":          {`{"messages":null}`, "messages"},
		"empty messages":         {`{"messages":[]}`, "messages"},
		"messages an object":     {`{"messages":{}}`, "messages"},
		"messages a number":      {`{"messages":3}`, "messages"},
		"message a string":       {`{"messages":["hi"]}`, "messages[0]"},
		"no role":                {`{"messages":[{"content":"hi"}]}`, "messages[0].role"},
		"role a number":          {`{"messages":[{"role":1,"content":"hi"}]}`, "messages[0].role"},
		"user without content":   {`{"messages":[{"role":"user"}]}`, "messages[0].content"},
		"content a number":       {`{"messages":[{"role":"user","content":5}]}`, "messages[0].content"},
		"part without type":      {`{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`, "messages[0].content"},
		"part a number":          {`{"messages":[{"role":"user","content":[1]}]}`, "messages[0].content"},
		"image":                  {`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]}`, "messages"},
		"tool without id":        {`{"messages":[{"role":"tool","content":"x"}]}`, "messages[0].tool_call_id"},
		"call without id":        {`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]}`, "messages[0].tool_calls[0]"},
		"call without function":  {`{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]}`, "messages[0].tool_calls[0]"},
		"calls no array":         {`{"messages":[{"role":"assistant","tool_calls":{}}]}`, "messages[0].tool_calls"},
		"model a number":         {`{"model":1,` + user + `}`, "model"},
		"stream a string":        {`{"stream":"yes",` + user + `}`, "stream"},
		"temperature a string":   {`{"temperature":"1",` + user + `}`, "temperature"},
		"temperature below 0":    {`{"temperature":-1,` + user + `}`, "temperature"},
		"max_tokens 0":           {`{"max_tokens":0,` + user + `}`, "max_tokens"},
		"max_tokens broken":      {`{"max_tokens":1.5,` + user + `}`, "max_tokens"},
		"stop a number":          {`{"stop":1,` + user + `}`, "stop"},
		"n 0":                    {`{"n":0,` + user + `}`, "n"},
		"n too high":             {`{"n":129,` + user + `}`, "n"},
		"tools no array":         {`{"tools":{},` + user + `}`, "tools"},
		"tool without name":      {`{"tools":[{"type":"function","function":{}}],` + user + `}`, "tools[0]"},
		"unknown choice":         {`{"tool_choice":"maybe",` + user + `}`, "tool_choice"},
		"a call without tools":   {`{"tool_choice":"required",` + user + `}`, "tool_choice"},
		"a call of none allowed": {`{"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}},` + user + `}`, "tool_choice"},
		"an answer in sound":     {`{"modalities":["text","audio"],"audio":{"voice":"x"},` + user + `}`, "modalities"},
		"choice of no tool":      {`{"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}},` + user + `}`, "tool_choice"},
		"custom without name":    {`{"tools":[{"type":"custom","custom":{}}],` + user + `}`, "tools[0]"},
		"tool without type":      {`{"tools":[{"name":"f"}],` + user + `}`, "tools[0]"},
		"function_call":          {`{"messages":[{"role":"assistant","function_call":{"name":"f","arguments":""}},{"role":"user","content":"x"}]}`, "messages[0].function_call"},
		"logit_bias":             {`{"logit_bias":{"x":2},` + user + `}`, "logit_bias"},
		"functions":              {`{"functions":[{"name":"f"}],` + user + `}`, "functions"},
		"top_logprobs too high":  {`{"logprobs":true,"top_logprobs":21,` + user + `}`, "top_logprobs"},
		"top_logprobs broken":    {`{"logprobs":true,"top_logprobs":"3",` + user + `}`, "top_logprobs"},
		"top without logprobs":   {`{"top_logprobs":3,` + user + `}`, "top_logprobs"},
		"unknown format":         {`{"response_format":{"type":"xml"},` + user + `}`, "response_format"},
		"schema without schema":  {`{"response_format":{"type":"json_schema","json_schema":{"name":"x"}},` + user + `}`, "response_format.json_schema.schema"},
		"template args a string": {`{"chat_template_kwargs":"x",` + user + `}`, "chat_template_kwargs"},
		"longer than the window": {`{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 300) + `"}]}`, ""},
	} {
		r := w.Post(path, c.body)
		require.Equal(t, http.StatusBadRequest, r.Status, "%s: %s", name, r.Body)
		require.Equal(t, "invalid_request_error", get(t, r.Body, "error", "type"), name)
		require.NotEmpty(t, get(t, r.Body, "error", "message"), name)
		if c.param != "" {
			require.Equal(t, c.param, get(t, r.Body, "error", "param"), name)
		}
	}
	require.Empty(t, w.Turns())
	require.Empty(t, w.Engine.Requests())
}

func TestOddButLegalInputIsAccepted(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	user := `"messages":[{"role":"user","content":"hi"}]`
	for name, body := range map[string]string{
		"unknown fields":         `{"store":false,"metadata":{"a":[1]},"user":"u",` + user + `}`,
		"nulls":                  `{"model":null,"temperature":null,"tools":null,"tool_choice":null,"stop":null,"n":null,"stream":null,"response_format":null,` + user + `}`,
		"space":                  " \n{ \"messages\" : [ { \"content\" : \"hi\" , \"role\" : \"user\" } ] }\n",
		"integer as float":       `{"max_tokens":16.0,` + user + `}`,
		"both token limits":      `{"max_tokens":16,"max_completion_tokens":20,` + user + `}`,
		"empty content":          `{"messages":[{"role":"system","content":""},{"role":"user","content":""}]}`,
		"parts":                  `{"messages":[{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}]}`,
		"developer":              `{"messages":[{"role":"developer","content":"be good"},{"role":"user","content":"hi"}]}`,
		"invented roles":         `{"messages":[{"role":"ctx","content":"a"},{"role":"user","content":"hi"}]}`,
		"what an SDK dumps":      `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":null},{"role":"user","content":"hi"}]}`,
		"refusals":               `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"b"},{"role":"assistant","content":null,"refusal":"no"},{"role":"user","content":"hi"}]}`,
		"empty logit_bias":       `{"logit_bias":{},` + user + `}`,
		"hosted tools":           `{"tools":[{"type":"web_search"}],"tool_choice":"auto",` + user + `}`,
		"text as a modality":     `{"modalities":["text"],` + user + `}`,
		"silent assistant":       `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null},{"role":"user","content":"b"}]}`,
		"history without a user": `{"messages":[{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"x","content":null}]}`,
		"argument objects":       `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","tool_call_id":"x","content":"1"}]}`,
		"broken arguments":       `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":"{\"a\": "}}]},{"role":"tool","tool_call_id":"x","content":"1"}]}`,
		"scalar arguments":       `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":"[1]"}}]},{"role":"tool","tool_call_id":"x","content":"1"}]}`,
		"lone surrogate":         `{"messages":[{"role":"user","content":"\ud83d"}]}`,
		"image in a result":      `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"x","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]}`,
	} {
		r := w.Post(path, body)
		require.Equal(t, http.StatusOK, r.Status, "%s: %s", name, r.Body)
		require.Equal(t, "ok", get(t, r.Body, "choices", "message", "content"), name)
	}
}

func TestWhatAnAnswerSaysInOtherPartsIsItsText(t *testing.T) {
	req, _, err := openaichat.Decode([]byte(`{"messages":[{"role":"user","content":"a"},` +
		`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"refusal","refusal":"no"}]},{"role":"user","content":"b"}]}`))
	require.NoError(t, err)
	m := req.Conversation.Messages[1]
	require.Equal(t, "hm", m.Reasoning)
	require.Equal(t, "no", m.Content.String())
}

func TestWhatNobodyReadsIsRecorded(t *testing.T) {
	req, _, err := openaichat.Decode([]byte(`{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":1,"parallel_tool_calls":false,"user":"u","x":[1.0],` +
		`"long":"` + strings.Repeat("x", 5000) + `"}`))
	require.NoError(t, err)
	other := string(req.Other)
	require.True(t, strings.HasPrefix(other, `{"parallel_tool_calls":false,"user":"u","x":[1.0],"long":{"sha256":"`), other)
	require.True(t, strings.HasSuffix(other, `","bytes":5002}}`), other)
	w := dialecttest.New(t, dialecttest.Options{})
	w.Post(path, `{"messages":[{"role":"user","content":"a"}],"store":false}`)
	w.Tree(func(tree *tree.Tree) {
		require.Equal(t, `{"store":false}`, string(tree.Turns[0].Committed.GetRequest().GetOther()))
	})
}

func TestACustomToolGetsTheTextThatTheModelWrote(t *testing.T) {
	const tools = `,"tools":[{"type":"custom","custom":{"name":"patch","description":"Applies.","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"start: X"}}}}]`
	for _, stream := range []string{"", `,"stream":true`} {
		w := dialecttest.New(t, dialecttest.Options{})
		w.Engine.SayText(dialecttest.Call("patch", `{"input":  "*** a"}`), "done")
		r := w.Post(path, `{"messages":[{"role":"user","content":"a"}]`+tools+stream+`}`)
		require.Contains(t, r.Body, `"id":"call_0001_0","type":"custom","custom":{"name":"patch","input":"*** a"}`)
		require.Contains(t, w.Engine.Prompts()[0], `The input must follow this lark grammar:\nstart: X`)
		w.Post(path, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_0001_0","type":"custom","custom":{"name":"patch","input":"*** a"}}]},`+
			`{"role":"tool","tool_call_id":"call_0001_0","content":"ok"}]`+tools+`}`)
		turns := w.Turns()
		require.Equal(t, "extend", turns[1].Decision)
		require.Equal(t, []string{"respelled_arguments"}, turns[1].Tolerances)
	}
}

func TestOnlyAllowedToolsAreOffered(t *testing.T) {
	req, _, err := openaichat.Decode([]byte(`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],` +
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}},"parallel_tool_calls":false}`))
	require.NoError(t, err)
	require.Len(t, req.Conversation.Head.Tools, 1)
	require.Equal(t, "g", req.Conversation.Head.Tools[0].Name)
	require.Equal(t, gateway.ToolChoice{Required: true, Single: true}, req.ToolChoice)
}

func TestQwensRequestsAreTold(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	tool := func(name string) string { return `{"type":"function","function":{"name":"` + name + `"}}` }
	for _, c := range []struct{ system, tools string }{
		{"You are Qwen Code, an agent.", tool("agent") + "," + tool("edit")},
		{"You are Qwen Code, an agent.", tool("edit")},
		{"My own words.", tool("agent")},
		{"You are a general-purpose agent.", tool("edit")},
		{"You are now acting as the managed memory extraction subagent.", tool("edit")},
		{"You are the component that summarizes internal chat history into a structure.", ""},
	} {
		w.Post(path, `{"messages":[{"role":"system","content":"`+c.system+`"},{"role":"user","content":"hi"}],"tools":[`+c.tools+`]}`, "user-agent: QwenCode/0.15.10 (linux; x64)")
	}
	var told []string
	for _, turn := range w.Turns() {
		told = append(told, turn.Class)
	}
	require.Equal(t, []string{"main", "main", "main", "subagent", "side", "compaction"}, told)
}

func TestThinkingIsCounted(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	for range 2 {
		w.Engine.SayText("<think>\nhm, so\n</think>\n\nyes")
	}
	thought := len(demo.Tokenizer().Encode(nil, "hm, so"))
	for i, stream := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
		r := w.Post(path, `{"messages":[{"role":"user","content":"a"}]`+stream+`}`, "Idempotency-Key: "+strconv.Itoa(i))
		require.Contains(t, r.Body, `"completion_tokens_details":{"reasoning_tokens":`+strconv.Itoa(thought)+`}`)
	}
	again := w.Post(path, `{"messages":[{"role":"user","content":"a"}]}`, "Idempotency-Key: 0")
	require.Contains(t, again.Body, `"completion_tokens_details":{"reasoning_tokens":`+strconv.Itoa(thought)+`}`)
}

func TestBothSpellingsOfReasoningComeBackToTheSameTurn(t *testing.T) {
	for _, spelling := range []string{"reasoning_content", "reasoning"} {
		w := dialecttest.New(t, dialecttest.Options{})
		w.Engine.SayText("<think>\nhm\n</think>\n\nyes")
		r := w.Post(path, `{"messages":[{"role":"user","content":"hi"}]}`)
		require.Equal(t, "hm", get(t, r.Body, "choices", "message", "reasoning_content"))
		w.Post(path, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes","`+spelling+`":"hm"},{"role":"user","content":"and"}]}`)
		turns := w.Turns()
		require.Equal(t, "extend", turns[1].Decision)
		require.Empty(t, turns[1].Tolerances)
	}
}

func TestEveryChoiceIsASiblingTurn(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.SayText("one", "two", "three")
	r := w.Post(path, `{"n":3,"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	for _, s := range []string{`"index":0`, `"index":1`, `"index":2`, `"one"`, `"two"`, `"three"`} {
		require.Contains(t, r.Body, s)
	}
	require.Len(t, w.Turns(), 3)
	for _, turn := range w.Turns() {
		require.Empty(t, turn.Parent)
	}
	require.Len(t, r.Header.Values("Turnlog-Turn"), 3)

	// A streamed one, whose choices come one in the other.
	w.Engine.SayText("four", "five")
	r = w.Post(path, `{"n":2,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, 2, strings.Count(r.Body, `"finish_reason":"stop"`), r.Body)
	require.Equal(t, 2, strings.Count(r.Body, `"role":"assistant"`), r.Body)
	require.Equal(t, 1, strings.Count(r.Body, `"usage":`), r.Body)
	require.True(t, strings.HasSuffix(r.Body, "data: [DONE]\n\n"))
	require.Len(t, w.Turns(), 5)
}

func TestChoicesOfOneSeedDiffer(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Post(path, `{"n":3,"seed":7,"messages":[{"role":"user","content":"hi"}]}`)
	seeds := map[int64]bool{}
	for _, q := range w.Engine.Requests() {
		seeds[*q.Sampling.Seed] = true
	}
	require.Equal(t, map[int64]bool{7: true, 8: true, 9: true}, seeds)
}

func TestAChoiceThatFailsFailsTheRequestAndNoTurnLooksDelivered(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.Say(dialecttest.Reply{Text: "fine"}, dialecttest.Reply{Err: &engine.Error{Class: engine.Refused, Message: "no"}})
	r := w.Post(path, `{"n":2,"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, http.StatusBadRequest, r.Status, r.Body)
	w.Tree(func(tr *tree.Tree) {
		for _, n := range tr.Turns {
			require.True(t, tr.Undelivered[n.ID])
		}
	})
}

func TestCallsLeaveOnlyInTheEnd(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Engine.SayText("Look.\n" + dialecttest.Call("f", `{"a" :  1.0}`) + "\n" + dialecttest.Call("g", `{}`))
	r := w.Post(path, `{"stream":true,"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]}`)
	require.Contains(t, r.Body, `"tool_calls":[{"index":0,"id":"call_0001_0","type":"function","function":{"name":"f","arguments":"{\"a\" :  1.0}"}}]`)
	require.Contains(t, r.Body, `"tool_calls":[{"index":1,"id":"call_0001_1"`)
	require.Contains(t, r.Body, `"finish_reason":"tool_calls"`)
	require.Less(t, strings.LastIndex(r.Body, `"content"`), strings.Index(r.Body, `"tool_calls"`))
}

func TestConstraintsReachTheEngine(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	r := w.Post(path, `{"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type" : "object"}}},"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	w.Post(path, `{"response_format":{"type":"json_object"},"messages":[{"role":"user","content":"hi"}]}`)
	w.Post(path, `{"response_format":{"type":"text"},"messages":[{"role":"user","content":"hi"}]}`)
	asked := w.Engine.Requests()
	require.Equal(t, "json_schema", asked[0].Grammar.Kind)
	require.Equal(t, `{"type" : "object"}`, asked[0].Grammar.Value)
	require.Equal(t, "json_object", asked[1].Grammar.Kind)
	require.Empty(t, asked[1].Grammar.Value)
	require.NotNil(t, asked[1].Grammar.Before, "the model may think first")
	require.Nil(t, asked[2].Grammar)
}

func TestNoToolsAreOfferedWhereNoneMayBeCalled(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Post(path, `{"tool_choice":"none","tools":[{"type":"function","function":{"name":"secret"}}],"messages":[{"role":"user","content":"hi"}]}`)
	require.NotContains(t, w.Engine.Prompts()[0], "secret")
}

func TestThinkingIsSwitchedOffByEffortNone(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	w.Post(path, `{"reasoning_effort":"none","messages":[{"role":"user","content":"hi"}]}`)
	require.True(t, strings.HasSuffix(w.Engine.Prompts()[0], "<think>\n\n</think>\n\n"))
	require.JSONEq(t, `{"enable_thinking":false}`, w.Turns()[0].Kwargs)
}

func TestSilenceIsFilledWithComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := dialecttest.New(t, dialecttest.Options{PingEvery: 10 * time.Second})
		go2 := make(chan struct{})
		w.Engine.Say(dialecttest.Reply{Text: "late", Wait: go2})
		time.AfterFunc(35*time.Second, func() { close(go2) })
		r := w.Do(context.Background(), http.MethodPost, path, `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		require.Equal(t, 3, strings.Count(r.Body, ": ping\n\n"), r.Body)
		require.Contains(t, r.Body, "late")
	})
}

// The likeliest tokens are for who asked: the log has the sampled ones alone.
func TestTheLikeliestTokensAreShownAndNotRecorded(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	for i, body := range []string{
		`{"logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"a"}]}`,
		`{"logprobs":true,"top_logprobs":2,"stream":true,"messages":[{"role":"user","content":"b"}]}`,
		`{"logprobs":true,"top_logprobs":0,"messages":[{"role":"user","content":"c"}]}`,
		`{"logprobs":true,"messages":[{"role":"user","content":"d"}]}`,
	} {
		w.Engine.Say(dialecttest.Reply{Text: "é", Spelled: true})
		r := w.Post(path, body)
		require.Equal(t, http.StatusOK, r.Status, r.Body)
		raw := []byte(r.Body)
		if i == 1 {
			lines := strings.Split(strings.TrimSpace(r.Body), "\n\n")
			raw = []byte(strings.TrimPrefix(lines[len(lines)-2], "data: "))
		}
		var got struct {
			Choices []struct {
				Logprobs struct {
					Content []shown `json:"content"`
				} `json:"logprobs"`
			} `json:"choices"`
		}
		require.NoError(t, json.Unmarshal(raw, &got))
		content := got.Choices[0].Logprobs.Content
		var recorded *event.Completion
		w.Tree(func(tr *tree.Tree) { recorded = tr.Turns[i].Committed.GetCompletion() })
		ids := event.IDs(nil, recorded.GetIds())
		require.Len(t, ids, 3, "two bytes and the end")
		require.Len(t, content, 3)
		// The two bytes are no character each; together they are.
		require.Equal(t, []int{0xc3}, content[0].Bytes)
		require.Equal(t, []int{0xa9}, content[1].Bytes)
		require.Equal(t, "\ufffd", content[0].Token)
		asked := []int{2, 2, 0, 0}[i]
		require.Equal(t, asked, w.Engine.Requests()[i].Likeliest)
		for _, c := range content {
			require.EqualValues(t, -0.5, c.Logprob)
			require.Len(t, c.Top, asked)
			if asked > 0 {
				require.Equal(t, c.Bytes, c.Top[0].Bytes)
				require.EqualValues(t, -0.5, c.Top[0].Logprob)
				require.NotEqual(t, c.Bytes, c.Top[1].Bytes)
				require.EqualValues(t, -1.5, c.Top[1].Logprob)
			}
		}
	}
}

// shown is a token in OpenAI's logprobs.
type shown struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
	Top     []shown `json:"top_logprobs"`
}
