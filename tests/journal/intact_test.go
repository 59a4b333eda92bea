package journal_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
)

// A process looks at the log while others work on it: what they append and read
// meanwhile is no damage.
func TestALogAtWorkIsIntact(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	log, other := open(t, s, config()), open(t, s, config())
	sub, err := log.Subscribe(t.Context(), journal.PartitionOf("s"), journal.SubscribeOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var tip journal.Tip
		for n := 0; ctx.Err() == nil; n++ {
			var err error
			if tip, err = log.Append(t.Context(), tip, annotation("s", strconv.Itoa(n), "x")); err != nil {
				done <- err
				return
			}
			if _, err = sub.Fetch(t.Context(), 1); err != nil {
				done <- err
				return
			}
		}
		done <- sub.Close()
	}()
	for range 300 {
		require.NoError(t, other.Intact(t.Context()))
	}
	cancel()
	require.NoError(t, <-done)
}

// A follower that was told to begin after an entry that is not there, such as an
// exporter whose shards are older than the log, has seen nothing that is missing.
func TestAFollowerThatBeginsBehindTheEndIsNoDamage(t *testing.T) {
	log := open(t, natsdtest.Serve(t, natsd.Config{}), config())
	sub, err := log.Subscribe(t.Context(), journal.PartitionOf("s"), journal.SubscribeOptions{After: 7})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = sub.Fetch(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, log.Intact(t.Context()))
	require.NoError(t, sub.Close())
}
