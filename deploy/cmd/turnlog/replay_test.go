package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// recordedDemo is a data folder with the demo's sessions in it.
func recordedDemo(t *testing.T) (run func(args ...string) string) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	run = func(args ...string) string {
		t.Helper()
		out, err := turnlog(t, append(args, "--data", data, "--logging.level", "error")...)
		require.NoError(t, err, out)
		return out
	}
	run("demo", "--listen", "127.0.0.1:1", "--sessions", "2")
	return run
}

func TestAReplayWritesTheSameShardsAgainOrSaysWhatChanges(t *testing.T) {
	run := recordedDemo(t)
	same := run("replay")
	require.Contains(t, same, "0 sessions changed, rows +0 -0 ~0, 0 failed")
	require.NotContains(t, same, "->")

	again := filepath.Join(t.TempDir(), "again")
	same = run("replay", "--into", again, "--shards")
	require.Contains(t, same, "wrote 2 rows of 1 groups")
	// It goes on where it was, and finds its own work.
	require.Contains(t, run("replay", "--into", again, "--shards"), "nothing is ready that was not exported before")
	listed, err := turnlog(t, "shards", "list", "--data", again)
	require.NoError(t, err)
	require.Contains(t, listed, "2")

	// Nothing of the main line is trained: every row goes.
	other := run("replay", "--recorder.policy.train", "side")
	require.Contains(t, other, "rows +0 -2 ~0")
	require.Contains(t, other, "masked:  -> class_main=")
	require.Regexp(t, `turns that changed, by what: mask \d+, masked \d+`, other)

	// Another fold does not go into the same folder.
	out, err := turnlog(t, "replay", "--data", filepath.Dir(again)+"/nowhere")
	require.Error(t, err, out)
	mixed := run("replay", "--summary", "--json", "--recorder.policy.audit", "1")
	var sum struct {
		Sessions int            `json:"sessions"`
		Turns    int            `json:"turns"`
		Audited  map[string]int `json:"audited"`
	}
	require.NoError(t, json.Unmarshal([]byte(mixed), &sum))
	require.Equal(t, 2, sum.Sessions)
	total := 0
	for _, n := range sum.Audited {
		total += n
	}
	require.Equal(t, sum.Turns, total, "every turn is audited on demand: %v", sum.Audited)
}

func TestAReplayOfAnotherFoldDoesNotMixWithTheFirst(t *testing.T) {
	data, again := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "again")
	_, err := turnlog(t, "demo", "--listen", "127.0.0.1:1", "--sessions", "1", "--data", data, "--logging.level", "error")
	require.NoError(t, err)
	_, err = turnlog(t, "replay", "--data", data, "--into", again, "--logging.level", "error")
	require.NoError(t, err)
	out, err := turnlog(t, "replay", "--data", data, "--into", again, "--recorder.policy.train", "side", "--logging.level", "error")
	require.ErrorContains(t, err, "1 sessions failed")
	require.Contains(t, out, "another fold")
	_, err = turnlog(t, "replay", "--data", data, "--into", data+"/../data")
	require.ErrorContains(t, err, "one of its own")
}

func TestASessionThatIsNamedIsInTheLog(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	_, err := turnlog(t, "demo", "--listen", "127.0.0.1:1", "--sessions", "1", "--data", data, "--logging.level", "error")
	require.NoError(t, err)
	for _, command := range []string{"replay", "verify"} {
		_, err := turnlog(t, command, "--data", data, "--session", "nobody,nor-this", "--logging.level", "error")
		require.ErrorContains(t, err, "--session: the log holds no event of nobody, nor-this")
	}
}

