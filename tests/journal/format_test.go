package journal_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// What is on the wire is a format: schema/README.md describes it, and other
// programs read it.
func TestAMessageIsAsTheFormatSays(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	log := open(t, s, config())
	first, err := log.Append(t.Context(), journal.Tip{}, annotation("s", "a", "1"))
	require.NoError(t, err)
	ev := annotation("s", "b", noise(3000)+noise(3000))
	tip, err := log.Append(t.Context(), first, ev)
	require.NoError(t, err)

	subject := fmt.Sprintf("tl.default.s.%02d.s", journal.PartitionOf("s"))
	reply, err := raw(t, s).RequestWithContext(t.Context(), "$JS.API.STREAM.MSG.GET.tl-default-s-00", []byte(`{"last_by_subj":"`+subject+`"}`))
	require.NoError(t, err)
	var answer struct {
		Message struct {
			Subject string
			Seq     uint64
			Hdrs    []byte
			Data    []byte
		}
	}
	require.NoError(t, json.Unmarshal(reply.Data, &answer))
	header, err := nats.DecodeHeadersMsg(answer.Message.Hdrs)
	require.NoError(t, err)

	body, err := event.Encode(ev)
	require.NoError(t, err)
	sum := event.Sum(body)
	require.Equal(t, nats.Header{
		"Nats-Msg-Id":                         {"s:b:" + hex.EncodeToString(sum[:8])},
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(first.Position, 10)},
		"Tl-Kind":                             {"annotated"},
		"Tl-Schema":                           {"1"},
		"Tl-Enc":                              {"zstd"},
		"Tl-Count":                            {"2"},
		"Tl-Prev":                             {first.Chain.String()},
	}, header)
	require.Equal(t, tip.Position, answer.Message.Seq)
	unpacked, err := event.Unpack(answer.Message.Data, event.Zstd)
	require.NoError(t, err)
	require.Equal(t, body, unpacked)
	require.Equal(t, tip.Chain, event.Chain(first.Chain, sum))
}
