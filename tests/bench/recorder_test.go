package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

// logs are a tenant's logs on a server in this process.
type logs struct {
	server                           *natsd.Server
	conn                             *jet.Conn
	turns, trajectories, deadLetters *jet.Log
	registry                         *registry.Stored
}

func openLogs(tb testing.TB, mode natsd.Mode) logs {
	ctx, cancel := context.WithCancel(context.Background())
	srv, err := natsd.New(natsd.Config{Mode: mode, Dir: tb.TempDir(), MaxBytes: 40 << 30}, slog.New(slog.DiscardHandler))
	require.NoError(tb, err)
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	require.NoError(tb, srv.Ready(ctx))
	conn, err := jet.Dial(jet.Options{InProcess: srv})
	require.NoError(tb, err)
	tb.Cleanup(func() { conn.Close(); cancel(); <-ended })
	l := logs{server: srv, conn: conn}
	l.turns, l.trajectories, l.deadLetters = l.open(tb, "default", jet.Turns), l.open(tb, "default", jet.Trajectories), l.open(tb, "default", jet.DeadLetters)
	bucket, err := conn.OpenBucket(ctx, jet.BucketConfig{Tenant: "default", Name: "sessions", Replicas: 1, MaxBytes: 1 << 30})
	require.NoError(tb, err)
	l.registry = registry.NewStored(bucket)
	return l
}

func (l logs) open(tb testing.TB, tenant string, kind jet.Kind) *jet.Log {
	cfg := jet.DefaultConfig(tenant, kind)
	cfg.MaxBytes = 4 << 30
	log, err := l.conn.Open(context.Background(), cfg)
	require.NoError(tb, err)
	return log
}

// raw is the server's own client, and the name of the turn stream.
func (l logs) raw(tb testing.TB) (jetstream.JetStream, string) {
	nc, err := nats.Connect("", nats.InProcessServer(l.server))
	require.NoError(tb, err)
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(tb, err)
	stream, _, _ := strings.Cut(l.turns.Stream(0), "@")
	return js, stream
}

// write appends whole sessions, some at a time.
func write(tb testing.TB, turns journal.Journal, sessions int, session func(n int) *sessiontest.Session) {
	const writers = 16
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for n := w; n < sessions; n += writers {
				var tip journal.Tip
				for _, ev := range session(n).Events {
					var err error
					if tip, err = turns.Append(context.Background(), tip, ev); err != nil {
						errs <- err
						return
					}
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		require.NoError(tb, <-errs)
	}
}

// BenchmarkRecorder is a worker that records sessions of 20 turns, from the
// turn stream into the trajectory stream, registry and acknowledgements
// included. CPU is that of the whole process, the server's too.
func BenchmarkRecorder(b *testing.B) {
	for _, mode := range []natsd.Mode{natsd.Dev, natsd.Single} {
		for _, size := range []struct{ prompt, completion, sessions int }{{100, 150, 1200}, {1500, 500, 900}, {6000, 2000, 300}} {
			if mode == natsd.Single {
				size.sessions /= 3 // every append waits for the disk
			}
			b.Run(fmt.Sprintf("mode=%s/tokens=%d+%d", mode, size.prompt, size.completion), func(b *testing.B) {
				const length = 20
				filling := openLogs(b, mode)
				write(b, filling.turns, size.sessions, func(n int) *sessiontest.Session {
					return sessiontest.Long(fmt.Sprint("s", n), length, size.prompt, size.completion)
				})
				var spent time.Duration
				n := 0
				for b.Loop() {
					n++
					into := filling.open(b, fmt.Sprint("out", n), jet.Trajectories)
					began := cpuTime()
					record(b, mode, filling, into, fmt.Sprint("group", n), size.sessions)
					spent += cpuTime() - began
				}
				turns := float64(n * size.sessions * length)
				tokens := turns * float64(size.prompt+size.completion)
				b.ReportMetric(turns/b.Elapsed().Seconds(), "turns/s")
				b.ReportMetric(tokens/b.Elapsed().Seconds()/1e6, "Mtokens/s")
				b.ReportMetric(turns/spent.Seconds(), "turns/cpu-s")
				b.ReportMetric(tokens/spent.Seconds()/1e6, "Mtokens/cpu-s")
			})
		}
	}
}

// record lets a fresh group record all sessions, until they are sealed and
// everything is acknowledged.
func record(b *testing.B, mode natsd.Mode, l logs, into journal.Journal, group string, sessions int) {
	cfg := worker.DefaultConfig()
	cfg.Group, cfg.AtOnce = group, mode == natsd.Single
	w, err := worker.New(cfg, worker.Deps{
		Turns: l.turns, Trajectories: into, DeadLetters: deadletter.New(l.deadLetters), Registry: l.registry,
	})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for w.Stats().Sealed < uint64(sessions) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	require.NoError(b, <-done)
}