func TestARangeIsNamedByRunSessionTimeOrPosition(t *testing.T) {
	run := recordedDemo(t)
	sessions := func(args ...string) string {
		line := run(append([]string{"verify"}, args...)...)
		return strings.Fields(line)[0]
	}
	require.Equal(t, "2", sessions())
	require.Equal(t, "0", sessions("--run", "no-such-run"))
	require.Equal(t, "2", sessions("--from", "2020-01-01T00:00:00Z"))
	require.Equal(t, "0", sessions("--to", "2020-01-01T00:00:00Z"))
	var change struct{ Session string }
	first, _, _ := strings.Cut(run("replay", "--recorder.policy.train", "side", "--json"), "\n")
	require.NoError(t, json.Unmarshal([]byte(first), &change))
	require.Equal(t, "1", sessions("--session", change.Session))
	// The rest of its group is not replayed, and is not waited for.
	require.Contains(t, run("replay", "--session", change.Session, "--into", filepath.Join(t.TempDir(), "one"), "--shards"), "wrote 1 rows of 1 groups")
	partition := strconv.Itoa(journal.PartitionOf(change.Session))
	require.NotEqual(t, "0", sessions("--partition", partition, "--after", "0"))
	require.Equal(t, "0", sessions("--partition", partition, "--after", "1000000"))
	require.Equal(t, "0", sessions("--partition", partition, "--after", "1", "--up-to", "1"))
	for _, bad := range [][]string{{"--after", "3"}, {"--partition", "64"}, {"--from", "yesterday"}} {
		_, err := turnlog(t, append([]string{"verify", "--data", t.TempDir()}, bad...)...)
		require.Error(t, err)
	}
}

func TestWhatIsParkedIsListedWithItsReasonAndFoldedByItself(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	run := func(args ...string) string {
		t.Helper()
		out, err := turnlog(t, append(args, "--data", data, "--logging.level", "error")...)
		require.NoError(t, err, out)
		return out
	}
	run("demo", "--listen", "127.0.0.1:1", "--sessions", "1")
	require.Contains(t, run("parked"), "no session is parked")

	// A turn that continues one which is not there.
	bad := sessiontest.New("bad")
	bad.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
	bad.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1}, Out: []uint32{3}, Edit: func(c *event.TurnCommitted) { c.Parent = "nowhere" }})
	bad.Close("completed")
	cfg := config.Default()
	cfg.Data = data
	require.NoError(t, stack.WithLogs(t.Context(), cfg, nil, func(l stack.Logs) error {
		var tip journal.Tip
		var err error
		for _, ev := range bad.Events {
			if tip, err = l.Turns.Append(t.Context(), tip, ev); err != nil {
				return err
			}
		}
		return nil
	}))
	run("demo", "--listen", "127.0.0.1:1", "--sessions", "1") // records it, too

	list := run("parked")
	require.Regexp(t, `bad +\S+ +turn-b +\S*turn_committed +\d+ +20\S+ \S+ +illegal +\S+`, list)
	require.Contains(t, list, "1 sessions are parked, for 1 events")
	require.Contains(t, run("parked", "--json"), `"reason":"illegal"`)
	require.Contains(t, run("parked", "--run", "no-such-run"), "no session is parked")
	require.Contains(t, run("replay", "--parked"), "1 sessions, 1 turns")
	require.Contains(t, run("replay", "--parked", "--into", filepath.Join(t.TempDir(), "again"), "--shards"), "by reason: void 1", "a session that failed is no sample")
}

func TestVerifyComparesTheShardsWithTheLog(t *testing.T) {
	data, other := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "other")
	for _, dir := range []string{data, other} {
		out, err := turnlog(t, "demo", "--listen", "127.0.0.1:1", "--sessions", "2", "--data", dir, "--logging.level", "error")
		require.NoError(t, err, out)
	}
	out, err := turnlog(t, "verify", "--data", data)
	require.NoError(t, err, out)
	require.Contains(t, out, "2 rows of 2 sessions in 1 shards, 0 rows beside them")
	require.Contains(t, out, " 0 findings")

	foreign := filepath.Join(other, "shards")
	out, err = turnlog(t, "verify", "--data", data, "--exporter.dir", foreign)
	require.ErrorContains(t, err, "promises were broken")
	require.Contains(t, out, "the log does not hold it")
	out, err = turnlog(t, "verify", "--data", data, "--exporter.dir", foreign, "--no-shards")
	require.NoError(t, err, out)
}
