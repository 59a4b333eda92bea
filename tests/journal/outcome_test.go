package journal_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/journaltest"
)

// short is long enough for a server that answers.
const short = 300 * time.Millisecond

func openOver(t *testing.T, w *wire) *jet.Log {
	t.Helper()
	conn, err := jet.Dial(jet.Options{InProcess: w})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	log, err := conn.Open(t.Context(), config())
	require.NoError(t, err)
	return log
}

func TestAnAppendWhoseAnswerIsLostIsStoredOnce(t *testing.T) {
	w := newWire(natsdtest.Serve(t, natsd.Config{}))
	log := openOver(t, w)
	tip, err := log.Append(t.Context(), journal.Tip{}, annotation("s", "a", "1"))
	require.NoError(t, err)

	ev := annotation("s", "b", "2")
	release := w.hold()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	_, err = log.Append(ctx, tip, ev)
	require.ErrorIs(t, err, journal.ErrUnavailable, "nobody knows")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	release()

	next, err := log.Append(t.Context(), tip, ev)
	require.NoError(t, err)
	list := read(t, log, "s")
	require.Len(t, list, 2)
	require.Equal(t, list[1].Tip, next)
}

func TestAnAppendOutlivesABrokenConnection(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	w := newWire(s)
	log := openOver(t, w)
	w.cut(nil)
	require.Eventually(t, func() bool { return log.Health(t.Context()) != nil }, patience, tick)
	require.ErrorIs(t, log.Health(t.Context()), journal.ErrUnavailable)

	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	_, err := log.Append(ctx, journal.Tip{}, annotation("s", "a", "1"))
	require.ErrorIs(t, err, journal.ErrUnavailable)

	done := make(chan error, 1)
	go func() {
		_, err := log.Append(context.WithoutCancel(t.Context()), journal.Tip{}, annotation("s", "b", "1"))
		done <- err
	}()
	w.cut(s)
	require.NoError(t, <-done, "the caller waited, and got it")
	list := read(t, log, "s")
	require.Len(t, list, 1, "what was reported as failed does not come later")
	require.Equal(t, "b", list[0].Event.GetId())
}

func TestAServerThatComesBackHasEverything(t *testing.T) {
	dir := t.TempDir()
	first, stop := natsdtest.Start(t, natsd.Config{Dir: dir})
	w := newWire(first)
	log := openOver(t, w)
	sub, err := log.Subscribe(t.Context(), journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
	require.NoError(t, err)

	var tip journal.Tip
	for _, id := range []string{"a", "b", "c"} {
		tip, err = log.Append(t.Context(), tip, annotation("s", id, "1"))
		require.NoError(t, err)
	}
	list := fetch(t, sub, 3)
	require.NoError(t, sub.Ack(t.Context(), list[0]))
	stop()

	w.cut(natsdtest.Serve(t, natsd.Config{Dir: dir}))
	_, err = journaltest.Append(t.Context(), log, tip, annotation("s", "d", "1"))
	require.NoError(t, err)
	require.Len(t, read(t, log, "s"), 4)
	require.Equal(t, []string{"d"}, names(fetch(t, sub, 1)), "the subscription goes on by itself")

	require.NoError(t, sub.Close())
	sub, err = log.Subscribe(t.Context(), journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
	require.NoError(t, err)
	require.Equal(t, []string{"b", "c", "d"}, names(fetch(t, sub, 3)), "the position outlives the server")
}

func TestReadingFromATipCostsOnlyWhatIsNew(t *testing.T) {
	w := newWire(natsdtest.Serve(t, natsd.Config{}))
	log := openOver(t, w)
	cost := func(session string, events int) int64 {
		var tip journal.Tip
		var err error
		for n := range events {
			tip, err = log.Append(t.Context(), tip, annotation(session, strconv.Itoa(n), "x"))
			require.NoError(t, err)
		}
		before := w.received.Load()
		for _, err := range log.ReadSession(t.Context(), session, tip) {
			require.NoError(t, err)
		}
		return w.received.Load() - before
	}
	few, many := cost("few-session", 2), cost("many-sessio", 1500)
	require.InDelta(t, few, many, 64)
}

func fetch(t *testing.T, s journal.Subscription, n int) (list []journal.Delivery) {
	t.Helper()
	for len(list) < n {
		batch, err := journaltest.Fetch(t.Context(), s, n-len(list))
		require.NoError(t, err)
		list = append(list, batch...)
	}
	return list
}

func names(list []journal.Delivery) (ids []string) {
	for _, d := range list {
		ids = append(ids, d.Event.GetId())
	}
	return ids
}
