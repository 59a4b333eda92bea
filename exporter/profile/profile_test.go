package profile_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/profile"
	"turnlog.dev/exporter/rows/rowstest"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/sinktest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// export returns a sink with the shards of n groups of two sessions.
func export(t *testing.T, n int) sink.Sink {
	log, store := mem.New(mem.Options{}), sinktest.NewMemory()
	for i := range 2 * n {
		s := rowstest.New(fmt.Sprintf("s%02d", i))
		s.Group, s.Index, s.GroupSize = fmt.Sprintf("g%02d", i/2), int32(i%2), 2
		s.Metadata = fmt.Sprintf(`{"ground_truth":%d,"env_class":"demo"}`, i/2)
		a := s.Turn("a", "", 0, []uint32{1, 2, 3}, []uint32{10, 11})
		s.Turn("b", "a", a.Total(), []uint32{4}, []uint32{12, uint32(100 + i)})
		s.Reward("", 1)
		s.Seal("main", "a", "b")
		var tip journal.Tip
		for _, ev := range s.Events() {
			var err error
			tip, err = log.Append(t.Context(), tip, ev)
			require.NoError(t, err)
		}
	}
	cfg := exporter.DefaultConfig()
	cfg.FileTokens = 40
	e, err := exporter.New(cfg, exporter.Deps{Journal: log, Sink: store, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = e.Once(t.Context())
	require.NoError(t, err)
	return store
}

type pretok struct {
	InputIDs []int32 `col:"input_ids"`
	Labels   []int32 `col:"labels"`
}

func read(t *testing.T, dir string) (files int, all []*pretok) {
	names, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	require.NoError(t, err)
	for _, name := range names {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		for group, err := range parquet.Read[pretok](t.Context(), f) {
			require.NoError(t, err)
			all = append(all, group...)
		}
	}
	return len(names), all
}

func TestAFolderHoldsTheRowsOfAPinnedManifest(t *testing.T) {
	store := export(t, 6)
	for _, c := range []struct{ files, want int }{{0, 2}, {1, 1}, {4, 4}} {
		dir := filepath.Join(t.TempDir(), "new", "pretok")
		res, err := profile.Materialize(t.Context(), store, dir, profile.Options{Profile: profile.Pretok, Manifest: 1, Files: c.files})
		require.NoError(t, err)
		require.Equal(t, profile.Result{Profile: profile.Pretok, Manifest: 1, Files: c.want, Rows: 12}, res)
		files, rows := read(t, dir)
		require.Equal(t, c.want, files)
		seen := make(map[int32]bool)
		for _, r := range rows {
			require.Equal(t, []int32{-100, -100, -100, 10, 11, -100, 12, r.InputIDs[7]}, r.Labels)
			seen[r.InputIDs[7]] = true
		}
		require.Len(t, seen, 12)
		require.FileExists(t, filepath.Join(dir, ".turnlog.json"))
		entries, err := os.ReadDir(filepath.Dir(dir))
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing is left beside it")
	}
}

func TestPromptsAndChatsAreOneRowAGroupAndABranch(t *testing.T) {
	store := export(t, 6)
	for p, rows := range map[profile.Name]int64{profile.Chat: 12, profile.Prompts: 6} {
		res, err := profile.Materialize(t.Context(), store, filepath.Join(t.TempDir(), "d"), profile.Options{Profile: p})
		require.NoError(t, err)
		require.Equal(t, rows, res.Rows)
		require.Zero(t, res.Skipped)
	}
}

func TestWhatCameLaterIsInTheFolderAndWhatIsRemovedIsNot(t *testing.T) {
	log, store := mem.New(mem.Options{}), sinktest.NewMemory()
	tips := make(map[string]journal.Tip)
	add := func(events ...*event.Event) {
		for _, ev := range events {
			var err error
			tips[ev.Session], err = log.Append(t.Context(), tips[ev.Session], ev)
			require.NoError(t, err)
		}
		e, err := exporter.New(exporter.DefaultConfig(), exporter.Deps{Journal: log, Sink: store, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		_, err = e.Once(t.Context())
		require.NoError(t, err)
	}
	for i := range 3 {
		s := rowstest.New(fmt.Sprintf("s%d", i))
		s.Turn("a", "", 0, []uint32{1}, []uint32{2})
		s.Reward("", 0.5).Revision = 2
		s.Seal("main", "a")
		add(s.Events()...)
		switch i {
		case 0:
			s.Reward("", 0.75).Revision = 3
		case 1:
			s.Reward("", 0.25).Revision = 1 // is not what counts
		case 2:
			s.Annotate("remove_sample", "true")
		}
		add(append(s.RewardEvents()[1:], s.AnnotationEvents()...)...)
	}
	dir := filepath.Join(t.TempDir(), "chat")
	res, err := profile.Materialize(t.Context(), store, dir, profile.Options{Profile: profile.Chat})
	require.NoError(t, err)
	require.EqualValues(t, 2, res.Rows)
	require.EqualValues(t, 1, res.Removed)
	require.Equal(t, []float32{0.75, 0.5}, column(t, dir, func(r *struct {
		Reward *float32 `col:"reward,null"`
	},
	) float32 {
		return *r.Reward
	}))
}

// column reads one value of each row of a folder.
func column[T, V any](t *testing.T, dir string, value func(*T) V) (list []V) {
	names, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	require.NoError(t, err)
	for _, name := range names {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		for group, err := range parquet.Read[T](t.Context(), f) {
			require.NoError(t, err)
			for _, r := range group {
				list = append(list, value(r))
			}
		}
	}
	return list
}

func TestNothingIsWrittenOverOrLeftBehind(t *testing.T) {
	store := export(t, 1)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	_, err := profile.Materialize(t.Context(), store, dir, profile.Options{Profile: profile.Pretok})
	require.ErrorIs(t, err, profile.ErrExists)

	empty := t.TempDir() // there, but with nothing to lose
	_, err = profile.Materialize(t.Context(), store, empty, profile.Options{Profile: profile.Pretok})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(empty, ".turnlog.json"))
	file := filepath.Join(dir, "mine")
	_, err = profile.Materialize(t.Context(), store, file, profile.Options{Profile: profile.Pretok})
	require.ErrorContains(t, err, "mine")
	require.NotErrorIs(t, err, profile.ErrExists)

	_, err = profile.Materialize(t.Context(), store, filepath.Join(t.TempDir(), "d"), profile.Options{Profile: "other"})
	require.ErrorIs(t, err, profile.ErrUnknown)
	_, err = profile.Materialize(t.Context(), store, filepath.Join(t.TempDir(), "d"), profile.Options{Profile: profile.Chat, Manifest: 9})
	require.ErrorIs(t, err, manifest.ErrGap)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	parent := t.TempDir()
	_, err = profile.Materialize(ctx, store, filepath.Join(parent, "d"), profile.Options{Profile: profile.Pretok})
	require.Error(t, err)
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, entries)
}
