package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
)

// turnlog runs the command line in this process.
func turnlog(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// turnlog.py is copied into trainers, so that nothing else ties the two.
func TestThePythonModuleAsksTheAddressThatTheGatewayListensOn(t *testing.T) {
	module, err := os.ReadFile(filepath.Join("..", "..", "..", "exporter", "python", "turnlog.py"))
	require.NoError(t, err)
	require.Contains(t, string(module), `"TURNLOG_URL", "http://`+config.Default().Listen+`"`)
}

func TestShardsOfTheDemoAreShownCheckedAndWritten(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	run := func(args ...string) string {
		out, err := turnlog(t, append(args, "--data", data, "--logging.level", "error")...)
		require.NoError(t, err)
		return out
	}
	run("demo", "--listen", "127.0.0.1:1", "--sessions", "2")
	shards := filepath.Join(t.TempDir(), "again")
	dry := run("export", "--exporter.dir", shards, "--dry-run")
	require.Contains(t, dry, "would write 2 rows of 1 groups")
	require.NoDirExists(t, filepath.Join(shards, "schema=traj.v1"))
	wrote := run("export", "--exporter.dir", shards)
	require.Contains(t, wrote, "wrote 2 rows of 1 groups")
	require.Contains(t, wrote, "manifest 1\n")
	require.Contains(t, run("export", "--exporter.dir", shards), "nothing is ready that was not exported before")
	filtered := run("export", "--exporter.dir", shards+"2", "--exporter.min-tokens", "100000", "--dry-run")
	require.Contains(t, filtered, "rows that would be left out, by reason: length 2\n")
	require.Contains(t, filtered, "groups that would be dropped, by reason: filtered 1\n")

	require.Regexp(t, `part-0+1-001-[0-9a-f]+\.parquet +2 .* A:2 `, run("shards", "list"))
	require.Equal(t, 1, strings.Count(run("shards", "list", "--json"), `"sha256"`))
	table := strings.Split(run("shards", "rows", "--run", "demo"), "\n")
	require.Len(t, table, 1+2+1)
	row := strings.Fields(table[1])[0]
	shown := run("shards", "show", row[:8])
	require.Contains(t, shown, row)
	require.Contains(t, shown, "[+")
	require.Contains(t, shown, "demo on mock", "no engine served this")
	require.NotContains(t, shown, "\x1b[")
	require.Contains(t, run("shards", "show", "--each"), "INDEX")
	require.Contains(t, run("shards", "check"), " 0 faults\n")
	pretok := filepath.Join(t.TempDir(), "pretok")
	require.Contains(t, run("shards", "materialize", "--out", pretok), "2 rows in 1 files, profile pretok, from manifest 1\n")
	require.Contains(t, run("shards", "compact"), "0 manifests written")
	run("shards", "drop", "--run", "demo")
	require.Contains(t, run("shards", "list"), "manifest 2, 0 files")

	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"shards", "show", "zz"}, "turnlog shards rows"},
		{[]string{"shards", "materialize", "--out", "x", "--profile", "foo"}, "pretok chat prompts"},
		{[]string{"shards", "materialize"}, "--out"},
		{[]string{"shards", "drop"}, "--run"},
		{[]string{"shards", "list", "--manifest", "9"}, "the last one is 2"},
	} {
		_, err := turnlog(t, append(c.args, "--data", data)...)
		require.ErrorContains(t, err, c.says)
	}
}

