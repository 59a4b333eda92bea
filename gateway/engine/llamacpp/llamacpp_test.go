package llamacpp

import (
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
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/parse"
)

func TestTheContractOfAnEngine(t *testing.T) {
	enginetest.Run(t, demo.Tokenizer(), enginetest.Adapter{
		Kind: "llamacpp", Proof: event.PromptProof_PROMPT_PROOF_COUNT, CountsTokens: true, Checked: true, Late: true, Router: true,
		New:  func(c wire.Config) (engine.Engine, error) { return New(Config{c}) },
		Skip: []mock.FaultKind{mock.Abort, mock.MissingLogprob},
	})
}

func TestALogprobThatTheServerLeftOutIsAskedForAgain(t *testing.T) {
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), NonCanonical: 0.5, Script: mock.Always(mock.Say("Many parts: 🙂👩‍💻 世界 ﬁ. The end is near, he said."))})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	defer srv.Close()
	e, err := New(Config{wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	_, err = e.Check(t.Context(), demo.Tokenizer())
	require.NoError(t, err)
	for i, stop := range []string{"", "near"} {
		req := engine.Request{Prompt: demo.Tokenizer().Encode(nil, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"), RoutedFrom: -1}
		if stop != "" {
			req.Sampling.Stop = []string{stop}
		}
		var got engine.Chunk
		chunks := 0
		report, err := e.Generate(t.Context(), req, func(c engine.Chunk) error {
			chunks++
			got.IDs = append(got.IDs, c.IDs...)
			return nil
		})
		require.NoError(t, err)
		require.Greater(t, chunks, 5, "streamed")
		sampled := m.Journal().All()[i]
		require.Equal(t, sampled.Completion, got.IDs)
		require.Equal(t, sampled.Logprobs, report.Logprobs)
		require.Empty(t, report.Discarded)
	}
}

func TestALogprobIsLaidOnlyWhereItsPlaceIsCertain(t *testing.T) {
	for name, c := range map[string]struct {
		ids, scored []uint32
		missing     []int
	}{
		"all":                  {[]uint32{1, 2, 3}, []uint32{1, 2, 3}, nil},
		"one left out":         {[]uint32{1, 2, 3}, []uint32{1, 3}, []int{1}},
		"the end left out":     {[]uint32{1, 2, 3}, []uint32{1}, []int{1, 2}},
		"one of two equal":     {[]uint32{1, 7, 7, 3}, []uint32{1, 7, 3}, []int{1, 2}},
		"both of two equal":    {[]uint32{1, 7, 7, 3}, []uint32{1, 7, 7, 3}, nil},
		"equal ones far apart": {[]uint32{7, 1, 7, 2}, []uint32{7, 2}, []int{0, 1, 2}},
		"another token":        {[]uint32{1, 2}, []uint32{9}, []int{0, 1}},
	} {
		out := make([]score, len(c.ids))
		var scored []score
		for _, id := range c.scored {
			scored = append(scored, score{id: id, logprob: -float32(id)})
		}
		require.Equal(t, c.missing, align(out, c.ids, scored), name)
	}
}

func TestTokensThatTheBytesDoNotTellAreSampledAgainWhole(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = append(asked, string(b))
		if len(asked) == 1 {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, data := range []string{
				`{"content":"a","tokens":[5],"stop":false,"tokens_predicted":1,"tokens_evaluated":2,"completion_probabilities":[{"id":5,"logprob":-0.5}]}`,
				`{"content":"` + "\ufffd" + `","tokens":[7],"stop":false,"tokens_predicted":3,"tokens_evaluated":2}`,
			} {
				_, _ = io.WriteString(w, "data: "+data+"\n\n")
			}
			return
		}
		_, _ = io.WriteString(w, `{"content":"b","tokens":[6],"stop":true,"stop_type":"limit","tokens_predicted":1,"tokens_evaluated":3,"truncated":false,"completion_probabilities":[{"id":6,"logprob":-0.25}]}`)
	}))
	defer srv.Close()
	e, err := New(Config{wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	e.pieces.Store(newPieces(demo.Tokenizer()))
	var ids []uint32
	report, err := e.Generate(t.Context(), engine.Request{Prompt: []uint32{1, 2}, RoutedFrom: -1, Sampling: engine.Sampling{MaxTokens: 4}},
		func(c engine.Chunk) error { ids = append(ids, c.IDs...); return nil })
	require.NoError(t, err)
	require.Equal(t, []uint32{5, 6}, ids)
	require.Equal(t, []float32{-0.5, -0.25}, report.Logprobs)
	require.Equal(t, []uint32{7}, report.Discarded)
	require.Equal(t, "length", report.FinishReason)
	require.Equal(t, 2, report.PromptTokens)
	require.Len(t, asked, 2)
	require.Contains(t, asked[1], `"prompt":[1,2,5],"n_predict":3`)
	require.Contains(t, asked[1], `"stream":false`)
}

// spelled is a tokenizer of which only the bytes of tokens matter.
type spelled struct {
	tokenizer.Tokenizer
	tokens []string
}

func (s spelled) VocabSize() int { return len(s.tokens) }

func (s spelled) AppendBytes(dst []byte, id uint32) ([]byte, bool) {
	return append(dst, s.tokens[id]...), true
}

func TestLeftOutTokensFollowFromTheBytesOrAreNotGuessed(t *testing.T) {
	const face = "\xf0\x9f\x98\x82"
	p := newPieces(spelled{tokens: []string{"\xf0", "\x9f", "\x98", "\x82", "\xf0\x9f", "\x98\x82", " \xf0\x9f", "a"}})
	require.Equal(t, []uint32{4, 2}, p.between(face, 2, 3), "two before the last: \\xf0\\x9f, \\x98")
	require.Equal(t, []uint32{0, 1, 2}, p.between(face, 3, 3))
	require.Equal(t, []uint32{6}, p.between(" "+face, 1, 5))
	require.Nil(t, p.between(face, 1, 3), "no one token is \\xf0\\x9f\\x98")
	require.Nil(t, p.between(face, 1, 7), "the last token is of another text")
	require.Nil(t, p.between("\ufffd", 1, 3), "bytes that JSON could not carry")
	two := newPieces(spelled{tokens: []string{"\xf0", "\x9f", "\x98", "\x82", "\xf0\x9f", "\x9f\x98"}})
	require.Nil(t, two.between(face, 2, 3), "\\xf0\\x9f, \\x98 or \\xf0, \\x9f\\x98")
	require.Nil(t, newPieces(spelled{tokens: []string{"\xf0", "\xf0", "\x9f\x98\x82"}}).between(face, 1, 2), "two ids of one spelling")
}

func TestAForcedCallIsAGrammarOfTokens(t *testing.T) {
	var asked string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = string(b)
	}))
	defer srv.Close()
	e, err := New(Config{wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	tools, err := message.ParseTools([]byte(`[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`))
	require.NoError(t, err)
	g := parse.Bind(parse.Hermes, demo.Tokenizer(), nil)
	call, err := g.Forced(tools, "look", true)
	require.NoError(t, err)
	id := func(s string) string {
		n, ok := demo.Tokenizer().TokenID(s)
		require.True(t, ok, s)
		return fmt.Sprintf("<[%d]>", n)
	}
	req := engine.Request{Prompt: []uint32{1}, RoutedFrom: -1, Grammar: &engine.Grammar{Kind: "tool_choice", Pattern: &call, Before: g.Before("<think>\n", true)}}
	_, _ = e.Generate(t.Context(), req, func(engine.Chunk) error { return nil })
	text, _ := rawjson.Get([]byte(asked), "grammar")
	rule, _, _ := strings.Cut(rawjson.Text(text), "\n")
	require.Equal(t, strings.Join(strings.Fields(`root ::= ( r0 CLOSE [ \n]{0,4} ) ( CALL "\n{\"name\": \"look\", \"arguments\": " r2 "}\n" END )`), " "),
		strings.Join(strings.Fields(strings.NewReplacer(id("</think>"), "CLOSE", id("<tool_call>"), "CALL", id("</tool_call>"), "END").Replace(rule)), " "))
}

func TestAllOfTheSamplingIsSent(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	k, seed := 20, int64(1<<32+7)
	e, err := New(Config{wire.Config{URL: "http://127.0.0.1:1", Upstream: "small"}})
	require.NoError(t, err)
	sent, err := e.body(&engine.Request{Prompt: []uint32{1, 2}, RoutedFrom: -1, Likeliest: 3, Sampling: engine.Sampling{
		MaxTokens: 9, Temperature: f(0.5), TopP: f(0.9), TopK: &k, MinP: f(0.1), FrequencyPenalty: f(0.2), PresencePenalty: f(0.3),
		RepetitionPenalty: f(1.1), Seed: &seed, Stop: []string{"###"}, LogitBias: []engine.Bias{{ID: 5, Value: -1}, {ID: 6, Value: 1.5}},
	}}, true)
	require.NoError(t, err)
	require.JSONEq(t, `{"model":"small","prompt":[1,2],"n_predict":9,"temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.1,"frequency_penalty":0.2,
		"presence_penalty":0.3,"repeat_penalty":1.1,"seed":7,"stop":["###"],"logit_bias":[[5,-1],[6,1.5]],
		"stream":true,"return_tokens":true,"n_probs":3,"cache_prompt":true}`, string(sent))
}
