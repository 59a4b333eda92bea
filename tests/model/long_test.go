package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/rows"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/mem"
)

// looked is a closed session of n main turns, at each of which a side request
// looks: as many branches, and each has all the turns before it.
func looked(n int) *sessiontest.Session {
	s := sessiontest.New(fmt.Sprintf("looked%d", n))
	parent := ""
	for i := range n {
		step := sessiontest.Step{ID: fmt.Sprintf("main-turn-%08d", i), Parent: parent, New: []uint32{uint32(i)}, Out: []uint32{7}}
		s.Commit(step)
		parent = step.ID
		side := sessiontest.Step{ID: fmt.Sprintf("side-turn-%08d", i), Parent: parent, New: []uint32{5}, Out: []uint32{6}}
		side.Edit = func(c *event.TurnCommitted) { c.Request.Class = "side" }
		s.Commit(side)
	}
	s.Close("completed")
	return s
}

// TestALongSessionWithManyBranchesIsSealedExportedAndVerified, in a log that takes
// events of the size that it takes by default, and its seal grows with its turns.
func TestALongSessionWithManyBranchesIsSealedExportedAndVerified(t *testing.T) {
	for name, p := range map[string]fold.Policy{
		"side requests masked": fold.DefaultPolicy(),
		"side requests trained": func() fold.Policy {
			p := fold.DefaultPolicy()
			p.Classes = map[string]fold.Use{"main": fold.Train, "side": fold.Train}
			return p
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			perTurn := func(n int) float64 {
				s := looked(n)
				turns, trajectories := mem.New(mem.Options{}), mem.New(mem.Options{MaxEvent: jet.DefaultConfig("default", jet.Trajectories).MaxEvent})
				var tip journal.Tip
				for _, ev := range s.Events {
					var err error
					tip, err = turns.Append(t.Context(), tip, ev)
					require.NoError(t, err)
				}
				folded, err := replay.Run(t.Context(), turns, replay.These(s.ID), replay.Options{Policy: p, Into: trajectories})
				require.NoError(t, err)
				require.Zero(t, folded.Failed, "%v", folded.Failures)

				report, err := verify.Run(t.Context(), turns, trajectories, replay.These(s.ID), verify.Options{})
				require.NoError(t, err)
				require.Empty(t, report.Findings)
				require.Zero(t, report.Parked)
				require.EqualValues(t, 2*n, report.Turns)

				x, size := rows.NewSession(s.ID), 0
				for e, err := range trajectories.ReadSession(t.Context(), s.ID, journal.Tip{}) {
					require.NoError(t, err)
					require.NoError(t, x.Add(e.Event, e.Tip.Position))
					size = max(size, len(e.Body))
				}
				made, err := x.Rows(rows.Policy{Classes: []string{"main"}})
				require.NoError(t, err)
				require.Len(t, made.Rows, 1)
				require.EqualValues(t, n, made.Rows[0].TrainableTokens)
				require.EqualValues(t, n, made.LeftOut[rows.ByClass])
				r := made.Rows[0]
				found, err := verify.Rows(t.Context(), turns, trajectories, s.ID, []verify.Row{{
					Name: r.RowID, Branch: r.BranchID, Grade: r.Grade,
					IDs: r.InputIDs, Mask: r.LossMask, Logprobs: r.Logprobs, Versions: r.Versions,
				}})
				require.NoError(t, err)
				require.Empty(t, found)
				return float64(size) / float64(2*n)
			}
			few, many := perTurn(300), perTurn(3000)
			require.InDelta(t, few, many, 2, "bytes of the seal for each turn")
			require.Less(t, many, 64.0)
		})
	}
}
