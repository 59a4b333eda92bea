package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// withParkedSessions is a data folder with a session that an older recorder
// could not fold, and one that none can.
func withParkedSessions(t *testing.T) config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Data, cfg.Listen = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0"
	cfg.Log.MaxBytes = 1 << 30
	alone := func(o *event.SessionOpened) { o.Group, o.GroupSize = "", 0 }
	good, bad := sessiontest.New("good", alone), sessiontest.New("bad", alone)
	for _, s := range []*sessiontest.Session{good, bad} {
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
		s.Reward(1, 1)
	}
	bad.Misplace("b")
	good.Close("completed")
	bad.Close("completed")
	_, stop := up(t, cfg) // makes the log
	stop()
	require.NoError(t, stack.WithLogs(t.Context(), cfg, nil, func(l stack.Logs) error {
		for _, s := range []*sessiontest.Session{good, bad} {
			var tip journal.Tip
			for _, ev := range s.Events {
				var err error
				if tip, err = l.Turns.Append(t.Context(), tip, ev); err != nil {
					return err
				}
			}
		}
		st := fold.New("good", fold.DefaultPolicy(), fold.Aids{})
		var out journal.Tip
		for e, err := range l.Turns.ReadSession(t.Context(), "good", journal.Tip{}) {
			require.NoError(t, err)
			fault := &event.Fault{Reason: fold.FaultTooLarge, Detail: "for an older recorder"}
			var u *event.TrajectoryUpdate
			if e.Event.GetTurnCommitted() != nil {
				u = st.Refuse(e, fault)
				require.NoError(t, st.Adopt(e, u))
				require.NoError(t, deadletter.New(l.DeadLetters).Put(t.Context(), deadletter.Letter{
					Session: "good", Event: e.Event.GetId(), Kind: string(e.Event.Kind()), Stream: e.Stream, Position: e.Tip.Position,
					Time: e.Time, Reason: fault.GetReason(), Detail: fault.GetDetail(),
				}))
			} else if u, err = st.Apply(e); err != nil {
				return err
			}
			if out, err = l.Trajectories.Append(t.Context(), out, st.Event(st.UpdateID(e.Event.GetId()), e, u)); err != nil {
				return err
			}
		}
		return nil
	}))
	return cfg
}

// up runs everything until the returned function is called.
func up(t *testing.T, cfg config.Config) (address string, stop func()) {
	t.Helper()
	s, err := stack.New(cfg, stack.All, stack.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		require.NoError(t, err)
	}
	return s.Addr().String(), func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func TestParkedSessionsAreListedAndReleasedWhileTheProgramRuns(t *testing.T) {
	cfg := withParkedSessions(t)
	address, stop := up(t, cfg)
	parked := func(args ...string) (string, error) {
		return turnlog(t, append(append([]string{"parked"}, args...), "--data", cfg.Data, "--listen", address, "--logging.level", "error")...)
	}
	require.Eventually(t, func() bool {
		list, err := parked()
		require.NoError(t, err)
		return strings.HasSuffix(list, "2 sessions are parked, for 2 events\n")
	}, time.Minute, 10*time.Millisecond)
	list, err := parked()
	require.NoError(t, err)
	require.Regexp(t, `good +run1 +turn-a +turn_committed +\d+ +20\S+ \S+ +too_large +for an older recorder`, list)
	require.Regexp(t, `bad +run1 +misplaced-b +turn_committed +\d+ +20\S+ \S+ +illegal +\S+`, list)
	json, err := parked("--json", "--run", "run1")
	require.NoError(t, err)
	require.Contains(t, json, `"session":"good"`)
	require.Contains(t, json, `"reason":"illegal"`)
	list, err = parked("--run", "none")
	require.NoError(t, err)
	require.Contains(t, list, "no session is parked")

	_, err = parked("good")
	require.ErrorContains(t, err, "--release")
	_, err = parked("--release", "nobody")
	require.ErrorContains(t, err, "no such session")
	said, err := parked("--release", "nobody", "good", "--wait", "1m", "--detail", "repaired")
	require.ErrorContains(t, err, "release nobody: not found: no such session")
	require.Contains(t, said, "1 sessions are released\nnone of them is parked any more", "what follows is released all the same")
	said, err = parked("--release", "--wait", "1m")
	require.ErrorContains(t, err, "could not be folded again")
	require.Contains(t, said, "1 sessions are released")
	require.Regexp(t, `bad +run1 +misplaced-b`, said)

	shown, err := turnlog(t, "sessions", "show", "bad", "--data", cfg.Data, "--listen", address)
	require.ErrorContains(t, err, "cannot be read")
	require.Regexp(t, `parked since 20\S+ \S+ for event misplaced-b \(illegal\): .*; turnlog parked --release bad`, shown)
	shown, err = turnlog(t, "sessions", "show", "good", "--data", cfg.Data, "--listen", address)
	require.NoError(t, err)
	require.NotContains(t, shown, "parked")

	sessions, err := turnlog(t, "sessions", "list", "--data", cfg.Data, "--listen", address)
	require.NoError(t, err)
	require.Regexp(t, `good +run1 +- +closed`, sessions)
	require.Regexp(t, `bad +run1 +- +parked`, sessions)
	// What reads the log itself says how to come to it.
	_, err = turnlog(t, "verify", "--data", cfg.Data, "--logging.level", "error")
	require.ErrorContains(t, err, "--log.listen")
	_, err = turnlog(t, "parked", "--data", cfg.Data, "--listen", "127.0.0.1:1", "--logging.level", "error")
	require.ErrorContains(t, err, "--listen")
	require.ErrorContains(t, err, "--log.listen")
	stop()

	// Nothing runs: it looks into the log, and leaves orders there.
	list, err = parked()
	require.NoError(t, err)
	require.Contains(t, list, "1 sessions are parked, for 1 events")
	said, err = parked("--release", "bad")
	require.NoError(t, err)
	require.Contains(t, said, "when turnlog up does")
	_, err = parked("--release", journal.RunSession("run1"))
	require.ErrorContains(t, err, "no such session")
	checked, err := turnlog(t, "verify", "--data", cfg.Data, "--logging.level", "error", "--behind")
	require.NoError(t, err, checked)
	require.Contains(t, checked, "0 findings; 1 sessions parked")
	var found *registry.Session
	require.NoError(t, stack.WithLogs(t.Context(), cfg, nil, func(l stack.Logs) error {
		row, _, err := l.Registry.Get(t.Context(), "good")
		found = &row
		return err
	}))
	require.Equal(t, registry.Closed, found.State)
	require.EqualValues(t, 1, found.Trainable)
}
