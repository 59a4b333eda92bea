package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/rows"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
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

// TestRowsAreWhatVerifyReadsInTheLog compares the exporter's rows with what
// verify puts together with code of its own, and then rows with one fault.
func TestRowsAreWhatVerifyReadsInTheLog(t *testing.T) {
	faults := map[string]func(rng *rand.Rand, r *verify.Row) bool{
		"an id": func(rng *rand.Rand, r *verify.Row) bool {
			r.IDs = slices.Clone(r.IDs)
			r.IDs[rng.IntN(len(r.IDs))] += 100
			return true
		},
		"a token of context that is trained": func(_ *rand.Rand, r *verify.Row) bool {
			r.Mask = slices.Clone(r.Mask)
			at := slices.Index(r.Mask, 0)
			if at >= 0 {
				r.Mask[at] = 1
			}
			return at >= 0
		},
		"a token that is not trained": func(_ *rand.Rand, r *verify.Row) bool {
			r.Mask = slices.Clone(r.Mask)
			r.Mask[slices.Index(r.Mask, 1)] = 0
			return true
		},
		"a logprob": func(rng *rand.Rand, r *verify.Row) bool {
			r.Logprobs = slices.Clone(r.Logprobs)
			if r.Logprobs != nil {
				r.Logprobs[rng.IntN(len(r.Logprobs))]--
			}
			return r.Logprobs != nil
		},
		"a version": func(rng *rand.Rand, r *verify.Row) bool {
			r.Versions = slices.Clone(r.Versions)
			if r.Versions != nil {
				r.Versions[rng.IntN(len(r.Versions))]++
			}
			return r.Versions != nil
		},
		"no versions":    func(_ *rand.Rand, r *verify.Row) bool { had := r.Versions != nil; r.Versions = nil; return had },
		"another grade":  func(_ *rand.Rand, r *verify.Row) bool { r.Grade = map[string]string{"A": "B"}[r.Grade]; return true },
		"another branch": func(_ *rand.Rand, r *verify.Row) bool { r.Branch += "0"; return true },
		"a reward":       func(_ *rand.Rand, r *verify.Row) bool { v := float32(9); r.Reward = &v; return true },
		"an id less": func(_ *rand.Rand, r *verify.Row) bool {
			r.IDs, r.Mask = r.IDs[:len(r.IDs)-1], r.Mask[:len(r.Mask)-1]
			if r.Logprobs != nil {
				r.Logprobs = r.Logprobs[:len(r.IDs)]
			}
			if r.Versions != nil {
				r.Versions = r.Versions[:len(r.IDs)]
			}
			return true
		},
	}
	names := slices.Sorted(maps.Keys(faults))
	seen := map[string]int{}
	for seed := range uint64(400) {
		s := sessiontest.Random(fmt.Sprintf("s%d", seed), seed)
		sealed, x := folded(t, s)
		if sealed == nil {
			continue
		}
		turns, trajectories := logged(t, s)
		r, err := x.Rows(rows.Policy{})
		require.NoError(t, err)
		var list []verify.Row
		for _, row := range r.Rows {
			list = append(list, verify.Row{
				Name: row.RowID, Branch: row.BranchID, Grade: row.Grade,
				IDs: row.InputIDs, Mask: row.LossMask, Logprobs: row.Logprobs, Versions: row.Versions, Reward: row.Reward,
			})
		}
		found, err := verify.Rows(t.Context(), turns, trajectories, s.ID, list)
		require.NoError(t, err)
		require.Empty(t, found, "seed %d", seed)
		if len(list) == 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(seed, 9))
		name := names[int(seed)%len(names)]
		if at := rng.IntN(len(list)); faults[name](rng, &list[at]) {
			found, err = verify.Rows(t.Context(), turns, trajectories, s.ID, list)
			require.NoError(t, err)
			require.NotEmpty(t, found, "seed %d: %s of row %d goes unseen", seed, name, at)
			seen[name]++
		}
		twice, err := verify.Rows(t.Context(), turns, trajectories, s.ID, append(list, list[0]))
		require.NoError(t, err)
		require.NotEmpty(t, twice, "seed %d: a row that stands twice goes unseen", seed)
	}
	for _, name := range names {
		require.Greater(t, seen[name], 5, name)
	}
}

// logged are both streams of a session.
func logged(t *testing.T, s *sessiontest.Session) (turns, trajectories *mem.Journal) {
	turns, trajectories = mem.New(mem.Options{}), mem.New(mem.Options{})
	var in, out journal.Tip
	var err error
	for _, ev := range s.Events {
		in, err = turns.Append(t.Context(), in, ev)
		require.NoError(t, err)
	}
	st := fold.New(s.ID, fold.DefaultPolicy(), fold.Aids{})
	for e, err := range turns.ReadSession(t.Context(), s.ID, journal.Tip{}) {
		require.NoError(t, err)
		u, err := st.Apply(e)
		require.NoError(t, err)
		if u != nil {
			out, err = trajectories.Append(t.Context(), out, st.Event(st.UpdateID(e.Event.GetId()), e, u))
			require.NoError(t, err)
		}
	}
	return turns, trajectories
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
