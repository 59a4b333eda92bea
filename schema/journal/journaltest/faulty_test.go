package journaltest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/journal/mem"
)

var faults = journaltest.Faults{
	Drop: 0.1, LoseAck: 0.2, Duplicate: 0.2, Delay: 0.1, MaxDelay: time.Millisecond, Reorder: 0.5, Unavailable: 0.1,
}

func TestAFaultyLogKeepsThePromises(t *testing.T) {
	for seed := range uint64(5) {
		faults := faults
		faults.Seed = seed
		journaltest.Run(t,
			func(*testing.T) journal.Journal {
				return journaltest.NewFaulty(mem.New(mem.Options{MaxEvent: 1 << 20}), faults)
			},
			journaltest.Features{
				Lossy:    true,
				MaxEvent: 1 << 20,
				Small: func(*testing.T) journal.Journal {
					return journaltest.NewFaulty(mem.New(mem.Options{MaxBytes: 32 << 10}), faults)
				},
			})
	}
}

func TestTheSameSeedGivesTheSameFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := func() (list []bool) {
			j := journaltest.NewFaulty(mem.New(mem.Options{}), journaltest.Faults{Seed: 7, Drop: 0.3, LoseAck: 0.3, Delay: 0.5, MaxDelay: time.Minute})
			for n := range 100 {
				var tip journal.Tip
				_, err := j.Append(t.Context(), tip, journaltest.Annotation("s"+string(rune('a'+n%26))+string(rune('a'+n/26)), "a", "1"))
				list = append(list, err == nil)
			}
			require.Positive(t, j.Injected())
			return list
		}
		first := outcomes()
		require.Equal(t, first, outcomes())
		require.Contains(t, first, true)
		require.Contains(t, first, false)
	})
}
