package journaltest

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

func readTests(run runner) {
	run("a session that was never written to is empty", func(h *harness) {
		require.Empty(h.t, h.read("nothing", journal.Tip{}))
	})

	run("reading goes on where a tip ends", func(h *harness) {
		middle := h.fill("s", journal.Tip{}, 0, 7)
		h.fill("other", journal.Tip{}, 0, 7)
		end := h.fill("s", middle, 7, 20)
		require.Equal(h.t, numbers(7, 20), h.read("s", middle))
		require.Empty(h.t, h.read("s", end))
	})

	run("reading sees every append that was acknowledged before", func(h *harness) {
		var tip journal.Tip
		for n := range 50 {
			from := tip
			tip = h.mustAppend(tip, Annotation("s", number(n), "x"))
			require.Equal(h.t, []string{number(n)}, h.read("s", from))
		}
	})

	run("a long session of large events comes back whole and in order", func(h *harness) {
		const events = 300
		var tip journal.Tip
		value := make([]byte, 20<<10)
		for n := range events {
			for i := range value { // hard to compress, so that it is large on the way too
				value[i] = byte((n*7919 + i*i*31 + i>>3*17) >> 2)
			}
			tip = h.mustAppend(tip, Annotation("s", number(n), string(value)))
		}
		require.Equal(h.t, numbers(0, events), h.read("s", journal.Tip{}))
	})

	run("a reader may stop early", func(h *harness) {
		h.fill("s", journal.Tip{}, 0, 10)
		seen := 0
		for _, err := range h.journal.ReadSession(h.ctx, "s", journal.Tip{}) {
			if err != nil {
				require.ErrorIs(h.t, err, journal.ErrUnavailable)
				break
			}
			if seen++; seen == 3 {
				break
			}
		}
		require.LessOrEqual(h.t, seen, 3)
		require.Len(h.t, h.read("s", journal.Tip{}), 10)
	})

	run("a history other than the holder's is a gap", func(h *harness) {
		tip := h.fill("s", journal.Tip{}, 0, 3)
		end := h.fill("s", tip, 3, 5)
		for name, wrong := range map[string]journal.Tip{
			"another chain": {Position: tip.Position, Count: tip.Count, Chain: event.Sum(nil)},
			"beyond":        {Position: end.Position + 100, Count: end.Count + 1, Chain: end.Chain},
		} {
			_, err := Read(h.ctx, h.journal, "s", wrong)
			require.ErrorIs(h.t, err, journal.ErrGap, name)
		}
	})

	run("a canceled read says so", func(h *harness) {
		h.fill("s", journal.Tip{}, 0, 3)
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		_, err := Read(ctx, h.journal, "s", journal.Tip{})
		require.ErrorIs(h.t, err, context.Canceled)
	})

	run("many sessions are read apart", func(h *harness) {
		const sessions = 40
		for s := range sessions {
			h.fill(fmt.Sprint("s", s), journal.Tip{}, 0, 1+s%5)
		}
		for s := range sessions {
			require.Equal(h.t, numbers(0, 1+s%5), h.read(fmt.Sprint("s", s), journal.Tip{}))
		}
	})

	run("what is no event ends the reading with an error", func(h *harness) {
		if h.features.Poison == nil {
			h.t.Skip("this journal takes only events")
		}
		h.fill("s", journal.Tip{}, 0, 2)
		h.features.Poison(h.t, h.journal, "s", []byte{0xff, 0xff})
		list, err := Read(h.ctx, h.journal, "s", journal.Tip{})
		require.ErrorIs(h.t, err, event.ErrMalformed)
		require.Len(h.t, list, 2)
	})
}
