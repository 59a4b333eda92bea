package journal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal/jet"
)

func TestARegistryIsThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	open := func(t *testing.T) *registry.Stored {
		srv := natsdtest.Serve(t, natsd.Config{Dir: dir})
		conn, err := jet.Dial(jet.Options{InProcess: srv})
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		b, err := conn.OpenBucket(t.Context(), jet.BucketConfig{Tenant: "default", Name: "sessions", Replicas: 1, MaxBytes: 1 << 20})
		require.NoError(t, err)
		return registry.NewStored(b)
	}
	t.Run("first", func(t *testing.T) {
		r := open(t)
		_, ok, err := r.Get(t.Context(), "s-1")
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, r.Put(t.Context(), registry.Session{ID: "s-1", Run: "a", State: registry.Open, Events: 2}))
		require.NoError(t, r.Put(t.Context(), registry.Session{ID: "s-2", Run: "b", State: registry.Open, Events: 1}))
		require.NoError(t, r.Put(t.Context(), registry.Session{ID: "s-1", Run: "a", State: registry.Closed, Events: 3}))
		require.NoError(t, r.Put(t.Context(), registry.Session{ID: "s-1", Run: "a", State: registry.Open, Events: 1}), "an older row loses")
	})
	t.Run("second", func(t *testing.T) {
		r := open(t)
		s, ok, err := r.Get(t.Context(), "s-1")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, registry.Closed, s.State)
		var all []string
		for s, err := range r.List(t.Context(), registry.Filter{Run: "b"}) {
			require.NoError(t, err)
			all = append(all, s.ID)
		}
		require.Equal(t, []string{"s-2"}, all)
	})
	t.Run("third", func(t *testing.T) {
		r := open(t)
		before, room, err := r.Used(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1<<20, room)
		for range 2 {
			require.NoError(t, r.Remove(t.Context(), "s-1"))
		}
		_, ok, err := r.Get(t.Context(), "s-1")
		require.NoError(t, err)
		require.False(t, ok)
		_, ok, err = r.Get(t.Context(), "s-2")
		require.NoError(t, err)
		require.True(t, ok)
		after, _, err := r.Used(t.Context())
		require.NoError(t, err)
		require.Less(t, after, before, "nothing of it is left, no marker either")
		require.NoError(t, r.Put(t.Context(), registry.Session{ID: "s-1", Events: 1}), "it can be there again")
	})
}
