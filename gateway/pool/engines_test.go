package pool_test

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer/demo"
)

// replica is a mock engine behind a real adapter.
func replica(t *testing.T, name string, script mock.Script) (*mock.Server, *httptest.Server, pool.Replica) {
	t.Helper()
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), Script: script, NonCanonical: 0.2})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	e, err := sglang.New(sglang.Config{Config: wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	return m, srv, pool.Replica{Name: name, Engine: e}
}

const story = "Once upon a time there was a king who counted every token that he had ever said."

func TestEveryTokenOfEveryAttemptIsAccountedFor(t *testing.T) {
	bad, _, first := replica(t, "bad", mock.Always(mock.Reply{Text: story, Fault: mock.Fault{Kind: mock.Cut, After: 6}}))
	good, _, second := replica(t, "good", mock.Always(mock.Say(story)))
	p, err := pool.New(pool.Config{Tokenizer: demo.Tokenizer(), FailuresToRest: 1000, Policy: pool.RoundRobin, Cooldown: 1}, first, second)
	require.NoError(t, err)
	tok := demo.Tokenizer()
	attempts, answers := 0, 0
	for i := range 12 {
		var ids []uint32
		res, err := p.Generate(t.Context(), engine.Request{ID: fmt.Sprint("r", i), Prompt: tok.Encode(nil, "tell"), RoutedFrom: -1},
			func(c engine.Chunk) error { ids = append(ids, c.IDs...); return nil },
			func() bool { ids = nil; return true })
		require.NoError(t, err)
		require.Equal(t, "good", res.Backend)
		require.Equal(t, "sglang", res.Engine)
		require.Equal(t, good.Journal().All()[answers].Completion, ids)
		answers++
		for _, a := range res.Attempts {
			sampled := bad.Journal().All()[attempts]
			require.Equal(t, sampled.Request, fmt.Sprint("r", i))
			require.Equal(t, sampled.Completion, event.IDs(nil, a.Ids))
			require.Equal(t, sampled.Logprobs, event.Floats(nil, a.Logprobs))
			attempts++
		}
	}
	require.Positive(t, attempts)
	require.Len(t, bad.Journal().All(), attempts, "nothing was sampled that nobody knows of")
	require.Len(t, good.Journal().All(), answers)
}

func TestAnEngineThatDiesUnderLoadCostsNoAnswer(t *testing.T) {
	_, dying, first := replica(t, "dying", mock.Always(mock.Say(story)))
	_, _, second := replica(t, "living", mock.Always(mock.Say(story)))
	p, err := pool.New(pool.Config{Tokenizer: demo.Tokenizer(), Concurrency: 4}, first, second)
	require.NoError(t, err)
	var wg sync.WaitGroup
	started := make(chan struct{}, 1000)
	for s := range 16 {
		wg.Go(func() {
			for i := range 10 {
				var text []uint32
				_, err := p.Generate(t.Context(), engine.Request{
					ID: fmt.Sprintf("s%d-%d", s, i), Session: fmt.Sprint("s", s), Prompt: demo.Tokenizer().Encode(nil, "tell"), RoutedFrom: -1,
				}, func(c engine.Chunk) error { text = append(text, c.IDs...); return nil }, func() bool { text = nil; return true })
				require.NoError(t, err)
				require.Equal(t, story+"<|im_end|>", demo.Tokenizer().Decode(text))
				started <- struct{}{}
			}
		})
	}
	for range 40 {
		<-started
	}
	dying.CloseClientConnections()
	dying.Close()
	wg.Wait()
}
