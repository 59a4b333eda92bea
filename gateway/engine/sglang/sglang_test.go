package sglang_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/demo"
)

func TestTheContractOfAnEngine(t *testing.T) {
	for name, a := range map[string]enginetest.Adapter{
		"incremental": {Proof: event.PromptProof_PROMPT_PROOF_ECHO},
		"cumulative": {
			Proof: event.PromptProof_PROMPT_PROOF_ECHO,
			Mock:  func(c *mock.Config) { c.Cumulative = true },
		},
		"count only": {Proof: event.PromptProof_PROMPT_PROOF_COUNT},
		"parser": {
			Proof: event.PromptProof_PROMPT_PROOF_ECHO, Buffered: true, Parses: true,
			// The ids come only with their logprobs.
			Skip: []mock.FaultKind{mock.NoEnd, mock.NoIDs},
		},
	} {
		a.Kind, a.Versions, a.CountsTokens, a.AbortPath, a.Experts = "sglang", true, true, "/abort_request", "int32"
		a.New = func(c wire.Config) (engine.Engine, error) {
			return sglang.New(sglang.Config{Config: c, CountOnly: name == "count only", Parser: name == "parser"})
		}
		t.Run(name, func(t *testing.T) { enginetest.Run(t, demo.Tokenizer(), a) })
	}
}

