package journaltest

import (
	"context"
	"errors"
	"sync"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

func appendTests(run runner) {
	run("an append returns the tip that reading shows", func(h *harness) {
		first := h.mustAppend(journal.Tip{}, Annotation("s", "a", "1"))
		second := h.mustAppend(first, Annotation("s", "b", "2"))
		require.Equal(h.t, uint64(1), first.Count)
		require.Equal(h.t, uint64(2), second.Count)
		require.Greater(h.t, second.Position, first.Position)

		var tip journal.Tip
		for _, e := range h.entries("s", journal.Tip{}) {
			tip = tip.Next(e.Tip.Position, e.Body)
			require.Equal(h.t, tip, e.Tip)
			require.Equal(h.t, tip.Count-1, e.Ordinal())
			require.NotZero(h.t, e.Time)
			require.NotEmpty(h.t, e.Stream)
		}
		require.Equal(h.t, second, tip)
	})

	run("an event comes back as it was appended, small or compressed", func(h *harness) {
		var tip journal.Tip
		for _, size := range []int{1, 100, event.CompressAbove * 4} {
			ev := Annotation("s", number(size), string(make([]byte, size)))
			body, err := event.Encode(ev)
			require.NoError(h.t, err)
			from := tip
			tip = h.mustAppend(tip, ev)
			for _, e := range h.entries("s", from) {
				require.Equal(h.t, body, e.Body)
				require.Equal(h.t, ev.GetAnnotated().GetValue(), e.Event.GetAnnotated().GetValue())
			}
		}
	})

	run("an append elsewhere than at the end is refused", func(h *harness) {
		first := h.mustAppend(journal.Tip{}, Annotation("s", "a", "1"))
		second := h.mustAppend(first, Annotation("s", "b", "2"))
		for _, stale := range []journal.Tip{{}, first} {
			_, err := h.append(stale, Annotation("s", "c", "3"))
			require.ErrorIs(h.t, err, journal.ErrConflict)
		}
		require.Equal(h.t, []string{"a", "b"}, h.read("s", journal.Tip{}))
		h.mustAppend(second, Annotation("s", "c", "3"))
	})

	run("sessions do not fence each other", func(h *harness) {
		a := h.mustAppend(journal.Tip{}, Annotation("s-a", "a", "1"))
		b := h.mustAppend(journal.Tip{}, Annotation("s-b", "a", "1"))
		h.mustAppend(a, Annotation("s-a", "b", "2"))
		h.mustAppend(b, Annotation("s-b", "b", "2"))
		h.mustAppend(journal.Tip{}, Annotation(journal.RunSession("s-a"), "a", "1"))
		require.Equal(h.t, []string{"a", "b"}, h.read("s-a", journal.Tip{}))
		require.Equal(h.t, []string{"a"}, h.read(journal.RunSession("s-a"), journal.Tip{}))
	})

	run("an event appended again is in the log once, with the tip of the first time", func(h *harness) {
		first := h.mustAppend(journal.Tip{}, Annotation("s", "a", "1"))
		ev := Annotation("s", "b", "2")
		second := h.mustAppend(first, ev)
		require.Equal(h.t, second, h.mustAppend(first, ev), "right after")
		third := h.mustAppend(second, Annotation("s", "c", "3"))
		require.Equal(h.t, second, h.mustAppend(first, ev), "after others have gone on")
		require.Equal(h.t, second, h.mustAppend(third, ev), "with a newer tip")
		require.Equal(h.t, []string{"a", "b", "c"}, h.read("s", journal.Tip{}))
	})

	run("an id in use for another body is an error, not a success", func(h *harness) {
		h.mustAppend(journal.Tip{}, Annotation("s", "a", "1"))
		_, err := h.append(journal.Tip{}, Annotation("s", "a", "2"))
		require.ErrorIs(h.t, err, journal.ErrIdentity)
		require.Equal(h.t, []string{"a"}, h.read("s", journal.Tip{}))
	})

	run("of racing writers exactly one wins", func(h *harness) {
		const writers, rounds = 8, 10
		var tip journal.Tip
		for round := range rounds {
			tips := make([]journal.Tip, writers)
			errs := make([]error, writers)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					tips[w], errs[w] = h.append(tip, Annotation("s", number(round*writers+w), "x"))
				})
			}
			wg.Wait()
			wins := 0
			for w := range writers {
				if errs[w] == nil {
					wins++
					tip = tips[w]
				} else {
					require.ErrorIs(h.t, errs[w], journal.ErrConflict)
				}
			}
			require.Equal(h.t, 1, wins)
		}
		require.Len(h.t, h.read("s", journal.Tip{}), rounds)
	})

	run("writers that catch up after a conflict all get in, once", func(h *harness) {
		const writers, each = 4, 8
		var wg sync.WaitGroup
		errs := make([]error, writers)
		for w := range writers {
			wg.Go(func() { errs[w] = h.appendAll("s", w*each, (w+1)*each) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(h.t, err)
		}
		require.ElementsMatch(h.t, numbers(0, writers*each), h.read("s", journal.Tip{}))
	})

	run("one event appended by many at once is in the log once", func(h *harness) {
		const writers = 8
		tips := make([]journal.Tip, writers)
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			ev := Annotation("s", "a", "1")
			wg.Go(func() { tips[w], errs[w] = h.append(journal.Tip{}, ev) })
		}
		wg.Wait()
		for w := range writers {
			require.NoError(h.t, errs[w])
			require.Equal(h.t, tips[0], tips[w])
		}
		require.Equal(h.t, []string{"a"}, h.read("s", journal.Tip{}))
	})

	run("a canceled append says so", func(h *harness) {
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		_, err := h.journal.Append(ctx, journal.Tip{}, Annotation("s", "a", "1"))
		require.ErrorIs(h.t, err, context.Canceled)
	})

	run("what cannot be addressed is refused", func(h *harness) {
		for _, ev := range []*event.Event{
			Annotation("", "a", "1"), Annotation("a.b", "a", "1"), Annotation("s", "", "1"), Annotation("s", "a b", "1"), Annotation("s", "a\r\n", "1"),
		} {
			_, err := h.journal.Append(h.ctx, journal.Tip{}, ev)
			require.ErrorIs(h.t, err, journal.ErrInvalid)
		}
	})
}

// appendAll appends events numbered from to to-1, catching up after each lost
// race as a gateway does.
func (h *harness) appendAll(session string, from, to int) error {
	var tip journal.Tip
	for n := from; n < to; n++ {
		ev := Annotation(session, number(n), "x")
		for {
			next, err := h.append(tip, ev)
			if err == nil {
				tip = next
				break
			}
			if !errors.Is(err, journal.ErrConflict) {
				return err
			}
			list, err := Read(h.ctx, h.journal, session, tip)
			if err != nil {
				return err
			}
			tip = list[len(list)-1].Tip
		}
	}
	return nil
}
