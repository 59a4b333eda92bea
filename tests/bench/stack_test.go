package bench

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink/local"
)

// BenchmarkStack is the all-in-one with everything in one process, the mock
// engine and the demo's agents included: whole sessions over HTTP, from opening
// to the row in a shard. An operation is one session.
func BenchmarkStack(b *testing.B) {
	cfg := config.Default()
	cfg.Data = filepath.Join(b.TempDir(), "data")
	cfg.Listen = "127.0.0.1:0"
	cfg.Exporter.Flush = time.Second
	s, err := stack.New(cfg, stack.All, stack.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); require.NoError(b, <-ended) }()
	<-s.Ready()
	key, err := stack.AdminKey(cfg.AdminFile())
	require.NoError(b, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	agent := &demo.Agent{URL: "http://" + s.Addr().String(), AdminKey: key, HTTP: &http.Client{Transport: transport}}

	var turns, sessions atomic.Int64
	const size = 8 // sessions of a group, at work at the same time
	began := cpuTime()
	start := time.Now()
	for b.Loop() {
		group := fmt.Sprintf("g%d", sessions.Load())
		done, err := agent.Run(ctx, "bench", group, size)
		require.NoError(b, err)
		for _, d := range done {
			turns.Add(int64(d.Turns))
		}
		sessions.Add(size)
	}
	spent, worked, finished := cpuTime()-began, time.Since(start), time.Now()
	b.StopTimer()

	shards, err := local.New(cfg.Shards())
	require.NoError(b, err)
	for {
		state, err := exporter.Manifests(shards).Load(ctx)
		require.NoError(b, err)
		if state.Totals.GroupsExported >= sessions.Load()/size {
			break
		}
		require.Less(b, time.Since(finished), time.Minute)
		<-time.After(10 * time.Millisecond)
	}
	n := float64(turns.Load())
	b.ReportMetric(n/worked.Seconds(), "turns/s")
	b.ReportMetric(float64(spent.Microseconds())/n, "cpu-µs/turn")
	b.ReportMetric(float64(blockBytes(b, filepath.Join(cfg.Data, "log", "jetstream"), "tl-default-s-"))/n, "log-B/turn")
	b.ReportMetric(float64(time.Since(finished).Milliseconds()), "last-seal-to-exported-ms")
}

// blockBytes is the size of the blocks of streams whose name begins so.
func blockBytes(b *testing.B, dir, prefix string) (total int64) {
	require.NoError(b, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".blk" {
			return err
		}
		stream := filepath.Base(filepath.Dir(filepath.Dir(path)))
		if len(stream) >= len(prefix) && stream[:len(prefix)] == prefix {
			info, err := e.Info()
			if err != nil {
				return err
			}
			total += info.Size()
		}
		return nil
	}))
	return total
}
