package event_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"turnlog.dev/schema/event"
)

// arrays are what a turn's spans say of its ids, an element each.
type arrays struct {
	ids      []uint32
	spans    []*event.Span
	mask     []int8
	logprobs []float32 // nil: the engine gave none
	versions []int32
}

func randomArrays(rng *rand.Rand) arrays {
	context, sampled := rng.IntN(5), rng.IntN(9)
	var a arrays
	for _, s := range []*event.Span{
		{Provenance: event.Provenance_PROVENANCE_USER, Count: uint32(context)},
		{Provenance: event.Provenance_PROVENANCE_SAMPLED, Count: uint32(sampled)},
	} {
		if s.GetCount() > 0 {
			a.spans = append(a.spans, s)
		}
	}
	none, unknown := rng.IntN(4) == 0, rng.IntN(4) == 0
	a.logprobs = []float32{}
	for i := range context + sampled {
		mask, lp, version := int8(0), float32(0), event.NoVersion
		if i >= context {
			mask, lp = int8(rng.IntN(2)), -rng.Float32()
			if !unknown {
				version = rng.Int32N(3) - 1
			}
		}
		a.ids = append(a.ids, rng.Uint32()>>rng.IntN(32))
		a.mask, a.logprobs, a.versions = append(a.mask, mask), append(a.logprobs, lp), append(a.versions, version)
	}
	if none && sampled > 0 {
		a.logprobs = nil
	}
	return a
}

// each is the form that has an element for each id.
func (a arrays) each() *event.TurnSpans {
	t := &event.TurnSpans{Turn: "t", Ids: event.AppendIDs(nil, a.ids), Spans: a.spans, Versions: event.AppendInts(nil, a.versions)}
	for _, m := range a.mask {
		t.Mask = append(t.Mask, byte(m))
	}
	if a.logprobs != nil {
		t.Logprobs = event.AppendFloats(nil, a.logprobs)
	}
	return t
}

func TestBothFormsOfATurnSayTheSame(t *testing.T) {
	for seed := range uint64(500) {
		a := randomArrays(rand.New(rand.NewPCG(seed, 3)))
		before := a.each()
		kept := proto.CloneOf(before)
		old, err := before.Tokens()
		require.NoError(t, err)
		require.True(t, proto.Equal(kept, before), "what was read is not changed")
		body, err := proto.Marshal(old.TurnSpans)
		require.NoError(t, err)
		again := new(event.TurnSpans)
		require.NoError(t, proto.Unmarshal(body, again))
		runs, err := again.Tokens()
		require.NoError(t, err)
		for _, k := range []event.Tokens{old, runs} {
			require.Empty(t, k.GetMask())
			require.Equal(t, slices.Concat([]uint32{9}, a.ids), k.AppendIDs([]uint32{9}))
			for i, id := range k.AppendInt32IDs(nil) {
				require.Equal(t, int32(a.ids[i]), id)
			}
			require.Equal(t, slices.Concat([]int8{9}, a.mask), k.AppendMask([]int8{9}))
			require.Equal(t, slices.Concat([]int32{9}, a.versions), k.AppendVersions([]int32{9}))
			require.Equal(t, a.logprobs != nil, k.HasLogprobs())
			if a.logprobs != nil {
				require.Equal(t, slices.Concat([]float32{9}, a.logprobs), k.AppendLogprobs([]float32{9}))
			}
			for n := range len(a.ids) - k.Start + 1 {
				trained := 0
				for _, m := range a.mask[k.Start : k.Start+n] {
					trained += int(m)
				}
				require.Equal(t, trained, event.TrainableBefore(k.GetMaskRuns(), n))
				if k.Start+n == len(a.ids) {
					require.Equal(t, trained, k.Trainable())
				}
			}
		}
	}
}

func TestATurnTakesAVarintForEachIDAndALogprobForWhatWasSampled(t *testing.T) {
	a := arrays{ids: make([]uint32, 8000), mask: make([]int8, 8000), logprobs: make([]float32, 8000), versions: make([]int32, 8000)}
	a.spans = []*event.Span{{Provenance: event.Provenance_PROVENANCE_TOOL, Count: 6000}, {Provenance: event.Provenance_PROVENANCE_SAMPLED, Count: 2000}}
	for i := range a.ids {
		a.ids[i], a.versions[i] = 1<<14-1, event.NoVersion
		if i >= 6000 {
			a.mask[i], a.versions[i], a.logprobs[i] = 1, 7, -1
		}
	}
	k, err := a.each().Tokens()
	require.NoError(t, err)
	require.InDelta(t, 6000*2+2000*6, proto.Size(k.TurnSpans), 100)
}

