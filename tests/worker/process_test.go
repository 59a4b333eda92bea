// Package worker_test runs recorders as processes of their own against a real
// server, and kills and freezes them where it hurts.
package worker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/mem"
)

// The test binary is also a recorder, when the first of these is set.
const (
	urlEnv    = "TURNLOG_TEST_RECORDER_URL"
	pointEnv  = "TURNLOG_TEST_RECORDER_POINT"  // where it sends itself a signal
	nthEnv    = "TURNLOG_TEST_RECORDER_NTH"    // at the so-manieth passage
	signalEnv = "TURNLOG_TEST_RECORDER_SIGNAL" // which
	onceEnv   = "TURNLOG_TEST_RECORDER_ATONCE" // append whole batches
)

const (
	// takeover is short, so that a test that waits for one is too.
	takeover = time.Second
	patience = time.Minute
	tick     = 5 * time.Millisecond
)

func TestMain(m *testing.M) {
	if url := os.Getenv(urlEnv); url != "" {
		child(url)
		return
	}
	os.Exit(m.Run())
}

// partitions are those of the test's sessions: two, so that batches are large.
var partitions = []int{7, 8}

type logs struct{ turns, trajectories, letters *jet.Log }

func open(ctx context.Context, conn *jet.Conn) (l logs, err error) {
	for kind, into := range map[jet.Kind]**jet.Log{jet.Turns: &l.turns, jet.Trajectories: &l.trajectories, jet.DeadLetters: &l.letters} {
		cfg := jet.DefaultConfig("default", kind)
		cfg.MaxBytes, cfg.Takeover = 1<<30, takeover
		if *into, err = conn.Open(ctx, cfg); err != nil {
			return l, err
		}
	}
	return l, nil
}

// child records until it is stopped, killed or frozen.
func child(url string) {
	ctx := context.Background()
	conn, err := jet.Dial(jet.Options{URL: url})
	if err != nil {
		panic(err)
	}
	l, err := open(ctx, conn)
	if err != nil {
		panic(err)
	}
	nth, _ := strconv.ParseInt(os.Getenv(nthEnv), 10, 64)
	signal, _ := strconv.Atoi(os.Getenv(signalEnv))
	var passed atomic.Int64
	cfg := worker.DefaultConfig()
	cfg.Partitions, cfg.Batch, cfg.AtOnce = partitions, 40, os.Getenv(onceEnv) != ""
	w, err := worker.New(cfg, worker.Deps{
		Turns: l.turns, Trajectories: l.trajectories, DeadLetters: deadletter.New(l.letters), Registry: registry.NewMemory(),
		Fault: func(p worker.Point) {
			if string(p) == os.Getenv(pointEnv) && passed.Add(1) == nth {
				_ = syscall.Kill(os.Getpid(), syscall.Signal(signal))
			}
		},
	})
	if err != nil {
		panic(err)
	}
	panic(w.Run(ctx))
}

// rig is a server with sessions in its turn stream.
type rig struct {
	t        *testing.T
	server   *natsd.Server
	logs     logs
	sessions []string
}

func newRig(t *testing.T) *rig {
	s := natsdtest.Serve(t, natsd.Config{Listen: "127.0.0.1:0"})
	r := &rig{t: t, server: s}
	var err error
	r.logs, err = open(t.Context(), natsdtest.Dial(t, s))
	require.NoError(t, err)
	r.write(10)
	return r
}

// write appends more random sessions, and one that cannot be folded, however
// often it is released.
func (r *rig) write(n int) {
	for i := 0; n >= 0; i++ {
		id := fmt.Sprint("session-", len(r.sessions), "-", i)
		if p := journal.PartitionOf(id); p != partitions[0] && p != partitions[1] {
			continue
		}
		s := sessiontest.Random(id, uint64(len(r.sessions)))
		if n == 0 {
			s = sessiontest.New(id)
			s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
			s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{1}, Out: []uint32{3}, Edit: func(c *event.TurnCommitted) { c.Parent = "nowhere" }})
			s.Release()
			s.Close("completed")
			s.Release()
			s.Reward(1, 1)
		}
		n--
		r.sessions = append(r.sessions, id)
		var tip journal.Tip
		for _, ev := range s.Events {
			var err error
			tip, err = r.logs.turns.Append(r.t.Context(), tip, ev)
			require.NoError(r.t, err)
		}
	}
}

