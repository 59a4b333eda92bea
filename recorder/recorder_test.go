package recorder_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

func TestASessionThatNobodyClosesIsClosedAndSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, trajectories, rows := mem.New(mem.Options{}), mem.New(mem.Options{}), registry.NewMemory()
		s := sessiontest.New("s1", func(o *event.SessionOpened) { o.Limits = &event.Limits{IdleSeconds: 60} })
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}})
		var tip journal.Tip
		for _, ev := range s.Events {
			var err error
			tip, err = turns.Append(t.Context(), tip, ev)
			require.NoError(t, err)
		}
		r, err := recorder.New(recorder.DefaultConfig(), recorder.Deps{
			Turns: turns, Trajectories: trajectories, DeadLetters: mem.New(mem.Options{}), Registry: rows,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		require.NoError(t, r.Run(ctx))

		row, ok, err := rows.Get(t.Context(), "s1")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, registry.Closed, row.State)
		require.Equal(t, "truncated", row.Status)
		require.Equal(t, "limit_idle", row.Reason)
		stats := r.Stats()
		require.Equal(t, uint64(1), stats.Reaped)
		require.Equal(t, uint64(1), stats.Sealed)
		require.Equal(t, uint64(1), stats.Ledger.Trainable)
	})
}

func TestAParkedSessionIsEndedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, trajectories, rows := mem.New(mem.Options{}), mem.New(mem.Options{}), registry.NewMemory()
		s := sessiontest.New("s1", func(o *event.SessionOpened) { o.Limits = &event.Limits{IdleSeconds: 60} })
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1, 2}, Out: []uint32{3}, Edit: func(c *event.TurnCommitted) { c.Parent = "nowhere" }})
		var tip journal.Tip
		for _, ev := range s.Events {
			var err error
			tip, err = turns.Append(t.Context(), tip, ev)
			require.NoError(t, err)
		}
		r, err := recorder.New(recorder.DefaultConfig(), recorder.Deps{
			Turns: turns, Trajectories: trajectories, DeadLetters: mem.New(mem.Options{}), Registry: rows,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		require.NoError(t, r.Run(ctx))
		row, _, err := rows.Get(t.Context(), "s1")
		require.NoError(t, err)
		require.Equal(t, registry.Parked, row.State)
		require.Equal(t, "failed", row.Status)
		require.False(t, row.ClosedAt.IsZero())
		require.Equal(t, uint64(1), r.Stats().Reaped)
	})
}

func TestARestartedRecorderStillEndsSessionsFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, trajectories, dead := mem.New(mem.Options{}), mem.New(mem.Options{}), mem.New(mem.Options{})
		s := sessiontest.New("s1", func(o *event.SessionOpened) { o.Limits = &event.Limits{IdleSeconds: 600} })
		_, err := turns.Append(t.Context(), journal.Tip{}, s.Events[0])
		require.NoError(t, err)
		for _, state := range []registry.State{registry.Open, registry.Closed} {
			rows := registry.NewMemory() // of a new process
			r, err := recorder.New(recorder.DefaultConfig(), recorder.Deps{
				Turns: turns, Trajectories: trajectories, DeadLetters: dead, Registry: rows,
			})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
			require.NoError(t, r.Run(ctx))
			cancel()
			row, ok, err := rows.Get(t.Context(), "s1")
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, state, row.State)
			require.Equal(t, "g1", row.Group)
		}
	})
}

func TestARestartedRecorderKnowsTheSessionsThatLeftTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := registry.NewMemory() // of a new process
		r, err := recorder.New(recorder.DefaultConfig(), recorder.Deps{
			Turns: mem.New(mem.Options{}), Trajectories: mem.New(mem.Options{}), DeadLetters: mem.New(mem.Options{}), Registry: rows,
			Tombstones: func(context.Context) iter.Seq2[registry.Session, error] {
				return func(yield func(registry.Session, error) bool) {
					yield(registry.Session{ID: "s1", State: registry.Trimmed, Archive: 3}, nil)
				}
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, r.Run(ctx))
		row, _, err := rows.Get(t.Context(), "s1")
		require.NoError(t, err)
		require.Equal(t, registry.Trimmed, row.State)
		require.EqualValues(t, 3, row.Archive)
	})
}

func TestARecorderNeedsItsJournals(t *testing.T) {
	_, err := recorder.New(recorder.DefaultConfig(), recorder.Deps{})
	require.Error(t, err)
	require.NoError(t, recorder.DefaultConfig().Validate())
}
