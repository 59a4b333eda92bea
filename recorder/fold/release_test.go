package fold_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// refusals are the events that an older recorder could not fold, by the round
// in which it tried.
type refusals map[uint32]string

// foldAll does what a recorder does with the entries: it adopts what was
// recorded already, and makes the rest.
func foldAll(t *testing.T, session string, entries []journal.Entry, recorded []*event.Event, refuse refusals) []*event.Event {
	t.Helper()
	st := fold.New(session, fold.DefaultPolicy(), fold.Aids{})
	known := map[string]*event.Event{}
	for _, r := range recorded {
		known[r.GetId()] = r
		if st.Restart(r.GetTrajectoryUpdate()) {
			clear(known)
		}
	}
	out := recorded[:len(recorded):len(recorded)]
	for at := 0; at < len(entries); at = int(st.Tip().Count) {
		e := entries[at]
		if r := known[st.UpdateID(e.Event.GetId())]; r != nil {
			require.NoError(t, st.Adopt(e, r.GetTrajectoryUpdate()))
			continue
		}
		if st.Parked() == nil && refuse[st.Round()] == e.Event.GetId() && !st.Seen(e.Event.GetId()) {
			u := st.Refuse(e, &event.Fault{Reason: fold.FaultPanic})
			out = append(out, st.Event(st.UpdateID(e.Event.GetId()), e, u))
			require.NoError(t, st.Adopt(e, u))
			continue
		}
		u, err := st.Apply(e)
		require.NoError(t, err)
		if u == nil {
			continue
		}
		out = append(out, st.Event(st.UpdateID(e.Event.GetId()), e, u))
		st.Restart(u)
	}
	return out
}

// rounds cuts a record where releases begin it again.
func rounds(record []*event.Event) (out [][]*event.TrajectoryUpdate) {
	out = [][]*event.TrajectoryUpdate{nil}
	for _, ev := range record {
		u := ev.GetTrajectoryUpdate()
		out[len(out)-1] = append(out[len(out)-1], u)
		for _, o := range u.GetOutputs() {
			if o.GetSessionRestarted() != nil {
				out = append(out, nil)
			}
		}
	}
	return out
}

func equal(t *testing.T, want, got []*event.Event, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), format, args)
	for i := range want {
		a, err := event.Encode(want[i])
		require.NoError(t, err)
		b, err := event.Encode(got[i])
		require.NoError(t, err)
		require.Equal(t, a, b, format, args)
	}
}

func TestAReleasedSessionIsFoldedAgainFromItsFirstEvent(t *testing.T) {
	released := 0
	for seed := range uint64(programs) {
		s, order := sessiontest.Parked(fmt.Sprint("s", seed), seed)
		record := foldAll(t, s.ID, sessiontest.Entries(s.Events), nil, nil)
		all := rounds(record)
		if order < 0 {
			require.Len(t, all, 1, "seed %d", seed)
			continue
		}
		released++
		require.Greater(t, len(all), 1, "seed %d", seed)
		require.Len(t, all[0], order+1, "seed %d: the release ends the round", seed)
		last := all[len(all)-1]
		require.Len(t, last, len(s.Events), "seed %d: one update for each event", seed)
		for i, u := range last {
			require.Equal(t, s.Events[i].GetId(), u.GetInput().GetEvent())
		}
		started := last[0].GetOutputs()[0].GetSessionStarted()
		require.Equal(t, uint32(len(all)-1), started.GetRestarted().GetRound())
		require.True(t, started.GetRestarted().GetStarted())
	}
	require.Greater(t, released, programs/4)
}

func TestAReleaseOfASessionThatIsNotParkedDoesNothing(t *testing.T) {
	s := sessiontest.New("s1")
	s.Release()
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}})
	s.Close("completed")
	s.Release()
	record := foldAll(t, s.ID, sessiontest.Entries(s.Events), nil, nil)
	require.Len(t, record, len(s.Events))
	for i, u := range record {
		if s.Events[i].GetSessionReleased() != nil {
			require.Empty(t, u.GetTrajectoryUpdate().GetOutputs())
		}
	}
}

