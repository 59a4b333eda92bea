package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family/familytest"
)

// TestAnEngineThatCannotServeIsSaidAtTheStart: what a user reads has the cause
// and what to do about it, and nothing was started.
func TestAnEngineThatCannotServeIsSaidAtTheStart(t *testing.T) {
	engine := func(change func(*mock.Config)) http.Handler {
		cfg := mock.Config{Tokenizer: demo.Tokenizer(), Model: "demo"}
		change(&cfg)
		m, err := mock.New(cfg)
		require.NoError(t, err)
		return m
	}
	plain := engine(func(*mock.Config) {})
	ids := regexp.MustCompile(`"(input_ids|prompt)":\[[0-9]+`)
	for name, c := range map[string]struct {
		model  string
		engine http.Handler
		want   []string
	}{
		"another tokenizer": {
			"engine: vllm", engine(func(c *mock.Config) { c.Tokenizer = familytest.Checkpoints()[0].Tokenizer() }),
			[]string{"the engine has another tokenizer: token ", "set files of the model to those of the model that the engine serves"},
		},
		"a flag is missing": {
			"engine: vllm, parser: engine", engine(func(c *mock.Config) { c.NoScaleOut = true }),
			[]string{"start vLLM with --enable-scale-out"},
		},
		"ids are ignored": {
			"engine: vllm", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				body = ids.ReplaceAll(body, []byte(`"$1":[7`))
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				plain.ServeHTTP(w, r)
			}),
			[]string{"the engine used other prompt ids than the", "is something between us that renders prompts again?"},
		},
		"another kind of server": {
			"engine: sglang", http.NotFoundHandler(), []string{"the engine has no such path or model; is it the kind of server that the model's engine names?"},
		},
		"another tokenizer, llama.cpp": {
			"engine: llamacpp", engine(func(c *mock.Config) { c.Tokenizer = familytest.Checkpoints()[0].Tokenizer() }), []string{"the engine has another tokenizer"},
		},
		"another model, by text": {
			"engine: openai", engine(func(c *mock.Config) { c.Model = "qwen" }), []string{`the engine serves qwen, not the model "demo"; set upstream_model of the model to a name that it serves`},
		},
		"another model, by ids": {
			"engine: vllm, upstream_model: tuned", engine(func(c *mock.Config) { c.Model, c.Adapters = "qwen", []string{"tune"} }), []string{`the engine serves qwen, tune, not the model "tuned"; set upstream_model of the model to a name that it serves`},
		},
		"a key is missing, by text": {
			"engine: openai", engine(func(c *mock.Config) { c.APIKey = "secret" }), []string{"the engine does not take our key; set api_key_file of the model"},
		},
		"a key is missing": {
			"engine: vllm", engine(func(c *mock.Config) { c.APIKey = "secret" }), []string{"the engine does not take our key; set api_key_file of the model"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(c.engine)
			t.Cleanup(srv.Close)
			data := filepath.Join(t.TempDir(), "data")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what serves does not end
			defer cancel()
			out, err := exec.CommandContext(ctx, binary, "up", "--data", data, "--listen", "127.0.0.1:0", "--logging.level", "warn",
				"--models", fmt.Sprintf(`[{name: demo, files: demo, %s, backends: [%q]}]`, c.model, srv.URL)).CombinedOutput()
			require.Error(t, err)
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			said := lines[len(lines)-1]
			for _, want := range append(c.want, "turnlog: model demo: backend "+strings.TrimPrefix(srv.URL, "http://")+": ") {
				require.Contains(t, said, want)
			}
		})
	}
	t.Run("no engine answers", func(t *testing.T) {
		p, _ := start(t, gatewayReady, nil, "up", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--logging.level", "warn",
			"--models", fmt.Sprintf(`[{name: demo, files: demo, engine: vllm, backends: ["http://%s"]}]`, freePort(t)))
		require.Contains(t, p.text(), "no engine answers yet; turns fail until one does: is it running at this address?")
		p.stop(t)
	})
}
