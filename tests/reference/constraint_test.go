package reference

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/openai"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/tokenizer/demo"
)

// tool is a definition in OpenAI's form.
func tool(name, parameters string) object {
	return object{"type": "function", "function": object{"name": name, "parameters": json.RawMessage(parameters)}}
}

// TestAForcedCallIsSampledInTheModelsOwnTokens: the engine gets a grammar, the
// marks in what it samples are the model's tokens, and the turn says that it was
// constrained.
func TestAForcedCallIsSampledInTheModelsOwnTokens(t *testing.T) {
	tools := []object{tool("look", `{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"]}`), tool("go", `{"type":"object"}`)}
	for _, kind := range []string{"sglang", "vllm"} {
		for choice, want := range map[string]string{`"required"`: "look", `{"type":"function","function":{"name":"go"}}`: "go"} {
			w := newWorld(t, mock.Always(mock.Say("I would rather talk.")), options{Wire: kind})
			r := w.chat([]object{user("Go.")}, object{"tools": tools, "tool_choice": json.RawMessage(choice), "parallel_tool_calls": false})
			require.Equal(t, http.StatusOK, r.status, r.body)
			require.Equal(t, "tool_calls", r.text("choices.0.finish_reason"))
			require.Equal(t, want, r.text("choices.0.message.tool_calls.0.function.name"))
			c := w.last().Committed
			require.Equal(t, []string{gateway.ToolChoiceKind}, c.GetGeneration().GetConstraints())
			open, ok := demo.Tokenizer().TokenID("<tool_call>")
			require.True(t, ok)
			require.Equal(t, open, event.IDs(nil, c.GetCompletion().GetIds())[0])
			require.Equal(t, event.LogprobKind_LOGPROB_KIND_PROCESSED, c.GetCompletion().GetLogprobKind())
			require.Empty(t, c.GetCompletion().GetFlags())
		}
	}
}

// TestAChoiceThatCannotBeKeptIsSaid: in a 400 with the cause, as an error where
// the engine left the grammar out, or on the turn.
func TestAChoiceThatCannotBeKeptIsSaid(t *testing.T) {
	tools := []object{tool("look", `{"type":"object"}`)}
	w := newWorld(t, mock.Always(mock.Say("I would rather talk.")), options{Wire: "vllm", Mock: func(c *mock.Config) { c.Reasons = true }})
	r := w.chat([]object{user("Go.")}, object{"tools": tools, "tool_choice": "required"})
	require.Equal(t, http.StatusBadRequest, r.status, r.body)
	require.Contains(t, r.text("error.message"), "--reasoning-parser")
	r = w.chat([]object{user("Go.")}, object{"tools": tools, "tool_choice": "required", "response_format": object{"type": "json_object"}})
	require.Equal(t, http.StatusBadRequest, r.status, r.body)
	require.Contains(t, r.text("error.message"), "leave one of them out")
	require.Empty(t, w.turns())

	w = newWorld(t, mock.Always(mock.Say("I would rather talk.")), options{Mock: func(c *mock.Config) { c.Reasons = true }})
	r = w.chat([]object{user("Go.")}, object{"tools": tools, "tool_choice": "required"})
	require.Equal(t, http.StatusBadGateway, r.status, r.body)
	require.Contains(t, r.text("error.message"), "did not enforce tool_choice")
	require.Len(t, w.tree(session).Aborted, 1)

	w.served([]object{user("Go.")}, object{"tools": tools, "parallel_tool_calls": false})
	require.Equal(t, []string{gateway.CallsNotLimited}, w.last().Committed.GetCompletion().GetFlags())
}

// TestBiasesReachTheEngineAndTheRecord: logit_bias goes to the engine and lowers
// what the turn's logprobs are worth.
func TestBiasesReachTheEngineAndTheRecord(t *testing.T) {
	for _, kind := range []string{"sglang", "vllm"} {
		w := newWorld(t, mock.Always(mock.Say("Fine.")), options{Wire: kind})
		w.served([]object{user("Go.")}, object{"logit_bias": object{"12": -100, "7": 1.5}})
		require.Contains(t, string(w.last().Committed.GetRequest().GetSamplingUsed()), `"logit_bias":{"12":-100,"7":1.5}`)
		require.Equal(t, []string{"logit_bias"}, w.last().Committed.GetGeneration().GetConstraints())
		for _, bad := range []string{`{"x":1}`, `{"1":101}`, `{"1":"2"}`, `[1]`} {
			r := w.chat([]object{user("Go.")}, object{"logit_bias": json.RawMessage(bad)})
			require.Equal(t, http.StatusBadRequest, r.status, bad)
			require.Contains(t, r.text("error.message"), "logit_bias")
		}
	}
}

