package rows_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/rows"
)

func TestWhatCameLaterCountsByRevisionAndThenByOrder(t *testing.T) {
	first := float32(0.5)
	row := func(id string) *rows.Row {
		return &rows.Row{RowID: id, Status: "completed", TurnStart: []int32{1, 3}, TurnEnd: []int32{2, 4}, Reward: &first, RewardsJSON: "{}"}
	}
	a := rows.NewAmendments()
	for _, r := range []*rows.RewardRow{
		{RowID: "r", TurnIndex: -1, Reward: 1, Revision: 2, RewardsJSON: `{"a":1}`},
		{RowID: "r", TurnIndex: -1, Reward: 2, Revision: 1},                         // older
		{RowID: "r", TurnIndex: -1, Reward: 3, Revision: 2, RewardsJSON: `{"a":3}`}, // as old, but later
		{RowID: "r", TurnIndex: 1, Reward: 4},
	} {
		a.Reward(r)
	}
	for _, r := range []*rows.AnnotationRow{
		{RowID: "r", TurnIndex: -1, Name: "advantage", ValueJSON: "7", Revision: 2},
		{RowID: "r", TurnIndex: -1, Name: "advantage", ValueJSON: "8", Revision: 1},
		{RowID: "r", TurnIndex: 0, Name: "advantage", ValueJSON: "9", Revision: 3}, // of a turn, and no column
		{RowID: "r", TurnIndex: -1, Name: "remove_sample", ValueJSON: "true"},
	} {
		a.Annotation(r)
	}

	r := row("r")
	a.Apply(r)
	require.Equal(t, float32(3), *r.Reward)
	require.JSONEq(t, `{"a":3}`, r.RewardsJSON)
	require.Len(t, r.TurnReward, 2)
	require.True(t, math.IsNaN(float64(r.TurnReward[0])))
	require.Equal(t, float32(4), r.TurnReward[1])
	require.Equal(t, float32(7), *r.Advantage)
	require.True(t, r.RemoveSample)

	other := row("another")
	a.Apply(other)
	require.Equal(t, row("another"), other)
}

func TestASampleThatWasAbortedStaysLeftOutWhateverIsSaidLater(t *testing.T) {
	a := rows.NewAmendments()
	a.Annotation(&rows.AnnotationRow{RowID: "r", TurnIndex: -1, Name: "remove_sample", ValueJSON: "false"})
	for status, out := range map[string]bool{"aborted": true, "completed": false} {
		r := &rows.Row{RowID: "r", Status: status, RemoveSample: true}
		a.Apply(r)
		require.Equal(t, out, r.RemoveSample, status)
	}
}
