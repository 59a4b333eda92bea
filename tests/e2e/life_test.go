package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/stack"
)

// output runs a command to its end and returns what it says.
func output(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	return string(out), err
}

// all starts the all-in-one on a data folder and returns an agent for it.
func all(t *testing.T, data string, args ...string) (*process, *agent) {
	p, url := start(t, gatewayReady, nil, append([]string{"up", "--data", data, "--listen", "127.0.0.1:0", "--logging.level", "warn"}, args...)...)
	key, err := stack.AdminKey(filepath.Join(data, "admin.key"))
	require.NoError(t, err)
	return p, &agent{url: url, key: key, http: &http.Client{Timeout: time.Minute}}
}

// TestStoppingGivesTheAnswersUnderWay sends a request, stops the process while
// the engine samples, and expects the answer, in the log too.
func TestStoppingGivesTheAnswersUnderWay(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p, a := all(t, data)
	var opened struct{ Session, Key string }
	require.NoError(t, a.post(t.Context(), "/sessions", a.key, map[string]any{"session": "s"}, nil, &opened))
	body := []byte(`{"messages":[{"role":"user","content":"mock: pace 100ms\nmock: say it takes about two seconds to say all of this"}],"stream":true}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/chat/completions", bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+opened.Key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	first := make([]byte, 1)
	_, err = io.ReadFull(res.Body, first) // the engine samples
	require.NoError(t, err)
	p.stop(t)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(rest), "data: [DONE]")

	said, err := output("verify", "--data", data, "--session", "s", "--logging.level", "warn")
	require.NoError(t, err, said)
	require.Contains(t, said, "1 turns")
	require.Contains(t, said, "0 findings")
}

// TestASecondStartGoesOnWithTheSameData continues a session over a restart.
func TestASecondStartGoesOnWithTheSameData(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	text := func(s string) *string { return &s }
	history := []chatMessage{{Role: "user", Content: text("One.")}}
	for start := range 3 {
		p, a := all(t, data)
		var opened struct{ Session, Key string }
		require.NoError(t, a.post(t.Context(), "/sessions", a.key, map[string]any{"session": "s"}, nil, &opened))
		answer, _, err := a.chat(t.Context(), opened.Key, history, start, false, "")
		require.NoError(t, err)
		history = append(history, answer)
		for _, c := range answer.ToolCalls {
			history = append(history, chatMessage{Role: "tool", ToolCallID: c.ID, Content: text("result")})
		}
		history = append(history, chatMessage{Role: "user", Content: text(fmt.Sprint("Next ", start))})
		p.stop(t)
	}
	p, a := all(t, data)
	var shown struct {
		Turns []struct{ Decision string }
	}
	res, err := a.get(t.Context(), "/sessions/s")
	require.NoError(t, err)
	require.NoError(t, decode(res, &shown))
	require.Len(t, shown.Turns, 3)
	require.Equal(t, "extend", shown.Turns[2].Decision)
	p.stop(t)
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	p, a := all(t, data)
	require.NoError(t, a.session(t.Context(), testRand(), "g", 0, 1))

	address := a.url[len("http://"):]
	said, err := output("up", "--data", filepath.Join(dir, "other"), "--listen", address)
	require.Error(t, err)
	require.Contains(t, said, "--listen")
	require.NoDirExists(t, filepath.Join(dir, "other"), "nothing is made when the port is taken")

	said, err = output("up", "--data", data, "--listen", "127.0.0.1:0")
	require.Error(t, err)
	require.Contains(t, said, "in use")
	p.stop(t)

	foreign := filepath.Join(dir, "foreign")
	require.NoError(t, os.MkdirAll(foreign, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.txt"), []byte("mine"), 0o644))
	said, err = output("up", "--data", foreign, "--listen", "127.0.0.1:0")
	require.Error(t, err)
	require.Contains(t, said, "--data")
	entries, err := os.ReadDir(foreign)
	require.NoError(t, err)
	require.Len(t, entries, 1)

	said, err = output("verify", "--data", filepath.Join(dir, "nowhere"))
	require.Error(t, err)
	require.Contains(t, said, "nowhere")
	require.NoDirExists(t, filepath.Join(dir, "nowhere"), "a reader makes nothing")
}

// TestALogThatLostEventsIsNotServed takes a block of the turn stream away.
func TestALogThatLostEventsIsNotServed(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p, a := all(t, data)
	require.NoError(t, a.session(t.Context(), testRand(), "g", 0, 1))
	eventually(t, time.Minute, "the recorder has read the session", func(ctx context.Context) bool {
		res, err := a.get(ctx, "/sessions?state=closed")
		require.NoError(t, err)
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return len(raw) > 0
	})
	p.stop(t)
	blocks, err := filepath.Glob(filepath.Join(data, "log", "jetstream", "*", "streams", "tl-default-s-00", "msgs", "*.blk"))
	require.NoError(t, err)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		require.NoError(t, os.Remove(b))
	}
	said, err := output("up", "--data", data, "--listen", "127.0.0.1:0")
	require.Error(t, err, said)
	require.Contains(t, said, "damaged")
}

func testRand() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }
