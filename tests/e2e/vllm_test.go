//go:build real

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/rows"
)

// TestARealVLLMsAnswersComeOutAsTheyWereSampled has agents talk to vLLM on CPU
// with a tiny random model, forces calls, exports the sessions, and has vLLM
// score the rows again.
func TestARealVLLMsAnswersComeOutAsTheyWereSampled(t *testing.T) {
	server := startVLLM(t)
	a, found := recorded(t, "tiny", "vllm", os.Getenv("VLLM_FILES"), server, 3, func(a *agent) { force(t, a) })
	f := figures{highest: -math.MaxFloat32}
	for _, r := range found {
		if slices.ContainsFunc(r.GradeReasons, func(s string) bool { return strings.HasPrefix(s, "constrained") }) {
			f.grades = append(f.grades, fmt.Sprint(r.Grade, r.GradeReasons))
			continue // logprobs of what the grammar left
		}
		rescoreRow(t, server, r, &f)
	}
	f.report(t, a)
	t.Logf("logprobs lie between %.2f and %.2f", f.lowest, f.highest)
	require.Greater(t, f.highest-f.lowest, float32(3), "tokens that are all as likely would hide a shift")
}

// force has a session in which the model, which knows no tools, must call one.
func force(t *testing.T, a *agent) {
	var opened struct{ Session, Key string }
	require.NoError(t, a.post(t.Context(), "/sessions", a.key, map[string]any{"run": "real", "group": "forced", "index": 0, "group_size": 1}, nil, &opened))
	for _, choice := range []any{"required", map[string]any{"type": "function", "function": map[string]any{"name": "go"}}} {
		var reply struct {
			ID      string
			Choices []struct {
				Message struct {
					Calls []struct {
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
			}
		}
		require.NoError(t, a.post(t.Context(), "/v1/chat/completions", opened.Key, map[string]any{
			"model": "tiny", "max_tokens": 400, "temperature": 1, "tool_choice": choice, "parallel_tool_calls": false,
			"chat_template_kwargs": map[string]any{"enable_thinking": false},
			"messages":             []map[string]any{{"role": "user", "content": "Go on."}},
			"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "go", "parameters": map[string]any{
				"type": "object", "properties": map[string]any{"fast": map[string]any{"type": "boolean"}}, "required": []string{"fast"}, "additionalProperties": false,
			}}}},
		}, nil, &reply))
		a.given = append(a.given, given{session: opened.Session, turn: reply.ID})
		require.Len(t, reply.Choices[0].Message.Calls, 1)
		call := reply.Choices[0].Message.Calls[0].Function
		require.Equal(t, "go", call.Name)
		var arguments struct{ Fast *bool }
		require.NoError(t, json.Unmarshal([]byte(call.Arguments), &arguments))
		require.NotNil(t, arguments.Fast)
	}
	require.NoError(t, a.post(t.Context(), "/sessions/"+opened.Session+"/close", a.key, map[string]any{"reward": 1.0}, nil, nil))
	a.closed = append(a.closed, opened.Session)
}

// startVLLM runs the server on the tiny model and returns its URL.
func startVLLM(t *testing.T) string {
	t.Helper()
	address := freePort(t)
	_, port, _ := strings.Cut(address, ":")
	log, err := os.Create(filepath.Join(t.TempDir(), "vllm.log"))
	require.NoError(t, err)
	cmd := exec.Command(os.Getenv("VLLM_PYTHON"), "-m", "vllm.entrypoints.openai.api_server", "--model", os.Getenv("VLLM_FILES"),
		"--served-model-name", "tiny", "--host", "127.0.0.1", "--port", port, "--dtype", "float32", "--max-model-len", "4096", "--enforce-eager")
	cmd.Env = append(os.Environ(), "VLLM_TARGET_DEVICE=cpu", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "HF_HUB_OFFLINE=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start(), "is VLLM_PYTHON set? tests/e2e/vllm.sh sets it")
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its engine is a process of its own
		_ = cmd.Wait()
		log.Close()
	})
	url := "http://" + address
	eventually(t, 5*time.Minute, "vLLM is ready; see "+log.Name(), func(context.Context) bool {
		res, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return url
}

// rescoreRow has vLLM score a row as a prompt.
func rescoreRow(t *testing.T, server string, r *rows.Row, f *figures) {
	body, err := json.Marshal(map[string]any{
		"model": "tiny", "prompt": r.InputIDs, "max_tokens": 1, "prompt_logprobs": 0, "return_tokens_as_token_ids": true,
	})
	require.NoError(t, err)
	res, err := http.Post(server+"/v1/completions", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	raw, err := io.ReadAll(res.Body)
	res.Body.Close()
	require.NoError(t, err)
	var answer struct {
		Choices []struct {
			Prompt []map[string]struct{ Logprob float32 } `json:"prompt_logprobs"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &answer), "%.300s", raw)
	require.Len(t, answer.Choices, 1, "%.300s", raw)
	again := answer.Choices[0].Prompt
	require.Len(t, again, len(r.InputIDs))
	f.rows++
	f.turns += len(r.TurnSeq)
	f.length += len(r.InputIDs)
	f.grades = append(f.grades, fmt.Sprint(r.Grade, r.GradeReasons))
	for i, mask := range r.LossMask {
		if mask == 0 {
			continue
		}
		entry, ok := again[i][strconv.Itoa(int(r.InputIDs[i]))]
		require.True(t, ok, "position %d", i)
		f.tokens++
		f.lowest, f.highest = min(f.lowest, entry.Logprob), max(f.highest, entry.Logprob)
		if entry.Logprob == r.Logprobs[i] {
			f.equal++
		}
		f.differences = append(f.differences, math.Abs(float64(entry.Logprob)-float64(r.Logprobs[i])))
	}
}
