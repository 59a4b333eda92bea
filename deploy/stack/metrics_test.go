package stack

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/recorder"
	"turnlog.dev/recorder/archive"
	"turnlog.dev/recorder/worker"
)

// TestMetricsAreNamedByTheRulesAndAPoolIsSaidByReplica: what an operator looks at to
// see who waits, for what, and why.
func TestMetricsAreNamedByTheRulesAndAPoolIsSaidByReplica(t *testing.T) {
	m := newMetrics("v")
	m.gateway(func() gateway.Stats { return gateway.Stats{} })
	m.recorder(func() recorder.Stats { return recorder.Stats{} })
	m.archiver(func() archive.Stats { return archive.Stats{} })
	m.exporter(func() exporter.Stats { return exporter.Stats{} })
	remove := m.pool("qwen", func() pool.Stats {
		return pool.Stats{Waiting: 3, Queued: 5, Positions: 9, Replicas: []pool.ReplicaStats{
			{Name: "a:1", State: "up", InFlight: 7, Served: 11, Failed: 2},
			{Name: "b:1", State: "resting"},
			{Name: "c:1", State: "draining"},
		}}
	})
	families, err := m.reg.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	said := values(t, m)
	for name, want := range map[string]float64{
		"turnlog_pool_waiting_requests qwen": 3, "turnlog_pool_queued_requests_total qwen": 5, "turnlog_pool_queue_positions_total qwen": 9,
		"turnlog_pool_running_requests a:1 qwen": 7, "turnlog_pool_served_requests_total a:1 qwen": 11, "turnlog_pool_failed_requests_total a:1 qwen": 2,
		"turnlog_pool_up a:1 qwen": 1, "turnlog_pool_up b:1 qwen": 0, "turnlog_pool_up c:1 qwen": 0,
		"turnlog_pool_draining b:1 qwen": 0, "turnlog_pool_draining c:1 qwen": 1,
	} {
		got, ok := said[name]
		require.True(t, ok, name)
		require.InDelta(t, want, got, 0, name)
	}
	remove()
	require.NotContains(t, values(t, m), "turnlog_pool_up a:1 qwen", "a model that is gone is not said any more")
}

// values are the metrics by name and label values.
func values(t *testing.T, m *metrics) map[string]float64 {
	t.Helper()
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
	return got
}

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
	got := values(t, m)
	require.InDelta(t, 5, got["turnlog_recorder_pending_events 7"], 0)
	require.InDelta(t, 2, got["turnlog_recorder_pending_events 63"], 0)
	require.InDelta(t, 3, got["turnlog_recorder_batches_total"], 0)
	require.InDelta(t, 1, got["turnlog_recorder_split_batches_total"], 0)
}
