package journaltest

import (
	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/journal"
)

func trimTests(run runner) {
	run("what is trimmed is a gap to whoever still needs it", func(h *harness) {
		middle := h.fill("s", journal.Tip{}, 0, 5)
		early := h.entries("s", journal.Tip{})[0].Tip
		end := h.fill("s", middle, 5, 8)
		require.NoError(h.t, h.journal.Trim(h.ctx, journal.PartitionOf("s"), middle.Position))

		for _, from := range []journal.Tip{{}, early} {
			_, err := Read(h.ctx, h.journal, "s", from)
			require.ErrorIs(h.t, err, journal.ErrTrimmed)
			require.ErrorIs(h.t, err, journal.ErrGap)
		}
		_, err := h.journal.Subscribe(h.ctx, journal.PartitionOf("s"), journal.SubscribeOptions{After: early.Position})
		require.ErrorIs(h.t, err, journal.ErrGap)

		require.Equal(h.t, numbers(5, 8), h.read("s", middle))
		h.mustAppend(end, Annotation("s", number(8), "x"))
		require.Equal(h.t, numbers(5, 9), h.read("s", middle))
	})

	run("a subscription from the start begins with what is still there", func(h *harness) {
		middle := h.fill("s", journal.Tip{}, 0, 5)
		h.fill("s", middle, 5, 8)
		require.NoError(h.t, h.journal.Trim(h.ctx, journal.PartitionOf("s"), middle.Position))
		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{})
		require.Equal(h.t, numbers(5, 8), ids(h.collect(s, 3)))
		after := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{After: middle.Position})
		require.Equal(h.t, numbers(5, 8), ids(h.collect(after, 3)))
	})

	run("a session of which nothing is left is a gap to whoever knew it", func(h *harness) {
		end := h.fill("s", journal.Tip{}, 0, 3)
		h.fill("s-other", journal.Tip{}, 0, 1)
		require.NoError(h.t, h.journal.Trim(h.ctx, journal.PartitionOf("s"), end.Position))
		_, err := Read(h.ctx, h.journal, "s", end)
		require.ErrorIs(h.t, err, journal.ErrTrimmed)
		require.Empty(h.t, h.read("s", journal.Tip{}), "who did not know it cannot tell: the log has no memory of it")
	})

	run("trimming twice is trimming once", func(h *harness) {
		middle := h.fill("s", journal.Tip{}, 0, 5)
		h.fill("s", middle, 5, 8)
		for range 2 {
			require.NoError(h.t, h.journal.Trim(h.ctx, journal.PartitionOf("s"), middle.Position))
		}
		require.Equal(h.t, numbers(5, 8), h.read("s", middle))
	})
}
