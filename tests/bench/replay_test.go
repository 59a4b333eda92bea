package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// BenchmarkReplay folds a recorded range again and compares it with nothing,
// next to an ordered consumer that only takes the same messages off the server,
// and to a follower of all partitions that unpacks, hashes and decodes them as
// every reader of the log must, and then looks at none.
func BenchmarkReplay(b *testing.B) {
	for _, size := range []struct{ prompt, completion, sessions int }{{100, 150, 1200}, {1500, 500, 900}} {
		name := fmt.Sprintf("tokens=%d+%d", size.prompt, size.completion)
		const length = 20
		l := openLogs(b, natsd.Dev)
		write(b, l.turns, size.sessions, func(n int) *sessiontest.Session {
			return sessiontest.Long(fmt.Sprint("s", n), length, size.prompt, size.completion)
		})
		messages := size.sessions * (length + 2) // opened and closed
		measure := func(b *testing.B, once func()) {
			began := cpuTime()
			n := 0
			for b.Loop() {
				n++
				once()
			}
			b.ReportMetric(float64(n*messages)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(n*messages)/(cpuTime()-began).Seconds(), "events/cpu-s")
		}
		b.Run("bare/"+name, func(b *testing.B) {
			js, stream := l.raw(b)
			measure(b, func() { drain(b, js, stream, messages) })
		})
		b.Run("decoded/"+name, func(b *testing.B) {
			measure(b, func() { decode(b, l.turns) })
		})
		b.Run("replay/"+name, func(b *testing.B) {
			measure(b, func() {
				r, err := replay.RunRange(b.Context(), l.turns, replay.Range{}, replay.Options{Policy: fold.DefaultPolicy()})
				require.NoError(b, err)
				require.Equal(b, uint64(messages), r.Events)
			})
		})
	}
}

// drain takes all messages of a stream off the server and looks at none.
func drain(b *testing.B, js jetstream.JetStream, stream string, messages int) {
	c, err := js.OrderedConsumer(b.Context(), stream, jetstream.OrderedConsumerConfig{})
	require.NoError(b, err)
	it, err := c.Messages()
	require.NoError(b, err)
	defer it.Stop()
	for range messages {
		_, err := it.Next()
		require.NoError(b, err)
	}
}

// decode follows all partitions to their end, some at a time like a replay.
func decode(b *testing.B, turns journal.Journal) {
	var g errgroup.Group
	g.SetLimit(4)
	for p := range journal.Partitions {
		g.Go(func() error {
			end, err := turns.End(b.Context(), p)
			if err != nil || end == 0 {
				return err
			}
			sub, err := turns.Subscribe(b.Context(), p, journal.SubscribeOptions{})
			if err != nil {
				return err
			}
			defer sub.Close()
			for at := uint64(0); at < end; {
				batch, err := sub.Fetch(b.Context(), 1000)
				if err != nil {
					return err
				}
				at = batch[len(batch)-1].Tip.Position
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
}

// BenchmarkRebuild is what a worker does with a session that it does not hold:
// it reads what was recorded and the log, and adopts the one into the other.
// The session's 20 turns are spread over a log of 100,000 sessions.
func BenchmarkRebuild(b *testing.B) {
	if testing.Short() {
		b.Skip("fills a log of 100,000 sessions")
	}
	const others, cold, length = 100_000, 50, 20
	l := openLogs(b, natsd.Dev)
	var sessions []*sessiontest.Session
	for n := range cold {
		sessions = append(sessions, sessiontest.Long(fmt.Sprint("cold", n), length, 100, 150))
	}
	tips, at := map[string]journal.Tip{}, 0
	step := func() { // one more event of each
		for _, s := range sessions {
			if at < len(s.Events) {
				tip, err := l.turns.Append(context.Background(), tips[s.ID], s.Events[at])
				require.NoError(b, err)
				tips[s.ID] = tip
			}
		}
		at++
	}
	for n := range others {
		s := sessiontest.New(fmt.Sprint("other", n))
		_, err := l.turns.Append(context.Background(), journal.Tip{}, s.Events[0])
		require.NoError(b, err)
		if n%(others/(length+2)) == 0 {
			step()
		}
	}
	var ids []string
	for _, s := range sessions {
		ids = append(ids, s.ID)
	}
	_, err := replay.Run(b.Context(), l.turns, replay.These(ids...), replay.Options{Policy: fold.DefaultPolicy(), Into: l.trajectories})
	require.NoError(b, err)

	began := cpuTime()
	n := 0
	for b.Loop() {
		id := ids[n%cold]
		n++
		st := fold.New(id, fold.DefaultPolicy(), fold.Aids{})
		recorded := map[string]*event.TrajectoryUpdate{}
		for e, err := range l.trajectories.ReadSession(b.Context(), id, journal.Tip{}) {
			require.NoError(b, err)
			recorded[e.Event.GetId()] = e.Event.GetTrajectoryUpdate()
		}
		for e, err := range l.turns.ReadSession(b.Context(), id, journal.Tip{}) {
			require.NoError(b, err)
			require.NoError(b, st.Adopt(e, recorded[st.UpdateID(e.Event.GetId())]))
		}
		require.NotNil(b, st.Sealed())
	}
	b.ReportMetric(float64((cpuTime()-began)/time.Duration(n))/1e6, "cpu-ms/session")
}
