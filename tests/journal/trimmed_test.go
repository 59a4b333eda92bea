package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/journaltest"
)

// written appends n events to each of some sessions, one of each in turn.
func written(t *testing.T, log journal.Journal, n int, sessions ...string) map[string]journal.Tip {
	t.Helper()
	tips := map[string]journal.Tip{}
	for i := range n {
		for _, s := range sessions {
			tip, err := log.Append(t.Context(), tips[s], annotation(s, fmt.Sprint(i), noise(2000)))
			require.NoError(t, err)
			tips[s] = tip
		}
	}
	return tips
}

// TestWhatWasTrimmedIsNoDamageAndWhatWasNotIs trims sessions out of the middle of
// a log, over restarts of its server: positions go on where they were, and a
// message that goes without being written down is still found missing.
func TestWhatWasTrimmedIsNoDamageAndWhatWasNotIs(t *testing.T) {
	dir := t.TempDir()
	restart := func(do func(s *natsd.Server, log *jet.Log)) {
		t.Run("life", func(t *testing.T) {
			s := natsdtest.Serve(t, natsd.Config{Dir: dir})
			log := open(t, s, config())
			require.NoError(t, log.Intact(t.Context()))
			do(s, log)
			require.NoError(t, open(t, s, config()).Intact(t.Context()))
		})
	}
	var tips map[string]journal.Tip
	sessions := []string{"open", "a", "b", "c"}
	restart(func(_ *natsd.Server, log *jet.Log) {
		tips = written(t, log, 50, sessions...)
		require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{"a": tips["a"]}))
		require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{"a": tips["a"], "b": tips["b"]}))
	})
	last := tips["c"].Position
	restart(func(_ *natsd.Server, log *jet.Log) {
		require.Len(t, read(t, log, "open"), 50)
		require.Len(t, read(t, log, "c"), 50)
		require.Empty(t, read(t, log, "a"))
		require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{"c": tips["c"]})) // the end of the stream
	})
	restart(func(_ *natsd.Server, log *jet.Log) {
		tip, err := log.Append(t.Context(), tips["open"], annotation("open", "next", "x"))
		require.NoError(t, err)
		require.Equal(t, last+1, tip.Position, "no number is given twice")
		require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{"open": tip})) // all of it
	})
	restart(func(_ *natsd.Server, log *jet.Log) {
		tip, err := log.Append(t.Context(), journal.Tip{}, annotation("new", "first", "x"))
		require.NoError(t, err)
		require.Equal(t, last+2, tip.Position)
		written(t, log, 3, "taken", "kept")
	})
	t.Run("damage", func(t *testing.T) {
		s := natsdtest.Serve(t, natsd.Config{Dir: dir})
		log := open(t, s, config())
		request := fmt.Sprintf(`{"filter":"tl.default.s.%02d.taken"}`, journal.PartitionOf("taken"))
		reply, err := raw(t, s).RequestWithContext(t.Context(), "$JS.API.STREAM.PURGE.tl-default-s-00", []byte(request))
		require.NoError(t, err)
		require.Contains(t, string(reply.Data), `"purged":3`)
		err = log.Intact(t.Context())
		require.ErrorIs(t, err, jet.ErrDamaged)
		require.ErrorContains(t, err, "204 events are missing in stream tl-default-s-00, and at most 201 were trimmed")
	})
}