// behind starts a mock behind a handler that sees every request.
func behind(t *testing.T, cfg mock.Config, sgl sglang.Config) (*sglang.Engine, *[]string) {
	t.Helper()
	cfg.Tokenizer = demo.Tokenizer()
	m, err := mock.New(cfg)
	require.NoError(t, err)
	var calls []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, r.URL.Path+" "+string(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		m.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	sgl.URL = srv.URL
	e, err := sglang.New(sgl)
	require.NoError(t, err)
	return e, &calls
}

func ignore(engine.Chunk) error { return nil }

func TestWhatTheClientAskedForIsSentAndNothingElse(t *testing.T) {
	e, calls := behind(t, mock.Config{Script: mock.Always(mock.Say("x"))}, sglang.Config{})
	half, none, seed := 0.5, 0, int64(7)
	_, err := e.Generate(t.Context(), engine.Request{
		ID: "r1", Prompt: []uint32{1, 2}, RoutedFrom: -1,
		Sampling: engine.Sampling{MaxTokens: 9, Temperature: &half, TopK: &none, Seed: &seed, Stop: []string{"a"}, StopTokens: []uint32{4}},
		Grammar:  &engine.Grammar{Kind: "regex", Value: "a+"},
	}, ignore)
	require.NoError(t, err)
	_, body, _ := strings.Cut((*calls)[0], " ")
	require.JSONEq(t, `{"rid":"r1","input_ids":[1,2],"sampling_params":{"max_new_tokens":9,"temperature":0.5,"top_k":-1,"stop":["a"],"stop_token_ids":[4],
		"sampling_seed":7,"no_stop_trim":true,"skip_special_tokens":false,"regex":"a+"},"return_logprob":true,"logprob_start_len":-1,"stream":true,"return_prompt_token_ids":true}`, body)

	_, err = e.Generate(t.Context(), engine.Request{Prompt: []uint32{1}, RoutedFrom: -1, Grammar: &engine.Grammar{Kind: "lark"}}, ignore)
	require.Equal(t, engine.Refused, engine.ClassOf(err))
	require.Len(t, *calls, 1, "a constraint that cannot be carried is not sent without it")
}

func TestALongPromptIsEchoedInLargerStepsUnlessItIsOnlyCounted(t *testing.T) {
	prompt := make([]uint32, 5000)
	for countOnly, want := range map[bool]string{false: `"stream_interval":9`, true: ""} {
		e, calls := behind(t, mock.Config{Script: mock.Always(mock.Say("x"))}, sglang.Config{CountOnly: countOnly})
		_, err := e.Generate(t.Context(), engine.Request{Prompt: prompt, RoutedFrom: -1}, ignore)
		require.NoError(t, err)
		require.Contains(t, (*calls)[0], want)
		require.Equal(t, countOnly, !strings.Contains((*calls)[0], "stream_interval"))
	}
}

func TestTheLogprobKindFollowsTheSamplingAndTheServer(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	k := func(v int) *int { return &v }
	raw, processed, unknown := event.LogprobKind_LOGPROB_KIND_RAW, event.LogprobKind_LOGPROB_KIND_PROCESSED, event.LogprobKind_LOGPROB_KIND_UNSPECIFIED
	for _, c := range []struct {
		server         mock.Logprobs
		sampling       engine.Sampling
		scaled, before event.LogprobKind
	}{
		{sampling: engine.Sampling{}, scaled: raw, before: raw},
		{sampling: engine.Sampling{Temperature: f(0)}, scaled: raw, before: raw},
		{sampling: engine.Sampling{TopP: f(0.9), TopK: k(20)}, scaled: raw, before: raw},
		{sampling: engine.Sampling{Temperature: f(0.7)}, scaled: processed, before: raw},
		{sampling: engine.Sampling{Temperature: f(0.7), TopP: f(0.9)}, scaled: unknown, before: raw},
		{sampling: engine.Sampling{RepetitionPenalty: f(1.1)}, scaled: processed, before: processed},
	} {
		for server, want := range map[mock.Logprobs]event.LogprobKind{mock.Scaled: c.scaled, mock.Raw: c.before} {
			e, _ := behind(t, mock.Config{Logprobs: server, Script: mock.Always(mock.Say("x"))}, sglang.Config{})
			_, err := e.Check(t.Context(), demo.Tokenizer())
			require.NoError(t, err)
			report, err := e.Generate(t.Context(), engine.Request{Prompt: []uint32{1}, Sampling: c.sampling, RoutedFrom: -1}, ignore)
			require.NoError(t, err)
			require.Equal(t, want, report.LogprobKind, "%+v on %q", c.sampling, server)
		}
	}
}

func TestAVersionThatChangesWithoutSpansIsUnknown(t *testing.T) {
	chunk := func(id, n int, version, finish string) string {
		return fmt.Sprintf("data: {\"output_ids\":[%d],\"meta_info\":{\"finish_reason\":%s,\"prompt_tokens\":1,\"completion_tokens\":%d,\"weight_version\":%q,\"output_token_logprobs\":[[-1,%d,null]]}}\n\n", id, finish, n, version, id)
	}
	for versions, want := range map[[2]string]int{{"1", "1"}: 1, {"1", "2"}: 0} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, chunk(5, 1, versions[0], "null")+chunk(6, 2, versions[1], `{"type":"length","length":2}`)+"data: [DONE]\n\n")
		}))
		defer srv.Close()
		e, err := sglang.New(sglang.Config{Config: wire.Config{URL: srv.URL}})
		require.NoError(t, err)
		report, err := e.Generate(t.Context(), engine.Request{Prompt: []uint32{1}, RoutedFrom: -1}, ignore)
		require.NoError(t, err)
		require.Len(t, report.Versions, want)
	}
}

func TestRoutedExpertsHaveTheShapeOfTheModel(t *testing.T) {
	var asked string
	routed := base64.StdEncoding.EncodeToString(make([]byte, 2*3*2*4))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = string(b)
		_, _ = io.WriteString(w, `{"output_ids":[5],"prompt_token_ids":[1,2,3],"meta_info":{"finish_reason":{"type":"length","length":1},"prompt_tokens":3,"completion_tokens":1,"output_token_logprobs":[[-1,5,null]],"routed_experts":"`+routed+`"}}`)
	}))
	defer srv.Close()
	e, err := sglang.New(sglang.Config{Config: wire.Config{URL: srv.URL}, RoutedLayers: 3, RoutedTopK: 2})
	require.NoError(t, err)
	// The prompt has 3 tokens and the answer 1: rows 1 and 2 of 3.
	report, err := e.Generate(t.Context(), engine.Request{Prompt: []uint32{1, 2, 3}, RoutedFrom: 1}, ignore)
	require.NoError(t, err)
	require.Equal(t, &engine.Routed{Data: make([]byte, 48), DType: "int32", Shape: []int64{2, 3, 2}, Start: 1}, report.Routed)
	require.Contains(t, asked, `"routed_experts_start_len":1`)
	_, err = e.Generate(t.Context(), engine.Request{Prompt: []uint32{1, 2, 3}, RoutedFrom: 0}, ignore)
	require.ErrorContains(t, err, "routed_layers")
}

