package journaltest

import (
	"errors"
	"math"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/journal"
)

func endTests(run runner) {
	run("the end of a partition is its last entry", func(h *harness) {
		a, b, other := neighbors()
		partition := journal.PartitionOf(a)
		require.Zero(h.t, h.end(partition), "nothing is there")
		h.fill(other, journal.Tip{}, 0, 2)
		require.Zero(h.t, h.end(partition), "nothing of the partition is there")
		first := h.fill(a, journal.Tip{}, 0, 3)
		require.Equal(h.t, first.Position, h.end(partition))
		last := h.fill(b, journal.Tip{}, 0, 3)
		h.fill(other, h.entries(other, journal.Tip{})[1].Tip, 2, 4)
		require.Equal(h.t, last.Position, h.end(partition), "what other partitions hold is not its end")

		furthest := uint64(0)
		for _, d := range h.collect(h.subscribe(partition, journal.SubscribeOptions{}), 6) {
			furthest = max(furthest, d.Tip.Position)
		}
		require.Equal(h.t, last.Position, furthest, "a follower comes to it")
		h.trim(b, last)
		require.Equal(h.t, first.Position, h.end(partition), "the last session is trimmed")
		h.trim(a, first)
		require.Zero(h.t, h.end(partition), "all is trimmed")
	})

	run("a group's lag is what it has not acknowledged", func(h *harness) {
		a, b, other := neighbors()
		partition := journal.PartitionOf(a)
		h.requirePending(0, partition, "g", "")
		tip := h.fill(a, journal.Tip{}, 0, 6)
		h.fill(b, journal.Tip{}, 0, 4)
		h.fill(other, journal.Tip{}, 0, 7)
		h.requirePending(10, partition, "g", "the group has never subscribed")

		s := h.subscribe(partition, journal.SubscribeOptions{Group: "g"})
		h.requirePending(10, partition, "g", "nothing was fetched")
		list := h.collect(s, 10)
		h.requirePending(10, partition, "g", "fetched is not done")
		for n, d := range list[:9] {
			require.NoError(h.t, s.Ack(h.ctx, d))
			lag := h.pending(partition, "g")
			require.GreaterOrEqual(h.t, lag, 9-n)
			if !h.features.Lossy { // which may have delivered in another order
				require.Equal(h.t, 9-n, lag)
			}
		}
		left := h.pending(partition, "g") + 2
		h.fill(a, tip, 6, 8)
		h.requirePending(left, partition, "g", "")
		h.requirePending(12, partition, "h", "another group's lag is its own")
		require.NoError(h.t, s.Close())
		h.requirePending(left, partition, "g", "nobody is there")

		next := h.subscribe(partition, journal.SubscribeOptions{Group: "g"})
		list = h.collect(next, left)
		h.requirePending(left, partition, "g", "")
		require.NoError(h.t, next.Ack(h.ctx, list[left-1]))
		h.requirePending(0, partition, "g", "")
	})

	run("the floor is the position of the group that is furthest behind", func(h *harness) {
		a, _, other := neighbors()
		partition := journal.PartitionOf(a)
		h.fill(a, journal.Tip{}, 0, 4)
		h.fill(other, journal.Tip{}, 0, 4)
		require.Equal(h.t, uint64(math.MaxUint64), h.floor(partition), "no group holds anything")
		quick := h.subscribe(partition, journal.SubscribeOptions{Group: "quick"})
		require.Zero(h.t, h.floor(partition))
		list := h.collect(quick, 4)
		require.Zero(h.t, h.floor(partition), "fetched is not done")
		require.NoError(h.t, quick.Ack(h.ctx, list[3]))
		// A server may also count in what follows and is none of the partition's.
		require.GreaterOrEqual(h.t, h.floor(partition), list[3].Tip.Position)
		slow := h.subscribe(partition, journal.SubscribeOptions{Group: "slow"})
		require.Zero(h.t, h.floor(partition))
		list = h.collect(slow, 4)
		require.NoError(h.t, slow.Ack(h.ctx, list[1]))
		second := func() bool {
			at := h.floor(partition)
			return list[1].Tip.Position <= at && at < list[2].Tip.Position
		}
		require.True(h.t, second())
		require.NoError(h.t, slow.Close())
		require.True(h.t, second(), "a position stays when nobody is there")
		require.Equal(h.t, uint64(math.MaxUint64), h.floor(journal.PartitionOf(other)))
	})

	run("a lag of zero is zero", func(h *harness) {
		partition := journal.PartitionOf("s")
		s := h.subscribe(partition, journal.SubscribeOptions{Group: "g"})
		var tip journal.Tip
		for n := range 30 {
			tip = h.fill("s", tip, n, n+1)
			require.Positive(h.t, h.pending(partition, "g"), "what was just appended waits")
			list := h.collect(s, 1)
			require.NoError(h.t, s.Ack(h.ctx, list[0]))
			h.requirePending(0, partition, "g", "")
		}
	})

	run("what was trimmed does not wait", func(h *harness) {
		tip := h.fill("s", journal.Tip{}, 0, 4)
		h.fill("s", tip, 4, 6)
		partition := journal.PartitionOf("s")
		s := h.subscribe(partition, journal.SubscribeOptions{Group: "g"})
		list := h.collect(s, 6)
		require.NoError(h.t, s.Ack(h.ctx, list[0]))
		h.trim("s", tip)
		h.requirePending(2, partition, "g", "")
		h.requirePending(2, partition, "new", "")
	})

	run("no partition outside the 64 has an end or a lag", func(h *harness) {
		for _, partition := range []int{-1, journal.Partitions} {
			_, err := h.journal.End(h.ctx, partition)
			require.Error(h.t, err)
			_, err = h.journal.Pending(h.ctx, partition, "g")
			require.Error(h.t, err)
			_, err = h.journal.Floor(h.ctx, partition)
			require.Error(h.t, err)
		}
	})
}

// end asks until the log answers.
func (h *harness) end(partition int) uint64 {
	h.t.Helper()
	for {
		position, err := h.journal.End(h.ctx, partition)
		if !errors.Is(err, journal.ErrUnavailable) || h.ctx.Err() != nil {
			require.NoError(h.t, err)
			return position
		}
	}
}

// floor asks until the log answers.
func (h *harness) floor(partition int) uint64 {
	h.t.Helper()
	for {
		position, err := h.journal.Floor(h.ctx, partition)
		if !errors.Is(err, journal.ErrUnavailable) || h.ctx.Err() != nil {
			require.NoError(h.t, err)
			return position
		}
	}
}

// requirePending requires a lag: at once, or soon where a server counts.
func (h *harness) requirePending(want, partition int, group, why string) {
	h.t.Helper()
	if h.features.CountsLater {
		require.Eventually(h.t, func() bool { return h.pending(partition, group) == want }, patience, 10*time.Millisecond, why)
		return
	}
	require.Equal(h.t, want, h.pending(partition, group), why)
}

func (h *harness) pending(partition int, group string) int {
	h.t.Helper()
	for {
		n, err := h.journal.Pending(h.ctx, partition, group)
		if !errors.Is(err, journal.ErrUnavailable) || h.ctx.Err() != nil {
			require.NoError(h.t, err)
			return int(n)
		}
	}
}
