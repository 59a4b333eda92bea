package stack

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder"
	"turnlog.dev/recorder/worker"
)

// Every recorder of a group sees the same lag of a partition: whoever adds up
// must be able to take each partition once.
func TestARecordersLagIsToldByPartition(t *testing.T) {
	m := newMetrics("v")
	m.recorder(func() recorder.Stats {
		return recorder.Stats{Stats: worker.Stats{
			Batches: 3, Splits: 1,
			Partitions: map[int]worker.PartitionStats{7: {Pending: 5}, 63: {Pending: 2}},
		}}
	})
	families, err := m.reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			name := f.GetName()
			for _, l := range one.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	require.InDelta(t, 5, got["turnlog_recorder_pending_events 7"], 0)
	require.InDelta(t, 2, got["turnlog_recorder_pending_events 63"], 0)
	require.InDelta(t, 3, got["turnlog_recorder_batches_total"], 0)
	require.InDelta(t, 1, got["turnlog_recorder_split_batches_total"], 0)
}
