package archive_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/archive"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// TestWhatAnotherArchiverTookMeanwhileIsNotArchivedTwice lets another archiver do
// all the work while the first one is in the middle of its look at the sessions,
// and its process learn of that, as it does whenever somebody there reads.
func TestWhatAnotherArchiverTookMeanwhileIsNotArchivedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at := 1; at < 9; at++ {
			w := newWorld(t)
			list, ids := sessions(9)
			w.say(list...)
			w.record()
			time.Sleep(window)
			before := w.view(w.process(), ids...)
			asked := 0
			slow := w.archiver(func(_ *archive.Config, d *archive.Deps) {
				d.Exported = func(context.Context) (archive.Exported, error) {
					return func(string, int, string, uint64) bool {
						if asked++; asked == at {
							w.once(w.archiver(nil))
							require.NoError(t, d.Archive.Refresh(t.Context()))
						}
						return true
					}, nil
				}
			})
			if _, err := slow.Once(t.Context()); err != nil {
				require.ErrorIs(t, err, archive.ErrExists)
			}
			requireView(t, before, w.view(w.process(), ids...))
			w.once(slow)
			requireView(t, before, w.view(w.process(), ids...))
			w.requireTidy(ids...)
		}
	})
}

// TestAMissingManifestIsFoundOut removes manifests from the store, as somebody
// who tidies up might, or a disk that is not mounted: nothing is archived, and
// nothing trimmed, until they are back.
func TestAMissingManifestIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, missing := range []string{"manifests/000000000001.json", "manifests/000000000002.json", "manifests/", ""} {
			w := newWorld(t)
			list, ids := sessions(9)
			w.say(list[:8]...)
			w.record()
			time.Sleep(window)
			running := w.archiver(nil)
			require.Len(t, w.once(running).Manifests, 2)
			w.say(list[8])
			w.record()
			time.Sleep(window)
			before := w.view(w.process(), ids...)
			whole := maps.Clone(w.store.values)
			maps.DeleteFunc(w.store.values, func(key string, _ []byte) bool { return strings.HasPrefix(key, missing) })
			archivers := []*archive.Archiver{running}
			if missing != "" { // to who never saw it, a store with nothing is a new one: what is in it is named in the log
				require.ErrorIs(t, archive.New(w.store).Check(t.Context()), archive.ErrDamaged)
				archivers = append(archivers, w.archiver(nil))
			}
			for _, a := range archivers {
				_, err := a.Once(t.Context())
				require.ErrorIs(t, err, archive.ErrDamaged, missing)
			}
			require.Len(t, w.read(w.turns, ids[8]), len(list[8].Events))
			w.store.values = whole
			requireView(t, before, w.view(w.process(), ids...))
			w.once(running)
			w.requireTidy(ids...)
		}
	})
}

// TestALogThatLostItsEndIsNotArchivedAgain has a log with less of a session than
// the archive.
func TestALogThatLostItsEndIsNotArchivedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := sessiontest.New("s")
		s.Commit(sessiontest.Step{ID: "t", New: []uint32{1}, Out: []uint32{2}})
		s.Close("completed")
		w.say(s)
		w.record()
		time.Sleep(window)
		w.killed(3) // with the manifest
		lost := newWorld(t)
		lost.store = w.store
		other := sessiontest.New("s")
		other.Close("completed")
		lost.say(other)
		lost.record()
		time.Sleep(window)
		report := lost.once(lost.archiver(nil))
		require.Zero(t, report.Sessions)
		require.Equal(t, map[archive.Reason]int{archive.NotRecorded: 1}, report.Kept)
		require.Len(t, lost.read(lost.turns, "s"), 2)
	})
}

// TestARewardAtTheLastMomentIsRecordedWhenItsSessionIsGone appends one between
// the last look at the session and its end; the recorder comes to it when both
// logs have been trimmed.
func TestARewardAtTheLastMomentIsRecordedWhenItsSessionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := sessiontest.New("s")
		s.Commit(sessiontest.Step{ID: "t", New: []uint32{1}, Out: []uint32{2}})
		s.Close("completed")
		w.say(s)
		w.record()
		time.Sleep(window)
		before := w.read(w.trajectories, "s")
		w.once(w.archiver(func(_ *archive.Config, d *archive.Deps) {
			d.Fault = func(p archive.Point) {
				if p == archive.PointTombstone {
					s.Reward(1, 1)
					w.say(s)
				}
			}
		}))
		require.Empty(t, w.read(w.trajectories, "s"))

		w.record()
		for range 2 {
			p := w.process()
			require.Len(t, w.read(p.turns, "s"), 4)
			updates := w.read(p.trajectories, "s")
			require.Len(t, updates, 4)
			require.Equal(t, before[2].Tip, updates[2].Tip)
			letters, err := deadletter.New(w.letters).Read(t.Context(), "s")
			require.NoError(t, err)
			require.Empty(t, letters)
			row, _, err := w.registry.Get(t.Context(), "s")
			require.NoError(t, err)
			require.EqualValues(t, 1, *row.Reward)
			time.Sleep(window)
			w.once(w.archiver(nil))
		}
		w.requireTidy("s")

		p := w.process()
		require.NoError(t, p.archive.Refresh(t.Context()))
		_, err := p.trajectories.Append(t.Context(), journal.Tip{}, before[0].Event)
		require.ErrorIs(t, err, journal.ErrConflict, "it does not begin again")
		list := []journal.Continuation{{Events: []*event.Event{before[0].Event}}}
		_, err = p.trajectories.(journal.Batcher).AppendAll(t.Context(), journal.PartitionOf("s"), list)
		require.ErrorIs(t, err, journal.ErrConflict)
		_, err = p.turns.Append(t.Context(), w.tips["s"], s.Reward(2, 2))
		require.ErrorIs(t, err, journal.ErrTrimmed, "of its turns nothing comes any more")
	})
}
