package exporter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
)

// later lets a settled group be forgotten: it is long ago, and another was
// settled since.
func (w *world) later() {
	time.Sleep(2 * manifest.Remember)
	w.append(session("another", "", 0, 0).Events()...)
	w.once()
}

func TestAParkedSessionThatIsReleasedInTimeIsExportedWithItsGroup(t *testing.T) {
	for _, parked := range []int{0, 2, 4} {
		bubble(t, "", func(w *world) {
			s := session("s0", "g", 0, 2)
			w.append(s.Parked(parked)...)
			w.append(session("s1", "g", 1, 2).Events()...)
			require.Zero(w.t, w.once().Written, "the group waits")
			w.append(s.Released(parked)...)
			require.Equal(w.t, 1, w.once().Written)
			require.Equal(w.t, []string{"s0", "s1"}, w.sessions())
		})
	}
}

func TestARowIsThatOfTheLastRound(t *testing.T) {
	bubble(t, "", func(w *world) {
		plain := session("s0", "", 0, 0)
		w.append(plain.Events()...)
		w.once()
		want := w.rows()

		w = again(w)
		w.append(plain.Parked(3)...)
		w.append(plain.Released(3)...)
		w.once()
		got := w.rows()
		require.Len(w.t, got, len(want))
		for id, r := range want {
			require.Equal(w.t, r, got[id])
		}
	})
}

// again is a world like another one, without its log and data set.
func again(w *world) *world {
	fresh := newWorld(w.t)
	fresh.cfg = w.cfg
	return fresh
}

func TestASessionOnItsOwnIsExportedHoweverLateItIsReleased(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		for _, parked := range []int{0, 2} {
			bubble(t, "", func(w *world) {
				s := session("s0", "", 0, 0)
				w.append(s.Parked(parked)...)
				w.once()
				time.Sleep(2 * w.cfg.GroupDeadline)
				w.once()
				require.Empty(w.t, w.rows(), "it is settled without rows")
				if forgotten {
					w.later()
				}
				// An exporter may come and go at every event.
				written := w.once().Written
				for _, ev := range s.Released(parked) {
					w.append(ev)
					written += w.once().Written
				}
				require.Equal(w.t, 1, written)
				require.Contains(w.t, w.sessions(), "s0")
				require.Zero(w.t, w.once().Written)

				s.Reward("", 0.75).Revision = 1
				w.append(s.RewardEvents()[1:]...)
				require.EqualValues(w.t, 1, w.once().Counts.LateRewards)
			})
		}
	}
}

func TestAReleaseThatTakesLongIsWaitedFor(t *testing.T) {
	bubble(t, "", func(w *world) {
		s := session("s0", "", 0, 0)
		w.append(s.Parked(2)...)
		released := s.Released(2)
		w.append(released[:3]...)
		time.Sleep(2 * w.cfg.GroupDeadline)
		require.Zero(w.t, w.once().Written)
		w.append(released[3:]...)
		w.once()
		require.Equal(w.t, []string{"s0"}, w.sessions())
	})
}

func TestASettledGroupStaysAsItIs(t *testing.T) {
	bubble(t, "", func(w *world) {
		w.cfg.Partial = "export"
		s := session("s0", "g", 0, 2)
		w.append(s.Parked(2)...)
		w.append(session("s1", "g", 1, 2).Events()...)
		time.Sleep(w.cfg.GroupDeadline)
		require.Equal(w.t, 1, w.once().Written)
		w.later()
		e := w.exporter(nil)
		w.append(s.Released(2)...)
		_, err := e.Once(w.t.Context())
		require.NoError(w.t, err)
		require.EqualValues(w.t, 1, e.Stats().ReleasedTooLate)
		time.Sleep(2 * w.cfg.GroupDeadline)
		w.once()
		require.Equal(w.t, []string{"another", "s1"}, w.sessions())
	})
}

func TestWhatWasExportedBeforeASessionWasParkedIsNotExportedAgain(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		bubble(t, "", func(w *world) {
			s := session("s0", "", 0, 0)
			all := len(s.Events())
			parked := s.Parked(all)
			w.append(parked[:all]...)
			require.Equal(w.t, 1, w.once().Written)
			w.append(parked[all:]...)
			w.once()
			if forgotten {
				w.later()
			}
			e := w.exporter(nil)
			for _, ev := range s.Released(all) {
				w.append(ev)
				_, err := e.Once(w.t.Context())
				require.NoError(w.t, err)
			}
			require.Positive(w.t, e.Stats().ReleasedTooLate)
			require.True(w.t, slices.Contains(w.sessions(), "s0")) // once: rows says so

			s.Reward("", 0.75).Revision = 1
			w.append(s.RewardEvents()[1:]...)
			w.once()
			got := slices.Collect(read[rows.RewardRow](w, manifest.Rewards))
			require.NotEmpty(w.t, got)
			require.Equal(w.t, float32(0.75), got[len(got)-1].Reward)
		})
	}
}
