package vllm_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/vllm"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/parse"
)

func TestTheContractOfAnEngine(t *testing.T) {
	for _, parser := range []bool{false, true} {
		a := enginetest.Adapter{
			Kind: "vllm", Proof: event.PromptProof_PROMPT_PROOF_ECHO, Versions: true, CountsTokens: true,
			Buffered: parser, Parses: parser, Cut: !parser, Experts: "uint8", AbortPath: "/inference/v1/abort_requests",
			New: func(c wire.Config) (engine.Engine, error) { return vllm.New(vllm.Config{Config: c, Parser: parser}) },
		}
		if parser {
			a.Skip = []mock.FaultKind{mock.NoEnd}
		}
		t.Run(map[bool]string{false: "completions", true: "parser"}[parser], func(t *testing.T) { enginetest.Run(t, demo.Tokenizer(), a) })
	}
}

// chat is a request for the server's own parser.
func chat(prompt string) engine.Request {
	return engine.Request{
		ID: "r", Model: "mock", RoutedFrom: -1, Prompt: demo.Tokenizer().Encode(nil, prompt), Sampling: engine.Sampling{MaxTokens: 500},
		Text: []byte(`{"model":"asked","messages":[{"role":"user","content":"something else"}],"tools":[{"type":"function","function":{"name":"look"}}],"top_logprobs":null,"stream":true,"stream_options":{"include_usage":true}}`),
	}
}

// recorded is a mock of which the calls are kept.
func recorded(t *testing.T, script mock.Script, change func(*mock.Config), fail string) (*vllm.Engine, *[]string) {
	t.Helper()
	cfg := mock.Config{Tokenizer: demo.Tokenizer(), Script: script}
	if change != nil {
		change(&cfg)
	}
	m, err := mock.New(cfg)
	require.NoError(t, err)
	var calls []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, r.URL.Path+" "+string(body))
		if r.URL.Path == fail {
			http.Error(w, `{"error":{"message":"as told","code":500}}`, http.StatusInternalServerError)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		m.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL}, Parser: true})
	require.NoError(t, err)
	return e, &calls
}

func TestTheServersParserGetsOurIDsAndGivesAMessage(t *testing.T) {
	const text = "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n</tool_call>"
	e, calls := recorded(t, mock.Always(mock.Say(text)), nil, "")
	req := chat("<|im_start|>user\nour prompt<|im_end|>\n<|im_start|>assistant\n")
	var ids []uint32
	report, err := e.Generate(t.Context(), req, func(c engine.Chunk) error { ids = append(ids, c.IDs...); return nil })
	require.NoError(t, err)
	require.Equal(t, demo.Tokenizer().Encode(nil, text+"<|im_end|>"), ids)
	require.JSONEq(t, `{"role":"assistant","content":"I look.","reasoning_content":"Hm.","tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]}`, string(report.Message))

	require.Len(t, *calls, 3)
	render, generate, derender := (*calls)[0], (*calls)[1], (*calls)[2]
	require.Contains(t, render, `"top_logprobs":0`)
	require.NotContains(t, render, `"stream":true`)
	require.NotContains(t, render, "stream_options")
	sent := string(wire.AppendIDs(nil, req.Prompt))
	require.Contains(t, generate, `"token_ids":`+sent)
	require.Contains(t, generate, `"stream":false`, "what render let through is forced off again")
	require.Contains(t, derender, fmt.Sprintf(`"prompt_tokens":%d`, len(req.Prompt)))
	require.Contains(t, derender, `"chat_request":{`)
	require.Contains(t, derender, `"name":"look"`)
}

func TestAfterACallThatFailedNoOtherIsMade(t *testing.T) {
	for i, path := range []string{"/v1/chat/completions/render", "/inference/v1/generate", "/v1/chat/completions/derender"} {
		e, calls := recorded(t, mock.Always(mock.Say("x")), nil, path)
		_, err := e.Generate(t.Context(), chat("x"), func(engine.Chunk) error { return nil })
		require.Equal(t, engine.Failed, engine.ClassOf(err))
		require.ErrorContains(t, err, "as told")
		require.Len(t, *calls, i+1)
	}
	for _, kind := range []mock.FaultKind{mock.MissingLogprob, mock.NoLogprobs, mock.NoIDs} {
		e, calls := recorded(t, mock.Always(mock.Reply{Text: "x y z", Fault: mock.Fault{Kind: kind}}), nil, "")
		_, err := e.Generate(t.Context(), chat("x"), func(engine.Chunk) error { return nil })
		require.Equal(t, engine.Broken, engine.ClassOf(err))
		require.Len(t, *calls, 2, "no derender")
	}
}

