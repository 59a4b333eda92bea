package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
)

// points are where a process kills itself. Empty is from outside, at any time.
var points = []string{
	"", "turn.before_append", "turn.after_append", "chat.before_release",
	"recorder.fetched", "recorder.folded", "recorder.appended", "recorder.acked",
	"exporter.planned", "exporter.staged", "exporter.verified", "exporter.published", "exporter.manifest",
}

// kills is the number of SIGKILLs; E2E_KILLS overrides it.
func kills(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("E2E_KILLS"))
	if err != nil {
		n = 52
	}
	t.Logf("%d kills", n)
	return n
}

// TestNothingThatWasGivenIsLostOrDoubled kills the all-in-one again and again,
// at named points and at any time, while agents work and an engine in another
// process samples. Then, by ids: every answer that an agent was given is in the
// log once, as the engine sampled it; every exported row is what the engine
// sampled; no row is there twice.
func TestNothingThatWasGivenIsLostOrDoubled(t *testing.T) {
	dir := t.TempDir()
	data, journalFile := filepath.Join(dir, "data"), filepath.Join(dir, "engine.jsonl")
	_, engineURL := start(t, engineReady, nil, "engine", "mock", "--listen", "127.0.0.1:0",
		"--journal", journalFile, "--non-canonical", "0.1", "--pace", "1ms")
	address := freePort(t)
	args := []string{
		"up", "--data", data, "--listen", address, "--exporter.flush", "300ms", "--logging.level", "warn",
		"--log.max-bytes", strconv.Itoa(1 << 30),
		"--models", fmt.Sprintf(`[{name: demo, files: demo, engine: sglang, backends: [%q], aliases: ["*"], context_length: 32768}]`, engineURL),
	}
	p, url := start(t, gatewayReady, nil, args...)
	key, err := stack.AdminKey(filepath.Join(data, "admin.key"))
	require.NoError(t, err)

	// Agents work until they are told to finish.
	a := &agent{url: url, key: key, http: &http.Client{Timeout: 30 * time.Second}}
	finish := make(chan struct{})
	errs := make(chan error, 4)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for n := 0; ; n++ {
				select {
				case <-finish:
					return
				default:
				}
				group := fmt.Sprintf("g%d-%d", w, n)
				for index := range 2 {
					if err := a.session(t.Context(), rng, group, index, 2); err != nil {
						errs <- err
						return
					}
				}
			}
		})
	}

	rng := rand.New(rand.NewPCG(2, 3))
	n := kills(t)
	for i := range n {
		point := points[i%len(points)]
		if point == "" {
			select {
			case <-time.After(time.Duration(50+rng.IntN(700)) * time.Millisecond):
			case err := <-errs:
				require.NoError(t, err)
			}
			p.kill()
		}
		select {
		case <-p.exited:
		case err := <-errs:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "the fault never came", "%s\n%s", points[i%len(points)], p.text())
		}
		// The next process dies at the next point, or lives on after the last.
		var env []string
		if next := points[(i+1)%len(points)]; next != "" && i+1 < n {
			env = []string{fmt.Sprintf("TURNLOG_FAULT=%s:%d", next, 1+rng.IntN(6))}
		}
		var found <-chan string
		p, found = spawn(t, gatewayReady, env, args...)
		select {
		case <-found: // ready, or dead already
		case <-time.After(time.Minute):
			require.Fail(t, "not ready", "%s", p.text())
		}
	}

	close(finish)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "the agents did not finish", "%s", p.text())
	}
	select {
	case err := <-errs:
		require.NoError(t, err)
	default:
	}
	shards, err := local.New(filepath.Join(data, "shards"))
	require.NoError(t, err)
	eventually(t, time.Minute, "all groups are exported", func(ctx context.Context) bool {
		state, err := exporter.Manifests(shards).Load(ctx)
		require.NoError(t, err)
		return int(state.Totals.GroupsExported+state.Totals.GroupsDropped) >= len(a.closed)/2
	})
	p.stop(t)

	truth := readJournal(t, journalFile)
	turns := checkLog(t, filepath.Join(data, "log"), a, truth)
	checkRows(t, shards, a, turns, truth)
}

// logged is a turn in the log, and whose it is.
type logged struct {
	*tree.Turn
	session string
}

// readJournal returns what the engine sampled, by turn.
func readJournal(t *testing.T, file string) map[string]mock.Sampled {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	out := map[string]mock.Sampled{}
	for line := range lines(raw) {
		s, err := mock.ParseSampled(line)
		require.NoError(t, err)
		require.NotContains(t, out, s.Request, "the engine was asked twice for one turn")
		out[s.Request] = s
	}
	return out
}

