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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink/local"
)

// tolerance is how far a logprob may be from the one that the engine gives when
// it is asked again. The engine runs with batches of one token, so that it
// computes a prompt by the same kernels as an answer.
const tolerance = 0.001

// Of Gemma 3.
const (
	vocabulary = 262144
	endOfText  = 1
)

// TestARealModelsAnswersComeOutAsTheyWereSampled has agents talk to a real model
// on llama.cpp for several turns each, exports the sessions, and asks the engine
// again for the logprob of every token that is trained.
func TestARealModelsAnswersComeOutAsTheyWereSampled(t *testing.T) {
	server := startLlama(t)
	data, address := filepath.Join(t.TempDir(), "data"), freePort(t)
	p, url := start(t, gatewayReady, nil,
		"up", "--data", data, "--listen", address, "--exporter.flush", "300ms", "--logging.level", "warn",
		"--log.max-bytes", strconv.Itoa(1<<30),
		"--models", fmt.Sprintf(`[{name: gemma, files: %q, engine: llamacpp, backends: [%q], aliases: ["*"]}]`, os.Getenv("REAL_FILES"), server))
	key, err := stack.AdminKey(filepath.Join(data, "admin.key"))
	require.NoError(t, err)

	a := &agent{url: url, key: key, http: &http.Client{Timeout: 10 * time.Minute}}
	begun := time.Now()
	for group := range 2 {
		for index := range 2 {
			talk(t, a, fmt.Sprint("real-", group), index)
		}
	}
	took := time.Since(begun)
	t.Logf("%d turns in %v", len(a.given), took.Round(time.Second))
	shards, err := local.New(filepath.Join(data, "shards"))
	require.NoError(t, err)
	eventually(t, time.Minute, "all groups are exported", func(ctx context.Context) bool {
		state, err := exporter.Manifests(shards).Load(ctx)
		require.NoError(t, err)
		return int(state.Totals.GroupsExported) == len(a.closed)/2
	})
	p.stop(t)

	state, err := exporter.Manifests(shards).Load(t.Context())
	require.NoError(t, err)
	var f figures
	for _, file := range state.Files {
		for _, r := range readRows(t, shards.Path(file.Path)) {
			rescore(t, server, r, &f)
		}
	}
	require.Len(t, a.given, f.turns)
	require.Positive(t, f.tokens)
	slices.Sort(f.differences)
	mean := 0.0
	for _, d := range f.differences {
		mean += d / float64(len(f.differences))
	}
	at := func(q float64) float64 { return f.differences[int(q*float64(len(f.differences)-1))] }
	t.Logf("%d sessions, %d turns in %v; %d rows of grades %v with %d tokens, %d of them trained", len(a.closed), len(a.given), took.Round(time.Second), f.rows, f.grades, f.length, f.tokens)
	t.Logf("logprobs asked for again differ by: mean %.6f, median %.6f, p99 %.6f, at most %.6f; %d of %d are equal bit by bit", mean, at(0.5), at(0.99), at(1), f.equal, f.tokens)
	require.LessOrEqual(t, at(1), tolerance)
}

// questions are one session's. What cannot be said in one token each is on
// purpose: the engine hides the logprobs of such tokens.
var questions = []string{
	"The sea 🙂, the wind and the naïve 世界: write one sentence about each.",
	"Count from 1 to 12 in digits, then say which of them are prime.",
	"Thank you. Now repeat the emoji 👩‍💻 and 🚀 three times.",
}

