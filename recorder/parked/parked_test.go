package parked_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/parked"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/journal/mem"
)

func TestOnlyWhatTheLastRoundFailedForIsListed(t *testing.T) {
	rows, box := registry.NewMemory(), deadletter.New(mem.New(mem.Options{}))
	put := func(session, ev string, round uint32) {
		require.NoError(t, box.Put(t.Context(), deadletter.Letter{Session: session, Event: ev, Round: round, Reason: "illegal"}))
	}
	for id, state := range map[string]registry.State{"a": registry.Parked, "b": registry.Parked, "c": registry.Parked, "healed": registry.Closed} {
		require.NoError(t, rows.Put(t.Context(), registry.Session{ID: id, Run: "run-" + id, State: state}))
	}
	put("a", "e1", 0)
	put("a", "e1", 1)
	put("a", "e2", 1)
	put("b", "e3", 0)
	put("healed", "e4", 0)
	put("c", "e5", 0)
	put("c", "e6", 1)
	broken := func(session, ev string) {
		require.NoError(t, box.Put(t.Context(), deadletter.Letter{Session: session, Event: ev, Reason: "broken"}))
	}
	broken("b", "e7")
	broken("c", "e8") // by one that does not know the round
	list := func(run string) (found []string) {
		for e, err := range parked.List(t.Context(), rows, box, run) {
			require.NoError(t, err)
			require.Equal(t, "run-"+e.Session, e.Run)
			found = append(found, e.Session+" "+e.Event)
		}
		return found
	}
	require.ElementsMatch(t, []string{"a e1", "a e2", "b e3", "b e7", "c e6", "c e8"}, list(""))
	require.Equal(t, []string{"b e3", "b e7"}, list("run-b"))
	require.Empty(t, list("run-healed"))
}

func logged(t *testing.T) (*mem.Journal, *sessiontest.Session) {
	turns, s := mem.New(mem.Options{}), sessiontest.New("s1")
	s.Close("completed")
	var tip journal.Tip
	for _, ev := range s.Events {
		var err error
		tip, err = turns.Append(t.Context(), tip, ev)
		require.NoError(t, err)
	}
	return turns, s
}

// orders counts the releases in the log.
func orders(t *testing.T, turns journal.Journal) (n int) {
	for e, err := range turns.ReadSession(t.Context(), "s1", journal.Tip{}) {
		require.NoError(t, err)
		if r := e.Event.GetSessionReleased(); r != nil {
			require.Equal(t, "why", r.GetDetail())
			require.Equal(t, "run1", e.Event.GetRun())
			n++
		}
	}
	return n
}

func TestAnOrderIsAppendedOnceEachTimeItIsGiven(t *testing.T) {
	turns, _ := logged(t)
	for n := range 3 {
		require.NoError(t, parked.Release(t.Context(), turns, "s1", "why", time.Now()))
		require.Equal(t, n+1, orders(t, turns))
	}
}

func TestAnOrderSurvivesAFaultyLogAndGoesBehindWhatCame(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			turns, s := logged(t)
			faulty := journaltest.NewFaulty(turns, journaltest.Faults{Seed: seed, Drop: 0.3, LoseAck: 0.3})
			racing := &racing{Journal: faulty, t: t, log: turns, ev: s.Reward(1, 1)}
			require.NoError(t, parked.Release(t.Context(), racing, "s1", "why", time.Now()))
			require.Equal(t, 1, orders(t, turns))
		})
	}
}

// racing is a log to which somebody else appends first.
type racing struct {
	journal.Journal
	t   *testing.T
	log journal.Journal
	ev  *event.Event
}

func (r *racing) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if r.ev != nil {
		_, err := r.log.Append(ctx, tip, r.ev)
		require.NoError(r.t, err)
		r.ev = nil
	}
	return r.Journal.Append(ctx, tip, ev)
}

func TestAnOrderThatCannotBeGivenSaysWhy(t *testing.T) {
	turns, _ := logged(t)
	require.ErrorIs(t, parked.Release(t.Context(), turns, "s2", "why", time.Now()), parked.ErrUnknown)
	require.ErrorIs(t, parked.Release(t.Context(), turns, "no name", "why", time.Now()), parked.ErrUnknown)
	run := journal.RunSession("run1")
	_, err := turns.Append(t.Context(), journal.Tip{}, &event.Event{
		Id: "open", Run: "run1", Session: run, Body: &event.Event_RunOpened{RunOpened: &event.RunOpened{}},
	})
	require.NoError(t, err)
	require.ErrorIs(t, parked.Release(t.Context(), turns, run, "why", time.Now()), parked.ErrUnknown, "the log of a run is no session")
	require.ErrorIs(t, parked.Release(t.Context(), gone{turns}, "s1", "why", time.Now()), parked.ErrArchived)
	turns.AppendRaw("s1", []byte("no event"))
	err = parked.Release(t.Context(), turns, "s1", "why", time.Now())
	require.ErrorIs(t, err, parked.ErrUnreadable)
	require.ErrorContains(t, err, "event 2")
}

// gone is a log that is read together with its archive, to which all went.
type gone struct{ journal.Journal }

func (gone) Append(context.Context, journal.Tip, *event.Event) (journal.Tip, error) {
	return journal.Tip{}, journal.ErrTrimmed
}
