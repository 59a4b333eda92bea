package journaltest

import (
	"errors"
	"slices"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/journal"
)

func trimTests(run runner) {
	run("what is trimmed is a gap to whoever still needs it", func(h *harness) {
		middle := h.fill("s", journal.Tip{}, 0, 5)
		early := h.entries("s", journal.Tip{})[0].Tip
		end := h.fill("s", middle, 5, 8)
		h.trim("s", middle)

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
		early := h.entries("s", journal.Tip{})[0].Tip
		h.fill("s", middle, 5, 8)
		h.trim("s", middle)
		for _, o := range []journal.SubscribeOptions{
			{}, {After: middle.Position}, {After: early.Position, Remaining: true},
		} {
			require.Equal(h.t, numbers(5, 8), ids(h.collect(h.subscribe(journal.PartitionOf("s"), o), 3)))
		}
	})

	run("a session of which nothing is left is a gap to whoever knew it", func(h *harness) {
		end := h.fill("s", journal.Tip{}, 0, 3)
		h.fill("s-other", journal.Tip{}, 0, 1)
		h.trim("s", end)
		_, err := Read(h.ctx, h.journal, "s", end)
		require.ErrorIs(h.t, err, journal.ErrTrimmed)
		_, err = h.append(end, Annotation("s", number(3), "x"))
		require.ErrorIs(h.t, err, journal.ErrTrimmed, "it does not go on")
		require.Empty(h.t, h.read("s", journal.Tip{}), "who did not know it cannot tell: the log has no memory of it")
	})

	run("a session of which nothing is left goes on for who says so", func(h *harness) {
		end := h.fill("s", journal.Tip{}, 0, 3)
		h.fill("s-other", journal.Tip{}, 0, 1)
		h.trim("s", end)
		left := journal.Tip{Count: end.Count, Chain: end.Chain}
		next := h.fill("s", left, 3, 4)
		require.Equal(h.t, end.Count+1, next.Count)
		require.Greater(h.t, next.Position, end.Position)
		require.Equal(h.t, numbers(3, 4), h.read("s", end))
		require.Equal(h.t, next, h.mustAppend(left, Annotation("s", number(3), "s")), "once, however often it is said")
		for _, tip := range []journal.Tip{left, end, {}} {
			_, err := h.append(tip, Annotation("s", number(4), "x"))
			require.ErrorIs(h.t, err, journal.ErrConflict)
		}
		_, err := Read(h.ctx, h.journal, "s", journal.Tip{})
		require.ErrorIs(h.t, err, journal.ErrTrimmed)
		list := h.collect(h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{After: end.Position}), 1)
		require.Equal(h.t, numbers(3, 4), ids(list))
		require.Equal(h.t, end.Chain, list[0].Prev)
		end = h.fill("s", next, 4, 5)
		h.trim("s", end)
		require.Empty(h.t, h.read("s", journal.Tip{}))
	})

	run("what stands before, between and behind stays", func(h *harness) {
		a, b, other := neighbors()
		partition := journal.PartitionOf(a)
		open := h.fill(a, journal.Tip{}, 0, 2) // at the front, and not over
		first := h.fill(b, journal.Tip{}, 0, 3)
		open = h.fill(a, open, 2, 4)
		h.fill(other, journal.Tip{}, 0, 3)
		last := h.fill(b, first, 3, 5)
		open = h.fill(a, open, 4, 5)

		follower := h.subscribe(partition, journal.SubscribeOptions{})
		require.Len(h.t, h.collect(follower, 3), 3)
		group := h.subscribe(partition, journal.SubscribeOptions{Group: "g"})
		list := h.collect(group, 10)
		require.NoError(h.t, group.Ack(h.ctx, list[9]))
		h.trim(b, last)

		require.Empty(h.t, h.read(b, journal.Tip{}))
		require.Equal(h.t, numbers(0, 5), h.read(a, journal.Tip{}))
		require.Equal(h.t, numbers(0, 3), h.read(other, journal.Tip{}))
		require.Equal(h.t, open.Position, h.end(partition))
		h.requirePending(0, partition, "g", "")
		h.requirePending(5, partition, "new", "")
		h.fill(a, open, 5, 7)
		require.Equal(h.t, numbers(5, 7), ids(h.collect(group, 2)))
		require.Equal(h.t, numbers(0, 7), ids(h.collect(h.subscribe(partition, journal.SubscribeOptions{}), 7)))
		// A follower that was on its way may have been sent what went.
		left := slices.DeleteFunc(h.untilLast(follower, a, 7), func(d journal.Delivery) bool { return d.Session == b })
		require.Equal(h.t, "e000006", left[len(left)-1].Event.GetId())
	})

	run("a tip that is none of the session's trims nothing", func(h *harness) {
		end := h.fill("s", journal.Tip{}, 0, 3)
		other := h.fill("other", journal.Tip{}, 0, 3)
		beyond := end
		beyond.Count++
		beyond.Position = other.Position
		wrong := end
		wrong.Chain[0]++
		for _, tip := range []journal.Tip{beyond, wrong, other} {
			require.ErrorIs(h.t, h.journal.Trim(h.ctx, map[string]journal.Tip{"s": tip}), journal.ErrGap)
			require.Equal(h.t, numbers(0, 3), h.read("s", journal.Tip{}))
		}
		require.Equal(h.t, numbers(0, 3), h.read("other", journal.Tip{}))
	})

	run("trimming twice is trimming once", func(h *harness) {
		middle := h.fill("s", journal.Tip{}, 0, 5)
		end := h.fill("s", middle, 5, 8)
		for range 2 {
			h.trim("s", middle)
		}
		require.Equal(h.t, numbers(5, 8), h.read("s", middle))
		for range 2 {
			h.trim("s", end)
		}
		require.NoError(h.t, h.journal.Trim(h.ctx, map[string]journal.Tip{"never": {Position: end.Position, Count: 1}}))
		require.NoError(h.t, h.journal.Trim(h.ctx, nil))
	})

	run("a full log has room again", func(h *harness) {
		if h.features.Small == nil {
			h.t.Skip("this journal has no small log")
		}
		h.journal = h.features.Small(h.t)
		value := string(make([]byte, 1<<10))
		tips := map[string]journal.Tip{}
		fill := func(session string) error {
			for n := 0; ; n++ {
				next, err := h.append(tips[session], Annotation(session, number(n), value+session))
				if err != nil {
					return err
				}
				tips[session] = next
			}
		}
		require.ErrorIs(h.t, fill("s"), journal.ErrFull)
		h.mustTrim(map[string]journal.Tip{"s": tips["s"]})
		require.ErrorIs(h.t, fill("s-next"), journal.ErrFull)
		require.NotZero(h.t, tips["s-next"].Count)
		require.Len(h.t, h.read("s-next", journal.Tip{}), int(tips["s-next"].Count))
	})
}

func (h *harness) trim(session string, through journal.Tip) {
	h.t.Helper()
	h.mustTrim(map[string]journal.Tip{session: through})
}

func (h *harness) mustTrim(through map[string]journal.Tip) {
	h.t.Helper()
	for {
		err := h.journal.Trim(h.ctx, through)
		if !errors.Is(err, journal.ErrUnavailable) || h.ctx.Err() != nil {
			require.NoError(h.t, err)
			return
		}
	}
}

// untilLast collects what comes up to the nth event of a session.
func (h *harness) untilLast(s journal.Subscription, session string, n uint64) (list []journal.Delivery) {
	h.t.Helper()
	for {
		batch, err := Fetch(h.ctx, s, 100)
		require.NoError(h.t, err)
		for _, d := range batch {
			if list = append(list, d); d.Session == session && d.Tip.Count == n {
				return list
			}
		}
	}
}
