// Package journal_test runs the journal's promises on JetStream: an embedded
// server of the real kind, several streams, and processes that are killed.
package journal_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/journaltest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

// takeover is short, so that a test that waits for one is too.
const takeover = time.Second

// How long, and how often, a test looks for what must come.
const (
	patience = time.Minute
	tick     = time.Millisecond
)

// serve runs a server until the test ends.
func serve(t testing.TB, cfg natsd.Config) *natsd.Server {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 8 << 30
	}
	if cfg.Mode == "" {
		cfg.Mode = natsd.Dev
	}
	s, err := natsd.New(cfg, quiet())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.NoError(t, s.Ready(ctx))
	return s
}

func dial(t testing.TB, s *natsd.Server) *jet.Conn {
	t.Helper()
	conn, err := jet.Dial(jet.Options{InProcess: s, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// config is a log of the turn stream with room for the largest test.
func config() jet.Config {
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 4 << 30
	cfg.Takeover = takeover
	return cfg
}

func open(t testing.TB, s *natsd.Server, cfg jet.Config) *jet.Log {
	t.Helper()
	log, err := dial(t, s).Open(context.Background(), cfg)
	require.NoError(t, err)
	return log
}

// raw is a connection that writes what no journal would.
func raw(t testing.TB, s *natsd.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func annotation(session, id, value string) journalEvent {
	return journaltest.Annotation(session, id, value)
}

// read returns all entries of a session.
func read(t testing.TB, j journal.Journal, session string) (list []journal.Entry) {
	t.Helper()
	for e, err := range j.ReadSession(context.Background(), session, journal.Tip{}) {
		require.NoError(t, err)
		list = append(list, e)
	}
	return list
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// noise is a text that no compression makes smaller.
func noise(size int) string {
	r := rand.New(rand.NewPCG(uint64(size), 1))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}