func TestTheServersParserGetsOurIDsAndGivesAMessage(t *testing.T) {
	const text = "<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n</tool_call>"
	e, calls := behind(t, mock.Config{Script: mock.Always(mock.Say(text))}, sglang.Config{Parser: true})
	report, err := e.Generate(t.Context(), engine.Request{
		ID: "r", Model: "mock", Prompt: []uint32{11, 12}, RoutedFrom: -1, Sampling: engine.Sampling{MaxTokens: 99},
		Text: []byte(`{"model":"asked","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{},"n":3,"tools":[{"type":"function","function":{"name":"look"}}]}`),
	}, ignore)
	require.NoError(t, err)
	require.Equal(t, "stop", report.FinishReason)
	require.JSONEq(t, `{"role":"assistant","content":"","reasoning_content":"Hm.","tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]}`, string(report.Message))
	_, body, _ := strings.Cut((*calls)[0], " ")
	require.JSONEq(t, `{"model":"mock","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"look"}}],
		"rid":"r","input_ids":[11,12],"stream":false,"max_completion_tokens":99,"logprobs":true,"return_meta_info":true,"return_prompt_token_ids":true}`, body)
	require.True(t, strings.HasPrefix((*calls)[0], "/v1/chat/completions "))
}

func TestAMessageThatSaysNothingIsBroken(t *testing.T) {
	for _, message := range []string{`{"role":"assistant","content":null}`, `{"role":"assistant"}`, `null`} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[{"message":`+message+`,"prompt_token_ids":[1],"meta_info":{"finish_reason":{"type":"stop","matched":5},"prompt_tokens":1,"completion_tokens":1,"output_token_logprobs":[[-1,5,null]]}}]}`)
		}))
		defer srv.Close()
		e, err := sglang.New(sglang.Config{Config: wire.Config{URL: srv.URL}, Parser: true})
		require.NoError(t, err)
		_, err = e.Generate(t.Context(), engine.Request{Prompt: []uint32{1}, RoutedFrom: -1, Text: []byte(`{"messages":[]}`)}, ignore)
		require.Equal(t, engine.Broken, engine.ClassOf(err))
	}
}

// TestAChatThatTakesNoIDsIsRefusedAtTheStart: 0.5.9 takes no notice of them and
// answers to what it renders itself.
func TestAChatThatTakesNoIDsIsRefusedAtTheStart(t *testing.T) {
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer()})
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/chat/completions" {
			body = rawjson.Splice(nil, body, rawjson.Set{Key: "input_ids"}, rawjson.Set{Key: "return_meta_info"}, rawjson.Set{Key: "return_prompt_token_ids"})
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		m.ServeHTTP(w, r)
	}))
	defer srv.Close()
	for parser, want := range map[bool]string{false: "", true: "does not take ids in its chat; 0.5.13 does: use that or a newer one, or leave parser out of the model"} {
		e, err := sglang.New(sglang.Config{Config: wire.Config{URL: srv.URL}, Parser: parser})
		require.NoError(t, err)
		_, err = e.Check(t.Context(), demo.Tokenizer())
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, engine.Refused, engine.ClassOf(err))
		require.ErrorContains(t, err, want)
	}
}

func BenchmarkAnswer(b *testing.B) {
	for name, a := range map[string]enginetest.Adapter{
		"echo": {New: func(c wire.Config) (engine.Engine, error) { return sglang.New(sglang.Config{Config: c}) }},
		"count": {New: func(c wire.Config) (engine.Engine, error) {
			return sglang.New(sglang.Config{Config: c, CountOnly: true})
		}},
		"cumulative": {New: func(c wire.Config) (engine.Engine, error) {
			return sglang.New(sglang.Config{Config: c, CountOnly: true})
		}, Mock: func(c *mock.Config) { c.Cumulative = true }},
	} {
		b.Run(name, func(b *testing.B) { enginetest.Bench(b, demo.Tokenizer(), a) })
	}
}
