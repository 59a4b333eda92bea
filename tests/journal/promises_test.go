package journal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/journaltest"
)

type journalEvent = *event.Event

func TestJetStreamKeepsThePromises(t *testing.T) {
	for _, streams := range []int{1, 8} {
		t.Run(fmt.Sprint(streams, " streams"), func(t *testing.T) {
			s := natsdtest.Serve(t, natsd.Config{})
			nc := raw(t, s)
			tenant := 0
			next := func() jet.Config { // every test has a log of its own
				tenant++
				cfg := config()
				cfg.Tenant = fmt.Sprint("t", tenant)
				cfg.Streams = streams
				cfg.MaxBytes = 64 << 20
				cfg.Batches = true
				return cfg
			}
			conn := natsdtest.Dial(t, s)
			journaltest.Run(t,
				func(t *testing.T) journal.Journal {
					log, err := conn.Open(t.Context(), next())
					require.NoError(t, err)
					return log
				},
				journaltest.Features{
					MaxEvent: config().MaxEvent, CountsLater: true,
					Small: func(t *testing.T) journal.Journal {
						cfg := next()
						cfg.MaxBytes = int64(streams) * 64 << 10
						log, err := conn.Open(t.Context(), cfg)
						require.NoError(t, err)
						return log
					},
					Poison: func(t *testing.T, _ journal.Journal, session string, body []byte) {
						subject := fmt.Sprintf("tl.t%d.s.%02d.%s", tenant, journal.PartitionOf(session), session)
						header := nats.Header{"Tl-Schema": {"1"}, "Tl-Count": {"3"}, "Tl-Prev": {event.Hash{}.String()}}
						_, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: header, Data: body}, time.Minute)
						require.NoError(t, err)
					},
				})
		})
	}
}
