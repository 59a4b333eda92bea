package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
)

// TestAHangupTakesTheBackendsOfTheFileOver: what is new serves, what is gone ends
// what it works on, what came over HTTP stays, and a file at fault changes
// nothing and says why.
func TestAHangupTakesTheBackendsOfTheFileOver(t *testing.T) {
	dir := t.TempDir()
	_, slow := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0", "--delay", "2s")
	_, second := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0")
	_, third := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0")
	file := filepath.Join(dir, "turnlog.yaml")
	write := func(more string, backends ...string) {
		text := fmt.Sprintf("data: %q\nlisten: 127.0.0.1:0\nlogging: {level: warn}\nmodels:\n  - {name: demo, engine: vllm, files: demo, aliases: [\"*\"], backends: [%s]}\n%s",
			filepath.Join(dir, "data"), strings.Join(backends, ", "), more)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("", slow)
	p, url := start(t, gatewayReady, nil, "up", "--config", file)
	key, err := stack.AdminKey(filepath.Join(dir, "data", "admin.key"))
	require.NoError(t, err)
	type replica struct {
		Name, State string
		Served      int
		InFlight    int `json:"in_flight"`
	}
	pools := func(ctx context.Context) map[string]replica {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/pools", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		var all map[string]struct{ Replicas []replica }
		require.NoError(t, json.NewDecoder(res.Body).Decode(&all))
		out := map[string]replica{}
		for _, r := range all["demo"].Replicas {
			out["http://"+r.Name] = r
		}
		return out
	}
	are := func(ctx context.Context, names ...string) bool {
		slices.Sort(names)
		return slices.Equal(slices.Sorted(maps.Keys(pools(ctx))), names)
	}
	run := func(group string) error {
		a := &demo.Agent{URL: url, AdminKey: key, HTTP: &http.Client{Timeout: time.Minute}}
		_, err := a.Run(t.Context(), "reload", group, 1)
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- run("one") }()
	eventually(t, time.Minute, "a turn under way", func(ctx context.Context) bool { return pools(ctx)[slow].InFlight == 1 })

	write("", second)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, time.Minute, "the new backend instead of the old one", func(ctx context.Context) bool { return are(ctx, second) })
	require.NoError(t, <-ended, "what the old one worked on was given")
	require.Positive(t, pools(t.Context())[second].Served, "the session went on there")

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/pools/demo/backends", strings.NewReader(fmt.Sprintf(`{"url":%q}`, third)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	res.Body.Close()
	require.Equal(t, http.StatusCreated, res.StatusCode)

	for fault, change := range map[string]func(){
		"no_such_key":        func() { write("no_such_key: 1\n", slow) },
		"is not http://":     func() { write("", "nowhere") },
		"needs at least one": func() { write("") },
		"and not in the file": func() {
			require.NoError(t, os.WriteFile(file, []byte("models: [{name: x, engine: mock, files: demo}]"), 0o600))
		},
	} {
		change()
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		eventually(t, time.Minute, fault, func(context.Context) bool {
			return slices.ContainsFunc(strings.Split(p.text(), "\n"), func(line string) bool {
				return strings.Contains(line, "was not reloaded") && strings.Contains(line, fault)
			})
		})
		require.True(t, are(t.Context(), second, third), fault)
	}

	write("", second, slow)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, time.Minute, "all three", func(ctx context.Context) bool { return are(ctx, slow, second, third) })
	require.NoError(t, run("two"))
	p.stop(t)
}