func TestAServerWithoutThePathsNamesTheFlag(t *testing.T) {
	e, _ := recorded(t, nil, func(c *mock.Config) { c.NoScaleOut = true }, "")
	_, err := e.Generate(t.Context(), chat("x"), func(engine.Chunk) error { return nil })
	require.Equal(t, engine.Refused, engine.ClassOf(err))
	require.ErrorContains(t, err, "--enable-scale-out")
}

// TestAnOlderServersParserServesOrIsRefusedAtTheStart: before 0.32 logprobs name
// their tokens by a text, before 0.30 no prompt comes back, and 0.24 does not even
// count it.
func TestAnOlderServersParserServesOrIsRefusedAtTheStart(t *testing.T) {
	named, prompt, usage := regexp.MustCompile(`"token_id":(\d+)`), regexp.MustCompile(`,"prompt_token_ids":\[[^]]*\]`), regexp.MustCompile(`,"usage":\{[^}]*\}`)
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), Script: mock.Always(mock.Say("yes"))})
	require.NoError(t, err)
	for version, c := range map[string]struct {
		without []*regexp.Regexp
		proof   event.PromptProof
	}{
		"0.31": {nil, event.PromptProof_PROMPT_PROOF_ECHO},
		"0.29": {[]*regexp.Regexp{prompt}, event.PromptProof_PROMPT_PROOF_COUNT},
		"0.24": {[]*regexp.Regexp{prompt, usage}, event.PromptProof_PROMPT_PROOF_UNSPECIFIED},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/inference/v1/generate" {
				m.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			m.ServeHTTP(rec, r)
			answer := named.ReplaceAll(rec.Body.Bytes(), []byte(`"token":"token_id:$1"`))
			for _, part := range c.without {
				if !part.Match(answer) {
					http.Error(w, "the mock does not say it", http.StatusTeapot)
					return
				}
				answer = part.ReplaceAll(answer, nil)
			}
			_, _ = w.Write(answer)
		}))
		defer srv.Close()
		e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL}, Parser: true})
		require.NoError(t, err)
		_, err = e.Check(t.Context(), demo.Tokenizer())
		if c.proof == event.PromptProof_PROMPT_PROOF_UNSPECIFIED {
			require.Equal(t, engine.Refused, engine.ClassOf(err))
			require.ErrorContains(t, err, "0.29 does: use that or a newer one, or leave parser out of the model")
			continue
		}
		require.NoError(t, err, version)
		report, err := e.Generate(t.Context(), chat("x"), func(engine.Chunk) error { return nil })
		require.NoError(t, err, version)
		require.Equal(t, c.proof, report.Proof, version)
	}
}

func TestTheLogprobModeIsFoundOut(t *testing.T) {
	for mode, want := range map[mock.Logprobs]event.LogprobKind{
		mock.Raw: event.LogprobKind_LOGPROB_KIND_RAW, mock.Processed: event.LogprobKind_LOGPROB_KIND_PROCESSED,
	} {
		m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), Logprobs: mode, Script: mock.Always(mock.Say("x"))})
		require.NoError(t, err)
		srv := httptest.NewServer(m)
		defer srv.Close()
		e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL}})
		require.NoError(t, err)
		info, err := e.Check(t.Context(), demo.Tokenizer())
		require.NoError(t, err)
		require.Equal(t, want, info.LogprobKind)
		report, err := e.Generate(t.Context(), chat("x"), func(engine.Chunk) error { return nil })
		require.NoError(t, err)
		require.Equal(t, want, report.LogprobKind)
	}
}