// checkLog reads every session from the log and returns its turns by their
// position.
func checkLog(t *testing.T, dir string, a *agent, truth map[string]mock.Sampled) map[int64]logged {
	ctx, cancel := context.WithCancel(t.Context())
	srv, err := natsd.New(natsd.Config{Mode: natsd.Dev, Dir: dir, MaxBytes: 1 << 30}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	require.NoError(t, srv.Ready(ctx))
	conn, err := jet.Dial(jet.Options{InProcess: srv})
	require.NoError(t, err)
	defer conn.Close()
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 1 << 28
	log, err := conn.Open(ctx, cfg)
	require.NoError(t, err)

	byPosition, byID := map[int64]logged{}, map[string]*tree.Turn{}
	for _, session := range a.closed {
		tr := tree.New(session)
		for e, err := range log.ReadSession(ctx, session, journal.Tip{}) {
			require.NoError(t, err)
			before := len(tr.Turns)
			require.NoError(t, tr.Apply(e))
			for _, n := range tr.Turns[before:] {
				byPosition[int64(e.Tip.Position)], byID[n.ID] = logged{n, session}, n
			}
		}
		require.NotNil(t, tr.Closed, session)
		require.NotNil(t, tr.Reward(), session)
	}
	for id, n := range byID {
		sampled, ok := truth[id]
		require.True(t, ok, "turn %s is in the log; the engine never sampled it", id)
		require.Equal(t, sampled.Completion, event.IDs(nil, n.Committed.GetCompletion().GetIds()), "ids of %s", id)
		require.Equal(t, bits(sampled.Logprobs), bits(event.Floats(nil, n.Committed.GetCompletion().GetLogprobs())), "logprobs of %s", id)
		require.Equal(t, sampled.Prompt, n.PromptIDs(nil), "prompt of %s", id)
	}
	require.NotEmpty(t, a.given)
	for _, g := range a.given {
		n := byID[g.turn]
		require.NotNil(t, n, "the answer of turn %s was given and is not in the log", g.turn)
		answer, err := message.Parse(n.Committed.GetConversation().GetAnswer())
		require.NoError(t, err)
		require.Equal(t, answer.Content.String(), g.content)
		var calls []string
		for _, c := range answer.Calls {
			calls = append(calls, c.ID)
		}
		require.Equal(t, calls, g.calls)
	}
	t.Logf("%d sessions, %d turns in the log, %d answers given, %d requests repeated", len(a.closed), len(byID), len(a.given), a.retries)
	return byPosition
}

// checkRows reads every shard that the manifests list.
func checkRows(t *testing.T, shards *local.Sink, a *agent, turns map[int64]logged, truth map[string]mock.Sampled) {
	state, err := exporter.Manifests(shards).Load(t.Context())
	require.NoError(t, err)
	seen, trained, sessions := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, f := range state.Files {
		for _, r := range readRows(t, shards.Path(f.Path)) {
			require.False(t, seen[r.RowID], "row %s is there twice", r.RowID)
			seen[r.RowID] = true
			sessions[r.SessionID] += fmt.Sprintf("\nrow %s: branch %s %s, segment %d of %d, turns %v, %d of %d tokens trained, grade %s %v, %s",
				r.RowID, r.BranchLabel, r.Class, r.SegmentIndex, r.SegmentCount, r.TurnSeq, r.TrainableTokens, r.Length, r.Grade, r.GradeReasons, r.Status)
			require.Len(t, r.LossMask, len(r.InputIDs))
			require.Len(t, r.Logprobs, len(r.InputIDs))
			for i, seq := range r.TurnSeq {
				n := turns[seq].Turn
				require.NotNil(t, n, "a row with a turn that is not in the log")
				sampled := truth[n.ID]
				start, end := r.TurnStart[i], r.TurnEnd[i]
				ids := make([]uint32, end-start)
				masked := 0
				for k := range ids {
					ids[k] = uint32(r.InputIDs[int(start)+k])
					masked += int(r.LossMask[int(start)+k])
				}
				require.Equal(t, sampled.Completion, ids)
				require.Equal(t, bits(sampled.Logprobs), bits(r.Logprobs[start:end]))
				if masked > 0 {
					require.Len(t, ids, masked, "a turn is trained whole or not at all")
					require.False(t, trained[n.ID], "turn %s is trained twice", n.ID)
					trained[n.ID] = true
				}
			}
		}
	}
	for _, s := range a.closed {
		require.NotEmpty(t, sessions[s], "session %s was closed with a reward and has no row", s)
	}
	for _, g := range a.given {
		require.True(t, trained[g.turn], "turn %s was given and is trained nowhere:%s%s", g.turn, tell(turns, g.session), sessions[g.session])
	}
	t.Logf("%d rows, %d turns trained, %d shards in %d manifests", len(seen), len(trained), len(state.Files), state.ID)
}

// tell describes the turns of a session.
func tell(turns map[int64]logged, session string) string {
	var b strings.Builder
	for _, seq := range slices.Sorted(maps.Keys(turns)) {
		n := turns[seq]
		c := n.Committed
		if n.session == session {
			fmt.Fprintf(&b, "\n%d %s parent %s: %s %s %v ambiguous %t, class %s, %d children, %s, %s", seq, n.ID, c.GetParent(),
				c.GetMatch().GetDecision(), c.GetMatch().GetReason(), c.GetMatch().GetTolerances(), c.GetMatch().GetAmbiguous(),
				c.GetRequest().GetClass(), len(n.Children), c.GetCompletion().GetFinishReason(), c.GetConversation().GetAnswer())
		}
	}
	return b.String()
}

func readRows(t *testing.T, file string) (all []*rows.Row) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for batch, err := range parquet.Read[rows.Row](t.Context(), f) {
		require.NoError(t, err)
		all = append(all, batch...)
	}
	return all
}

func bits(list []float32) []uint32 {
	out := make([]uint32, len(list))
	for i, f := range list {
		out[i] = math.Float32bits(f)
	}
	return out
}
