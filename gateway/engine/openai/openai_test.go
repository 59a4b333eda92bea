package openai_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/openai"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/parse"
)

func start(t *testing.T, cfg mock.Config) (*mock.Server, *openai.Engine) {
	t.Helper()
	cfg.Tokenizer = demo.Tokenizer()
	m, err := mock.New(cfg)
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	return m, e
}

func request() engine.Request {
	return engine.Request{
		ID: "r", Model: "mock", RoutedFrom: -1, Sampling: engine.Sampling{MaxTokens: 500},
		Text: []byte(`{"model":"asked","messages":[{"role":"user","content":"Hello there"}],"temperature":0.3}`),
	}
}

type got struct {
	text, reasoning strings.Builder
	ids             []uint32
	logprobs        []float32
	chunks          int
}

func (g *got) emit(c engine.Chunk) error {
	g.text.WriteString(c.Text)
	g.reasoning.WriteString(c.Reasoning)
	g.ids = append(g.ids, c.IDs...)
	g.logprobs = append(g.logprobs, c.Logprobs...)
	g.chunks++
	return nil
}

func TestTheContractOfAnEngineThatTakesText(t *testing.T) {
	enginetest.RunText(t, demo.Tokenizer(), enginetest.Adapter{
		Kind: "openai", New: func(c wire.Config) (engine.Engine, error) { return openai.New(openai.Config{Config: c}) },
	})
}

// TestIDsThatAreNotWhatTheyShouldBeAreNotKept: the text is the answer, and is given
// without them.
func TestIDsThatAreNotWhatTheyShouldBeAreNotKept(t *testing.T) {
	for kind, ids := range map[mock.FaultKind]bool{
		mock.WrongCount: false, mock.NoIDs: false, mock.FloatIDs: false,
		mock.NaN: true, mock.Null: true, mock.Minus: true, mock.StringLogprob: true, mock.MissingLogprob: true, mock.NoLogprobs: true,
	} {
		_, e := start(t, mock.Config{Script: mock.Always(mock.Reply{Text: "some words are said", Fault: mock.Fault{Kind: kind, After: 2}})})
		_, err := e.Check(t.Context(), demo.Tokenizer())
		require.NoError(t, err, kind)
		var g got
		_, err = e.Generate(t.Context(), request(), g.emit)
		if kind == mock.NaN || kind == mock.Minus { // it is no JSON
			require.Equal(t, engine.Broken, engine.ClassOf(err), kind)
			continue
		}
		require.NoError(t, err, kind)
		require.Equal(t, "some words are said", g.text.String(), kind)
		require.Equal(t, ids, len(g.ids) > 0, kind)
		require.Empty(t, g.logprobs, kind)
	}
}

func TestTextIsStreamedAndCallsComeWhole(t *testing.T) {
	const text = "<think>\nHm, naïve 世界.\n</think>\n\nI will look at it.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"b\", \"arguments\": {}}\n</tool_call>"
	m, e := start(t, mock.Config{Script: mock.Always(mock.Say(text)), NonCanonical: 0.2})
	var g got
	report, err := e.Generate(t.Context(), request(), g.emit)
	require.NoError(t, err)
	require.Equal(t, "I will look at it.", g.text.String())
	require.Greater(t, g.chunks, 3)
	require.Empty(t, g.ids, "they were not asked for")
	require.Equal(t, "stop", report.FinishReason)
	require.Equal(t, event.PromptProof_PROMPT_PROOF_NONE, report.Proof)
	require.Equal(t, len(m.Journal().All()[0].Prompt), report.PromptTokens)
	require.Equal(t, "Hm, naïve 世界.", g.reasoning.String())
	require.Equal(t, []parse.Call{
		{ModelID: "call_0", Name: "look", Arguments: `{"at": 1}`}, {ModelID: "call_1", Name: "b", Arguments: "{}"},
	}, report.Calls)
	require.Nil(t, report.Message)
}

func TestIDsAndLogprobsAreKeptWhereTheServerReturnsAllOfThem(t *testing.T) {
	m, e := start(t, mock.Config{Script: mock.Always(mock.Say("An answer of several tokens.")), NonCanonical: 0.3})
	info, err := e.Check(t.Context(), demo.Tokenizer())
	require.NoError(t, err)
	require.Equal(t, engine.Info{Kind: "openai", Model: "mock", ContextLength: 1 << 17, TextOnly: true}, info)
	var g got
	_, err = e.Generate(t.Context(), request(), g.emit)
	require.NoError(t, err)
	sampled := m.Journal().All()
	last := sampled[len(sampled)-1]
	require.Equal(t, last.Completion, g.ids)
	require.Equal(t, last.Logprobs, g.logprobs)

	_, e = start(t, mock.Config{Script: mock.Always(mock.Reply{Text: "An answer of several tokens.", Fault: mock.Fault{Kind: mock.WrongCount}})})
	_, err = e.Check(t.Context(), demo.Tokenizer())
	require.NoError(t, err)
	g = got{}
	_, err = e.Generate(t.Context(), request(), g.emit)
	require.NoError(t, err)
	require.Empty(t, g.ids, "the server counts more than it lists")
	require.NotEmpty(t, g.text.String())
}

