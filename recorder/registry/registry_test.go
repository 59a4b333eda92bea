package registry_test

import (
	"context"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/registry"
)

type store interface {
	Put(ctx context.Context, s registry.Session) error
	Get(ctx context.Context, id string) (registry.Session, bool, error)
	List(ctx context.Context, f registry.Filter) iter.Seq2[registry.Session, error]
}

// bucket is a key-value store in memory.
type bucket struct {
	mu        sync.Mutex
	values    map[string][]byte
	revisions map[string]uint64
}

func (b *bucket) Put(_ context.Context, key string, value []byte, revision uint64) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.revisions[key] != revision {
		return false, nil
	}
	b.values[key] = value
	b.revisions[key]++
	return true, nil
}

func (b *bucket) Get(_ context.Context, key string) ([]byte, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values[key], b.revisions[key], nil
}

func (b *bucket) All(context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, v := range b.values {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func (b *bucket) Remove(_ context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.values, key)
	delete(b.revisions, key)
	return nil
}

func (b *bucket) Used(context.Context) (bytes, room int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.values {
		bytes += int64(len(v))
	}
	return bytes, 1 << 20, nil
}

func each(t *testing.T, f func(t *testing.T, s store)) {
	t.Run("memory", func(t *testing.T) { f(t, registry.NewMemory()) })
	t.Run("stored", func(t *testing.T) {
		f(t, registry.NewStored(&bucket{values: map[string][]byte{}, revisions: map[string]uint64{}}))
	})
}

func TestTheNewerRowStays(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		require.NoError(t, s.Put(t.Context(), registry.Session{ID: "a", Events: 3, Turns: 2}))
		require.NoError(t, s.Put(t.Context(), registry.Session{ID: "a", Events: 2, Turns: 1}))
		row, ok, err := s.Get(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 2, row.Turns)
		_, ok, err = s.Get(t.Context(), "b")
		require.NoError(t, err)
		require.False(t, ok)
	})
}

func TestATombstoneStaysUnlessSomethingCameAfterIt(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		for _, c := range []struct {
			put  registry.Session
			want registry.State
		}{
			{registry.Session{ID: "a", Events: 3, State: registry.Closed}, registry.Closed},
			{registry.Session{ID: "a", Events: 3, State: registry.Trimmed}, registry.Trimmed},
			{registry.Session{ID: "a", Events: 3, State: registry.Closed}, registry.Trimmed},
			{registry.Session{ID: "a", Events: 4, State: registry.Closed}, registry.Closed},
			{registry.Session{ID: "a", Events: 3, State: registry.Trimmed}, registry.Closed},
			{registry.Session{ID: "a", Events: 4, State: registry.Trimmed}, registry.Trimmed},
		} {
			require.NoError(t, s.Put(t.Context(), c.put))
			row, _, err := s.Get(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, c.want, row.State)
		}
	})
}

func TestRacingWritersLeaveTheNewestRow(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		var wg sync.WaitGroup
		for n := range 20 {
			wg.Go(func() { _ = s.Put(t.Context(), registry.Session{ID: "a", Events: uint64(n)}) })
		}
		wg.Wait()
		row, _, err := s.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, uint64(19), row.Events)
	})
}

func TestListSelects(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		for _, row := range []registry.Session{
			{ID: "a", Run: "r1", Group: "g1", State: registry.Open},
			{ID: "b", Run: "r1", Group: "g2", State: registry.Closed},
			{ID: "c", Run: "r2", Group: "g1", State: registry.Open},
		} {
			require.NoError(t, s.Put(t.Context(), row))
		}
		for want, f := range map[string]registry.Filter{
			"abc": {}, "ac": {State: registry.Open}, "ab": {Run: "r1"}, "c": {Run: "r2", Group: "g1"},
		} {
			var got []string
			for row, err := range s.List(t.Context(), f) {
				require.NoError(t, err)
				got = append(got, row.ID)
			}
			var ids []string
			for _, c := range want {
				ids = append(ids, string(c))
			}
			require.ElementsMatch(t, ids, got)
		}
	})
}
