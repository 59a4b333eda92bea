package local_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/exporter/sink/sinktest"
)

func TestSinkKeepsThePromises(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sink.Sink {
		s, err := local.New(filepath.Join(t.TempDir(), "new", "folder"))
		require.NoError(t, err)
		return s
	})
}

func TestTemporaryFilesOfACrashAreRemovedWhenOld(t *testing.T) {
	root := t.TempDir()
	old, young := filepath.Join(root, "a", ".tmp-1"), filepath.Join(root, "a", ".tmp-2")
	require.NoError(t, os.Mkdir(filepath.Dir(old), 0o755))
	require.NoError(t, os.WriteFile(old, []byte("half"), 0o600))
	require.NoError(t, os.WriteFile(young, []byte("being written"), 0o600))
	past := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(old, past, past))

	_, err := local.New(root)
	require.NoError(t, err)
	require.NoFileExists(t, old)
	require.FileExists(t, young)
}