func TestAModelThatTheServerDoesNotTakeIsRefusedWithTheOnesThatItLists(t *testing.T) {
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), Model: "present"})
	require.NoError(t, err)
	anyName := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		body = bytes.Replace(body, []byte(`"model":"absent"`), []byte(`"model":"present"`), 1)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		m.ServeHTTP(w, r)
	})
	for model, server := range map[string]http.Handler{"present": m, "absent": anyName} {
		srv := httptest.NewServer(server)
		defer srv.Close()
		e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL, Model: model}})
		require.NoError(t, err)
		info, err := e.Check(t.Context(), demo.Tokenizer())
		require.NoError(t, err, model)
		require.Equal(t, engine.Info{Kind: "openai", Model: model, ContextLength: 1 << 17, TextOnly: true}, info)
	}
	srv := httptest.NewServer(m)
	defer srv.Close()
	e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL, Model: "absent"}})
	require.NoError(t, err)
	_, err = e.Check(t.Context(), demo.Tokenizer())
	require.Equal(t, engine.Refused, engine.ClassOf(err))
	require.ErrorContains(t, err, `the engine serves present, not the model "absent"; set upstream_model`)

	e, err = openai.New(openai.Config{Config: wire.Config{URL: srv.URL, Model: "absent", Upstream: "present"}})
	require.NoError(t, err)
	info, err := e.Check(t.Context(), demo.Tokenizer())
	require.NoError(t, err)
	require.Equal(t, "present", info.Model)
	_, err = e.Generate(t.Context(), request(), (&got{}).emit)
	require.NoError(t, err)
}

// TestACheckCostsOneTokenWhereThatIsEnough: a paid one counts what it samples.
func TestACheckCostsOneTokenWhereThatIsEnough(t *testing.T) {
	for _, least := range []int{1, 16} {
		var sampled []string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
				return
			}
			body, _ := io.ReadAll(r.Body)
			most, _ := rawjson.Get(body, "max_completion_tokens")
			n, _ := strconv.Atoi(string(most))
			ids, _ := rawjson.Get(body, "return_token_ids")
			if n < least || ids != nil {
				http.Error(w, `{"error":{"message":"max_completion_tokens is too low"}}`, http.StatusBadRequest)
				return
			}
			sampled = append(sampled, string(most))
			_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"length"}]}`)
		}))
		defer srv.Close()
		e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL, Model: "m"}})
		require.NoError(t, err)
		_, err = e.Check(t.Context(), demo.Tokenizer())
		require.NoError(t, err)
		require.Equal(t, []string{strconv.Itoa(least)}, sampled)
	}
}

func TestAServerThatKnowsNoExtrasIsAskedForNone(t *testing.T) {
	_, e := start(t, mock.Config{Strict: true, Script: mock.Always(mock.Say("yes"))})
	_, err := e.Check(t.Context(), demo.Tokenizer())
	require.NoError(t, err)
	var g got
	_, err = e.Generate(t.Context(), request(), g.emit)
	require.NoError(t, err)
	require.Equal(t, "yes", g.text.String())
	require.Empty(t, g.ids)
}

func TestOnlyWhatIsOursIsReplacedInTheRequest(t *testing.T) {
	var asked, key string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = string(b)
		key = r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`)
	}))
	defer srv.Close()
	e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL, APIKey: "upstream", Model: "there"}})
	require.NoError(t, err)
	half := 0.5
	req := request()
	req.Text = []byte(`{"model":"asked", "messages": [ {"role":"user","content":"x", "extra": 1.50} ], "stream":false,"n":4,"temperature":1,"max_tokens":3,"tools":[{"b":1,"a":2}],"user":"u"}`)
	req.Sampling.Temperature = &half
	req.Grammar = &engine.Grammar{Kind: "json_schema", Value: `{"type":"object"}`}
	var g got
	report, err := e.Generate(t.Context(), req, g.emit)
	require.NoError(t, err)
	require.Equal(t, "Bearer upstream", key)
	require.Equal(t, "length", report.FinishReason)
	require.Equal(t, "whole", g.text.String())
	require.Contains(t, asked, `"messages": [ {"role":"user","content":"x", "extra": 1.50} ]`, "byte for byte")
	require.JSONEq(t, `{"model":"there","messages":[{"role":"user","content":"x","extra":1.50}],"tools":[{"b":1,"a":2}],"stream":true,"stream_options":{"include_usage":true},
		"max_completion_tokens":500,"temperature":0.5,"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"}}}}`, asked)
}

