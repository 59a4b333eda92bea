// Package journaltest holds the promises of journal.Journal as tests that every
// implementation passes, and Faulty, a wrapper that injects the faults of a
// real log.
package journaltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Features says what the journal under test can be asked beyond the interface.
// Tests of what is nil or zero are left out.
type Features struct {
	// MaxEvent is the size in bytes above which an event is too large.
	MaxEvent int
	// Small opens a log with room for a few events of 1 KiB.
	Small func(t *testing.T) journal.Journal
	// Poison puts bytes that are no event where the session's next one belongs.
	Poison func(t *testing.T, j journal.Journal, session string, raw []byte)
	// Lossy is a journal whose appends may fail with ErrUnavailable though all
	// is well, and whose subscriptions may deliver an entry again.
	Lossy bool
	// CountsLater is a journal on a server, which may count an append into a
	// group's lag a moment after it acknowledged it.
	CountsLater bool
}

// patience bounds a test against a log that hangs.
const patience = time.Minute

// Run tests the journals that open returns, each a fresh log.
func Run(t *testing.T, open func(t *testing.T) journal.Journal, features Features) {
	run := func(name string, test func(h *harness)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			test(&harness{t: t, ctx: ctx, journal: open(t), features: features})
		})
	}
	appendTests(run)
	batchTests(run)
	readTests(run)
	subscribeTests(run)
	endTests(run)
	trimTests(run)
	limitTests(run)
}

type runner func(name string, test func(h *harness))

// harness is one test on one fresh log.
type harness struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the life of one test
	journal  journal.Journal
	features Features
}

// Annotation returns an event that differs from others by its id and value:
// the smallest event that any session may hold.
func Annotation(session, id, value string) *event.Event {
	return &event.Event{
		Id: id, Tenant: "default", Run: "test", Session: session, TimeUs: 1, Producer: "journaltest",
		Body: &event.Event_Annotated{Annotated: &event.Annotated{Name: "test", Value: []byte(value)}},
	}
}

// append adds an event until the outcome is known: what every caller of a
// journal has to do.
func (h *harness) append(tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	return Append(h.ctx, h.journal, tip, ev)
}

func (h *harness) mustAppend(tip journal.Tip, ev *event.Event) journal.Tip {
	h.t.Helper()
	next, err := h.append(tip, ev)
	require.NoError(h.t, err)
	return next
}

// fill appends events numbered from to to-1 and returns the last tip.
func (h *harness) fill(session string, tip journal.Tip, from, to int) journal.Tip {
	h.t.Helper()
	for n := from; n < to; n++ {
		tip = h.mustAppend(tip, Annotation(session, number(n), session))
	}
	return tip
}

func number(n int) string { return fmt.Sprintf("e%06d", n) }

// entries returns a session's entries after a tip.
func (h *harness) entries(session string, from journal.Tip) []journal.Entry {
	h.t.Helper()
	list, err := Read(h.ctx, h.journal, session, from)
	require.NoError(h.t, err)
	return list
}

// read returns the ids of a session's events after a tip.
func (h *harness) read(session string, from journal.Tip) []string {
	h.t.Helper()
	var ids []string
	for _, e := range h.entries(session, from) {
		ids = append(ids, e.Event.GetId())
	}
	return ids
}

// subscribe follows a partition until the test ends.
func (h *harness) subscribe(partition int, options journal.SubscribeOptions) journal.Subscription {
	h.t.Helper()
	s, err := h.journal.Subscribe(h.ctx, partition, options)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, s.Close()) })
	return s
}

// collect fetches until n different entries have come.
func (h *harness) collect(s journal.Subscription, n int) []journal.Delivery {
	h.t.Helper()
	var list []journal.Delivery
	seen := map[uint64]bool{}
	for len(list) < n {
		batch, err := Fetch(h.ctx, s, n)
		require.NoError(h.t, err)
		for _, d := range batch {
			if seen[d.Tip.Position] {
				require.True(h.t, h.features.Lossy, "position %d came twice", d.Tip.Position)
				continue
			}
			seen[d.Tip.Position] = true
			list = append(list, d)
		}
	}
	require.Len(h.t, list, n)
	return list
}

// ids names deliveries, oldest first as they came.
func ids(list []journal.Delivery) []string {
	var names []string
	for _, d := range list {
		names = append(names, d.Event.GetId())
	}
	return names
}

// numbers returns the ids that fill gives to events from to to-1.
func numbers(from, to int) []string {
	var names []string
	for n := from; n < to; n++ {
		names = append(names, number(n))
	}
	return names
}
