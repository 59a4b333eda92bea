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
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/llamacpp"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/hub"
	"turnlog.dev/tokenizer/parse"
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
	a, found := recorded(t, "gemma", "llamacpp", os.Getenv("REAL_FILES"), server, 2, nil)
	var f figures
	for _, r := range found {
		rescore(t, server, r, &f)
	}
	require.Len(t, a.given, f.turns)
	f.report(t, a)
}

// recorded has the agents of two groups talk, and whatever more they do, and
// returns them with the rows that come out.
func recorded(t *testing.T, name, engine, files, server string, groups int, more func(*agent)) (*agent, []*rows.Row) {
	data, address := filepath.Join(t.TempDir(), "data"), freePort(t)
	p, url := start(t, gatewayReady, nil,
		"up", "--data", data, "--listen", address, "--exporter.flush", "300ms", "--logging.level", "warn",
		"--log.max-bytes", strconv.Itoa(1<<30),
		"--models", fmt.Sprintf(`[{name: %s, files: %q, engine: %s, backends: [%q], aliases: ["*"]}]`, name, files, engine, server))
	key, err := stack.AdminKey(filepath.Join(data, "admin.key"))
	require.NoError(t, err)
	a := &agent{url: url, key: key, http: &http.Client{Timeout: 10 * time.Minute}}
	begun := time.Now()
	for group := range 2 {
		for index := range 2 {
			talk(t, a, fmt.Sprint(name, "-", group), index)
		}
	}
	t.Logf("%d turns in %v", len(a.given), time.Since(begun).Round(time.Second))
	if more != nil {
		more(a)
	}
	shards, err := local.New(filepath.Join(data, "shards"))
	require.NoError(t, err)
	eventually(t, time.Minute, "all groups are exported", func(ctx context.Context) bool {
		state, err := exporter.Manifests(shards).Load(ctx)
		require.NoError(t, err)
		return int(state.Totals.GroupsExported) == groups
	})
	p.stop(t)
	state, err := exporter.Manifests(shards).Load(t.Context())
	require.NoError(t, err)
	var found []*rows.Row
	for _, file := range state.Files {
		found = append(found, readRows(t, shards.Path(file.Path))...)
	}
	return a, found
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

// TestARealServerTakesOurGrammars: llama.cpp reads the grammar of a forced call
// in every format, and what it samples under it is read as the call.
func TestARealServerTakesOurGrammars(t *testing.T) {
	e, err := llamacpp.New(llamacpp.Config{Config: wire.Config{URL: startLlama(t)}})
	require.NoError(t, err)
	files, err := hub.Hub{}.Open(t.Context(), os.Getenv("REAL_FILES"))
	require.NoError(t, err)
	tools, err := message.ParseTools([]byte(`[{"type":"function","function":{"name":"go","parameters":{"type":"object","required":["fast","how"],"properties":{
		"fast":{"type":"boolean"},"how":{"enum":["by road","by sea"]},"stops":{"type":"array","items":{"type":"integer"}},"note":{"type":"string"}}}}}]`))
	require.NoError(t, err)
	called := 0
	for _, f := range parse.Formats() {
		g := parse.Bind(f, files.Tokenizer, nil)
		calls, err := g.Forced(tools, "go", true)
		if err != nil {
			require.Equal(t, parse.Harmony.Name, f.Name, "its marks must be tokens, which this model has not: %v", err)
			continue
		}
		seed := int64(0)
		p := g.Parser(parse.Options{Tools: tools})
		report, err := e.Generate(t.Context(), engine.Request{
			ID: "forced", Prompt: files.Tokenizer.Encode(nil, "Question: how do we get there?\nAnswer: "), RoutedFrom: -1,
			Sampling: engine.Sampling{MaxTokens: 90, Seed: &seed}, Grammar: &engine.Grammar{Kind: "tool_choice", Pattern: &calls},
		}, func(c engine.Chunk) error { p.Push(c.IDs); return nil })
		require.NoError(t, err, f.Name)
		if report.FinishReason != "stop" {
			continue // a text that did not come to its end
		}
		reply, _ := p.Finish("stop")
		require.Len(t, reply.Calls, 1, "%s: %+v", f.Name, reply)
		var arguments struct {
			Fast *bool
			How  string
		}
		require.NoError(t, json.Unmarshal([]byte(reply.Calls[0].Arguments), &arguments), reply.Calls[0].Arguments)
		require.NotNil(t, arguments.Fast)
		require.Contains(t, []string{"by road", "by sea"}, arguments.How)
		called++
	}
	t.Logf("%d answers under the grammars of %d formats came to their end, all of them calls", called, len(parse.Formats())-1)
	require.Positive(t, called)
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

// report says how far the logprobs are from those that were asked for again, which
// must not be far.
func (f *figures) report(t *testing.T, a *agent) {
	require.Positive(t, f.tokens)
	slices.Sort(f.differences)
	mean := 0.0
	for _, d := range f.differences {
		mean += d / float64(len(f.differences))
	}
	at := func(q float64) float64 { return f.differences[int(q*float64(len(f.differences)-1))] }
	t.Logf("%d sessions, %d turns; %d rows scored again, of grades %v, with %d tokens, %d of them trained", len(a.closed), len(a.given), f.rows, f.grades, f.length, f.tokens)
	t.Logf("logprobs asked for again differ by: mean %.6f, median %.6f, p99 %.6f, at most %.6f; %d of %d are equal bit by bit", mean, at(0.5), at(0.99), at(1), f.equal, f.tokens)
	require.LessOrEqual(t, at(1), tolerance)
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
