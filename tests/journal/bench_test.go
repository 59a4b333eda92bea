package journal_test

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// The acknowledgement is awaited in all of them.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []natsd.Mode{natsd.Dev, natsd.Single} {
		for _, size := range []int{2 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d KiB", mode, size>>10), func(b *testing.B) {
				log := open(b, natsdtest.Serve(b, natsd.Config{Mode: mode}), config())
				ev := annotation("s", "", noise(size))
				b.ReportAllocs()
				b.SetBytes(int64(size))
				var tip journal.Tip
				n := 0
				began := cpu(b)
				for b.Loop() {
					ev.Id = strconv.Itoa(n)
					n++
					var err error
					tip, err = log.Append(context.Background(), tip, ev)
					require.NoError(b, err)
				}
				b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
			})
		}
	}
}

// cpu is the time that this process, server and all, has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// What a gateway pays without the log: the event's encoding and hashes.
func BenchmarkEncode(b *testing.B) {
	ev := annotation("s", "a", noise(2<<10))
	for b.Loop() {
		body, err := event.Encode(ev)
		require.NoError(b, err)
		event.Pack(body)
		event.Chain(event.Hash{}, event.Sum(body))
	}
}

// A session of 20 events that are spread over a log of 100,000 sessions, read
// by a gateway that has never seen it.
func BenchmarkColdRead(b *testing.B) {
	if testing.Short() {
		b.Skip("fills a log of 240 MB")
	}
	const sessions, turns, every = 100_000, 20, 5_000
	log := open(b, natsdtest.Serve(b, natsd.Config{}), config())
	tips := map[string]journal.Tip{}
	value := noise(2 << 10)
	appendTo := func(session string) {
		tip, err := log.Append(context.Background(), tips[session], annotation(session, strconv.FormatUint(tips[session].Count, 10), value))
		require.NoError(b, err)
		tips[session] = tip
	}
	for n := range sessions {
		appendTo(fmt.Sprint("other", n))
		if n%every == 0 {
			for c := range 50 {
				appendTo(fmt.Sprint("cold", c))
			}
		}
	}
	next := 0
	for b.Loop() {
		require.Len(b, read(b, log, fmt.Sprint("cold", next%50)), turns)
		next++
	}
}

func BenchmarkSubscribe(b *testing.B) {
	log := open(b, natsdtest.Serve(b, natsd.Config{}), config())
	const entries = 20_000
	for n := range 100 {
		var tip journal.Tip
		session := slot(n)
		for i := range entries / 100 {
			var err error
			tip, err = log.Append(context.Background(), tip, annotation(session, strconv.Itoa(i), noise(1<<10)))
			require.NoError(b, err)
		}
	}
	for _, group := range []string{"", "g"} {
		b.Run("group="+group, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				options := journal.SubscribeOptions{Group: group}
				if group != "" {
					options.Group += strconv.Itoa(n)
				}
				sub, err := log.Subscribe(context.Background(), 0, options)
				require.NoError(b, err)
				for got := 0; got < entries; {
					list, err := sub.Fetch(context.Background(), 256)
					require.NoError(b, err)
					require.NoError(b, sub.Ack(context.Background(), list[len(list)-1]))
					got += len(list)
				}
				require.NoError(b, sub.Close())
			}
			b.ReportMetric(float64(entries)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// slot returns the nth session of partition 0.
func slot(n int) string {
	for at := 0; ; at++ {
		session := fmt.Sprint("slot", at)
		if journal.PartitionOf(session) != 0 {
			continue
		}
		if n == 0 {
			return session
		}
		n--
	}
}