// TestATrimThatDiedIsFinishedByTheNext leaves the record of one that died before
// it removed anything, and in the middle.
func TestATrimThatDiedIsFinishedByTheNext(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	log := open(t, s, config())
	tips := written(t, log, 10, "a", "b", "c", "open")
	bucket, err := natsdtest.Dial(t, s).OpenBucket(t.Context(), jet.BucketConfig{Tenant: "default", Name: jet.TrimsBucket, Replicas: 1, MaxBytes: jet.TrimsBytes})
	require.NoError(t, err)
	left, err := json.Marshal(map[string]any{
		"stream": log.Stream(0), "gone": 0, "going": []map[string]any{
			{"session": "a", "position": tips["a"].Position, "events": 10},
			{"session": "b", "position": tips["b"].Position, "events": 10},
		},
	})
	require.NoError(t, err)
	_, err = bucket.Put(t.Context(), "tl-default-s-00", left, 0)
	require.NoError(t, err)
	require.NoError(t, log.Intact(t.Context()), "it may be there")
	request := fmt.Sprintf(`{"filter":"tl.default.s.%02d.a"}`, journal.PartitionOf("a"))
	_, err = raw(t, s).RequestWithContext(t.Context(), "$JS.API.STREAM.PURGE.tl-default-s-00", []byte(request))
	require.NoError(t, err)
	require.NoError(t, log.Intact(t.Context()), "or not")

	require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{"a": tips["a"], "c": tips["c"]}))
	for _, gone := range []string{"a", "b", "c"} {
		require.Empty(t, read(t, log, gone))
	}
	require.Len(t, read(t, log, "open"), 10)
	require.NoError(t, log.Intact(t.Context()))
	raw, _, err := bucket.Get(t.Context(), "tl-default-s-00")
	require.NoError(t, err)
	require.Contains(t, string(raw), `"gone":30`)
	require.NotContains(t, string(raw), `"going"`)
}

// TestThoseWhoTrimAtTheSameTimeCountOnce trims the same and other sessions from
// several processes.
func TestThoseWhoTrimAtTheSameTimeCountOnce(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	var sessions []string
	for i := range 40 {
		sessions = append(sessions, fmt.Sprint("s", i))
	}
	tips := written(t, open(t, s, config()), 5, sessions...)
	var all sync.WaitGroup
	for i := range 4 {
		log := open(t, s, config())
		all.Go(func() {
			for n := range 30 {
				some := map[string]journal.Tip{}
				for k := range 4 {
					id := sessions[(n+k+i*7)%len(sessions)]
					some[id] = tips[id]
				}
				require.NoError(t, log.Trim(context.Background(), some))
			}
		})
	}
	all.Wait()
	log := open(t, s, config())
	missing := 0
	for _, id := range sessions {
		if len(read(t, log, id)) == 0 {
			missing += 5
		}
	}
	require.NoError(t, log.Intact(t.Context()))
	bucket, err := natsdtest.Dial(t, s).OpenBucket(t.Context(), jet.BucketConfig{Tenant: "default", Name: jet.TrimsBucket, Replicas: 1, Existing: jet.ReadOnly})
	require.NoError(t, err)
	raw, _, err := bucket.Get(t.Context(), "tl-default-s-00")
	require.NoError(t, err)
	require.Contains(t, string(raw), fmt.Sprintf(`"gone":%d,`, missing), "to the event: what is missing beyond that is damage")
}

// TestAFollowerWhoseConsumerIsLostGoesOnOverWhatWasTrimmed loses it, as a server
// that starts again does, while the follower is behind what was trimmed.
func TestAFollowerWhoseConsumerIsLostGoesOnOverWhatWasTrimmed(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	log := open(t, s, config())
	partition := journal.PartitionOf("a")
	other := ""
	for i := 0; other == ""; i++ {
		if id := fmt.Sprint("b", i); journal.PartitionOf(id) == partition {
			other = id
		}
	}
	tips := written(t, log, 5, "a", other)
	follower, err := log.Subscribe(t.Context(), partition, journal.SubscribeOptions{})
	require.NoError(t, err)
	defer follower.Close()
	var got []string
	fetch := func() {
		list, err := journaltest.Fetch(t.Context(), follower, 1)
		require.NoError(t, err)
		for _, d := range list {
			got = append(got, d.Session)
		}
	}
	fetch()
	require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{other: tips[other]}))
	js, err := jetstream.New(raw(t, s))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "tl-default-s-00")
	require.NoError(t, err)
	for name := range stream.ConsumerNames(t.Context()).Name() {
		require.NoError(t, stream.DeleteConsumer(t.Context(), name))
	}
	for len(got) < 5 {
		fetch()
	}
	require.Equal(t, []string{"a", "a", "a", "a", "a"}, got)
	_, err = log.Subscribe(t.Context(), partition, journal.SubscribeOptions{After: tips["a"].Position - 2})
	require.ErrorIs(t, err, journal.ErrGap, "who begins there is told")
}
