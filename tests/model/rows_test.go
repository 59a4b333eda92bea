package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/rows"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
)

// TestRowsTrainWhatTheLedgerSays folds random sessions, makes rows of what the
// recorder concludes, and counts on both sides.
func TestRowsTrainWhatTheLedgerSays(t *testing.T) {
	made := 0
	for seed := range uint64(1000) {
		s := sessiontest.Random(fmt.Sprintf("s%d", seed), seed)
		sealed, x := folded(t, s)
		if sealed == nil {
			continue
		}
		r, err := x.Rows(rows.Policy{})
		require.NoError(t, err, "seed %d", seed)
		trained := uint64(0)
		for _, row := range r.Rows {
			require.NoError(t, row.Check(), "seed %d", seed)
			trained += uint64(row.TrainableTokens)
			requireTurn(t, s, row.InputIDs[:row.TurnEnd[len(row.TurnEnd)-1]])
		}
		require.Equal(t, sealed.GetLedger().GetTrainable(), trained, "seed %d: rows against the ledger", seed)
		made += len(r.Rows)
	}
	require.Greater(t, made, 1000)
}

// folded runs a session through the recorder's fold and into the exporter.
func folded(t *testing.T, s *sessiontest.Session) (sealed *event.SessionSealed, x *rows.Session) {
	st := fold.New(s.ID, fold.DefaultPolicy(), fold.Aids{})
	x = rows.NewSession(s.ID)
	for i, e := range sessiontest.Entries(s.Events) {
		u, err := st.Apply(e)
		require.NoError(t, err)
		if u == nil {
			continue
		}
		raw, err := event.Encode(st.Event(st.UpdateID(e.Event.GetId()), e, u))
		require.NoError(t, err)
		ev, err := event.Decode(raw)
		require.NoError(t, err)
		require.NoError(t, x.Add(ev, uint64(i)))
		for _, o := range u.GetOutputs() {
			if o.GetSessionSealed() != nil {
				sealed = o.GetSessionSealed()
			}
		}
	}
	return sealed, x
}

// requireTurn checks that ids are all ids of one of the session's turns.
func requireTurn(t *testing.T, s *sessiontest.Session, ids []int32) {
	want := make([]uint32, len(ids))
	for i, id := range ids {
		want[i] = uint32(id)
	}
	require.True(t, slices.ContainsFunc(s.Turns, func(turn *sessiontest.Turn) bool { return slices.Equal(turn.IDs(), want) }),
		"a row ends in ids of no turn")
}