func TestArraysThatDoNotBelongTogetherAreMalformed(t *testing.T) {
	of := func(f func(*event.TurnSpans)) *event.TurnSpans {
		a := arrays{
			ids: []uint32{1, 2, 3}, mask: []int8{0, 1, 1}, logprobs: []float32{0, -1, -2}, versions: []int32{-1, 7, 7},
			spans: []*event.Span{{Provenance: event.Provenance_PROVENANCE_USER, Count: 1}, {Provenance: event.Provenance_PROVENANCE_SAMPLED, Count: 2}},
		}
		k, err := a.each().Tokens()
		require.NoError(t, err)
		f(k.TurnSpans)
		return k.TurnSpans
	}
	_, err := of(func(*event.TurnSpans) {}).Tokens()
	require.NoError(t, err)
	for name, f := range map[string]func(*event.TurnSpans){
		"half an id":             func(s *event.TurnSpans) { s.IdVarints = append(s.IdVarints[:2], 0x83) },
		"an id without a span":   func(s *event.TurnSpans) { s.IdVarints = append(s.IdVarints, 1) },
		"an id less":             func(s *event.TurnSpans) { s.IdVarints = s.IdVarints[1:] },
		"an id above 32 bits":    func(s *event.TurnSpans) { s.IdVarints = append(s.IdVarints[:2], 0xff, 0xff, 0xff, 0xff, 0x10) },
		"an endless id":          func(s *event.TurnSpans) { s.IdVarints = append(s.IdVarints[:2], 0x80, 0x80, 0x80, 0x80, 0x80, 0) },
		"ids in both forms":      func(s *event.TurnSpans) { s.Ids = make([]byte, 12) },
		"spans beyond all ids":   func(s *event.TurnSpans) { s.Spans[0].Count = math.MaxUint32 },
		"no mask":                func(s *event.TurnSpans) { s.MaskRuns = nil },
		"a mask beyond all ids":  func(s *event.TurnSpans) { s.MaskRuns = []uint32{math.MaxUint32, math.MaxUint32, 4} },
		"a logprob less":         func(s *event.TurnSpans) { s.SampledLogprobs = s.SampledLogprobs[4:] },
		"half a logprob":         func(s *event.TurnSpans) { s.SampledLogprobs = s.SampledLogprobs[1:] },
		"a version more":         func(s *event.TurnSpans) { s.VersionRuns[0].Count++ },
		"a mask in both forms":   func(s *event.TurnSpans) { s.Mask = make([]byte, 3) },
		"logprobs in both forms": func(s *event.TurnSpans) { s.Logprobs = make([]byte, 12) },
	} {
		_, err := of(f).Tokens()
		require.ErrorIs(t, err, event.ErrMalformed, name)
	}
}

// FuzzTokens expands whatever stands in a log as a turn's spans: it is refused,
// or every array has an element for each id, and says what the other form says.
func FuzzTokens(f *testing.F) {
	for seed := range uint64(20) {
		old := randomArrays(rand.New(rand.NewPCG(seed, 4))).each()
		now, err := old.Tokens()
		require.NoError(f, err)
		for _, t := range []*event.TurnSpans{old, now.TurnSpans} {
			body, err := proto.Marshal(t)
			require.NoError(f, err)
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		spans := new(event.TurnSpans)
		if proto.Unmarshal(body, spans) != nil {
			return
		}
		k, err := spans.Tokens()
		if err != nil {
			require.ErrorIs(t, err, event.ErrMalformed)
			return
		}
		require.LessOrEqual(t, k.Len, len(body), "an id takes a byte")
		require.LessOrEqual(t, k.Start, k.End)
		require.LessOrEqual(t, k.End, k.Len)
		require.LessOrEqual(t, k.Trainable(), k.End-k.Start)
		a := arrays{
			ids: k.AppendIDs(nil), spans: k.GetSpans(), mask: k.AppendMask(nil),
			logprobs: k.AppendLogprobs(nil), versions: k.AppendVersions(nil),
		}
		if !k.HasLogprobs() {
			a.logprobs = nil
		}
		again, err := a.each().Tokens()
		require.NoError(t, err)
		require.Equal(t, a.ids, again.AppendIDs(nil))
		require.Equal(t, a.mask, again.AppendMask(nil))
		require.Equal(t, a.versions, again.AppendVersions(nil))
		require.True(t, bytes.Equal(k.GetSampledLogprobs(), again.GetSampledLogprobs()))
		require.Equal(t, k.Trainable(), again.Trainable())
	})
}
