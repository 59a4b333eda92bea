package journaltest

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

func batchTests(run runner) {
	batched := func(name string, test func(h *harness, b journal.Batcher)) {
		run(name, func(h *harness) {
			b, ok := h.journal.(journal.Batcher)
			if !ok {
				h.t.Skip("this journal appends one by one")
			}
			test(h, b)
		})
	}
	lines := func(session string, from, to int) (list []*event.Event) {
		for n := from; n < to; n++ {
			list = append(list, Annotation(session, number(n), session))
		}
		return list
	}

	batched("a batch is in the log as if it had been appended one by one", func(h *harness, b journal.Batcher) {
		one, two, _ := neighbors()
		partition := journal.PartitionOf(one)
		first := h.fill(two, journal.Tip{}, 0, 2)
		list := []journal.Continuation{{Events: lines(one, 0, 5)}, {Tip: first, Events: lines(two, 2, 4)}}
		tips := h.batch(b, partition, list)
		for i, session := range []string{one, two} {
			var at journal.Tip
			for _, e := range h.entries(session, journal.Tip{}) {
				at = at.Next(e.Tip.Position, e.Body)
				require.Equal(h.t, at, e.Tip)
			}
			require.Equal(h.t, at, tips[i])
		}
		require.Equal(h.t, numbers(0, 5), h.read(one, journal.Tip{}))
		require.Equal(h.t, numbers(0, 4), h.read(two, journal.Tip{}))
		require.Len(h.t, h.collect(h.subscribe(partition, journal.SubscribeOptions{}), 9), 9)

		// It goes on from there, both ways.
		h.mustAppend(tips[0], Annotation(one, number(5), "x"))
		h.batch(b, partition, []journal.Continuation{{Tip: tips[1], Events: lines(two, 4, 6)}})
		require.Equal(h.t, numbers(0, 6), h.read(two, journal.Tip{}))
	})

	batched("a batch that does not fit one session changes none", func(h *harness, b journal.Batcher) {
		one, two, other := neighbors()
		partition := journal.PartitionOf(one)
		tip := h.fill(two, journal.Tip{}, 0, 3)
		early := h.entries(two, journal.Tip{})[0].Tip
		for _, list := range [][]journal.Continuation{
			{{Events: lines(one, 0, 3)}, {Tip: early, Events: lines(two, 3, 5)}},
			{{Events: lines(one, 0, 3)}, {Events: lines(two, 3, 5)}},
			{{Events: lines(one, 0, 3)}, {Tip: tip, Events: lines(two, 2, 4)}}, // 2 is there
			{{Events: lines(one, 0, 3)}, {Tip: tip, Events: append(lines(two, 3, 4), lines(two, 3, 4)...)}},
			{{Events: lines(one, 0, 3)}, {Events: lines(one, 3, 4)}},
			{{Events: lines(one, 0, 3)}, {Events: lines(other, 0, 1)}},
			{{Events: append(lines(one, 0, 3), lines(two, 3, 4)...)}},
			{{Events: lines(one, 0, 3)}, {Tip: tip}},
			{{Events: append(lines(one, 0, 3), Annotation(one, "", "no id"))}},
		} {
			_, err := b.AppendAll(h.ctx, partition, list)
			require.Error(h.t, err)
		}
		if h.features.MaxEvent > 0 {
			large := Annotation(two, number(3), noise(2*h.features.MaxEvent))
			_, err := b.AppendAll(h.ctx, partition, []journal.Continuation{{Events: lines(one, 0, 3)}, {Tip: tip, Events: []*event.Event{large}}})
			require.Error(h.t, err)
		}
		require.Empty(h.t, h.read(one, journal.Tip{}))
		require.Empty(h.t, h.read(other, journal.Tip{}))
		require.Equal(h.t, numbers(0, 3), h.read(two, journal.Tip{}))
	})

	batched("what a batch appended is found by appending it one by one", func(h *harness, b journal.Batcher) {
		one, _, _ := neighbors()
		events := lines(one, 0, 4)
		last := h.batch(b, journal.PartitionOf(one), []journal.Continuation{{Events: events}})[0]
		var tip journal.Tip
		for _, ev := range events {
			tip = h.mustAppend(tip, ev)
		}
		require.Equal(h.t, last, tip)
		require.Equal(h.t, numbers(0, 4), h.read(one, journal.Tip{}))
	})

	batched("of racing batches over the same sessions one wins whole", func(h *harness, b journal.Batcher) {
		one, two, _ := neighbors()
		partition := journal.PartitionOf(one)
		const writers = 6
		var wg sync.WaitGroup
		won := make([]bool, writers)
		for w := range writers {
			wg.Go(func() {
				from := w * 10
				_, err := b.AppendAll(h.ctx, partition, []journal.Continuation{{Events: lines(one, from, from+3)}, {Events: lines(two, from, from+3)}})
				won[w] = err == nil
			})
		}
		wg.Wait()
		got := h.read(one, journal.Tip{})
		require.Equal(h.t, got, h.read(two, journal.Tip{}))
		wins := 0
		for w := range writers {
			if won[w] {
				wins++
				require.Equal(h.t, numbers(w*10, w*10+3), got)
			}
		}
		require.LessOrEqual(h.t, wins, 1)
		if !h.features.Lossy {
			require.Equal(h.t, 1, wins)
		}
	})

	batched("a canceled batch says so", func(h *harness, b journal.Batcher) {
		one, _, _ := neighbors()
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		_, err := b.AppendAll(ctx, journal.PartitionOf(one), []journal.Continuation{{Events: lines(one, 0, 2)}})
		require.ErrorIs(h.t, err, context.Canceled)
	})
}

// batch appends a batch, or, as callers must, its events one by one.
func (h *harness) batch(b journal.Batcher, partition int, list []journal.Continuation) []journal.Tip {
	h.t.Helper()
	tips, err := b.AppendAll(h.ctx, partition, list)
	if err == nil {
		return tips
	}
	require.True(h.t, h.features.Lossy, "%v", err)
	for _, c := range list {
		tip := c.Tip
		for _, ev := range c.Events {
			tip = h.mustAppend(tip, ev)
		}
		tips = append(tips, tip)
	}
	return tips
}
