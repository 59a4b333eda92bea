package event_test

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
)

func TestANewerEventIsRefusedNotGuessed(t *testing.T) {
	body, err := event.Encode(sample(event.KindAnnotated))
	require.NoError(t, err)
	require.Equal(t, []byte{1 << 3, event.Major}, body[:2], "the version comes first")
	body[1] = event.Major + 1
	_, err = event.Decode(body)
	require.ErrorIs(t, err, event.ErrMajor)
}

func TestWhatIsNoEventIsMalformed(t *testing.T) {
	for name, body := range map[string][]byte{
		"nothing":    nil,
		"junk":       {0xff, 0xff, 0xff},
		"no id":      {1 << 3, 1},
		"no version": {2<<3 | 2, 1, 'a', 5<<3 | 2, 1, 's'},
	} {
		_, err := event.Decode(body)
		require.ErrorIs(t, err, event.ErrMalformed, name)
	}
}

func TestAnEventOfAnUnknownKindIsReadAndKept(t *testing.T) {
	// A minor version may add a kind: field 99 here.
	body, err := event.Encode(&event.Event{Id: "a", Session: "s"})
	require.NoError(t, err)
	body = append(body, 0x9a, 0x06, 2, 8, 1) // 99, a message of two bytes
	e, err := event.Decode(body)
	require.NoError(t, err)
	require.Equal(t, event.KindUnknown, e.Kind())
	again, err := event.Encode(e)
	require.NoError(t, err)
	require.Equal(t, body, again)
}

func TestPackedBodiesComeBack(t *testing.T) {
	for _, size := range []int{0, 1, event.CompressAbove, event.CompressAbove + 1, 1 << 20} {
		body := bytes.Repeat([]byte("turn"), size/4+1)[:size]
		packed, enc := event.Pack(body)
		require.Equal(t, size > event.CompressAbove, enc == event.Zstd)
		got, err := event.Unpack(packed, enc)
		require.NoError(t, err)
		require.Equal(t, body, got)
	}
}

func TestASealedEventIsItsPackedBody(t *testing.T) {
	large := sample(event.KindTurnCommitted)
	large.GetTurnCommitted().Completion.Text = strings.Repeat("many words and ", 10_000)
	for _, e := range []*event.Event{sample(event.KindTurnCommitted), large, sample(event.KindSessionOpened)} {
		body, err := event.Encode(e)
		require.NoError(t, err)
		packed, encoding := event.Pack(body)
		first, err := event.Seal(e)
		require.NoError(t, err)
		require.Equal(t, event.Sealed{Packed: packed, Encoding: encoding, Sum: event.Sum(body)}, first)
		_, err = event.Seal(large) // in the same memory
		require.NoError(t, err)
		require.Equal(t, packed, first.Packed)
	}
	// What does not travel costs no memory.
	require.Less(t, bytesPerRun(func() { _, _ = event.Seal(large) }), 100<<10)
}

// bytesPerRun is about what f allocates, in bytes.
func bytesPerRun(f func()) int {
	const runs = 20
	var before, after runtime.MemStats
	f()
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / runs
}

func TestABombDoesNotUnpack(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	bomb := encoder.EncodeAll(make([]byte, event.MaxBody+1), nil)
	_, err = event.Unpack(bomb, event.Zstd)
	require.ErrorIs(t, err, event.ErrMalformed)
}

func TestWhatIsNotPackedDoesNotUnpack(t *testing.T) {
	_, err := event.Unpack([]byte("plain"), event.Zstd)
	require.ErrorIs(t, err, event.ErrMalformed)
	_, err = event.Unpack([]byte("plain"), "br")
	require.ErrorIs(t, err, event.ErrMalformed)
}

func TestTheChainIsTheOneOfTheFormat(t *testing.T) {
	// sha256(32 zero bytes + sha256("")), written down once.
	first := event.Chain(event.Hash{}, event.Sum(nil))
	require.Equal(t, "1c9ecec90e28d2461650418635878a5c91e49f47586ecf75f2b0cbb94e897112", first.String())
}

func TestHashesAreReadBack(t *testing.T) {
	h := event.Sum([]byte("a"))
	got, err := event.ParseHash(h.String())
	require.NoError(t, err)
	require.Equal(t, h, got)
	for _, bad := range []string{"", "ab", h.String()[1:], h.String() + "00", strings.Repeat("x", 64), strings.Repeat("0", 200)} {
		_, err := event.ParseHash(bad)
		require.Error(t, err, bad)
	}
}

func TestNumbersComeBackBitByBit(t *testing.T) {
	ids := []uint32{0, 1, 0xff, 0x100, math.MaxUint32}
	b := event.AppendIDs(nil, ids)
	require.Equal(t, []byte{0, 0, 0, 0, 1, 0, 0, 0, 0xff, 0, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff}, b, "little-endian")
	require.Equal(t, ids, event.IDs(nil, b))
	require.Equal(t, len(ids), event.Count(b))

	floats := []float32{0, float32(math.Copysign(0, -1)), -1.5, float32(math.Inf(-1)), math.Float32frombits(0x7fc00001)}
	for i, f := range event.Floats(nil, event.AppendFloats(nil, floats)) {
		require.Equal(t, math.Float32bits(floats[i]), math.Float32bits(f))
	}
	ints := []int32{0, -1, math.MinInt32, math.MaxInt32}
	require.Equal(t, ints, event.Ints(nil, event.AppendInts(nil, ints)))
}

func TestARestOfAnArrayIsReported(t *testing.T) {
	require.NoError(t, event.CheckArray("ids", make([]byte, 8)))
	require.ErrorIs(t, event.CheckArray("ids", make([]byte, 7)), event.ErrMalformed)
}

func TestNewIDsAreThoseOfTheTurnAlone(t *testing.T) {
	turn := &event.TurnCommitted{
		Base:       &event.Base{Turn: "t0", Keep: 1000},
		Segments:   []*event.Segment{{Ids: make([]byte, 12)}, {Ids: make([]byte, 4)}},
		Completion: &event.Completion{Ids: make([]byte, 20)},
	}
	require.Equal(t, 9, turn.NewIDs())
	require.Zero(t, (*event.TurnCommitted)(nil).NewIDs())
}

func FuzzDecode(f *testing.F) {
	for _, kind := range kinds {
		body, err := event.Encode(sample(kind))
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := event.Decode(body)
		if err != nil {
			return
		}
		first, err := event.Encode(e)
		require.NoError(t, err)
		again, err := event.Decode(first)
		require.NoError(t, err)
		second, err := event.Encode(again)
		require.NoError(t, err)
		require.Equal(t, first, second, "one event has one encoding")
	})
}

func FuzzUnpack(f *testing.F) {
	packed, _ := event.Pack(bytes.Repeat([]byte("turn"), 4<<10))
	f.Add(packed)
	f.Fuzz(func(t *testing.T, packed []byte) {
		body, err := event.Unpack(packed, event.Zstd)
		if err != nil {
			require.ErrorIs(t, err, event.ErrMalformed)
			return
		}
		require.LessOrEqual(t, len(body), event.MaxBody)
	})
}
