package journaltest

import (
	"context"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

func subscribeTests(run runner) {
	run("a partition is delivered in each session's order", func(h *harness) {
		a, b, other := neighbors()
		var tips [3]journal.Tip
		for n := range 30 {
			for i, session := range []string{a, b, other} {
				tips[i] = h.mustAppend(tips[i], Annotation(session, number(n), "x"))
			}
		}
		bySession := map[string][]journal.Delivery{}
		for _, d := range h.collect(h.subscribe(journal.PartitionOf(a), journal.SubscribeOptions{}), 60) {
			require.NoError(h.t, d.Err)
			require.Equal(h.t, d.Session, d.Event.GetSession())
			var before journal.Tip
			if list := bySession[d.Session]; len(list) > 0 {
				before = list[len(list)-1].Tip
			}
			require.Equal(h.t, before.Chain, d.Prev)
			bySession[d.Session] = append(bySession[d.Session], d)
		}
		require.Len(h.t, bySession, 2)
		for i, session := range []string{a, b} {
			list := bySession[session]
			require.Equal(h.t, numbers(0, 30), ids(list))
			require.Equal(h.t, tips[i], list[len(list)-1].Tip)
		}
	})

	run("a subscription goes on after its position", func(h *harness) {
		tip := h.fill("s", journal.Tip{}, 0, 5)
		h.fill("s", tip, 5, 9)
		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{After: tip.Position})
		require.Equal(h.t, numbers(5, 9), ids(h.collect(s, 4)))
	})

	run("a fetch waits for what is appended later", func(h *harness) {
		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{})
		done := make(chan []journal.Delivery, 1)
		go func() { done <- h.collect(s, 3) }()
		h.fill("s", journal.Tip{}, 0, 3)
		select {
		case list := <-done:
			require.Equal(h.t, numbers(0, 3), ids(list))
		case <-h.ctx.Done():
			require.FailNow(h.t, "nothing came")
		}
	})

	run("a fetch returns no more than asked", func(h *harness) {
		h.fill("s", journal.Tip{}, 0, 10)
		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{})
		for got := 0; got < 10; {
			list, err := Fetch(h.ctx, s, 3)
			require.NoError(h.t, err)
			require.NotEmpty(h.t, list)
			require.LessOrEqual(h.t, len(list), 3)
			got += len(list)
		}
	})

	run("a canceled fetch says so, and loses nothing", func(h *harness) {
		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		_, err := Fetch(ctx, s, 1)
		require.ErrorIs(h.t, err, context.Canceled)
		h.fill("s", journal.Tip{}, 0, 3)
		require.Equal(h.t, numbers(0, 3), ids(h.collect(s, 3)))
	})

	run("a group goes on after what it acknowledged", func(h *harness) {
		h.fill("s", journal.Tip{}, 0, 10)
		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		list := h.collect(s, 10)
		require.NoError(h.t, s.Ack(h.ctx, list[3]))
		require.NoError(h.t, s.Close())

		next := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		again := h.collect(next, 6)
		require.Equal(h.t, numbers(4, 10), ids(again))
		for _, d := range again {
			require.GreaterOrEqual(h.t, d.Attempt, 2, "delivered to the group before")
		}
		require.Equal(h.t, 1, list[0].Attempt)
		require.NoError(h.t, next.Ack(h.ctx, again[5]))
		require.NoError(h.t, next.Close())

		last := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		h.mustAppend(list[9].Tip, Annotation("s", number(10), "x"))
		list = h.collect(last, 1)
		require.Equal(h.t, numbers(10, 11), ids(list))
		require.Equal(h.t, 1, list[0].Attempt, "new to the group")
	})

	run("what nobody acknowledges comes again and again, and is counted", func(h *harness) {
		h.fill("s", journal.Tip{}, 0, 3)
		for attempt := 1; attempt <= 5; attempt++ {
			s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
			list := h.collect(s, 3)
			require.Equal(h.t, numbers(0, 3), ids(list))
			require.GreaterOrEqual(h.t, list[0].Attempt, attempt)
			require.NoError(h.t, s.Close())
		}
	})

	run("a group that has nothing to do again counts nothing", func(h *harness) {
		for range 4 {
			s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
			ctx, cancel := context.WithCancel(h.ctx)
			cancel()
			_, err := Fetch(ctx, s, 1)
			require.ErrorIs(h.t, err, context.Canceled)
			require.NoError(h.t, s.Close())
		}
		h.fill("s", journal.Tip{}, 0, 1)
		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		require.Equal(h.t, 1, h.collect(s, 1)[0].Attempt)
	})

	run("groups do not disturb each other", func(h *harness) {
		h.fill("s", journal.Tip{}, 0, 5)
		for _, group := range []string{"g", "h", ""} {
			s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: group})
			list := h.collect(s, 5)
			require.Equal(h.t, numbers(0, 5), ids(list))
			require.NoError(h.t, s.Ack(h.ctx, list[4]))
		}
	})

	run("of a group one at a time gets entries, and the next takes over", func(h *harness) {
		tip := h.fill("s", journal.Tip{}, 0, 4)
		first := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		list := h.collect(first, 4)
		require.NoError(h.t, first.Ack(h.ctx, list[1]))

		second := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		taken := make(chan []journal.Delivery, 1)
		go func() { taken <- h.collect(second, 4) }()
		h.fill("s", tip, 4, 6)
		require.Equal(h.t, numbers(4, 6), ids(h.collect(first, 2)))
		require.NoError(h.t, first.Close())
		select {
		case list := <-taken:
			require.Equal(h.t, numbers(2, 6), ids(list))
		case <-h.ctx.Done():
			require.FailNow(h.t, "nobody took over")
		}
	})

	run("a closed subscription is closed", func(h *harness) {
		s := h.subscribe(0, journal.SubscribeOptions{})
		require.NoError(h.t, s.Close())
		_, err := s.Fetch(h.ctx, 1)
		require.ErrorIs(h.t, err, journal.ErrClosed)
	})

	run("closing ends a waiting fetch", func(h *harness) {
		s := h.subscribe(0, journal.SubscribeOptions{Group: "g"})
		done := make(chan error, 1)
		go func() {
			_, err := Fetch(h.ctx, s, 1)
			done <- err
		}()
		require.NoError(h.t, s.Close())
		require.ErrorIs(h.t, <-done, journal.ErrClosed)
	})

	run("what is no event is delivered as an error, and the rest goes on", func(h *harness) {
		if h.features.Poison == nil {
			h.t.Skip("this journal takes only events")
		}
		newer := Annotation("x", "a", "1")
		body, err := event.Encode(newer)
		require.NoError(h.t, err)
		body[1] = event.Major + 1 // the schema version is the first field

		tip := h.fill("s", journal.Tip{}, 0, 2)
		h.features.Poison(h.t, h.journal, "s", []byte{0xff, 0xff})
		h.features.Poison(h.t, h.journal, "s", body)
		_, other := besides("s")
		h.fill(other, journal.Tip{}, 0, 2)

		s := h.subscribe(journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
		list := h.collect(s, 6)
		var bad []journal.Delivery
		for _, d := range list {
			if d.Err != nil {
				bad = append(bad, d)
			}
		}
		require.Len(h.t, bad, 2)
		require.ErrorIs(h.t, bad[0].Err, event.ErrMalformed)
		require.ErrorIs(h.t, bad[1].Err, event.ErrMajor)
		require.Equal(h.t, body, bad[1].Raw)
		for _, d := range bad {
			require.Equal(h.t, "s", d.Session)
			require.Greater(h.t, d.Tip.Position, tip.Position)
			require.Nil(h.t, d.Event)
		}
		require.NoError(h.t, s.Ack(h.ctx, list[5]))
	})

	run("there is no partition outside the 64", func(h *harness) {
		for _, partition := range []int{-1, journal.Partitions} {
			_, err := h.journal.Subscribe(h.ctx, partition, journal.SubscribeOptions{})
			require.Error(h.t, err)
		}
	})
}

// neighbors returns two sessions of one partition, and one of another.
func neighbors() (a, b, other string) {
	a = "neighbor"
	other, b = besides(a)
	return a, b, other
}

// besides returns sessions of another partition and of the same one.
func besides(session string) (other, same string) {
	for n := 0; other == "" || same == ""; n++ {
		id := fmt.Sprint(strings.ToUpper(session), n)
		if journal.PartitionOf(id) == journal.PartitionOf(session) {
			same = id
		} else {
			other = id
		}
	}
	return other, same
}
