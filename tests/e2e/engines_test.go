package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/gateway/engine/mock"
	demofiles "turnlog.dev/tokenizer/demo"
)

// TestEveryWireEndsInARow drives the demo's agent through each kind of engine
// and looks at the rows that come out.
func TestEveryWireEndsInARow(t *testing.T) {
	for _, c := range []struct{ name, model, grade string }{
		{"sglang", `engine: sglang, files: demo`, "A"},
		{"vllm", `engine: vllm, files: demo`, "A"},
		{"llamacpp", `engine: llamacpp, files: demo`, "C"}, // it reports no weight version
		{"sglang parses", `engine: sglang, parser: engine, files: demo`, "A"},
		{"vllm parses", `engine: vllm, parser: engine, files: demo`, "A"},
		{"openai", `engine: openai, files: demo`, "D"}, // it took text, and says what it sampled
		{textOnly, `engine: openai, files: demo`, "D"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			_, engine := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0")
			if c.name == textOnly {
				m, err := mock.New(mock.Config{Tokenizer: demofiles.Tokenizer(), Model: "demo", Strict: true})
				require.NoError(t, err)
				srv := httptest.NewServer(m)
				t.Cleanup(srv.Close)
				engine = srv.URL
			}
			p, url := start(t, gatewayReady, nil, "up", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
				"--exporter.flush", "200ms", "--exporter.grades", "[A,B,C,D]", "--logging.level", "warn",
				"--models", fmt.Sprintf(`[{name: demo, %s, backends: [%q], aliases: ["*"]}]`, c.model, engine))
			key, err := stack.AdminKey(filepath.Join(dir, "data", "admin.key"))
			require.NoError(t, err)
			a := &demo.Agent{URL: url, AdminKey: key, HTTP: &http.Client{Timeout: time.Minute}}
			sessions, err := a.Run(t.Context(), "wires", "g", 2)
			require.NoError(t, err, "%s", p.text())
			for _, s := range sessions {
				require.Positive(t, s.Calls, "the agent was given tool calls")
			}
			if c.name == textOnly {
				requireNothingTrained(t, url, key, sessions[0].ID)
				return
			}
			shards, err := local.New(filepath.Join(dir, "data", "shards"))
			require.NoError(t, err)
			var found []*rows.Row
			eventually(t, time.Minute, "rows of both sessions", func(ctx context.Context) bool {
				state, err := exporter.Manifests(shards).Load(ctx)
				require.NoError(t, err)
				found = nil
				for _, f := range state.Files {
					found = append(found, readRows(t, shards.Path(f.Path))...)
				}
				return len(found) >= 2
			})
			for _, r := range found {
				require.Equal(t, c.grade, r.Grade, "%v", r.GradeReasons)
				require.Positive(t, r.TrainableTokens)
			}
			p.stop(t)
		})
	}
}

// textOnly is a server of OpenAI's protocol that returns neither ids nor logprobs.
const textOnly = "openai, text alone"

// requireNothingTrained looks at a session whose engine gave text alone: its
// trajectory is there, tokenized afterwards, and trains nothing, since nobody
// knows which ids were sampled. So it has no row.
func requireNothingTrained(t *testing.T, url, key, session string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/sessions/"+session+"/trajectory?wait=30", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var got struct {
		State    string
		Branches []struct {
			Grade string
			IDs   []int
			Mask  []int
		}
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&got))
	require.Equal(t, "sealed", got.State)
	require.Len(t, got.Branches, 1)
	require.Equal(t, "D", got.Branches[0].Grade)
	require.NotEmpty(t, got.Branches[0].IDs)
	require.NotContains(t, got.Branches[0].Mask, 1)
}

// TestBackendsComeAndGoWhileTurnsAreServed: engines found by name or in the
// environment, added, drained and removed by an operator; sessions move on.
func TestBackendsComeAndGoWhileTurnsAreServed(t *testing.T) {
	_, first := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0")
	_, second := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0")
	host := func(url string) string { _, h, _ := strings.Cut(url, "://"); return h }
	for discover, backends := range map[string]string{"": first, "env": "NO_SUCH_ENGINES, SOME_ENGINES", "dns": first} {
		t.Run("discover "+discover, func(t *testing.T) {
			dir := t.TempDir()
			p, url := start(t, gatewayReady, []string{"SOME_ENGINES=" + first}, "up", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
				"--logging.level", "warn", "--models", fmt.Sprintf(
					`[{name: demo, engine: sglang, files: demo, discover: %q, policy: least_busy, backends: [%s], aliases: ["*"]}]`, discover, backends))
			key, err := stack.AdminKey(filepath.Join(dir, "data", "admin.key"))
			require.NoError(t, err)
			type replica struct {
				Name, State string
				Served      int
			}
			ask := func(method, path, body string, status int) map[string]replica {
				req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
				require.NoError(t, err)
				req.Header.Set("Authorization", "Bearer "+key)
				res, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				defer res.Body.Close()
				raw, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.Equal(t, status, res.StatusCode, "%s %s: %s", method, path, raw)
				var pools map[string]struct{ Replicas []replica }
				if path != "/pools" {
					return nil
				}
				require.NoError(t, json.Unmarshal(raw, &pools))
				out := map[string]replica{}
				for _, r := range pools["demo"].Replicas {
					out[r.Name] = r
				}
				return out
			}
			run := func(group string) {
				a := &demo.Agent{URL: url, AdminKey: key, HTTP: &http.Client{Timeout: time.Minute}}
				_, err := a.Run(t.Context(), "pools", group, 1)
				require.NoError(t, err, "%s", p.text())
			}
			run("one")
			require.Positive(t, ask(http.MethodGet, "/pools", "", http.StatusOK)[host(first)].Served)
			ask(http.MethodPost, "/pools/demo/backends", fmt.Sprintf(`{"url":%q}`, second), http.StatusCreated)
			ask(http.MethodPost, "/pools/demo/backends", fmt.Sprintf(`{"url":%q}`, second), http.StatusConflict)
			ask(http.MethodPost, "/pools/demo/backends", `{"url":"nowhere"}`, http.StatusBadRequest)
			ask(http.MethodPost, "/pools/other/backends", fmt.Sprintf(`{"url":%q}`, second), http.StatusNotFound)
			ask(http.MethodPost, "/pools/demo/backends/"+host(first)+"/drain", "", http.StatusOK)
			run("two")
			now := ask(http.MethodGet, "/pools", "", http.StatusOK)
			require.Positive(t, now[host(second)].Served)
			require.Equal(t, "draining", now[host(first)].State)
			ask(http.MethodPost, "/pools/demo/backends/"+host(first)+"/resume", "", http.StatusOK)
			ask(http.MethodDelete, "/pools/demo/backends/"+host(second), "", http.StatusOK)
			ask(http.MethodDelete, "/pools/demo/backends/"+host(second), "", http.StatusNotFound)
			run("three")
			now = ask(http.MethodGet, "/pools", "", http.StatusOK)
			require.Len(t, now, 1)
			require.Equal(t, "up", now[host(first)].State)
			p.stop(t)
		})
	}
}