func TestNoOrderRestartOrRepetitionChangesWhatAReleasedSessionBecomes(t *testing.T) {
	shuffled := 0
	defer func() { require.Greater(t, shuffled, programs/4) }()
	for seed := range uint64(programs) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s, _ := sessiontest.Parked(fmt.Sprint("s", seed), seed)
		entries := sessiontest.Entries(s.Events)
		want := foldAll(t, s.ID, entries, nil, nil)
		for range 5 {
			cut := rng.IntN(len(want) + 1)
			equal(t, want, foldAll(t, s.ID, entries, want[:cut], nil), "seed %d, restarted after update %d", seed, cut)
		}
		// Siblings may stand in another order before the first that is misplaced.
		first := slices.IndexFunc(s.Events, func(ev *event.Event) bool { return strings.HasPrefix(ev.GetId(), "misplaced") })
		if closed := slices.IndexFunc(s.Events, func(ev *event.Event) bool { return ev.GetSessionClosed() != nil }); first > 1 && (closed < 0 || closed > first) {
			other := slices.Concat(sessiontest.Shuffle(rng, s.Events[:first]), s.Events[first:])
			wants, got := rounds(want), rounds(foldAll(t, s.ID, sessiontest.Entries(other), nil, nil))
			require.Len(t, got, len(wants), "seed %d", seed)
			for i := range wants {
				requireSame(t, byEvent(t, wants[i]), byEvent(t, got[i]))
			}
			shuffled++
		}
		repeated := foldAll(t, s.ID, sessiontest.Entries(sessiontest.Duplicate(rng, s.Events)), nil, nil)
		wants, got := rounds(want), rounds(repeated)
		require.Len(t, got, len(wants), "seed %d", seed)
		for i := range wants {
			requireSame(t, byEvent(t, wants[i]), byEvent(t, got[i]))
		}
	}
}

// An older recorder could not fold some event; one that can has it all, as if
// nothing had been.
func TestAfterARepairTheLastRoundIsThatOfASessionThatWasNeverParked(t *testing.T) {
	for seed := range uint64(programs) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := sessiontest.Random(fmt.Sprint("s", seed), seed)
		bad := s.Events[rng.IntN(len(s.Events))].GetId()
		s.Release()
		if s.Events[len(s.Events)-2].GetSessionClosed() != nil {
			s.Reward(1, 2000)
		}
		entries := sessiontest.Entries(s.Events)
		want := foldAll(t, s.ID, entries, nil, nil)
		all := rounds(foldAll(t, s.ID, entries, nil, refusals{0: bad}))
		require.Len(t, all, 2, "seed %d", seed)
		got := byEvent(t, all[1])
		first := got[s.Events[0].GetId()].GetOutputs()[0].GetSessionStarted()
		require.Equal(t, bad != s.Events[0].GetId(), first.GetRestarted().GetStarted())
		closed := len(s.Events)
		refused := len(s.Events)
		for i, ev := range s.Events {
			if ev.GetSessionClosed() != nil {
				closed = i
			}
			if ev.GetId() == bad {
				refused = i
			}
		}
		require.Equal(t, closed < refused, first.GetRestarted().GetSealed())
		first.Restarted = nil
		requireSame(t, byEvent(t, rounds(want)[0]), got)
	}
}

func TestAParkedSessionIsSealedWhateverItWasParkedFor(t *testing.T) {
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2, 3}})
	closed := s.Close("completed")
	record := foldAll(t, s.ID, sessiontest.Entries(s.Events), nil, refusals{0: closed.GetId()})
	outputs := record[2].GetTrajectoryUpdate().GetOutputs()
	seal := outputs[len(outputs)-1].GetSessionSealed()
	require.True(t, proto.Equal(&event.Ledger{Generated: 2, Masked: map[string]uint64{"parked": 2}}, seal.GetLedger()), "%v", outputs)
	require.Equal(t, "failed", seal.GetStatus())
}
