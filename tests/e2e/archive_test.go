package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/archive"
)

// archiving are the settings of a log that is moved to the archive soon.
var archiving = []string{
	"--recorder.archive.after", "10s", "--gateway.generate-timeout", "5s", "--gateway.append-timeout", "4s", "--logging.level", "error",
}

// rows are what GET /sessions lists of a state.
func (a *agent) rows(ctx context.Context, t *testing.T, state string) (list []map[string]any) {
	t.Helper()
	res, err := a.get(ctx, "/sessions?state="+state)
	require.NoError(t, err)
	defer res.Body.Close()
	for d := json.NewDecoder(res.Body); ; {
		var row map[string]any
		if err := d.Decode(&row); err == io.EOF {
			return list
		} else if err != nil {
			require.NoError(t, err)
		}
		list = append(list, row)
	}
}

// status is what the admin is answered.
func (a *agent) status(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+a.key)
	res, err := a.http.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(raw)
}

// TestSessionsLeaveTheLogForTheArchiveAndAreOver runs sessions until they are
// archived, beside one that is open from before them: they are shown from the
// archive and refused for everything else, after a restart too; the open one,
// its run and new ones go on.
func TestSessionsLeaveTheLogForTheArchiveAndAreOver(t *testing.T) {
	t.Run("a folder", func(t *testing.T) { sessionsLeave(t) })
	t.Run("a bucket", func(t *testing.T) { sessionsLeave(t, bucket(t)...) })
}

