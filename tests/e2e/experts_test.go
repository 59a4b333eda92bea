package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/schema/event"
)

// TestExpertsThatTheModelChoseStandBesideTheRow follows them from the engine to
// what a trainer reads: each turn has what the turns before it have not, and
// together they are those of every token of the row but the last.
func TestExpertsThatTheModelChoseStandBesideTheRow(t *testing.T) {
	for _, c := range []struct {
		name, model, dtype string
		flags              []string
		none               bool
	}{
		{name: "sglang", model: `engine: sglang, routed_top_k: 2, routed_layers: 4`, dtype: "int32", flags: []string{"--experts"}},
		{name: "sglang parses", model: `engine: sglang, parser: engine, routed_top_k: 2`, dtype: "int32", flags: []string{"--experts"}},
		{name: "vllm", model: `engine: vllm`, dtype: "uint8", flags: []string{"--experts"}},
		{name: "vllm parses", model: `engine: vllm, parser: engine`, dtype: "uint8", flags: []string{"--experts"}},
		{name: "a server without the flag", model: `engine: vllm`, none: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			_, engine := start(t, engineReady, nil, append([]string{"engine", "mock", "--listen", "127.0.0.1:0"}, c.flags...)...)
			p, at := start(t, gatewayReady, nil, "up", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
				"--exporter.flush", "200ms", "--logging.level", "warn",
				"--models", fmt.Sprintf(`[{name: demo, files: demo, routed_experts: true, %s, backends: [%q], aliases: ["*"]}]`, c.model, engine))
			key, err := stack.AdminKey(filepath.Join(dir, "data", "admin.key"))
			require.NoError(t, err)
			a := &demo.Agent{URL: at, AdminKey: key, HTTP: &http.Client{Timeout: time.Minute}}
			_, err = a.Run(t.Context(), "experts", "g", 2)
			require.NoError(t, err, "%s", p.text())

			shards, err := local.New(filepath.Join(dir, "data", "shards"))
			require.NoError(t, err)
			found := map[string]*rows.Row{}
			var beside []*rows.BlobRow
			eventually(t, time.Minute, "rows of both sessions", func(ctx context.Context) bool {
				state, err := exporter.Manifests(shards).Load(ctx)
				require.NoError(t, err)
				beside = nil
				for _, f := range state.Files {
					switch f.Profile {
					case manifest.Traj:
						for _, r := range readRows(t, shards.Path(f.Path)) {
							found[r.RowID] = r
						}
					case manifest.Blobs:
						beside = append(beside, readBlobs(t, shards.Path(f.Path))...)
					}
				}
				return len(found) >= 2
			})
			p.stop(t)
			if c.none {
				require.Empty(t, beside, "what was not sent is absent")
				return
			}
			covered := map[string]int{}
			for _, b := range beside {
				row := found[b.RowID]
				require.Equal(t, "routed_experts", b.Kind)
				require.Equal(t, c.dtype, b.DType)
				require.Equal(t, []int64{b.Shape[0], int64(mock.SomeExperts.Layers), int64(mock.SomeExperts.TopK)}, b.Shape)
				require.EqualValues(t, b.Shape[0], b.TokenCount)
				require.Equal(t, covered[b.RowID], int(b.TokenStart), "turns bring what is new, in order and without a gap")
				covered[b.RowID] += int(b.TokenCount)
				requireChosen(t, row.InputIDs, b)
			}
			require.Len(t, covered, len(found))
			for id, row := range found {
				require.Greater(t, len(row.TurnSeq), 1, "a row of several turns")
				require.Equal(t, len(row.InputIDs)-1, covered[id], "the last token has not been through the model")
			}
		})
	}
}

// requireChosen reads an array from where its row says that it is.
func requireChosen(t *testing.T, ids []int32, b *rows.BlobRow) {
	t.Helper()
	u, err := url.Parse(b.URI)
	require.NoError(t, err)
	require.Equal(t, "file", u.Scheme)
	stored, err := os.ReadFile(filepath.FromSlash(u.Path))
	require.NoError(t, err)
	require.EqualValues(t, len(stored), b.Bytes)
	sum := sha256.Sum256(stored)
	require.Equal(t, hex.EncodeToString(sum[:]), b.SHA256)
	data, err := event.Unpack(stored, event.Encoding(b.Codec))
	require.NoError(t, err)
	width := map[string]int{"uint8": 1, "int32": 4}[b.DType]
	n := 0
	for at := int(b.TokenStart); at < int(b.TokenStart+b.TokenCount); at++ {
		for _, want := range mock.SomeExperts.Choose(at, uint32(ids[at])) {
			require.Equal(t, want, data[n*width], "token %d", at)
			n++
		}
	}
	require.Len(t, data, n*width)
}

func readBlobs(t *testing.T, file string) (all []*rows.BlobRow) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for batch, err := range parquet.Read[rows.BlobRow](t.Context(), f) {
		require.NoError(t, err)
		all = append(all, batch...)
	}
	return all
}
