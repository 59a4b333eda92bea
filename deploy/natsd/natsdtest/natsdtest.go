// Package natsdtest runs embedded NATS servers for tests.
package natsdtest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/schema/journal/jet"
)

// Serve runs a server until the test ends. What the configuration leaves empty
// is mode dev, a folder of the test's, and 8 GiB.
func Serve(t testing.TB, cfg natsd.Config) *natsd.Server {
	t.Helper()
	s, _ := Start(t, cfg)
	return s
}

// Start is Serve with a way to stop the server earlier.
func Start(t testing.TB, cfg natsd.Config) (s *natsd.Server, stop func()) {
	t.Helper()
	if cfg.Mode == "" {
		cfg.Mode = natsd.Dev
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 8 << 30
	}
	s, err := natsd.New(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	require.NoError(t, s.Ready(ctx))
	return s, stop
}

// Dial connects to a server until the test ends.
func Dial(t testing.TB, s *natsd.Server) *jet.Conn {
	t.Helper()
	conn, err := jet.Dial(jet.Options{InProcess: s, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}
