package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
)

// TestArchivedSessionsAreReplayedAndVerifiedAsBefore moves the demo's sessions
// out of the log, and asks for them by every command that reads it.
func TestArchivedSessionsAreReplayedAndVerifiedAsBefore(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	run := func(args ...string) string {
		t.Helper()
		out, err := turnlog(t, append(args, "--data", data, "--logging.level", "error")...)
		require.NoError(t, err, out)
		return out
	}
	run("demo", "--listen", "127.0.0.1:1", "--sessions", "2")
	_, err := turnlog(t, "archive", "--data", data)
	require.ErrorContains(t, err, "recorder.archive.after is 0")
	_, err = turnlog(t, "archive", "--data", data, "--recorder.archive.after", "1s")
	require.ErrorContains(t, err, "less than 10s")

	into := filepath.Join(t.TempDir(), "into")
	verified := run("verify")
	require.Contains(t, verified, "0 findings")
	run("replay", "--into", into, "--shards")
	require.Contains(t, run("archive", "--dry-run", "--recorder.archive.after", "1000h"), "closed sessions that stay: recent 2")
	require.Empty(t, files(t, filepath.Join(data, "shards", "archive")), "nothing was changed, ...")
	cfg := config.Default()
	cfg.Data, cfg.Listen = data, "127.0.0.1:0"
	_, stop := up(t, cfg) // ... and nobody needs to know of an archive
	stop()

	after := []string{"--recorder.archive.after", "10s", "--gateway.generate-timeout", "5s", "--gateway.append-timeout", "4s"}
	archive := func(args ...string) string { return run(append(append([]string{"archive"}, after...), args...)...) }
	require.Eventually(t, func() bool {
		return strings.HasPrefix(archive("--dry-run"), "2 sessions would be archived and trimmed: ")
	}, time.Minute, time.Second)
	require.Empty(t, files(t, filepath.Join(data, "shards", "archive", "segments")), "nothing was changed")
	require.Contains(t, archive(), "2 sessions archived and trimmed: ")
	require.Contains(t, archive(), "0 sessions archived and trimmed: ")
	require.Len(t, files(t, filepath.Join(data, "shards", "archive", "segments")), 2)

	require.Contains(t, run("verify", "--no-shards"), "0 sessions, 0 events", "the log alone")
	require.Equal(t, verified, run(append([]string{"verify"}, after...)...))
	require.Contains(t, run(append([]string{"replay"}, after...)...), "2 sessions, ")
	// A replay into a folder that has one goes on where that was, and refuses
	// whatever is not the same, byte by byte.
	again := run(append([]string{"replay", "--into", into, "--shards"}, after...)...)
	require.Contains(t, again, "2 sessions, ")
	require.Contains(t, again, "nothing is ready that was not exported before")

	// The exporter has nothing to do, and is not put off by what went.
	require.Contains(t, run(append([]string{"export"}, after...)...), "nothing is ready")

	// Nor is one that begins anew.
	other := append([]string{"export", "--exporter.dir", filepath.Join(t.TempDir(), "other"), "--recorder.archive.dir", filepath.Join(data, "shards", "archive")}, after...)
	require.Contains(t, run(other...), "wrote 2 rows of 1 groups")

	// What is in the archive may name a blob: who does not read it removes none.
	blob := filepath.Join(data, "shards", exporter.ContentKey(strings.Repeat("ab", 32)))
	require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o700))
	require.NoError(t, os.WriteFile(blob, []byte("x"), 0o600))
	require.NoError(t, os.Chtimes(blob, time.Time{}, time.Now().Add(-25*time.Hour)))
	_, err = turnlog(t, "shards", "collect", "--data", data)
	require.ErrorContains(t, err, "sessions of this log are in an archive")
	require.FileExists(t, blob)
	require.Contains(t, run(append([]string{"shards", "collect"}, after...)...), "1 blobs, 1 B, removed; ")

	// Another folder is another archive.
	_, err = turnlog(t, append([]string{"verify", "--data", data, "--recorder.archive.dir", t.TempDir()}, after...)...)
	require.ErrorContains(t, err, "in another archive")
}

// files are the names of a folder's entries; one that is not there has none.
func files(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