// start starts a recorder that sends itself a signal at a point, or never.
func (r *rig) start(atOnce bool, point worker.Point, nth int, signal syscall.Signal) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), urlEnv+"="+r.server.URL(), pointEnv+"="+string(point), nthEnv+"="+strconv.Itoa(nth),
		signalEnv+"="+strconv.Itoa(int(signal)))
	if atOnce {
		cmd.Env = append(cmd.Env, onceEnv+"=1")
	}
	cmd.Stderr = os.Stderr
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// frozen waits until a process has stopped itself.
func (r *rig) frozen(cmd *exec.Cmd) {
	require.Eventually(r.t, func() bool {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		return err == nil && pid == cmd.Process.Pid && status.Stopped()
	}, patience, tick, "the recorder never came to the point")
}

// settled waits until everything is recorded and acknowledged.
func (r *rig) settled() {
	require.Eventually(r.t, func() bool {
		lag := uint64(0)
		for _, p := range partitions {
			n, err := r.logs.turns.Pending(r.t.Context(), p, worker.DefaultConfig().Group)
			if err != nil {
				return false
			}
			lag += n
		}
		return lag == 0
	}, patience, tick, "the lag never went back to zero")
}

// requireSame compares with what one undisturbed recorder writes.
func (r *rig) requireSame() {
	undisturbed := mem.New(mem.Options{})
	report, err := replay.Run(r.t.Context(), r.logs.turns, replay.These(r.sessions...), replay.Options{Policy: fold.DefaultPolicy(), Into: undisturbed})
	require.NoError(r.t, err)
	require.Zero(r.t, report.Failed, "%v", report.Failures)
	for _, id := range r.sessions {
		require.Equal(r.t, bodies(r.t, undisturbed, id), bodies(r.t, r.logs.trajectories, id), id)
	}
	checked, err := verify.Run(r.t.Context(), r.logs.turns, r.logs.trajectories, replay.These(r.sessions...), verify.Options{})
	require.NoError(r.t, err)
	require.Empty(r.t, checked.Findings)
	require.NotZero(r.t, checked.Parked)
	require.Equal(r.t, checked.Parked, checked.Released)
}

func bodies(t *testing.T, j journal.Journal, session string) (out []string) {
	for e, err := range j.ReadSession(t.Context(), session, journal.Tip{}) {
		require.NoError(t, err)
		out = append(out, string(e.Body))
	}
	return out
}

// each runs a test at every fault point, with single appends and with batches.
func each(t *testing.T, test func(t *testing.T, atOnce bool, point worker.Point, nth int)) {
	nth := map[worker.Point]int{
		worker.PointFetched: 2, worker.PointFolded: 17, worker.PointAppended: 23, worker.PointDeadLetter: 1,
		worker.PointRegistered: 1, worker.PointAcked: 1,
	}
	for _, atOnce := range []bool{false, true} {
		for _, point := range worker.Points {
			t.Run(fmt.Sprintf("%s, at once %t", point, atOnce), func(t *testing.T) { test(t, atOnce, point, nth[point]) })
		}
	}
}

func TestAProcessKilledAtAnyPointLeavesTheSameStream(t *testing.T) {
	each(t, func(t *testing.T, atOnce bool, point worker.Point, nth int) {
		r := newRig(t)
		victim := r.start(atOnce, point, nth, syscall.SIGKILL)
		require.ErrorContains(t, victim.Wait(), "killed")
		r.start(atOnce, "", 0, 0)
		r.settled()
		r.requireSame()
	})
}

// A frozen recorder keeps its connection, its entries and its beliefs. Another
// takes its place; when it wakes up it goes on with what it was about to do.
func TestAProcessThatWasFrozenAtAnyPointChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, atOnce bool, point worker.Point, nth int) {
		r := newRig(t)
		zombie := r.start(atOnce, point, nth, syscall.SIGSTOP)
		r.frozen(zombie)
		second := r.start(atOnce, "", 0, 0)
		r.settled()
		require.NoError(t, zombie.Process.Signal(syscall.SIGCONT))
		r.write(4) // both are there for it
		r.settled()
		r.requireSame()

		// The one that was frozen can do it alone.
		require.NoError(t, second.Process.Kill())
		r.write(3)
		r.settled()
		r.requireSame()
	})
}

// Two recorders on the same partitions, one of which is killed again and again.
func TestTwoProcessesOnOnePartitionRecordEverythingOnce(t *testing.T) {
	r := newRig(t)
	r.start(false, "", 0, 0)
	for n := range 4 {
		victim := r.start(n%2 == 1, worker.PointAppended, 5, syscall.SIGKILL)
		r.write(4)
		_ = victim.Process.Kill() // if it never got any
		_ = victim.Wait()
	}
	r.settled()
	r.requireSame()
}
