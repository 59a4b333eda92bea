package fold_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
)

func BenchmarkFold(b *testing.B) {
	for _, size := range []struct{ prompt, completion int }{{100, 150}, {1500, 500}, {12000, 4000}} {
		b.Run(fmt.Sprintf("tokens=%d+%d", size.prompt, size.completion), func(b *testing.B) {
			entries := sessiontest.Entries(sessiontest.Long("s", 50, size.prompt, size.completion).Events)
			b.ReportAllocs()
			turns := 0
			for b.Loop() {
				s := fold.New("s", fold.DefaultPolicy(), fold.Aids{})
				for _, e := range entries {
					if _, err := s.Apply(e); err != nil {
						b.Fatal(err)
					}
				}
				turns += 50
			}
			report(b, turns, size.prompt+size.completion)
		})
	}
}

func report(b *testing.B, turns, tokens int) {
	b.ReportMetric(float64(turns)/b.Elapsed().Seconds(), "turns/s")
	b.ReportMetric(float64(turns*tokens)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
}

func TestTurn1000CostsWhatTurn10Costs(t *testing.T) {
	entries := sessiontest.Entries(sessiontest.Long("s", 1001, 20, 30).Events)
	s := fold.New("s", fold.DefaultPolicy(), fold.Aids{})
	at := 0
	next := func() {
		_, err := s.Apply(entries[at])
		if err != nil {
			panic(err)
		}
		at++
	}
	for at < 10 {
		next()
	}
	early := testing.AllocsPerRun(20, next)
	for at < 970 {
		next()
	}
	late := testing.AllocsPerRun(20, next)
	require.InDelta(t, early, late, 4)
}