func TestFailuresHaveTheirClass(t *testing.T) {
	for kind, class := range map[mock.FaultKind]engine.Class{
		mock.Cut: engine.Unreachable, mock.NoEnd: engine.Unreachable, mock.ErrorEvent: engine.Failed, mock.Garbage: engine.Broken, mock.Abort: engine.Failed,
	} {
		_, e := start(t, mock.Config{Script: mock.Always(mock.Reply{Text: "some words are said", Fault: mock.Fault{Kind: kind, After: 2}})})
		_, err := e.Generate(t.Context(), request(), (&got{}).emit)
		require.Equal(t, class, engine.ClassOf(err), kind)
	}
	_, e := start(t, mock.Config{Script: mock.Always(mock.Reply{Fault: mock.Fault{Kind: mock.Status, Status: 429, RetryAfter: 2 * time.Second}})})
	_, err := e.Generate(t.Context(), request(), (&got{}).emit)
	require.Equal(t, engine.Overloaded, engine.ClassOf(err))
	req := request()
	req.Text = nil
	_, err = e.Generate(t.Context(), req, (&got{}).emit)
	require.Equal(t, engine.Refused, engine.ClassOf(err))
}

func TestAStreamOfCallsIsJoinedAndOneThatMakesNoSenseIsBroken(t *testing.T) {
	event := func(delta, finish string) string {
		return `data: {"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
	}
	for name, c := range map[string]struct {
		stream string
		want   *parse.Reply // nil is an answer that is broken
	}{
		"parts": {
			event(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`, "null") +
				event(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}`, "null") +
				event(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]}`, "null") +
				event(`{}`, `"tool_calls"`),
			&parse.Reply{Calls: []parse.Call{{ModelID: "a", Name: "f", Arguments: `{"x":1}`}, {ModelID: "b", Name: "g", Arguments: "{}"}}},
		},
		"reasoning under both names": {event(`{"reasoning":"r","reasoning_content":"r"}`, "null") + event(`{"content":"c"}`, `"stop"`), &parse.Reply{Content: "c", Reasoning: "r"}},
		"a refusal":                  {event(`{"content":null,"refusal":"no"}`, `"content_filter"`), &parse.Reply{Content: "no"}},
		"a gap in the calls":         {event(`{"tool_calls":[{"index":3,"function":{"name":"f"}}]}`, `"stop"`), nil},
		"an index that is none":      {event(`{"tool_calls":[{"index":-1,"function":{"name":"f"}}]}`, `"stop"`), nil},
		"content that is no text":    {event(`{"content":[{"type":"text"}]}`, `"stop"`), nil},
		"nothing":                    {event(`{}`, `"stop"`), nil},
		"only thinking":              {event(`{"reasoning":"r"}`, `"stop"`), nil},
		"another reason":             {event(`{"content":"x"}`, `"tired"`), nil},
		"a second choice":            {`data: {"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n", nil},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, c.stream+"data: [DONE]\n\n")
		}))
		e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL}})
		require.NoError(t, err)
		var g got
		report, err := e.Generate(t.Context(), request(), g.emit)
		if c.want == nil {
			require.Equal(t, engine.Broken, engine.ClassOf(err), name)
		} else {
			require.NoError(t, err, name)
			require.Equal(t, *c.want, parse.Reply{Content: g.text.String(), Reasoning: g.reasoning.String(), Calls: report.Calls}, name)
		}
		srv.Close()
	}
}

func TestAllOfTheSamplingIsSent(t *testing.T) {
	var asked string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = string(b)
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],
			"usage":{"prompt_tokens":30,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":16}}}`)
	}))
	defer srv.Close()
	e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL}, MaxTokensKey: "max_tokens"})
	require.NoError(t, err)
	f := func(v float64) *float64 { return &v }
	k, seed := 20, int64(7)
	req := request()
	req.Sampling = engine.Sampling{
		MaxTokens: 9, Temperature: f(0.5), TopP: f(0.9), TopK: &k, MinP: f(0.1), FrequencyPenalty: f(0.2), PresencePenalty: f(0.3),
		RepetitionPenalty: f(1.1), Seed: &seed, Stop: []string{"###"}, LogitBias: []engine.Bias{{ID: 5, Value: -1}},
	}
	report, err := e.Generate(t.Context(), req, (&got{}).emit)
	require.NoError(t, err)
	require.Equal(t, 16, report.CachedTokens)
	require.Equal(t, 30, report.PromptTokens)
	require.JSONEq(t, `{"model":"mock","messages":[{"role":"user","content":"Hello there"}],"stream":true,"stream_options":{"include_usage":true},
		"max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.1,"frequency_penalty":0.2,"presence_penalty":0.3,
		"repetition_penalty":1.1,"seed":7,"stop":["###"],"logit_bias":{"5":-1}}`, asked)
}
