package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withGateway runs turnlog sessions against a gateway that answers as it is told.
func withGateway(t *testing.T, answer http.HandlerFunc) func(args ...string) (string, error) {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, "admin.key"), []byte("secret\n"), 0o600))
	return func(args ...string) (string, error) {
		return turnlog(t, append(append([]string{"sessions"}, args...), "--data", data, "--listen", strings.TrimPrefix(srv.URL, "http://"))...)
	}
}

func TestAnErrorAboutSessionsSaysWhatToDo(t *testing.T) {
	status := http.StatusNotFound
	sessions := withGateway(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer secret" {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"message":"the gateway's words","type":"t","code":"c"}}`)
		}
	})
	_, err := sessions("show", "nope")
	require.ErrorContains(t, err, `has no session "nope"; turnlog sessions list shows`)
	require.NotContains(t, err.Error(), "{")
	status = http.StatusUnauthorized
	_, err = sessions("show", "nope")
	require.ErrorContains(t, err, "--keys.admin-file")
	status = http.StatusBadRequest
	_, err = sessions("list", "--state", "odd")
	require.ErrorContains(t, err, "400 Bad Request: the gateway's words")
	_, err = sessions("show")
	require.ErrorContains(t, err, "turnlog sessions show SESSION")
	_, err = turnlog(t, "sessions", "lst")
	require.ErrorContains(t, err, "unknown command")
	_, err = turnlog(t, "sessions", "list", "--data", filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "--data")
}

func TestAnotherServerIsNoGateway(t *testing.T) {
	sessions := withGateway(t, http.NotFound)
	for _, args := range [][]string{{"list"}, {"show", "s"}} {
		_, err := sessions(args...)
		require.ErrorContains(t, err, "no gateway answers at http://127.0.0.1:")
		require.ErrorContains(t, err, "but another server (404 Not Found): say where the gateway is with --listen")
	}
}

func TestASessionIsShownAsATree(t *testing.T) {
	sessions := withGateway(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/parked" {
			return // none is
		}
		_, _ = io.WriteString(w, `{"session":"s","run":"r","state":"closed","reason":"completed","group":"g","index":2,"task":"x","reward":0.5,"aborted":1,"turns":[
			{"turn":"a","class":"main","decision":"root","reason":"first_turn","finish_reason":"stop","prompt_tokens":9,"completion_tokens":3},
			{"turn":"b","parent":"a","class":"main","decision":"extend","finish_reason":"stop","prompt_tokens":20,"parent_keep":12,"completion_tokens":3},
			{"turn":"c","parent":"a","class":"side","decision":"branch","reason":"rewind","finish_reason":"length","prompt_tokens":21,"parent_keep":12,"completion_tokens":4},
			{"turn":"d","parent":"b","class":"main","decision":"extend","finish_reason":"stop","prompt_tokens":30,"parent_keep":23,"completion_tokens":1}]}`)
	})
	out, err := sessions("show", "s")
	require.NoError(t, err)
	require.Equal(t, `s  run r, group g #2, task x, closed (completed), 4 turns, 1 aborted, reward 0.5
a  +9 prompt, 3 sampled, stop  (root: first_turn)
├ b  +8 prompt, 3 sampled, stop
│ d  +7 prompt, 1 sampled, stop
└ c  +9 prompt, 4 sampled, length  (branch: rewind)  [side]
`, out)
}

func TestSessionsAreListedInColumns(t *testing.T) {
	rows := `{"id":"second","run":"r","state":"open","events":1,"opened_at":"2026-01-02T00:00:01Z"}
{"id":"s","run":"long-name","group":"g","state":"closed","events":9,"turns":12,"reward":1,"opened_at":"2026-01-02T00:00:00Z"}
`
	sessions := withGateway(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, rows) })
	out, err := sessions("list")
	require.NoError(t, err)
	lines := strings.Split(out, "\n")
	require.Len(t, lines, 4)
	require.Regexp(t, `^SESSION  RUN        GROUP  STATE   TURNS  GENERATED  TRAINABLE  REWARD  OPENED$`, lines[0])
	require.Regexp(t, `^s        long-name  g      closed  12     0          0          1       20`, lines[1])
	require.Regexp(t, `^second   r          -      open    0      0          0          -       20`, lines[2])
	rows = ""
	out, err = sessions("list")
	require.NoError(t, err)
	require.Empty(t, out, "that there are none is for the eye")
}