// talk has one session of a few turns, streamed or not in turn.
func talk(t *testing.T, a *agent, group string, index int) {
	var opened struct{ Session, Key string }
	require.NoError(t, a.post(t.Context(), "/sessions", a.key, map[string]any{
		"run": "real", "group": group, "index": index, "group_size": 2,
	}, nil, &opened))
	var history []map[string]any
	for i, question := range questions {
		history = append(history, map[string]any{"role": "user", "content": question})
		body := map[string]any{"model": "gemma", "messages": history, "max_tokens": 48, "seed": 100*index + i, "stream": i%2 == 1}
		var answer chatMessage
		var turn string
		if i%2 == 1 {
			res, err := a.send(t.Context(), "/v1/chat/completions", opened.Key, body, nil)
			require.NoError(t, err)
			answer, turn, err = readStream(res.Body)
			res.Body.Close()
			require.NoError(t, err)
		} else {
			var reply struct {
				ID      string
				Choices []struct{ Message chatMessage }
			}
			require.NoError(t, a.post(t.Context(), "/v1/chat/completions", opened.Key, body, nil, &reply))
			answer, turn = reply.Choices[0].Message, reply.ID
		}
		require.NotNil(t, answer.Content)
		a.given = append(a.given, given{session: opened.Session, turn: turn})
		history = append(history, map[string]any{"role": "assistant", "content": *answer.Content})
	}
	require.NoError(t, a.post(t.Context(), "/sessions/"+opened.Session+"/close", a.key, map[string]any{"reward": float64(index)}, nil, nil))
	a.closed = append(a.closed, opened.Session)
}

// startLlama runs the server on the model and returns its URL.
func startLlama(t *testing.T) string {
	t.Helper()
	address := freePort(t)
	_, port, _ := bytes.Cut([]byte(address), []byte(":"))
	log, err := os.Create(filepath.Join(t.TempDir(), "llama.log"))
	require.NoError(t, err)
	cmd := exec.Command(os.Getenv("LLAMA_SERVER"), "-m", os.Getenv("REAL_GGUF"), "--host", "127.0.0.1", "--port", string(port),
		"-c", "4096", "-np", "1", "--no-context-shift", "--swa-full", "-ub", "1", "-t", "1", "--seed", "1")
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start(), "is LLAMA_SERVER set? tests/e2e/real.sh sets it")
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
	})
	url := "http://" + address
	eventually(t, 2*time.Minute, "the engine is ready", func(context.Context) bool {
		res, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return url
}

// figures are what is said at the end.
type figures struct {
	rows, turns, tokens, length, equal int
	grades                             []string
	differences                        []float64
	lowest, highest                    float32
}

// rescore asks for the logprob of every trained token of a row, after the very
// tokens that stand before it in the row.
func rescore(t *testing.T, server string, r *rows.Row, f *figures) {
	f.rows++
	f.turns += len(r.TurnSeq)
	f.length += len(r.InputIDs)
	f.grades = append(f.grades, fmt.Sprint(r.Grade, r.GradeReasons))
	for i, mask := range r.LossMask {
		if mask == 0 {
			continue
		}
		again := ask(t, server, r.InputIDs[:i], r.InputIDs[i])
		f.tokens++
		d := math.Abs(float64(again) - float64(r.Logprobs[i]))
		if again == r.Logprobs[i] {
			f.equal++
		}
		f.differences = append(f.differences, d)
	}
}

// ask returns the logprob of id after prefix. The end token is forced by a bias,
// which leaves the listed logprobs as they are.
func ask(t *testing.T, server string, prefix []int32, id int32) float32 {
	for _, top := range []int{1000, vocabulary} {
		body, err := json.Marshal(map[string]any{
			"prompt": prefix, "n_predict": 1, "n_probs": top, "cache_prompt": true, "logit_bias": [][]any{{endOfText, 1e4}},
		})
		require.NoError(t, err)
		res, err := http.Post(server+"/completion", "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		raw, err := io.ReadAll(res.Body)
		res.Body.Close()
		require.NoError(t, err)
		var answer struct {
			Completion []struct {
				Top []struct {
					ID      int32
					Logprob float32
				} `json:"top_logprobs"`
			} `json:"completion_probabilities"`
		}
		require.NoError(t, json.Unmarshal(raw, &answer), "%.300s", raw)
		require.Len(t, answer.Completion, 1, "%.300s", raw)
		for _, c := range answer.Completion[0].Top {
			if c.ID == id {
				return c.Logprob
			}
		}
	}
	require.Fail(t, "the engine does not list the token", "%d", id)
	return 0
}