// bucket are the settings of a store in S3.
func bucket(t *testing.T) []string {
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("shards"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return []string{
		"--exporter.s3.endpoint", strings.TrimPrefix(server.URL, "http://"), "--exporter.s3.insecure", "--exporter.s3.bucket", "shards",
		"--exporter.s3.prefix", "some/folder", "--exporter.s3.region", "us-east-1", "--exporter.s3.path-style",
	}
}

func sessionsLeave(t *testing.T, store ...string) {
	data := filepath.Join(t.TempDir(), "data")
	archiving := append(store, archiving...)
	args := append([]string{"--recorder.archive.every", "1s", "--exporter.flush", "1s"}, archiving...)
	p, a := all(t, data, args...)
	var open struct{ Session, Key string }
	require.NoError(t, a.post(t.Context(), "/runs", a.key, map[string]any{"run": "r", "metadata": map[string]any{"n": 1}}, nil, nil))
	require.NoError(t, a.post(t.Context(), "/sessions", a.key, map[string]any{"session": "front", "run": "r"}, nil, &open))
	text := "One."
	history := []chatMessage{{Role: "user", Content: &text}}
	_, _, err := a.chat(t.Context(), open.Key, history, 1, false, "")
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, a.session(t.Context(), testRand(), "g", i, 3))
	}
	eventually(t, time.Minute, "three sessions are archived", func(ctx context.Context) bool { return len(a.rows(ctx, t, "trimmed")) == 3 })
	trimmed := a.rows(t.Context(), t, "trimmed")
	check := func() {
		t.Helper()
		for _, row := range trimmed {
			id := row["id"].(string)
			require.EqualValues(t, 1, row["archive"])
			code, said := a.status(t, http.MethodGet, "/sessions/"+id, "")
			require.Equal(t, http.StatusOK, code, said)
			require.Contains(t, said, `"state":"trimmed"`)
			require.EqualValues(t, row["turns"], strings.Count(said, `"turn":`))
			code, said = a.status(t, http.MethodGet, "/sessions/"+id+"/trajectory", "")
			require.Equal(t, http.StatusOK, code, said)
			for _, r := range []struct{ method, path, body string }{
				{http.MethodPost, "/sessions", `{"session":"` + id + `","run":"` + row["run"].(string) + `"}`},
				{http.MethodPost, "/sessions/" + id + "/reward", `{"reward":1}`},
				{http.MethodPost, "/sessions/" + id + "/annotations", `{"name":"n","value":1}`},
				{http.MethodPost, "/sessions/" + id + "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"x"}]}`},
			} {
				code, said := a.status(t, r.method, r.path, r.body)
				require.Equal(t, http.StatusGone, code, "%s %s: %s", r.method, r.path, said)
			}
		}
		_, _, err := a.chat(t.Context(), open.Key, history, 1, false, "")
		require.NoError(t, err, "the open session goes on")
		code, said := a.status(t, http.MethodPost, "/sessions", `{"run":"r"}`)
		require.Less(t, code, 300, said)
	}
	check()
	code, metrics := a.status(t, http.MethodGet, "/metrics", "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, metrics, "turnlog_archive_trimmed_sessions_total 3")
	require.NotContains(t, metrics, "turnlog_archive_trimmed_bytes_total 0")
	p.stop(t)

	said, err := output(append([]string{"verify", "--data", data}, archiving...)...)
	require.NoError(t, err, said)
	require.Contains(t, said, "0 findings")
	said, err = output(append([]string{"up", "--data", data, "--listen", "127.0.0.1:0", "--logging.level", "error"}, store...)...)
	require.Error(t, err)
	require.Contains(t, said, "sessions of this log are in an archive")
	p, a = all(t, data, args...)
	check()
	p.stop(t)
}

// TestAnArchiverThatIsKilledLosesNothing kills turnlog archive at every point, on
// copies of one data folder: what replay and verify read afterwards is what they
// read before, and the next one finishes the work.
func TestAnArchiverThatIsKilledLosesNothing(t *testing.T) {
	dir := t.TempDir()
	data, replayed := filepath.Join(dir, "data"), filepath.Join(dir, "replayed")
	const sessions = 6
	p, a := all(t, data, "--exporter.flush", "1s", "--exporter.group-deadline", "1s")
	var open struct{ Session, Key string }
	require.NoError(t, a.post(t.Context(), "/sessions", a.key, map[string]any{"session": "front"}, nil, &open))
	for i := range sessions {
		require.NoError(t, a.session(t.Context(), testRand(), fmt.Sprint("g", i), 0, 1))
	}
	eventually(t, time.Minute, "all is exported", func(ctx context.Context) bool {
		_, metrics := a.status(t, http.MethodGet, "/metrics", "")
		return strings.Contains(metrics, fmt.Sprintf("turnlog_exporter_rows_total %d", sessions))
	})
	p.stop(t)
	turnlog := func(data string, args ...string) string {
		t.Helper()
		said, err := output(append(append(args, "--data", data), archiving...)...)
		require.NoError(t, err, said)
		return said
	}
	replay := func(data string) string {
		t.Helper()
		return turnlog(data, "replay", "--into", replayed, "--summary")
	}
	verified := turnlog(data, "verify")
	require.Contains(t, verified, "0 findings")
	replay(data)
	eventually(t, time.Minute, "the sessions are old enough", func(context.Context) bool {
		return strings.HasPrefix(turnlog(data, "archive", "--dry-run"), fmt.Sprintf("%d sessions would be", sessions))
	})
	for _, point := range archive.Points {
		t.Run(string(point), func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.CopyFS(copied, os.DirFS(data)))
			cmd := exec.Command(binary, append([]string{"archive", "--data", copied}, archiving...)...)
			cmd.Env = append(os.Environ(), "TURNLOG_FAULT=archive."+string(point)+":1")
			said, err := cmd.CombinedOutput()
			require.ErrorContains(t, err, "killed", string(said))
			require.Equal(t, verified, turnlog(copied, "verify"))
			turnlog(copied, "archive")
			require.Contains(t, turnlog(copied, "archive"), "0 sessions archived")
			require.Equal(t, verified, turnlog(copied, "verify"))
			// It finds what it wrote the first time, byte by byte, or fails.
			require.Contains(t, replay(copied), fmt.Sprintf("%d sessions, ", sessions+1))
			left, err := output("verify", "--no-shards", "--data", copied, "--logging.level", "error")
			require.NoError(t, err, left)
			require.Contains(t, left, "1 sessions, ", "only the open one is in the log")
			segments, err := filepath.Glob(filepath.Join(copied, "shards", "archive", "segments", "*"))
			require.NoError(t, err)
			require.Len(t, segments, 2)
			p, a := all(t, copied, archiving...)
			require.Len(t, a.rows(t.Context(), t, "trimmed"), sessions)
			p.stop(t)
		})
	}
}
