package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink/local"
)

// TestABlobOfATurnThatNeverWasIsCollected: a gateway dies between a blob and its
// turn. That blob goes once it is old, and no other: not those that the log names,
// not those that rows name when there is no log any more, not young ones.
func TestABlobOfATurnThatNeverWasIsCollected(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	serve := func(seed string, env ...string) (*process, *demo.Agent) {
		_, engine := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0", "--experts", "--seed", seed)
		p, at := start(t, gatewayReady, env, "up", "--data", data, "--listen", "127.0.0.1:0", "--exporter.flush", "200ms", "--logging.level", "warn",
			"--models", fmt.Sprintf(`[{name: demo, files: demo, routed_experts: true, engine: vllm, backends: [%q], aliases: ["*"]}]`, engine))
		key, err := stack.AdminKey(filepath.Join(data, "admin.key"))
		require.NoError(t, err)
		return p, &demo.Agent{URL: at, AdminKey: key, HTTP: &http.Client{Timeout: time.Minute}}
	}
	blobs := func() (files []string) {
		require.NoError(t, filepath.WalkDir(filepath.Join(data, "shards", exporter.ContentFolder), func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				files = append(files, path)
			}
			return err
		}))
		return files
	}
	shards := func(args ...string) (string, error) {
		out, err := exec.Command(binary, append([]string{"shards"}, append(args, "--data", data, "--logging.level", "warn")...)...).CombinedOutput()
		return string(bytes.TrimSpace(out)), err
	}

	p, agent := serve("1", "TURNLOG_FAULT=turn.before_append:1")
	_, err := agent.Run(t.Context(), "blobs", "dies", 1)
	require.Error(t, err)
	<-p.exited
	require.Len(t, blobs(), 1, "the blob is there, and its turn is not")

	p, agent = serve("2")
	_, err = agent.Run(t.Context(), "blobs", "lives", 1)
	require.NoError(t, err, p.text())
	store, err := local.New(filepath.Join(data, "shards"))
	require.NoError(t, err)
	eventually(t, time.Minute, "the group is exported", func(ctx context.Context) bool {
		state, err := exporter.Manifests(store).Load(ctx)
		require.NoError(t, err)
		return state.Totals.GroupsExported == 1
	})
	p.stop(t)
	named := len(blobs()) - 1
	require.Positive(t, named)

	out, err := shards("collect")
	require.NoError(t, err, out)
	require.Contains(t, out, "0 blobs, 0 B, removed; ", "all are young")
	yesterday := time.Now().Add(-25 * time.Hour)
	for _, file := range blobs() {
		require.NoError(t, os.Chtimes(file, yesterday, yesterday))
	}
	out, err = shards("collect", "--older-than", "1m")
	require.Error(t, err)
	require.Contains(t, out, "a turn that is under way may take that long")
	out, err = shards("collect", "--dry-run")
	require.NoError(t, err, out)
	require.Contains(t, out, "would be removed; "+fmt.Sprint(named))
	require.Len(t, blobs(), named+1)
	out, err = shards("collect")
	require.NoError(t, err, out)
	require.Regexp(t, `^1 blobs, .* removed; `, out)
	require.Len(t, blobs(), named)
	out, err = shards("check")
	require.NoError(t, err, out)
	require.Contains(t, out, ": 0 faults")

	// Rows name what no log names any more.
	require.NoError(t, os.RemoveAll(filepath.Join(data, "log")))
	p, _ = serve("2")
	p.stop(t)
	out, err = shards("collect")
	require.NoError(t, err, out)
	require.Contains(t, out, "0 blobs, 0 B, removed; ")

	files := blobs()
	require.NoError(t, os.WriteFile(files[0], []byte("x"), 0o600))
	require.NoError(t, os.Remove(files[1]))
	out, err = shards("check")
	require.Error(t, err)
	require.Contains(t, out, "which has 1 bytes with sha256 ")
	require.Contains(t, out, "which is missing")
	require.Contains(t, out, ": 2 faults")
}
