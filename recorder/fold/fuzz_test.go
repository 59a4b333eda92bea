package fold_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/event"
)

// FuzzWhateverTheLogHoldsIsAccountedFor puts any event into a session that is
// in order: it is folded or parks the session, and the ledger balances.
func FuzzWhateverTheLogHoldsIsAccountedFor(f *testing.F) {
	for seed := range uint64(20) {
		for _, ev := range sessiontest.Random("s", seed).Events {
			body, err := event.Encode(ev)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(body)
		}
	}
	p := policies()[1]
	p.Audit = 1
	f.Fuzz(func(t *testing.T, body []byte) {
		ev, err := event.Decode(body)
		if err != nil {
			t.Skip()
		}
		s := sessiontest.New("s")
		s.Commit(sessiontest.Step{ID: "t0", New: []uint32{1, 2}, Out: []uint32{3, 0}})
		s.Commit(sessiontest.Step{ID: "t1", Parent: "t0", New: []uint32{1, 2}, Out: []uint32{3, 0}})
		s.Add("fuzzed", ev)
		s.Close("completed")

		st := fold.New("s", p, thinking)
		for _, e := range sessiontest.Entries(s.Events) {
			_, err := st.Apply(e)
			require.NoError(t, err)
		}
		require.True(t, worker.Balanced(st.Sealed().GetLedger()), "%v", st.Sealed())
		require.Equal(t, st.Generated(), st.Sealed().GetLedger().GetGenerated())
	})
}
