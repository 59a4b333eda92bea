package llamacpp

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer/demo"
)

func TestTheContractOfAnEngine(t *testing.T) {
	enginetest.Run(t, demo.Tokenizer(), enginetest.Adapter{
		Kind: "llamacpp", Proof: event.PromptProof_PROMPT_PROOF_COUNT, Buffered: true, CountsTokens: true, Checked: true,
		New:  func(c wire.Config) (engine.Engine, error) { return New(Config{c}) },
		Skip: []mock.FaultKind{mock.Abort, mock.NoEnd, mock.MissingLogprob},
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
		_, err = e.Generate(t.Context(), req, func(c engine.Chunk) error { got = c; return nil })
		require.NoError(t, err)
		sampled := m.Journal().All()[i]
		require.Equal(t, sampled.Completion, got.IDs)
		require.Equal(t, sampled.Logprobs, got.Logprobs)
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
		out := make([]float32, len(c.ids))
		var scored []score
		for _, id := range c.scored {
			scored = append(scored, score{id, -float32(id)})
		}
		require.Equal(t, c.missing, align(out, c.ids, scored), name)
	}
}
