package reaper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/reaper"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// world is a log whose time stands until a test moves it.
type world struct {
	turns *mem.Journal
	rows  *registry.Memory
	tips  map[string]journal.Tip
}

func newWorld() *world {
	return &world{mem.New(mem.Options{}), registry.NewMemory(), map[string]journal.Tip{}}
}

// open appends a session with limits, in seconds, and its row.
func (w *world) open(t *testing.T, id string, wall, idle int64) *sessiontest.Session {
	s := sessiontest.New(id, func(o *event.SessionOpened) { o.Limits = &event.Limits{WallSeconds: wall, IdleSeconds: idle} })
	w.append(t, s.Events[0])
	require.NoError(t, w.rows.Put(t.Context(), registry.Session{
		ID: id, State: registry.Open, OpenedAt: time.Now(), LastAt: time.Now(), WallSeconds: wall, IdleSeconds: idle,
	}))
	return s
}

func (w *world) append(t *testing.T, ev *event.Event) {
	tip, err := w.turns.Append(t.Context(), w.tips[ev.GetSession()], ev)
	require.NoError(t, err)
	w.tips[ev.GetSession()] = tip
}

func (w *world) reaper(t *testing.T, cfg reaper.Config) *reaper.Reaper {
	r, err := reaper.New(cfg, reaper.Deps{Turns: w.turns, Registry: w.rows})
	require.NoError(t, err)
	return r
}

// reason is why a session was closed, or "".
func (w *world) reason(t *testing.T, id string) string {
	reason, closes := "", 0
	for e, err := range w.turns.ReadSession(t.Context(), id, journal.Tip{}) {
		require.NoError(t, err)
		if c := e.Event.GetSessionClosed(); c != nil {
			reason = c.GetReason()
			closes++
		}
	}
	require.LessOrEqual(t, closes, 1)
	return reason
}

func TestSessionsPastTheirLimitsAreClosedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.open(t, "idle", 0, 60)
		w.open(t, "old", 90, 0)
		w.open(t, "free", 0, 0)
		cfg := reaper.Config{Every: time.Second, MaxLife: time.Hour}
		a, b := w.reaper(t, cfg), w.reaper(t, cfg)
		sweep := func() {
			require.NoError(t, a.Sweep(t.Context()))
			require.NoError(t, b.Sweep(t.Context()))
		}
		wait(t, 60*time.Second)
		sweep()
		require.Empty(t, w.reason(t, "idle"), "not yet past it")
		wait(t, time.Second)
		sweep()
		require.Equal(t, "limit_idle", w.reason(t, "idle"))
		require.Empty(t, w.reason(t, "old"))
		wait(t, 40*time.Second)
		sweep()
		require.Equal(t, "limit_wall", w.reason(t, "old"))
		require.Empty(t, w.reason(t, "free"))
		wait(t, time.Hour)
		sweep()
		require.Equal(t, "limit_wall", w.reason(t, "free"), "nobody lives for ever")
		require.Equal(t, uint64(3), a.Closed()+b.Closed())
	})
}

// wait moves the bubble's clock.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

func TestAnAgentThatCameBackIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := w.open(t, "s1", 0, 60)
		wait(t, 61*time.Second)
		// The registry does not know of this turn.
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}})
		w.append(t, s.Events[1])
		require.NoError(t, w.reaper(t, reaper.Config{Every: time.Second}).Sweep(t.Context()))
		require.Empty(t, w.reason(t, "s1"))
	})
}

func TestAnAgentThatComesBackWhileItIsJudgedIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := w.open(t, "s1", 0, 60)
		wait(t, 61*time.Second)
		s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}})
		raced := &racing{Journal: w.turns, before: func() { w.append(t, s.Events[1]) }}
		r, err := reaper.New(reaper.Config{Every: time.Second}, reaper.Deps{Turns: raced, Registry: w.rows})
		require.NoError(t, err)
		require.NoError(t, r.Sweep(t.Context()))
		require.Empty(t, w.reason(t, "s1"))
		require.Zero(t, r.Closed())
	})
}

// racing lets something happen right before the first append.
type racing struct {
	journal.Journal
	before func()
}

func (r *racing) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if r.before != nil {
		r.before()
		r.before = nil
	}
	return r.Journal.Append(ctx, tip, ev)
}

func TestRunSweepsUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.open(t, "s1", 0, 60)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		require.NoError(t, w.reaper(t, reaper.DefaultConfig()).Run(ctx))
		require.Equal(t, "limit_idle", w.reason(t, "s1"))
	})
}

func TestTheServersClockCountsAndNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.open(t, "s1", 0, 60)
		r, err := reaper.New(reaper.DefaultConfig(), reaper.Deps{Turns: w.turns, Registry: w.rows, Now: func(context.Context) (time.Time, error) {
			return time.Now().Add(2 * time.Minute), nil
		}})
		require.NoError(t, err)
		require.NoError(t, r.Sweep(t.Context()))
		require.Equal(t, "limit_idle", w.reason(t, "s1"))
	})
}

// A turn that is waited for leaves nothing in the log: however short a session's
// limit, and however long a turn may take, its session is not closed meanwhile.
func TestNoLimitOnIdlenessIsShorterThanTheLongestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.open(t, "s1", 0, 60)
		cfg := reaper.DefaultConfig()
		cfg.Allow(7 * time.Hour) // longer than the default would wait
		require.NoError(t, cfg.Validate())
		require.Equal(t, 14*time.Hour, cfg.MaxIdle)
		r := w.reaper(t, cfg)
		wait(t, 7*time.Hour)
		require.NoError(t, r.Sweep(t.Context()))
		require.Empty(t, w.reason(t, "s1"))
		wait(t, time.Second)
		require.NoError(t, r.Sweep(t.Context()))
		require.Equal(t, "limit_idle", w.reason(t, "s1"))
	})
}

func TestAConfigurationThatMakesNoSenseIsRefused(t *testing.T) {
	require.NoError(t, reaper.DefaultConfig().Validate())
	require.ErrorContains(t, reaper.Config{Every: 1, MaxIdle: time.Hour, LongestTurn: time.Hour}.Validate(), "longest turn")
	err := reaper.Config{MaxIdle: -1}.Validate()
	require.ErrorContains(t, err, "every")
	require.ErrorContains(t, err, "negative")
}
