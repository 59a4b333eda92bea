// Package sinktest holds the promises of a sink.Sink as tests.
package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/sink"
)

// Run checks every promise. open returns an empty sink; several calls within
// one test return sinks of their own.
func Run(t *testing.T, open func(t *testing.T) sink.Sink) {
	t.Run("a value is read back as it was put", func(t *testing.T) { roundTrip(t, open(t)) })
	t.Run("of writers that race for one key one wins", func(t *testing.T) { race(t, open(t)) })
	t.Run("an exclusive put never changes a value", func(t *testing.T) { exclusive(t, open(t)) })
	t.Run("put replaces", func(t *testing.T) { replace(t, open(t)) })
	t.Run("a body that fails leaves nothing", func(t *testing.T) { failedBody(t, open(t)) })
	t.Run("list yields keys in order and by prefix", func(t *testing.T) { list(t, open(t)) })
	t.Run("delete is idempotent", func(t *testing.T) { remove(t, open(t)) })
	t.Run("keys that leave the sink are refused", func(t *testing.T) { badKeys(t, open(t)) })
}

func put(ctx context.Context, s sink.Sink, key, value string) error {
	return s.PutExclusive(ctx, key, strings.NewReader(value), int64(len(value)))
}

func roundTrip(t *testing.T, s sink.Sink) {
	ctx := t.Context()
	for _, size := range []int{1, 1 << 10, 6 << 20} {
		value := bytes.Repeat([]byte{'x', 0, 255, '\n'}, (size+3)/4)[:size]
		key := fmt.Sprintf("a=1/b/%d.bin", size)
		require.NoError(t, s.PutExclusive(ctx, key, bytes.NewReader(value), int64(size)))
		got, err := sink.ReadAll(ctx, s, key)
		require.NoError(t, err)
		require.True(t, bytes.Equal(value, got), "%d bytes", size)
	}
	_, err := s.Open(ctx, "a=1/none")
	require.ErrorIs(t, err, sink.ErrNotFound)
}

func race(t *testing.T, s sink.Sink) {
	const writers, keys = 20, 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	winners := make(map[string][]string)
	for k := range keys {
		for w := range writers {
			wg.Go(func() {
				key, value := fmt.Sprintf("m/%d.json", k), fmt.Sprintf("writer %d", w)
				err := put(t.Context(), s, key, value)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners[key] = append(winners[key], value)
				} else if !errors.Is(err, sink.ErrExists) {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, winners, keys)
	for key, values := range winners {
		require.Len(t, values, 1, key)
		got, err := sink.ReadAll(t.Context(), s, key)
		require.NoError(t, err)
		require.Equal(t, values[0], string(got))
	}
}

func exclusive(t *testing.T, s sink.Sink) {
	require.NoError(t, put(t.Context(), s, "k", "first"))
	require.ErrorIs(t, put(t.Context(), s, "k", "second"), sink.ErrExists)
	got, err := sink.ReadAll(t.Context(), s, "k")
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
}

func replace(t *testing.T, s sink.Sink) {
	for _, v := range []string{"first", "the second"} {
		require.NoError(t, s.Put(t.Context(), "k", strings.NewReader(v), int64(len(v))))
		got, err := sink.ReadAll(t.Context(), s, "k")
		require.NoError(t, err)
		require.Equal(t, v, string(got))
	}
}

func failedBody(t *testing.T, s sink.Sink) {
	broken := io.MultiReader(strings.NewReader("half of "), failing{})
	require.Error(t, s.PutExclusive(t.Context(), "k", broken, 16))
	require.Error(t, s.PutExclusive(t.Context(), "k", strings.NewReader("short"), 16))
	_, err := s.Open(t.Context(), "k")
	require.ErrorIs(t, err, sink.ErrNotFound)
	for info, err := range s.List(t.Context(), "") {
		require.NoError(t, err)
		require.Fail(t, "something was left", info.Key)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the body breaks off") }

func list(t *testing.T, s sink.Sink) {
	keys := []string{"a-b/x", "a.json", "a/1", "a/2/3", "a/2/4", "b/1"}
	for _, k := range []int{3, 0, 5, 1, 4, 2} {
		require.NoError(t, put(t.Context(), s, keys[k], keys[k]))
	}
	for prefix, want := range map[string][]string{
		"":      keys,
		"a/":    {"a/1", "a/2/3", "a/2/4"},
		"a":     {"a-b/x", "a.json", "a/1", "a/2/3", "a/2/4"},
		"a/2/3": {"a/2/3"},
		"c/":    nil,
	} {
		var got []string
		for info, err := range s.List(t.Context(), prefix) {
			require.NoError(t, err)
			require.Equal(t, int64(len(info.Key)), info.Size)
			require.False(t, info.Modified.IsZero())
			got = append(got, info.Key)
		}
		require.Equal(t, want, got, "prefix %q", prefix)
	}
	for info, err := range s.List(t.Context(), "") {
		require.NoError(t, err)
		require.Equal(t, keys[0], info.Key)
		break // a caller may stop early
	}
}

func remove(t *testing.T, s sink.Sink) {
	require.NoError(t, s.Delete(t.Context(), "a/k"))
	require.NoError(t, put(t.Context(), s, "a/k", "v"))
	require.NoError(t, s.Delete(t.Context(), "a/k"))
	require.NoError(t, s.Delete(t.Context(), "a/k"))
	_, err := s.Open(t.Context(), "a/k")
	require.ErrorIs(t, err, sink.ErrNotFound)
	require.NoError(t, put(t.Context(), s, "a/k", "again"))
}

func badKeys(t *testing.T, s sink.Sink) {
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../../b", ".", `a\b`} {
		require.ErrorIs(t, put(t.Context(), s, key, "v"), sink.ErrKey, "key %q", key)
		_, err := s.Open(t.Context(), key)
		require.ErrorIs(t, err, sink.ErrKey, "key %q", key)
		require.ErrorIs(t, s.Delete(t.Context(), key), sink.ErrKey, "key %q", key)
	}
}