// An adapter has weights of its own: the model beside it must not answer instead.
func TestTheServerIsAskedForTheModelsNameWhereItListsIt(t *testing.T) {
	for listed, want := range map[string]string{
		`{"id":"base"},{"id":"adapter","max_model_len":77}`: "adapter",
		`{"id":"base"},{"id":"another"}`:                    "base",
		``:                                                  "",
	} {
		m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), Model: want})
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.Handle("/", m)
		mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[`+listed+`]}`) })
		srv := httptest.NewServer(mux)
		defer srv.Close()
		e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL, Model: "adapter"}})
		require.NoError(t, err)
		info, err := e.Check(t.Context(), demo.Tokenizer())
		if want == "" {
			require.Equal(t, engine.Refused, engine.ClassOf(err))
			require.ErrorContains(t, err, "the engine lists no model")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, info.Model)
		_, err = e.Generate(t.Context(), chat("x"), func(engine.Chunk) error { return nil })
		require.NoError(t, err, "the mock knows no other name")
	}
}

// npyFile is what numpy.save writes.
func npyFile(descr, shape string, data []byte) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	header += strings.Repeat(" ", 64-(10+len(header)+1)%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(b, header...), data...)
}

func TestRoutedExpertsComeAsTheServerSavedThem(t *testing.T) {
	answer := func(file []byte) string {
		return `{"choices":[{"index":0,"text":"x","token_ids":[5,6],"prompt_token_ids":[1,2,3],"logprobs":{"token_logprobs":[-1,-2],"tokens":["token_id:5","token_id:6"]},"finish_reason":"stop","routed_experts":"` +
			base64.StdEncoding.EncodeToString(file) + `"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
	}
	var asked string
	body := answer(npyFile("|u1", "3, 2, 2", make([]byte, 12)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = string(b)
		_, _ = io.WriteString(w, body)
	}))
	defer srv.Close()
	e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	req := engine.Request{Prompt: []uint32{1, 2, 3}, RoutedFrom: 1}
	report, err := e.Generate(t.Context(), req, func(engine.Chunk) error { return nil })
	require.NoError(t, err)
	require.Equal(t, &engine.Routed{Data: make([]byte, 12), DType: "uint8", Shape: []int64{3, 2, 2}, Start: 1}, report.Routed)
	require.Contains(t, asked, `"routed_experts_prompt_start":1`)
	require.NotContains(t, asked, `"stream":true`)

	// 0.24 knows no start and sends the rows of the whole prompt.
	body = answer(npyFile("|u1", "4, 1, 2", []byte{1, 1, 2, 2, 3, 3, 4, 4}))
	report, err = e.Generate(t.Context(), req, func(engine.Chunk) error { return nil })
	require.NoError(t, err)
	require.Equal(t, &engine.Routed{Data: []byte{2, 2, 3, 3, 4, 4}, DType: "uint8", Shape: []int64{3, 1, 2}, Start: 1}, report.Routed)

	for _, file := range [][]byte{nil, []byte("junk"), npyFile("|u1", "3, 2, 2", make([]byte, 11)), npyFile("<f4", "3", make([]byte, 12))} {
		body = answer(file)
		_, err = e.Generate(t.Context(), req, func(engine.Chunk) error { return nil })
		require.Equal(t, engine.Broken, engine.ClassOf(err))
	}
}

func TestWhatTheClientAskedForIsSentAndNothingElse(t *testing.T) {
	e, calls := recorded(t, mock.Always(mock.Say("x")), nil, "")
	half, two, seed := 0.5, 2, int64(7)
	_, err := e.Generate(t.Context(), engine.Request{
		ID: "r1", Prompt: []uint32{1, 2}, RoutedFrom: -1,
		Sampling: engine.Sampling{MaxTokens: 9, Temperature: &half, TopK: &two, Seed: &seed, Stop: []string{"a"}, StopTokens: []uint32{4}},
		Grammar:  &engine.Grammar{Kind: "json_schema", Value: `{"type":"object"}`},
	}, func(engine.Chunk) error { return nil })
	require.NoError(t, err)
	_, body, _ := strings.Cut((*calls)[0], " ")
	require.JSONEq(t, `{"request_id":"r1","prompt":[1,2],"max_tokens":9,"temperature":0.5,"top_k":2,"seed":7,"stop":["a"],"stop_token_ids":[4],
		"skip_special_tokens":false,"logprobs":0,"return_token_ids":true,"return_tokens_as_token_ids":true,"return_weight_versions":true,
		"add_special_tokens":false,"stream":true,"stream_options":{"include_usage":true},"structured_outputs":{"json":{"type":"object"}}}`, body)

	for _, g := range []engine.Grammar{{Kind: "lark"}, {Kind: "json_schema", Value: "{"}} {
		_, err = e.Generate(t.Context(), engine.Request{Prompt: []uint32{1}, RoutedFrom: -1, Grammar: &g}, func(engine.Chunk) error { return nil })
		require.Equal(t, engine.Refused, engine.ClassOf(err))
	}
	require.Len(t, *calls, 1, "a constraint that cannot be carried is not sent without it")
}

func BenchmarkAnswer(b *testing.B) {
	enginetest.Bench(b, demo.Tokenizer(), enginetest.Adapter{
		New: func(c wire.Config) (engine.Engine, error) { return vllm.New(vllm.Config{Config: c}) },
	})
}

func TestAConstraintLeavesTheThinkingToAServerThatSeesToIt(t *testing.T) {
	forced := parse.Pattern{Text: "yes"}
	optional := &parse.Pattern{Kind: parse.Optional, Parts: []parse.Pattern{{Text: "hm"}}}
	for _, reasons := range []bool{false, true} {
		m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), Reasons: reasons, Script: mock.Always(mock.Say("no"))})
		require.NoError(t, err)
		var asked string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			asked = string(b)
			r.Body = io.NopCloser(strings.NewReader(asked))
			m.ServeHTTP(w, r)
		}))
		e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL}})
		require.NoError(t, err)
		_, err = e.Check(t.Context(), demo.Tokenizer())
		require.NoError(t, err)
		ask := func(thinking *parse.Pattern) (engine.Report, error) {
			return e.Generate(t.Context(), engine.Request{
				ID: "r", Prompt: []uint32{1}, RoutedFrom: -1, Sampling: engine.Sampling{MaxTokens: 9},
				Grammar: &engine.Grammar{Kind: "tool_choice", Pattern: &forced, Before: thinking},
			}, func(engine.Chunk) error { return nil })
		}
		_, err = ask(&parse.Pattern{Kind: parse.Free, Not: []string{"</think>"}})
		require.NoError(t, err)
		require.Equal(t, !reasons, strings.Contains(asked, "any_text"), asked)
		report, err := ask(optional)
		if reasons {
			require.Equal(t, engine.Refused, engine.ClassOf(err))
			require.ErrorContains(t, err, "turn thinking on or off")
		} else {
			require.NoError(t, err)
			require.Equal(t, event.LogprobKind_LOGPROB_KIND_PROCESSED, report.LogprobKind, "the mask is laid on before")
		}
		srv.Close()
	}
}

func TestACheckSaysWhichFlagIsMissing(t *testing.T) {
	for _, missing := range []bool{false, true} {
		m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), NoScaleOut: missing})
		require.NoError(t, err)
		srv := httptest.NewServer(m)
		e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL}, Parser: true})
		require.NoError(t, err)
		_, err = e.Check(t.Context(), demo.Tokenizer())
		if missing {
			require.Equal(t, engine.Refused, engine.ClassOf(err))
			require.ErrorContains(t, err, "start vLLM with --enable-scale-out")
		} else {
			require.NoError(t, err)
		}
		srv.Close()
	}
}

// TestALogprobThatTheServerClampedIsNone: it writes -9999 for minus infinity, and
// names each token, which has to be the one of token_ids.
func TestALogprobThatTheServerClampedIsNone(t *testing.T) {
	for answer, want := range map[string]string{
		`"token_logprobs":[-1,-9999.0],"tokens":["token_id:5","token_id:6"]`: "the logprob of token 1",
		`"token_logprobs":[-1,-2],"tokens":["token_id:5","token_id:7"]`:      "another token than token_ids",
		`"token_logprobs":[-1,-9998.5],"tokens":["token_id:5","token_id:6"]`: "",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[{"index":0,"text":"x","token_ids":[5,6],"prompt_token_ids":[1,2,3],"logprobs":{`+answer+
				`},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`)
		}))
		defer srv.Close()
		e, err := vllm.New(vllm.Config{Config: wire.Config{URL: srv.URL}})
		require.NoError(t, err)
		_, err = e.Generate(t.Context(), engine.Request{Prompt: []uint32{1, 2, 3}, RoutedFrom: -1}, func(engine.Chunk) error { return nil })
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, engine.Broken, engine.ClassOf(err))
		require.ErrorContains(t, err, want)
	}
}
