package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/gateway/engine/mock"
	demofiles "turnlog.dev/tokenizer/demo"
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

// TestAHangupTakesTheModelsOfTheFileOver: a new one serves and is recorded, one
// that is gone ends what it works on, and one that cannot be served leaves all as
// it was and says why.
func TestAHangupTakesTheModelsOfTheFileOver(t *testing.T) {
	dir := t.TempDir()
	_, slow := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0", "--delay", "2s")
	_, quick := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0")
	file := filepath.Join(dir, "turnlog.yaml")
	write := func(models ...string) {
		text := fmt.Sprintf("data: %q\nlisten: 127.0.0.1:0\nlogging: {level: info}\nexporter: {flush: 300ms}\nmodels:\n%s\n",
			filepath.Join(dir, "data"), strings.Join(models, "\n"))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	model := func(name, url, more string) string {
		return fmt.Sprintf("  - {name: %s, engine: vllm, files: demo, backends: [%s]%s}", name, url, more)
	}
	write(model("old", slow, ""))
	p, url := start(t, gatewayReady, nil, "up", "--config", file)
	key, err := stack.AdminKey(filepath.Join(dir, "data", "admin.key"))
	require.NoError(t, err)
	a := &agent{url: url, key: key, http: &http.Client{Timeout: time.Minute}}
	type stats struct {
		Replicas []struct {
			InFlight int `json:"in_flight"`
		}
	}
	pools := func(ctx context.Context) (all map[string]stats) {
		res, err := a.get(ctx, "/pools")
		require.NoError(t, err)
		defer res.Body.Close()
		require.NoError(t, json.NewDecoder(res.Body).Decode(&all))
		return all
	}
	served := func(ctx context.Context) (names []string) {
		return slices.Sorted(maps.Keys(pools(ctx)))
	}
	reload := func(want string) {
		t.Helper()
		seen := strings.Count(p.text(), want)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		eventually(t, time.Minute, want, func(context.Context) bool { return strings.Count(p.text(), want) > seen })
	}
	// turn makes one turn of a new session, ends it and returns how it went.
	turn := func(ctx context.Context, group, name string) error {
		var opened struct{ Session, Key string }
		if err := a.post(ctx, "/sessions", key, map[string]any{"run": "reload", "group": group, "group_size": 1}, nil, &opened); err != nil {
			return err
		}
		var reply map[string]any
		err := a.post(ctx, "/v1/chat/completions", opened.Key, map[string]any{
			"model": name, "messages": []map[string]any{{"role": "user", "content": "Hello."}},
		}, nil, &reply)
		if err == nil {
			err = a.post(ctx, "/sessions/"+opened.Session+"/close", key, map[string]any{"reward": 1}, nil, nil)
		}
		return err
	}

	ended := make(chan error, 1)
	go func() { ended <- turn(t.Context(), "one", "old") }()
	eventually(t, time.Minute, "a turn under way", func(ctx context.Context) bool {
		return pools(ctx)["old"].Replicas[0].InFlight == 1
	})
	write(model("new", quick, ""), "  - {name: self, engine: mock, files: demo}")
	reload("configuration reloaded")
	require.Equal(t, []string{"new", "self"}, served(t.Context()))
	require.NoError(t, turn(t.Context(), "two", "new"))
	require.NoError(t, turn(t.Context(), "three", "self"))
	require.ErrorContains(t, turn(t.Context(), "four", "old"), "does not exist; known models: new, self")
	require.NoError(t, <-ended, "what the old one worked on was given")

	for models, fault := range map[string]string{
		strings.Replace(model("wrong", quick, ""), "files: demo", "files: "+filepath.Join(dir, "none"), 1): "model wrong: hub: ",
		model("locked", quick, ", api_key_file: "+filepath.Join(dir, "none")):                              "model locked: api_key_file: ",
	} {
		write(model("newer", quick, ""), models)
		reload("was not reloaded")
		require.Contains(t, p.text(), fault)
		require.Equal(t, []string{"new", "self"}, served(t.Context()), fault)
	}

	// A model that differs is served in its new form, and again in its old one.
	write(model("new", quick, ", aliases: [\"other-*\"]"))
	reload("configuration reloaded")
	require.Equal(t, []string{"new"}, served(t.Context()))
	require.NoError(t, turn(t.Context(), "five", "other-name"))
	write(model("new", quick, ""))
	reload("configuration reloaded")
	require.ErrorContains(t, turn(t.Context(), "six", "other-name"), "does not exist")

	shards, err := local.New(filepath.Join(dir, "data", "shards"))
	require.NoError(t, err)
	eventually(t, time.Minute, "all groups are exported", func(ctx context.Context) bool {
		state, err := exporter.Manifests(shards).Load(ctx)
		require.NoError(t, err)
		return int(state.Totals.GroupsExported) == 4
	})
	p.stop(t)
	state, err := exporter.Manifests(shards).Load(t.Context())
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, f := range state.Files {
		for _, r := range readRows(t, shards.Path(f.Path)) {
			require.Equal(t, "A", r.Grade, "%s: %v", r.Model, r.GradeReasons)
			seen[r.Model] = true
		}
	}
	require.Equal(t, []string{"new", "old", "self"}, slices.Sorted(maps.Keys(seen)), "the recorder knew each")
}

// TestANameThatCannotBeLookedUpLeavesAModelAsItIs: what else the file says is taken
// over, and once the name is known the model has its new backends.
func TestANameThatCannotBeLookedUpLeavesAModelAsItIs(t *testing.T) {
	dir := t.TempDir()
	_, first := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0", "--model", "base", "--adapters", "one,two")
	_, second := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0", "--model", "base", "--adapters", "two")
	file := filepath.Join(dir, "turnlog.yaml")
	write := func(models ...string) {
		text := fmt.Sprintf("data: %q\nlisten: 127.0.0.1:0\nlogging: {level: info}\nmodels:\n%s\n", filepath.Join(dir, "data"), strings.Join(models, "\n"))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	named := func(url string) string {
		return fmt.Sprintf("  - {name: named, upstream_model: two, engine: vllm, files: demo, discover: dns, backends: [%s]}", url)
	}
	write(named(first))
	p, url := start(t, gatewayReady, nil, "up", "--config", file)
	key, err := stack.AdminKey(filepath.Join(dir, "data", "admin.key"))
	require.NoError(t, err)
	a := &agent{url: url, key: key, http: &http.Client{Timeout: time.Minute}}
	backends := func(ctx context.Context, model string) (names []string) {
		res, err := a.get(ctx, "/pools")
		require.NoError(t, err)
		defer res.Body.Close()
		var pools map[string]struct{ Replicas []struct{ Name string } }
		require.NoError(t, json.NewDecoder(res.Body).Decode(&pools))
		for _, r := range pools[model].Replicas {
			names = append(names, "http://"+r.Name)
		}
		return names
	}
	reload := func() {
		seen := strings.Count(p.text(), "configuration reloaded")
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		eventually(t, time.Minute, "reloaded", func(context.Context) bool { return strings.Count(p.text(), "configuration reloaded") > seen })
	}

	write(named("http://no..such..name:8000"), fmt.Sprintf("  - {name: new, engine: vllm, files: demo, backends: [%s]}", second))
	reload()
	require.Contains(t, p.text(), "the names of a model's backends cannot be looked up; it keeps those that it has")
	require.Equal(t, []string{first}, backends(t.Context(), "named"))
	require.Equal(t, []string{second}, backends(t.Context(), "new"))
	for _, model := range []string{"named", "new"} {
		var opened struct{ Session, Key string }
		require.NoError(t, a.post(t.Context(), "/sessions", key, map[string]any{"run": "reload"}, nil, &opened))
		var reply map[string]any
		require.NoError(t, a.post(t.Context(), "/v1/chat/completions", opened.Key, map[string]any{
			"model": model, "messages": []map[string]any{{"role": "user", "content": "Hello."}},
		}, nil, &reply))
		require.Equal(t, model, reply["model"], "the agent reads the name that it asked for")
	}

	write(named(second))
	reload()
	require.Equal(t, []string{second}, backends(t.Context(), "named"))
	p.stop(t)
}

// TestAHangupTakesANewKeyOfTheEngineOver: the configuration is the same, what a file
// holds that it names is not.
func TestAHangupTakesANewKeyOfTheEngineOver(t *testing.T) {
	dir := t.TempDir()
	plain, err := mock.New(mock.Config{Tokenizer: demofiles.Tokenizer(), Model: "demo"})
	require.NoError(t, err)
	var wanted atomic.Value
	wanted.Store("old")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+wanted.Load().(string) {
			http.Error(w, `{"error":{"message":"who are you?"}}`, http.StatusUnauthorized)
			return
		}
		plain.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	file, keyFile := filepath.Join(dir, "turnlog.yaml"), filepath.Join(dir, "engine.key")
	require.NoError(t, os.WriteFile(keyFile, []byte("old\n"), 0o600))
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
		"data: %q\nlisten: 127.0.0.1:0\nmodels:\n  - {name: demo, engine: vllm, files: demo, api_key_file: %q, backends: [%s]}\n",
		filepath.Join(dir, "data"), keyFile, srv.URL), 0o600))
	p, url := start(t, gatewayReady, nil, "up", "--config", file)
	key, err := stack.AdminKey(filepath.Join(dir, "data", "admin.key"))
	require.NoError(t, err)
	run := func(group string) error {
		_, err := (&demo.Agent{URL: url, AdminKey: key, HTTP: &http.Client{Timeout: time.Minute}}).Run(t.Context(), "keys", group, 1)
		return err
	}
	hangup := func(want string) {
		seen := strings.Count(p.text(), want)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		eventually(t, time.Minute, want, func(context.Context) bool { return strings.Count(p.text(), want) > seen })
	}
	require.NoError(t, run("one"))
	require.NoError(t, os.WriteFile(keyFile, []byte("new\n"), 0o600))
	hangup("was not reloaded") // the engine does not take it yet
	require.NoError(t, run("two"))
	wanted.Store("new")
	hangup("configuration reloaded")
	require.NoError(t, run("three"))
	p.stop(t)
}