// TestAStopTextEndsWhatIsSaidAndNothingElse: not a thought, and not a call.
func TestAStopTextEndsWhatIsSaidAndNothingElse(t *testing.T) {
	const call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"END\"}}\n</tool_call>"
	for _, kind := range []string{"sglang", "vllm"} {
		for text, want := range map[string]struct {
			content, reasoning, finish string
			calls, flags               int
		}{
			"<think>\nThe END is near.\n</think>\n\nSo it is.": {"So it is.", "The END is near.", "stop", 0, 0},
			"I look.\n" + call: {"I look.", "", "tool_calls", 1, 0},
			"<think>\nEND\n</think>\n\nIt is the END of it.\n" + call: {"It is the ", "END", "stop", 0, 1},
			"END": {"", "", "stop", 0, 1},
		} {
			for _, stream := range []bool{false, true} {
				w := newWorld(t, mock.Always(mock.Say(text)), options{Wire: kind})
				r := w.chat([]object{user("Go.")}, object{"stop": "END", "stream": stream, "tools": []object{tool("look", `{"type":"object"}`)}})
				require.Equal(t, http.StatusOK, r.status, r.body)
				if stream {
					require.NotContains(t, said(r.body), "END")
					require.Contains(t, r.body, `"finish_reason":"`+want.finish+`"`)
				} else {
					require.Equal(t, want.content, r.text("choices.0.message.content"), text)
					require.Equal(t, want.finish, r.text("choices.0.finish_reason"), text)
				}
				c := w.last().Committed
				require.Len(t, c.GetCompletion().GetFlags(), want.flags)
				ids := event.IDs(nil, c.GetCompletion().GetIds())
				require.Contains(t, demo.Tokenizer().Decode(ids), "END", "the ids are what was sampled")
				require.NotContains(t, string(c.GetConversation().GetAnswer()), "tool_call>", "no markup leaks")
				require.Equal(t, want.calls, strings.Count(string(c.GetConversation().GetAnswer()), `"name":"look"`))
				require.Len(t, c.GetCompletion().GetLogprobs(), 4*len(ids))
			}
		}
	}
}

// said joins the content of a stream.
func said(body string) (content string) {
	for line := range strings.SplitSeq(body, "\n") {
		if _, rest, ok := strings.Cut(line, `"content":"`); ok {
			content += rest[:strings.Index(rest, `"`)]
		}
	}
	return content
}

// TestTextEnginesAreCountedToo: usage is what the server says, else what the
// model's files say where they are known; a count is never a made-up 0.
func TestTextEnginesAreCountedToo(t *testing.T) {
	usage := `,"usage":{"prompt_tokens":21,"completion_tokens":4}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"All is well."},"finish_reason":"stop"}]`+usage+`}`)
	}))
	t.Cleanup(srv.Close)
	w := textWorld(t, srv.URL)
	r := w.chat([]object{user("Is all well?")})
	require.InDelta(t, 21, r.at("usage.prompt_tokens"), 0)
	require.InDelta(t, 4, r.at("usage.completion_tokens"), 0)
	usage = ""
	r = w.chat([]object{user("Is all well?")})
	counted, ok := r.at("usage.prompt_tokens").(float64)
	require.True(t, ok)
	require.Greater(t, counted, 5.0)
	require.InDelta(t, len(demo.Tokenizer().Encode(nil, "All is well.")), r.at("usage.completion_tokens"), 0)
	r = w.post(messages+"/count_tokens", object{"model": "any", "messages": []object{user("Is all well?")}})
	require.InDelta(t, counted, r.at("input_tokens"), 0)
}

// textWorld is a world whose engine, at a URL, takes text.
func textWorld(t *testing.T, url string) *world {
	t.Helper()
	files := demoModel(t)
	e, err := openai.New(openai.Config{Config: wire.Config{URL: url}})
	require.NoError(t, err)
	p, err := pool.New(pool.Config{Name: "text"}, pool.Replica{Name: "one", Kind: "openai", Engine: e})
	require.NoError(t, err)
	w := &world{t: t, log: mem.New(mem.Options{}), model: &gateway.Model{
		Name: "text", Aliases: []string{"*"}, Wire: gateway.Text, Pool: p,
		Counter: &gateway.Counter{Tokenizer: files.Tokenizer, Prompts: files.Prompts},
	}}
	w.gateway, w.url = w.serve()
	opened, err := w.gateway.Open(t.Context(), gateway.OpenRequest{Session: session, Opened: &event.SessionOpened{}})
	require.NoError(t, err)
	w.key = opened.Key
	return w
}

// TestLogprobsAreShownWhereTheyAreKnown: with the likeliest tokens that the engine
// lists; null, or a 400, where an engine has no ids to name tokens by.
func TestLogprobsAreShownWhereTheyAreKnown(t *testing.T) {
	for _, kind := range []string{"sglang", "vllm"} {
		w := newWorld(t, mock.Always(mock.Say("Fine, and you?")), options{Wire: kind})
		r, _ := w.served([]object{user("Hello.")}, object{"logprobs": true, "top_logprobs": 3})
		content, _ := r.at("choices.0.logprobs.content").([]any)
		ids := event.IDs(nil, w.last().Committed.GetCompletion().GetIds())
		require.Len(t, content, len(ids))
		for i, id := range ids {
			shown, _ := content[i].(map[string]any)
			logprob, _ := shown["logprob"].(float64)
			top, _ := shown["top_logprobs"].([]any)
			require.Len(t, top, 3, kind)
			for k, want := range w.engine.Likeliest(id, float32(logprob), 3) {
				candidate, _ := top[k].(map[string]any)
				require.Equal(t, demo.Tokenizer().Decode([]uint32{want.ID}), candidate["token"])
				require.InDelta(t, want.Logprob, candidate["logprob"], 1e-6)
			}
		}
	}

	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Fine."},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(srv.Close)
	w := textWorld(t, srv.URL)
	r := w.chat([]object{user("Hello.")}, object{"logprobs": true, "top_logprobs": 3})
	require.Equal(t, http.StatusBadRequest, r.status, r.body)
	require.Contains(t, r.text("error.message"), "leave it out")
	require.Empty(t, w.turns())
	r = w.chat([]object{user("Hello.")}, object{"logprobs": true})
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Nil(t, r.at("choices.0.logprobs"))
}
