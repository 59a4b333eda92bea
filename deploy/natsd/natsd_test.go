package natsd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/journaltest"
)

const room = 1 << 30

// start runs a server until the test, or the returned function, ends it.
func start(t *testing.T, cfg natsd.Config) (s *natsd.Server, stop func()) {
	t.Helper()
	s, err := natsd.New(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	require.NoError(t, s.Ready(t.Context()))
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// fail runs a server that cannot start and returns why.
func fail(t *testing.T, cfg natsd.Config) error {
	t.Helper()
	s, err := natsd.New(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	err = s.Run(t.Context())
	require.Error(t, err)
	require.Equal(t, err, s.Ready(t.Context()), "whoever waits is told")
	return err
}

func dev(dir string) natsd.Config {
	return natsd.Config{Mode: natsd.Dev, Dir: dir, MaxBytes: room}
}

func TestAServerWithoutAPortTakesConnectionsFromInside(t *testing.T) {
	s, stop := start(t, dev(t.TempDir()))
	require.Empty(t, s.URL())
	conn, err := s.InProcessConn()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	stop()
	_, err = s.InProcessConn()
	require.Error(t, err)
}

func TestAServerListensWhereItIsTold(t *testing.T) {
	cfg := dev(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	s, _ := start(t, cfg)
	require.Contains(t, s.URL(), "nats://127.0.0.1:")
}

func TestWhoeverConnectsMustKnowTheSecret(t *testing.T) {
	cfg := dev(t.TempDir())
	cfg.Listen, cfg.Token = "127.0.0.1:0", "open sesame"
	s, _ := start(t, cfg)
	for _, token := range []string{"", "guess"} {
		_, err := jet.Dial(jet.Options{URL: s.URL(), Token: token})
		require.ErrorContains(t, err, "Authorization")
	}
	for _, o := range []jet.Options{{URL: s.URL()}, {InProcess: s}} {
		o.Token = cfg.Token
		conn, err := jet.Dial(o)
		require.NoError(t, err)
		conn.Close()
	}
}

func TestAPortWithACertificateIsForThoseWhoTrustIt(t *testing.T) {
	certificate, authority := certificate(t)
	cfg := dev(t.TempDir())
	cfg.Listen, cfg.TLS = "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	s, _ := start(t, cfg)
	conn, err := jet.Dial(jet.Options{URL: s.URL(), TLS: &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}})
	require.NoError(t, err)
	conn.Close()
	_, err = jet.Dial(jet.Options{URL: s.URL()})
	require.ErrorContains(t, err, "certificate")
	conn, err = jet.Dial(jet.Options{InProcess: s})
	require.NoError(t, err, "nothing goes over a wire")
	conn.Close()
}

// certificate is one for 127.0.0.1, and those who vouch for it: itself.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	own, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(own)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestABusyPortIsNamed(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	cfg := dev(t.TempDir())
	cfg.Listen = busy.Addr().String()
	require.ErrorContains(t, fail(t, cfg), cfg.Listen)
}

func TestOneFolderHasOneServer(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, dev(dir))
	require.ErrorIs(t, fail(t, dev(dir)), natsd.ErrLocked)
	stop()
	start(t, dev(dir))
}

func TestAForeignFolderIsLeftAlone(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"someone else's files": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("chapter one"), 0o600)
		},
		"a newer layout": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "turnlog-log"), []byte("turnlog log, layout 2\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, prepare(dir))
			before := contents(t, dir)
			require.ErrorIs(t, fail(t, dev(dir)), natsd.ErrForeign)
			require.Equal(t, before, contents(t, dir))
		})
	}
}

func TestADamagedStreamStopsTheStartAndIsLeftAlone(t *testing.T) {
	for name, damage := range map[string]func(stream string) error{
		"no description":          func(s string) error { return os.Remove(filepath.Join(s, "meta.inf")) },
		"an empty description":    func(s string) error { return os.Truncate(filepath.Join(s, "meta.inf"), 0) },
		"a description with junk": func(s string) error { return os.WriteFile(filepath.Join(s, "meta.inf"), []byte("{}"), 0o600) },
		"a wrong checksum":        func(s string) error { return os.WriteFile(filepath.Join(s, "meta.sum"), []byte("00"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, stop := start(t, dev(dir))
			fill(t, s)
			stop()
			stream := streamFolder(t, dir)
			require.NoError(t, damage(stream))
			before := contents(t, filepath.Join(stream, "msgs"))
			require.NotEmpty(t, before)

			err := fail(t, dev(dir))
			require.ErrorIs(t, err, natsd.ErrCorrupt)
			require.ErrorIs(t, fail(t, dev(dir)), natsd.ErrCorrupt, "it is not left locked")
			require.ErrorContains(t, err, filepath.Base(stream), "names the stream")
			require.Equal(t, before, contents(t, filepath.Join(stream, "msgs")))
		})
	}
}

func TestAServerThatWasStoppedGoesOnWithItsData(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dev(dir))
	tip := fill(t, s)
	stop()
	s, _ = start(t, dev(dir))
	require.Equal(t, tip, last(t, s))
}

func TestAConfigurationTellsAllItsFaults(t *testing.T) {
	_, err := natsd.New(natsd.Config{Mode: "fast", Listen: "here"}, nil)
	for _, fault := range []string{"mode", "dir", "max bytes", "listen"} {
		require.ErrorContains(t, err, fault)
	}
}

func TestTheDefaultRoomIsPartOfTheDisk(t *testing.T) {
	dir := t.TempDir()
	empty, err := natsd.DefaultMaxBytes(filepath.Join(dir, "not", "there", "yet"))
	require.NoError(t, err)
	require.Positive(t, empty)
}

// contents maps the files under dir to what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	}))
	return files
}

func streamFolder(t *testing.T, dir string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*"))
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// open connects to a server and opens a log on it.
func open(t *testing.T, s *natsd.Server) journal.Journal {
	t.Helper()
	conn, err := jet.Dial(jet.Options{InProcess: s})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = room / 2
	log, err := conn.Open(t.Context(), cfg)
	require.NoError(t, err)
	return log
}

// fill writes a session and returns where it ends.
func fill(t *testing.T, s *natsd.Server) (tip journal.Tip) {
	t.Helper()
	j := open(t, s)
	for n := range 20 {
		var err error
		tip, err = j.Append(t.Context(), tip, journaltest.Annotation("s", fmt.Sprint(n), "x"))
		require.NoError(t, err)
	}
	return tip
}

func last(t *testing.T, s *natsd.Server) (tip journal.Tip) {
	t.Helper()
	for e, err := range open(t, s).ReadSession(t.Context(), "s", journal.Tip{}) {
		require.NoError(t, err)
		tip = e.Tip
	}
	return tip
}
