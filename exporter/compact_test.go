package exporter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
)

// many exports n groups of two, one file each.
func many(w *world, n int) {
	for g := range n {
		for i := range int32(2) {
			// Later groups sort before earlier ones.
			id := fmt.Sprintf("s%02d-%d", n-g, i)
			w.append(session(id, fmt.Sprintf("g%02d", n-g), i, 2).Events()...)
		}
		w.once()
	}
}

func TestCompactMergesSmallShardsAndKeepsEveryRow(t *testing.T) {
	bubble(t, "", func(w *world) {
		w.cfg.FileTokens = 60 // of 18 a group
		many(w, 9)
		before := w.rows()
		require.Len(w.t, w.state().Files, 9)
		sum, err := w.exporter(nil).Compact(w.t.Context())
		require.NoError(w.t, err)
		require.Equal(w.t, before, w.rows())
		require.Less(w.t, len(w.state().Files), 5)
		require.EqualValues(w.t, 9+sum.Written, w.state().ID)

		report, err := exporter.Check(w.t.Context(), w.sink, 0, nil)
		require.NoError(w.t, err)
		require.Empty(w.t, report.Faults)
		order := ""
		for _, f := range w.state().Files[:1] {
			for r := range readFile(w, f) {
				require.LessOrEqual(w.t, order, r.GroupID)
				order = r.GroupID
			}
		}

		// An older manifest still has its files, and the exporter goes on.
		report, err = exporter.Check(w.t.Context(), w.sink, 9, nil)
		require.NoError(w.t, err)
		require.Empty(w.t, report.Faults)
		require.Zero(w.t, w.once().Written)
		w.append(session("more", "", 0, 0).Events()...)
		w.once()
		require.Len(w.t, w.rows(), 19)
		sum, err = w.exporter(nil).Compact(w.t.Context())
		require.NoError(w.t, err)
		again, err := w.exporter(nil).Compact(w.t.Context())
		require.NoError(w.t, err)
		require.Zero(w.t, again.Written, "after %d", sum.Written)
	})
}

func TestRunMergesAndCollectsByItself(t *testing.T) {
	bubble(t, "", func(w *world) {
		w.cfg.CompactFiles, w.cfg.CompactEvery, w.cfg.CollectAfter = 4, time.Hour, 3*time.Hour
		stop, stop2 := w.follow(), w.follow() // of two exporters on one sink
		defer stop()
		defer stop2()
		add := func(n int) {
			w.append(session(fmt.Sprintf("s%d", n), "", 0, 0).Events()...)
			time.Sleep(2 * w.cfg.Flush)
		}
		for n := range 3 {
			add(n)
		}
		time.Sleep(w.cfg.CompactEvery)
		require.Len(w.t, w.state().Files, 3, "three are not worth it")
		add(3)
		pinned, before := w.state(), w.rows()
		time.Sleep(w.cfg.CompactEvery)
		require.Len(w.t, w.state().Files, 1)
		require.Equal(w.t, before, w.rows())

		stored := func() (n int) {
			for key := range w.contents() {
				if strings.HasSuffix(key, ".parquet") {
					n++
				}
			}
			return n
		}
		require.Equal(w.t, 5, stored(), "who pinned manifest %d goes on", pinned.ID)
		report, err := exporter.Check(w.t.Context(), w.sink, pinned.ID, nil)
		require.NoError(w.t, err)
		require.Empty(w.t, report.Faults)
		time.Sleep(w.cfg.CollectAfter + 2*w.cfg.CompactEvery)
		require.Equal(w.t, 1, stored())
		require.Equal(w.t, before, w.rows())
	})
	bubble(t, "not when it is told not to", func(w *world) {
		w.cfg.CompactFiles, w.cfg.CompactEvery = 2, 0
		stop := w.follow()
		defer stop()
		for n := range 3 {
			w.append(session(fmt.Sprintf("s%d", n), "", 0, 0).Events()...)
			time.Sleep(2 * w.cfg.Flush)
		}
		time.Sleep(24 * time.Hour)
		require.Len(w.t, w.state().Files, 3)
	})
}

func TestAMergeFillsNoMoreThanOneFile(t *testing.T) {
	bubble(t, "", func(w *world) {
		w.cfg.FileTokens = 80 // four groups of 18; below 40 is small
		many(w, 9)
		manifests := w.state().ID
		sum, err := w.exporter(nil).Compact(w.t.Context())
		require.NoError(w.t, err)
		require.Greater(w.t, sum.Written, 1)
		for id := manifests + 1; id <= w.state().ID; id++ {
			m, err := exporter.Manifests(w.sink).Manifest(w.t.Context(), id)
			require.NoError(w.t, err)
			require.Len(w.t, m.Files, 1)
			require.LessOrEqual(w.t, m.Files[0].Tokens, w.cfg.FileTokens)
		}
	})
}

func TestACrashedCompactionIsCompletedByTheNextExporter(t *testing.T) {
	for n := 1; ; n++ {
		died := ""
		bubble(t, fmt.Sprintf("step %d", n), func(w *world) {
			many(w, 4)
			before := w.rows()
			at := 0
			func() {
				defer func() {
					if c, ok := recover().(crash); ok {
						died = c.step
					}
				}()
				_, err := w.exporter(func(step string) {
					if at++; at == n {
						panic(crash{step})
					}
				}).Compact(w.t.Context())
				require.NoError(w.t, err)
			}()
			w.append(session("more", "", 0, 0).Events()...)
			w.once()
			_, err := w.exporter(nil).Compact(w.t.Context())
			require.NoError(w.t, err)
			require.Len(w.t, w.rows(), len(before)+1)
			require.Len(w.t, w.state().Files, 1)
		})
		if died == "" {
			return
		}
	}
}

func TestDropRemovesARun(t *testing.T) {
	bubble(t, "", func(w *world) {
		many(w, 2)
		other := session("other", "", 0, 0)
		other.Run = "keep"
		w.append(other.Events()...)
		w.once()
		_, err := w.exporter(nil).Drop(w.t.Context(), "r")
		require.NoError(w.t, err)
		require.Equal(w.t, []string{"other"}, w.sessions())
		require.Len(w.t, w.state().Files, 1)
		m, err := exporter.Manifests(w.sink).Manifest(w.t.Context(), w.state().ID)
		require.NoError(w.t, err)
		require.Equal(w.t, manifest.Drop, m.Op)
		require.Zero(w.t, w.once().Written, "what was dropped is not exported again")
	})
}
