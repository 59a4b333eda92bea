// Package journal_test runs the journal's promises on JetStream: an embedded
// server of the real kind, several streams, and processes that are killed.
package journal_test

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
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

// config is a log of the turn stream with room for the largest test.
func config() jet.Config {
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 4 << 30
	cfg.Takeover = takeover
	return cfg
}

func open(t testing.TB, s *natsd.Server, cfg jet.Config) *jet.Log {
	t.Helper()
	log, err := natsdtest.Dial(t, s).Open(context.Background(), cfg)
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

// noise is a text that no compression makes smaller.
func noise(size int) string {
	r := rand.New(rand.NewPCG(uint64(size), 1))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}
