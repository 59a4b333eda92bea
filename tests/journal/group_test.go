package journal_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

// member is a subscription of a process of its own.
func member(t *testing.T, s *natsd.Server) (journal.Subscription, *jet.Conn) {
	t.Helper()
	conn := natsdtest.Dial(t, s)
	log, err := conn.Open(t.Context(), config())
	require.NoError(t, err)
	sub, err := log.Subscribe(t.Context(), journal.PartitionOf("s"), journal.SubscribeOptions{Group: "g"})
	require.NoError(t, err)
	return sub, conn
}

func fill(t *testing.T, j journal.Journal, tip journal.Tip, from, to int) journal.Tip {
	t.Helper()
	for n := from; n < to; n++ {
		var err error
		tip, err = j.Append(t.Context(), tip, annotation("s", strconv.Itoa(n), "x"))
		require.NoError(t, err)
	}
	return tip
}

func TestWhatADeadMemberHeldComesToTheNextInOrder(t *testing.T) {
	for name, later := range map[string]int{"with new entries": 3, "with none": 0} {
		t.Run(name, func(t *testing.T) {
			s := natsdtest.Serve(t, natsd.Config{})
			log := open(t, s, config())
			tip := fill(t, log, journal.Tip{}, 0, 10)

			first, conn := member(t, s)
			list := fetch(t, first, 8)
			require.NoError(t, first.Ack(t.Context(), list[2]))
			second, _ := member(t, s)
			conn.Close() // as a killed process does
			fill(t, log, tip, 10, 10+later)

			again := fetch(t, second, 7+later)
			for i, d := range again {
				require.Equal(t, strconv.Itoa(3+i), d.Event.GetId())
			}
			require.Equal(t, 2, again[0].Attempt)
			require.NoError(t, second.Ack(t.Context(), again[len(again)-1]))
		})
	}
}

func TestAMemberThatLostItsPlaceDeliversNothingTwice(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	log := open(t, s, config())
	tip := fill(t, log, journal.Tip{}, 0, 4)
	sub, _ := member(t, s)
	held := fetch(t, sub, 4) // and not acknowledged

	// Another takes over, works, and leaves.
	nc := raw(t, s)
	consumer := "g-" + twoDigits(journal.PartitionOf("s"))
	_, err := nc.RequestWithContext(t.Context(), "$JS.API.CONSUMER.UNPIN.tl-default-s-00."+consumer, []byte(`{"group":"members"}`))
	require.NoError(t, err)
	other, _ := member(t, s)
	require.Len(t, fetch(t, other, 4), 4)
	require.NoError(t, other.Close())

	fill(t, log, tip, 4, 6)
	require.Equal(t, []string{"4", "5"}, names(fetch(t, sub, 2)), "what it holds does not come again")
	require.NoError(t, sub.Ack(t.Context(), held[3]))
}

func twoDigits(n int) string { return string([]byte{byte('0' + n/10), byte('0' + n%10)}) }
