package model

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// recordedPrograms is how many programs the recorder folds in every way.
const recordedPrograms = 400

// TestWhatTheProgramsWroteIsRecordedTheSameInEveryOrder takes the logs that the
// random programs leave: the order of siblings, repetition and restarts change
// nothing of what is recorded, and the recorded turns can be rebuilt from it.
func TestWhatTheProgramsWroteIsRecordedTheSameInEveryOrder(t *testing.T) {
	branched, restarted := 0, 0
	for first := 0; first < recordedPrograms; first += bubble {
		synctest.Test(t, func(t *testing.T) {
			for n := first; n < first+bubble; n++ {
				w := newWorld(t, mem.New(mem.Options{}), *seed+uint64(n))
				w.run()
				rng := rand.New(rand.NewPCG(*seed, uint64(n)))
				var events []*event.Event
				for e, err := range w.log.ReadSession(t.Context(), w.id, journal.Tip{}) {
					require.NoError(t, err)
					events = append(events, e.Event)
				}
				want := outputs(t, events, -1)
				for range 3 {
					shuffled := sessiontest.Shuffle(rng, events)
					if !sameOrder(events, shuffled) {
						branched++
					}
					requireOutputs(t, want, outputs(t, shuffled, -1))
					requireOutputs(t, want, outputs(t, sessiontest.Duplicate(rng, shuffled), -1))
					at := rng.IntN(len(events))
					requireOutputs(t, want, outputs(t, sessiontest.Duplicate(rng, events), at))
					restarted += min(at, 1)
				}
				rebuild(t, w.id, sessiontest.Duplicate(rng, events))
			}
		})
	}
	require.Greater(t, branched, recordedPrograms/4, "nearly nothing was in another order")
	require.Positive(t, restarted)
}

func sameOrder(a, b []*event.Event) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// outputs folds a session and returns what follows from each event. From the
// event at restart on, another state goes on, which adopts what was recorded.
func outputs(t *testing.T, events []*event.Event, restart int) map[string]*event.TrajectoryUpdate {
	t.Helper()
	st := fold.New(events[0].GetSession(), fold.DefaultPolicy(), fold.Aids{})
	recorded := map[string]*event.TrajectoryUpdate{}
	entries := sessiontest.Entries(events)
	for i, e := range entries {
		if i == restart {
			st = fold.New(events[0].GetSession(), fold.DefaultPolicy(), fold.Aids{})
			for _, before := range entries[:i] {
				require.NoError(t, st.Adopt(before, recorded[before.Event.GetId()]))
			}
		}
		u, err := st.Apply(e)
		require.NoError(t, err)
		require.Nil(t, st.Parked(), "%v", st.Parked())
		if u != nil {
			require.NotContains(t, recorded, e.Event.GetId())
			recorded[e.Event.GetId()] = u
		}
	}
	return recorded
}

func requireOutputs(t *testing.T, want, got map[string]*event.TrajectoryUpdate) {
	t.Helper()
	require.Len(t, got, len(want))
	for id, u := range want {
		require.True(t, proto.Equal(&event.TrajectoryUpdate{Outputs: u.GetOutputs()}, &event.TrajectoryUpdate{Outputs: got[id].GetOutputs()}),
			"event %s:\nwant %v\ngot  %v", id, u, got[id])
	}
}

// rebuild writes both streams and lets verify put the turns together again.
func rebuild(t *testing.T, session string, events []*event.Event) {
	t.Helper()
	turns, trajectories := mem.New(mem.Options{}), mem.New(mem.Options{})
	var tip journal.Tip
	seen := map[string]bool{}
	for _, ev := range events {
		if seen[ev.GetId()] {
			continue // this journal takes an event once
		}
		seen[ev.GetId()] = true
		var err error
		tip, err = turns.Append(t.Context(), tip, ev)
		require.NoError(t, err)
	}
	replayed, err := replay.Run(t.Context(), turns, replay.These(session), replay.Options{Policy: fold.DefaultPolicy(), Into: trajectories})
	require.NoError(t, err)
	require.Zero(t, replayed.Failed, "%v", replayed.Failures)
	report, err := verify.Run(t.Context(), turns, trajectories, replay.These(session), verify.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Equal(t, replayed.Turns, report.Turns)
}
