package journal_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

// A server that looks for a session's next message passes over all that stand
// between. Where they are many, each message says where the one before is.
func TestASessionWhoseEventsAreFarApartIsReadWithoutASearch(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	log := open(t, s, config())
	watch := raw(t, s)
	asked, err := watch.SubscribeSync("$JS.API.DIRECT.GET.>")
	require.NoError(t, err)
	requests := func() (searches, others int) {
		require.NoError(t, watch.Flush())
		for {
			n, _, err := asked.Pending()
			require.NoError(t, err)
			if n == 0 {
				return searches, others
			}
			m, err := asked.NextMsg(patience)
			require.NoError(t, err)
			if strings.Contains(string(m.Data), "next_by_subj") {
				searches++
			} else {
				others++
			}
		}
	}

	// One event of the session, then many of others, and so on.
	const events, apart = 3, 1600
	var tip, other journal.Tip
	for n := range events {
		tip, err = log.Append(t.Context(), tip, annotation("far", twoDigits(n), "x"))
		require.NoError(t, err)
		if n == events-1 {
			break
		}
		for i := range apart {
			other, err = log.Append(t.Context(), other, annotation("other", strconv.Itoa(n*apart+i), "x"))
			require.NoError(t, err)
		}
	}
	requests()
	list := read(t, log, "far")
	require.Len(t, list, events)
	require.Equal(t, tip, list[events-1].Tip)
	searches, others := requests()
	require.Zero(t, searches)
	require.Equal(t, events-1, others, "the last one comes from the leader")

	// From the first event on, one less.
	var rest []journal.Entry
	for e, err := range log.ReadSession(t.Context(), "far", list[0].Tip) {
		require.NoError(t, err)
		rest = append(rest, e)
	}
	require.Equal(t, list[1:], rest)

	// Neighbours are found by one search.
	require.Empty(t, read(t, log, "nobody"))
	requests()
	require.Len(t, read(t, log, "other"), (events-1)*apart)
	searches, others = requests()
	require.Positive(t, searches)
	require.Zero(t, others)
}

// What was appended in a batch does not say where the event before is.
func TestASessionOfBatchesIsReadWhereverItStands(t *testing.T) {
	cfg := jet.DefaultConfig("default", jet.Trajectories)
	cfg.MaxBytes = 1 << 30
	log := open(t, natsdtest.Serve(t, natsd.Config{}), cfg)
	var far, other journal.Tip
	for n := range 3 {
		tips, err := log.AppendAll(t.Context(), journal.PartitionOf("far"), []journal.Continuation{
			{Tip: far, Events: []journalEvent{annotation("far", strconv.Itoa(2*n), "x"), annotation("far", strconv.Itoa(2*n+1), "x")}},
		})
		require.NoError(t, err)
		far = tips[0]
		for i := range 2100 {
			other, err = log.Append(t.Context(), other, annotation("other", strconv.Itoa(n*2100+i), "x"))
			require.NoError(t, err)
		}
	}
	list := read(t, log, "far")
	require.Len(t, list, 6)
	require.Equal(t, far, list[5].Tip)
}

// Pulls are small, so that those of all partitions together are no flood. An
// event that is larger than one comes all the same, in its place.
func TestAnEventThatIsLargerThanAPullIsDelivered(t *testing.T) {
	cfg := config()
	log := open(t, natsdtest.Serve(t, natsd.Config{}), cfg)
	var tip journal.Tip
	var err error
	for n, size := range []int{10, cfg.MaxEvent - 4096, 10, 600 << 10, 600 << 10, 10} {
		tip, err = log.Append(t.Context(), tip, annotation("s", strconv.Itoa(n), noise(size)))
		require.NoError(t, err)
	}
	for _, group := range []string{"", "g"} {
		sub, err := log.Subscribe(t.Context(), journal.PartitionOf("s"), journal.SubscribeOptions{Group: group})
		require.NoError(t, err)
		require.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, names(fetch(t, sub, 6)))
		require.NoError(t, sub.Close())
	}
}