// From the HTTP request through the log, the recorder and the exporter.
func TestWhatIsSaidAfterARowWasWrittenReachesItsReaders(t *testing.T) {
	cfg := config.Default()
	cfg.Data, cfg.Listen, cfg.Exporter.Flush = t.TempDir(), "127.0.0.1:0", 100*time.Millisecond
	cmd := root()
	cmd.SetErr(&bytes.Buffer{})
	require.NoError(t, withStack(t.Context(), cmd, cfg, func(url string) error {
		require.NoError(t, runDemo(t.Context(), cfg, url, 1, io.Discard))
		shards, err := stack.OpenShards(cfg)
		require.NoError(t, err)
		// row is the only one, as it counts now.
		row := func() *rows.Row {
			state, err := exporter.Manifests(shards).Load(t.Context())
			require.NoError(t, err)
			for r, err := range rowsOf(t.Context(), shards, state) {
				require.NoError(t, err)
				return r
			}
			return nil
		}
		key, err := stack.AdminKey(cfg.AdminFile())
		require.NoError(t, err)
		say := func(what, body string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/sessions/"+row().SessionID+"/"+what, strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+key)
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			require.Equal(t, http.StatusOK, res.StatusCode)
		}
		require.Nil(t, row().Advantage)
		say("reward", `{"reward": 0.125, "revision": 5}`)
		say("annotations", `{"name": "advantage", "value": 7}`)
		say("annotations", `{"name": "advantage", "value": -2}`)
		require.Eventually(t, func() bool {
			r := row()
			return *r.Reward == 0.125 && r.Advantage != nil && *r.Advantage == -2
		}, 30*time.Second, 50*time.Millisecond)
		report, err := exporter.Check(t.Context(), shards, 0, nil)
		require.NoError(t, err)
		require.Empty(t, report.Faults)
		require.Greater(t, report.Files, 2)
		return nil
	}))

	verify := func(more ...string) (string, error) {
		return turnlog(t, append([]string{"verify", "--data", cfg.Data, "--logging.level", "error"}, more...)...)
	}
	said, err := verify("--policy")
	require.NoError(t, err, said)
	require.Contains(t, said, "1 rows of 1 sessions in 1 shards, 3 rows beside them")
	said, err = verify("--policy", "--recorder.policy.train", "side")
	require.ErrorContains(t, err, "promises were broken")
	require.Contains(t, said, "as the policy wants")

	for name, change := range map[string]any{
		"another reward":        func(r *rows.RewardRow) { r.Reward++ },
		"other components":      func(r *rows.RewardRow) { r.RewardsJSON = `{"a":1}` },
		"another revision":      func(r *rows.RewardRow) { r.Revision++ },
		"another source":        func(r *rows.RewardRow) { r.Source += "x" },
		"another time":          func(r *rows.RewardRow) { r.AssignedAt = r.AssignedAt.Add(time.Microsecond) },
		"a reward of a turn":    func(r *rows.RewardRow) { r.TurnIndex = 0 },
		"no turn of the row":    func(r *rows.RewardRow) { r.TurnIndex = 99 },
		"another row":           func(r *rows.RewardRow) { r.RowID = "0" + r.RowID[1:] + "0" },
		"another run":           func(r *rows.RewardRow) { r.RunID += "x" },
		"another group":         func(r *rows.RewardRow) { r.GroupID += "x" },
		"another session":       func(r *rows.RewardRow) { r.SessionID += "x" },
		"another value":         func(r *rows.AnnotationRow) { r.ValueJSON = "8" },
		"another name":          func(r *rows.AnnotationRow) { r.Name += "x" },
		"another revision of a": func(r *rows.AnnotationRow) { r.Revision++ },
		"another time of it":    func(r *rows.AnnotationRow) { r.AnnotatedAt = r.AnnotatedAt.Add(-time.Microsecond) },
	} {
		restore := spoil(t, cfg, change)
		said, err := verify()
		require.ErrorContains(t, err, "promises were broken", name)
		require.Contains(t, said, "exported: ", name)
		restore()
	}
	said, err = verify()
	require.NoError(t, err, said)
}

// spoil changes the first row of a file that stands beside the rows, and returns
// how to take that back.
func spoil(t *testing.T, cfg config.Config, change any) (restore func()) {
	t.Helper()
	shards, err := stack.OpenShards(cfg)
	require.NoError(t, err)
	state, err := exporter.Manifests(shards).Load(t.Context())
	require.NoError(t, err)
	for _, f := range state.Files {
		for group, err := range exporter.BesideRows(t.Context(), shards, f) {
			require.NoError(t, err)
			var out bytes.Buffer
			switch change := change.(type) {
			case func(*rows.RewardRow):
				if len(group.Rewards) == 0 {
					continue
				}
				change(group.Rewards[0])
				writeFile(t, &out, group.Rewards)
			case func(*rows.AnnotationRow):
				if len(group.Annotations) == 0 {
					continue
				}
				change(group.Annotations[0])
				writeFile(t, &out, group.Annotations)
			}
			file := filepath.Join(cfg.Shards(), f.Path)
			before, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
			return func() { require.NoError(t, os.WriteFile(file, before, 0o600)) }
		}
	}
	require.Fail(t, "no such file")
	return nil
}

func writeFile[T any](t *testing.T, out io.Writer, list []*T) {
	t.Helper()
	w, err := parquet.NewWriter[T](out, parquet.Zstd)
	require.NoError(t, err)
	require.NoError(t, w.Write(list))
	_, err = w.Close()
	require.NoError(t, err)
}

func TestARowIsColouredByWhatItsTokensAre(t *testing.T) {
	r := &rows.Row{
		RowID: "r", InputIDs: []int32{1, 2, 3, 4, 5}, LossMask: []int8{0, 1, 1, 0, 0}, Length: 5, TrainableTokens: 2,
		TurnStart: []int32{1, 3}, TurnEnd: []int32{3, 4}, TurnFinish: []string{"stop", "stop"},
	}
	spell := func(ids ...uint32) (s string) {
		for _, id := range ids {
			s += string(rune('a' + id))
		}
		return s + map[bool]string{true: "\x1b[31m"}[len(ids) == 2]
	}
	for colour, want := range map[bool]string{
		true:  "\x1b[0m\x1b[2mb\x1b[0m\x1b[32mcd\uFFFD[31m\x1b[0m\x1b[33me\x1b[0m\x1b[2mf\x1b[0m\n",
		false: "b[+cd\uFFFD[31m+][-e-]f\n",
	} {
		var out bytes.Buffer
		require.NoError(t, printRow(&out, r, spell, colour))
		require.True(t, strings.HasSuffix(out.String(), "\n"+want), "%q", out.String())
	}
}

func TestProgressSaysWhatIsDoneAndHowFast(t *testing.T) {
	now := time.Now()
	require.Equal(t, "reading the log: 1,234 entries", progress(exporter.Stats{Observed: 1234}, now))
	s := exporter.Stats{Plan: exporter.Progress{
		ID: 3, Op: manifest.Add, Began: now.Add(-2 * time.Second), Groups: 4, Done: 2, Sessions: 16, Rows: 20, Tokens: 1 << 20, Bytes: 3 << 20,
	}}
	require.Equal(t, "plan 3 [############------------] 2/4 groups  16 sessions  20 rows  1,048,576 tokens  3.0 MiB  10 rows/s", progress(s, now))
}
