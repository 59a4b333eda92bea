package pool

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
)

// BenchmarkGenerate is what the pool adds to one request, by policy.
func BenchmarkGenerate(b *testing.B) {
	prompt := make([]uint32, 8000)
	for _, policy := range []Policy{Sticky, RoundRobin, LeastBusy, Prefix} {
		b.Run(string(policy), func(b *testing.B) {
			p, err := New(Config{Policy: policy}, Replica{Name: "a", Engine: &quiet{}}, Replica{Name: "b", Engine: &quiet{}})
			require.NoError(b, err)
			sessions := make([]string, 1000)
			for i := range sessions {
				sessions[i] = strconv.Itoa(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, err := p.Generate(b.Context(), engine.Request{Session: sessions[i%1000], Prompt: prompt}, discard, nil)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// quiet answers at once and keeps nothing.
type quiet struct{ fake }

func (*quiet) Generate(_ context.Context, _ engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	return engine.Report{FinishReason: "stop"}, emit(engine.Chunk{IDs: []uint32{1}, Logprobs: []float32{-1}})
}

func TestARequestCostsAHandfulOfAllocationsHoweverManySessionsThereAre(t *testing.T) {
	p, err := New(Config{}, Replica{Name: "a", Engine: &quiet{}}, Replica{Name: "b", Engine: &quiet{}})
	require.NoError(t, err)
	for i := range 20_000 {
		_, err := ask(t, p, strconv.Itoa(i))
		require.NoError(t, err)
	}
	req := engine.Request{Session: "19999"}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, _ = p.Generate(t.Context(), req, discard, nil)
	}), 20.0)
}
