package exporter_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink/local"
)

// TestASweepRemovesWhatIsOldAndUnnamedOnly, and nothing where it cannot know.
func TestASweepRemovesWhatIsOldAndUnnamedOnly(t *testing.T) {
	dir := t.TempDir()
	s, err := local.New(dir)
	require.NoError(t, err)
	put := func(content string, age time.Duration) string {
		sum := sha256.Sum256([]byte(content))
		key := exporter.ContentKey(hex.EncodeToString(sum[:]))
		require.NoError(t, s.Put(t.Context(), key, bytes.NewReader([]byte(content)), int64(len(content))))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(s.Path(key), at, at))
		return filepath.Base(key)
	}
	named, unnamed, young := put("named", 48*time.Hour), put("unnamed", 48*time.Hour), put("young", time.Hour)
	alien := filepath.Join(dir, exporter.ContentFolder, "notes.txt")
	require.NoError(t, os.WriteFile(alien, []byte("of somebody else"), 0o600))
	require.NoError(t, os.Chtimes(alien, time.Unix(0, 0), time.Unix(0, 0)))
	there := func(sum string) bool {
		_, err := os.Stat(s.Path(exporter.ContentKey(sum)))
		return err == nil
	}
	before := time.Now().Add(-24 * time.Hour)
	log := func(_ context.Context, sums map[string]bool) error { sums[named] = true; return nil }

	away := errors.New("the log is away")
	_, err = exporter.Sweep(t.Context(), s, before, func(context.Context, map[string]bool) error { return away }, false)
	require.ErrorIs(t, err, away)
	require.True(t, there(unnamed))

	beside := filepath.Join(dir, exporter.BlobsFolder, "x.parquet")
	require.NoError(t, os.MkdirAll(filepath.Dir(beside), 0o700))
	require.NoError(t, os.WriteFile(beside, []byte("no parquet"), 0o600))
	_, err = exporter.Sweep(t.Context(), s, before, log, false)
	require.ErrorContains(t, err, "x.parquet cannot be read, and may name blobs")
	require.True(t, there(unnamed))
	require.NoError(t, os.Remove(beside))

	swept, err := exporter.Sweep(t.Context(), s, before, log, true)
	require.NoError(t, err)
	require.Equal(t, exporter.Swept{Kept: 3, KeptBytes: 26, Removed: 1, RemovedBytes: 7}, swept)
	require.True(t, there(unnamed), "a dry run removes nothing")

	// A turn comes to name an old blob while the log is read.
	swept, err = exporter.Sweep(t.Context(), s, before, func(ctx context.Context, sums map[string]bool) error {
		put("unnamed", 0)
		return log(ctx, sums)
	}, false)
	require.NoError(t, err)
	require.Zero(t, swept.Removed)
	put("unnamed", 48*time.Hour)

	swept, err = exporter.Sweep(t.Context(), s, before, log, false)
	require.NoError(t, err)
	require.Equal(t, 1, swept.Removed)
	require.False(t, there(unnamed))
	require.True(t, there(named))
	require.True(t, there(young))
	require.FileExists(t, alien)
}
