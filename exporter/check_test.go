package exporter_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink"
)

func TestCheckFindsWhatIsWrongWithTheFiles(t *testing.T) {
	prepare := func(w *world) string {
		w.append(session("s0", "", 0, 0).Events()...)
		w.once()
		s := session("s1", "", 0, 0)
		w.append(s.Events()...)
		w.once()
		s.Reward("", 0.5).Revision = 1
		w.append(s.RewardEvents()[1:]...)
		w.once()
		return w.state().Files[0].Path
	}
	check := func(w *world) exporter.Report {
		calls := 0
		report, err := exporter.Check(w.t.Context(), w.sink, 0, func(done, of int) { calls++ })
		require.NoError(w.t, err)
		require.Equal(w.t, report.Files, calls)
		return report
	}
	bubble(t, "nothing", func(w *world) {
		prepare(w)
		report := check(w)
		require.Empty(w.t, report.Faults)
		require.EqualValues(w.t, 2, report.Rows)
		require.Equal(w.t, 3, report.Files)
	})
	bubble(t, "a file that is missing", func(w *world) {
		require.NoError(w.t, w.sink.Delete(w.t.Context(), prepare(w)))
		require.ErrorContains(w.t, check(w).Faults[0], "is missing")
	})
	bubble(t, "a byte that changed", func(w *world) {
		path := prepare(w)
		b, err := sink.ReadAll(w.t.Context(), w.sink, path)
		require.NoError(w.t, err)
		b[len(b)/2] ^= 1
		require.NoError(w.t, w.sink.Put(w.t.Context(), path, bytes.NewReader(b), int64(len(b))))
		report := check(w)
		require.Len(w.t, report.Faults, 1)
		require.ErrorContains(w.t, report.Faults[0], "sha256")
	})
}
