package journaltest

import (
	"math/rand/v2"
	"strings"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

func limitTests(run runner) {
	run("an event above the limit is refused, and the session goes on", func(h *harness) {
		if h.features.MaxEvent == 0 {
			h.t.Skip("this journal has no limit")
		}
		tip := h.fill("s", journal.Tip{}, 0, 1)
		_, err := h.append(tip, Annotation("s", "large", noise(h.features.MaxEvent*2)))
		require.ErrorIs(h.t, err, journal.ErrTooLarge)
		h.mustAppend(tip, Annotation("s", "small", "x"))
	})

	run("an event that nobody could read again is refused, however small it packs", func(h *harness) {
		tip := h.fill("s", journal.Tip{}, 0, 1)
		_, err := h.append(tip, Annotation("s", "bomb", strings.Repeat(" ", event.MaxBody)))
		require.ErrorIs(h.t, err, journal.ErrTooLarge)
		h.mustAppend(tip, Annotation("s", "small", "x"))
	})

	run("a full log refuses, and holds what it acknowledged", func(h *harness) {
		if h.features.Small == nil {
			h.t.Skip("this journal cannot be full")
		}
		h.journal = h.features.Small(h.t)
		var tip journal.Tip
		for n := 0; ; n++ {
			require.Less(h.t, n, 10_000, "never full")
			next, err := h.append(tip, Annotation("s", number(n), noise(1<<10)))
			if err != nil {
				require.ErrorIs(h.t, err, journal.ErrFull)
				require.Equal(h.t, numbers(0, n), h.read("s", journal.Tip{}))
				return
			}
			tip = next
		}
	})
}

// noise is a text that no compression makes smaller.
func noise(size int) string {
	r := rand.New(rand.NewPCG(uint64(size), 1))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}
