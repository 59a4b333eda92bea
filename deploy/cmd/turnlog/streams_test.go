package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/tokenizer/demo"
)

// onServer is a log on a server of its own, with three recorded sessions.
func onServer(t *testing.T) config.Config {
	t.Helper()
	srv := natsdtest.Serve(t, natsd.Config{Listen: "127.0.0.1:0", MaxBytes: 3 << 30})
	cfg := config.Default()
	cfg.Data, cfg.Listen = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0"
	cfg.Log.URL, cfg.Log.MaxBytes = srv.URL(), 1<<30
	_, stop := up(t, cfg)
	defer stop()
	var ids []string
	require.NoError(t, stack.WithLogs(t.Context(), cfg, nil, func(l stack.Logs) error {
		for _, id := range []string{"a", "b", "c"} {
			s := sessiontest.New(id, func(o *event.SessionOpened) { o.Group, o.GroupSize = "", 0 })
			s.Commit(sessiontest.Step{ID: "t", New: []uint32{1, 2}, Out: []uint32{3, 4}})
			s.Commit(sessiontest.Step{ID: "u", Parent: "t", New: []uint32{5}, Out: []uint32{6}})
			s.Reward(1, 1)
			s.Close("completed")
			ids = append(ids, id)
			var tip journal.Tip
			for _, ev := range s.Events {
				var err error
				if tip, err = l.Turns.Append(t.Context(), tip, ev); err != nil {
					return err
				}
			}
		}
		require.Eventually(t, func() bool {
			for _, id := range ids {
				if row, _, err := l.Registry.Get(t.Context(), id); err != nil || row.State != "closed" {
					return false
				}
			}
			return true
		}, time.Minute, 10*time.Millisecond)
		return nil
	}))
	return cfg
}

func TestAReplayGoesIntoAStreamOfItsOwnOnTheSameServer(t *testing.T) {
	cfg := onServer(t)
	run := func(args ...string) (string, error) {
		return turnlog(t, append(args, "--data", cfg.Data, "--log.url", cfg.Log.URL, "--logging.level", "error")...)
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		require.NoError(t, err, out)
		return out
	}
	require.Empty(t, must("replay", "list"))
	_, err := run("replay", "--into", "stream:other", "--log.max-bytes", "9000000000")
	require.ErrorContains(t, err, "no room")
	require.ErrorContains(t, err, "--log.max-bytes")

	// Two at once find each other's work.
	into := []string{"replay", "--into", "stream:other", "--recorder.policy.train", "side", "--log.max-bytes", "200000000", "--summary"}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			out, err := run(into...)
			if err != nil || !strings.Contains(out, "3 sessions changed, rows +0 -3 ~0, 0 failed") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	both.Wait()
	require.Regexp(t, `STREAM +EVENTS +BYTES\nother +15 +\d+\n`, must("replay", "list"))
	require.Contains(t, must("replay", "--log.trajectories", "other", "--recorder.policy.train", "side"), "0 sessions changed")
	require.Contains(t, must("verify", "--log.trajectories", "other"), "3 sessions, 15 events, 6 turns, 18 tokens: 0 findings")
	require.Contains(t, must("verify"), "0 findings", "the recorder's own is as it was")

	// Nobody records what comes now.
	require.NoError(t, stack.WithLogs(t.Context(), cfg, nil, func(l stack.Logs) error {
		_, err := l.Turns.Append(t.Context(), journal.Tip{}, sessiontest.New("new").Events[0])
		return err
	}))
	said, err := run("verify")
	require.ErrorContains(t, err, "--behind")
	require.Contains(t, said, "1 events have no update")
	require.Contains(t, must("verify", "--behind"), "0 findings; 0 sessions parked, 1 behind")

	// Its shards are its own. Nothing of the main line is trained in it.
	require.Contains(t, must("export"), "wrote 3 rows")
	require.Contains(t, must("replay", "--into", "stream:same", "--shards", "--log.max-bytes", "200000000"), "wrote 3 rows")
	require.Equal(t, must("shards", "rows"), must("shards", "rows", "--log.trajectories", "same"))
	require.Contains(t, must("export", "--log.trajectories", "other"), "wrote 0 rows")
	require.Contains(t, must("shards", "list", "--log.trajectories", "same"), "3")
	_, err = run("export", "--log.trajectories", "same", "--exporter.dir", filepath.Join(cfg.Data, "shards"))
	require.Error(t, err, "streams do not mix in one data set")

	require.Contains(t, must("replay", "remove", "other"), "removed")
	_, err = run("replay", "remove", "other")
	require.ErrorContains(t, err, "turnlog replay list")
	_, err = run("verify", "--log.trajectories", "other")
	require.ErrorContains(t, err, "no stream")
	require.Regexp(t, `^STREAM +EVENTS +BYTES\nsame +16 +\d+\n$`, must("replay", "list"))

	for _, bad := range [][]string{
		{"replay", "--into", "stream:"},
		{"replay", "--into", "stream:a.b"},
		{"replay", "--shards"},
		{"replay", "--into", "stream:same", "--log.trajectories", "same"},
		{"recorder", "--log.trajectories", "same"},
	} {
		_, err := run(bad...)
		require.Error(t, err, "%v", bad)
	}
	_, err = turnlog(t, "replay", "--into", "stream:x", "--data", cfg.Data)
	require.ErrorContains(t, err, "--log.url")
}

func TestAReplayCanKeepNothingButItsShards(t *testing.T) {
	run := recordedDemo(t)
	folder := filepath.Join(t.TempDir(), "shards")
	require.Contains(t, run("replay", "--into", "shards:"+folder), "wrote 2 rows of 1 groups")
	require.Equal(t, run("shards", "rows"), run("shards", "rows", "--exporter.dir", folder))
	entries, err := os.ReadDir(filepath.Dir(folder))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no log is left")
}

func TestAReplayWithTheFilesOfAnotherModelSaysWhatTheyChange(t *testing.T) {
	run := recordedDemo(t)
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, demo.Files()))
	models := func(template string) string {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte(template), 0o600))
		return `[{name: demo, files: demo, engine: mock}, {name: other, files: "` + folder + `", engine: mock}]`
	}
	same := models(demo.Template())
	require.Contains(t, run("replay", "--with", "other", "--models", same, "--recorder.policy.audit", "1"), "0 sessions changed")
	other := models(strings.ReplaceAll(demo.Template(), "To call one", "To use one"))
	changed := run("replay", "--with", "other", "--models", other, "--recorder.policy.audit", "1")
	require.Regexp(t, `grade_reasons: .*-> .*audit_`, changed)
	require.Contains(t, run("replay", "--models", other, "--recorder.policy.audit", "1"), "0 sessions changed", "turns name the model of their own")
	_, err := turnlog(t, "replay", "--with", "nobody", "--data", t.TempDir())
	require.ErrorContains(t, err, `no files for model "nobody"`)
}
