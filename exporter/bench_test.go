package exporter_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/rows/rowstest"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// BenchmarkCommit8k executes plans of 512 rows of 8,192 tokens in groups of 8,
// from the plan's publication to the manifest's: reading the log, rows, Parquet,
// verification, publication on the local disk. Per core is by CPU time, which a
// busy machine disturbs less.
func BenchmarkCommit8k(b *testing.B) {
	const sessions, group, turns, prompt, completion = 512, 8, 8, 640, 384
	log := mem.New(mem.Options{})
	rng := rand.New(rand.NewPCG(8, 8))
	ids := func(n int) []uint32 {
		list := make([]uint32, n)
		for i := range list {
			list[i] = uint32(rng.ExpFloat64() * 9000)
		}
		return list
	}
	tokens := 0
	var shared [][]uint32
	for i := range sessions {
		if i%group == 0 {
			shared = nil
			for range turns {
				shared = append(shared, ids(prompt))
			}
		}
		s := rowstest.New(fmt.Sprintf("s%04d", i))
		s.Group, s.Index, s.GroupSize = fmt.Sprintf("g%03d", i/group), int32(i%group), group
		parent, keep := "", 0
		var path []string
		for t := range turns {
			name := fmt.Sprintf("t%d", t)
			keep = s.Turn(name, parent, keep, shared[t], ids(completion)).Total()
			parent, path = name, append(path, name)
		}
		s.Reward("", rng.Float64())
		s.Seal("main", path...)
		tokens += keep
		var tip journal.Tip
		for _, ev := range s.Events() {
			var err error
			tip, err = log.Append(b.Context(), tip, ev)
			require.NoError(b, err)
		}
	}
	var spent, busy time.Duration
	var bytes int64
	var peak uint64
	for b.Loop() {
		store, err := local.New(b.TempDir())
		require.NoError(b, err)
		var began time.Time
		var used time.Duration
		var before, now runtime.MemStats
		cfg := exporter.DefaultConfig()
		e, err := exporter.New(cfg, exporter.Deps{
			Journal: log, Sink: store, Log: slog.New(slog.DiscardHandler),
			Fault: func(step string) {
				switch step {
				case "plan":
					runtime.GC()
					runtime.ReadMemStats(&before)
					began, used = time.Now(), cpu(b)
				case "staged", "verified":
					runtime.ReadMemStats(&now)
					peak = max(peak, now.Sys-before.Sys)
				case "committed":
					spent += time.Since(began)
					busy += cpu(b) - used
				}
			},
		})
		require.NoError(b, err)
		sum, err := e.Once(b.Context())
		require.NoError(b, err)
		require.EqualValues(b, sessions, sum.Counts.Rows)
		bytes = 0
		for _, f := range sum.Files {
			bytes += f.Bytes
		}
	}
	seconds := spent.Seconds() / float64(b.N)
	b.ReportMetric(sessions/seconds, "rows/s")
	core := busy.Seconds() / float64(b.N)
	b.ReportMetric(sessions/core, "rows/s/core")
	b.ReportMetric(float64(tokens)/core/1e6, "Mtok/s/core")
	b.ReportMetric(float64(bytes)/float64(tokens), "B/token")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-grown")
}

// BenchmarkSealToExported follows a log to which sessions of 8 turns come all
// the time, and measures how long each waits from the acknowledgement of its
// seal to the manifest that lists its row.
func BenchmarkSealToExported(b *testing.B) {
	const flush, every = time.Second, 2 * time.Millisecond
	log := mem.New(mem.Options{})
	store, err := local.New(b.TempDir())
	require.NoError(b, err)
	var mu sync.Mutex
	sealed := make(map[string]time.Time)
	var waits []time.Duration
	cfg := exporter.DefaultConfig()
	cfg.Flush = flush
	var e *exporter.Exporter
	seen := int64(0)
	e, err = exporter.New(cfg, exporter.Deps{Journal: log, Sink: store, Log: slog.New(slog.DiscardHandler), Fault: func(step string) {
		if step != "committed" {
			return
		}
		now := time.Now()
		state, err := exporter.Manifests(store).Load(context.Background())
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, g := range state.Settled {
			if at, ok := sealed[g.Sessions[0].Session]; ok {
				waits = append(waits, now.Sub(at))
				delete(sealed, g.Sessions[0].Session)
			}
		}
		seen = state.ID
	}})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	rng := rand.New(rand.NewPCG(1, 2))
	n := 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for b.Loop() {
		<-tick.C
		s := rowstest.New(fmt.Sprintf("s%06d", n))
		n++
		parent, keep := "", 0
		var path []string
		for t := range 8 {
			name := fmt.Sprintf("t%d", t)
			ids := make([]uint32, 300)
			for i := range ids {
				ids[i] = uint32(rng.IntN(150_000))
			}
			keep = s.Turn(name, parent, keep, ids[:200], ids[200:]).Total()
			parent, path = name, append(path, name)
		}
		s.Reward("", 1)
		s.Seal("main", path...)
		var tip journal.Tip
		for _, ev := range s.Events() {
			tip, err = log.Append(b.Context(), tip, ev)
			require.NoError(b, err)
		}
		mu.Lock()
		sealed[s.ID] = time.Now()
		mu.Unlock()
	}
	require.Eventually(b, func() bool { mu.Lock(); defer mu.Unlock(); return len(sealed) == 0 }, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(b, <-done)
	slices.Sort(waits)
	at := func(q float64) float64 { return waits[int(q*float64(len(waits)-1))].Seconds() * 1e3 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(float64(flush.Milliseconds()), "flush-ms")
	b.ReportMetric(float64(seen), "manifests")
}

// cpu is the process's CPU time.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
