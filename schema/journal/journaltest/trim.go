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

	run("trimming twice is trimming once", func(h *harness) {
		middle := h.fill("s", journal.Tip{}, 0, 5)
		h.fill("s", middle, 5, 8)
		for range 2 {
			require.NoError(h.t, h.journal.Trim(h.ctx, journal.PartitionOf("s"), middle.Position))
		}
		require.Equal(h.t, numbers(5, 8), h.read("s", middle))
	})
}
