package event_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"turnlog.dev/schema/event"
)

// Golden files hold, for each kind, an event as version 1 wrote it and what it
// says; for one that fields were added to, as it is written since in a file of
// its own. They are never written again: -update adds those that are missing.
var update = flag.Bool("update", false, "write golden files that are missing")

const golden = "testdata/v1"

var kinds = []event.Kind{
	event.KindSessionOpened, event.KindTurnCommitted, event.KindTurnAborted, event.KindDeliveryFailed,
	event.KindRewardAssigned, event.KindAnnotated, event.KindSessionClosed, event.KindRunOpened,
	event.KindWeightsUpdated, event.KindRunFenced, event.KindRunServed, event.KindSessionReleased, event.KindTrajectoryUpdate,
}

// grown are golden files of kinds whose fields have become more.
var grown = map[string]event.Kind{
	"trajectory_update.runs": event.KindTrajectoryUpdate, "trajectory_update.leaf": event.KindTrajectoryUpdate,
	"turn_committed.rewritten": event.KindTurnCommitted,
}

func TestEventsOfVersionOneAreReadForEver(t *testing.T) {
	files := maps.Clone(grown)
	for _, kind := range kinds {
		files[string(kind)] = kind
	}
	for name, kind := range files {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(golden, name)
			body, err := os.ReadFile(file + ".bin")
			if errors.Is(err, os.ErrNotExist) && *update {
				body = write(t, kind, file)
			} else {
				require.NoError(t, err)
			}

			got, err := event.Decode(body)
			require.NoError(t, err)
			require.Equal(t, kind, got.Kind())
			text, err := os.ReadFile(file + ".json")
			require.NoError(t, err)
			want := new(event.Event)
			require.NoError(t, protojson.Unmarshal(text, want))
			require.True(t, proto.Equal(want, got), "says something else than %s.json", file)

			again, err := event.Encode(got)
			require.NoError(t, err)
			require.Equal(t, body, again, "an event that is appended again must be the same bytes")
		})
	}
}

func TestACloneIsWhatTheLogWouldGiveBack(t *testing.T) {
	for _, kind := range kinds {
		for _, e := range []*event.Event{sample(kind), hollow(kind)} {
			body, err := event.Encode(e)
			require.NoError(t, err)
			want, err := event.Decode(body)
			require.NoError(t, err)
			got := event.Clone(e)
			require.Equal(t, len(body), event.Size(e))
			same(t, want.ProtoReflect(), got.ProtoReflect())
		}
	}
}

// hollow is an event of a kind with nothing in its body but empty fields.
func hollow(kind event.Kind) *event.Event {
	e := &event.Event{Schema: event.Major, Id: "e", Session: "s", Run: ""}
	m := e.ProtoReflect()
	body := m.Mutable(m.Descriptor().Oneofs().ByName("body").Fields().ByName(protoreflect.Name(kind))).Message()
	for i := range body.Descriptor().Fields().Len() {
		switch f := body.Descriptor().Fields().Get(i); {
		case f.IsList():
			body.Set(f, body.NewField(f))
		case f.Message() != nil:
			body.Mutable(f)
		case f.Kind() == protoreflect.BytesKind:
			body.Set(f, protoreflect.ValueOfBytes([]byte{}))
		}
	}
	return e
}

// same compares two messages down to what Go tells apart and protobuf does not:
// no bytes and empty ones, a list that is missing and one without elements.
func same(t *testing.T, want, got protoreflect.Message) {
	t.Helper()
	require.True(t, proto.Equal(want.Interface(), got.Interface()))
	fields := want.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		require.Equal(t, want.Has(f), got.Has(f), f.FullName())
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			for k := range want.Get(f).List().Len() {
				same(t, want.Get(f).List().Get(k).Message(), got.Get(f).List().Get(k).Message())
			}
		case f.IsList():
			require.Equal(t, want.Get(f).List().IsValid(), got.Get(f).List().IsValid(), f.FullName())
		case f.Message() != nil && want.Has(f):
			same(t, want.Get(f).Message(), got.Get(f).Message())
		case f.Kind() == protoreflect.BytesKind:
			require.Equal(t, want.Get(f).Bytes() == nil, got.Get(f).Bytes() == nil, f.FullName())
		}
	}
}

func TestEveryKindHasAGoldenFile(t *testing.T) {
	fields := (&event.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	require.Len(t, kinds, fields.Len())
	for i, kind := range kinds {
		require.Equal(t, string(fields.Get(i).Name()), string(kind), "a kind is named as its field")
	}
}

func write(t *testing.T, kind event.Kind, file string) []byte {
	t.Helper()
	e := sample(kind)
	body, err := event.Encode(e)
	require.NoError(t, err)
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(e)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(golden, 0o755))
	require.NoError(t, os.WriteFile(file+".bin", body, 0o600))
	require.NoError(t, os.WriteFile(file+".json", append(text, '\n'), 0o600))
	return body
}

// sample is an event of a kind with every field set.
func sample(kind event.Kind) *event.Event {
	e := new(event.Event)
	m := e.ProtoReflect()
	body := m.Descriptor().Oneofs().ByName("body")
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.ContainingOneof() != body {
			set(m, f)
		}
	}
	set(m, m.Descriptor().Fields().ByName(protoreflect.Name(kind)))
	e.Schema = event.Major
	return e
}

// fill sets every field of a message; of alternatives, the one with the given
// number in its list.
func fill(m protoreflect.Message, alternative int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && o.Fields().Get(alternative%o.Fields().Len()) != f {
			continue
		}
		set(m, f)
	}
}

func set(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsMap():
		m.Mutable(f).Map().Set(protoreflect.ValueOfString("b").MapKey(), scalar(f.MapValue(), 2))
		m.Mutable(f).Map().Set(protoreflect.ValueOfString("a").MapKey(), scalar(f.MapValue(), 1))
	case f.IsList() && f.Kind() == protoreflect.MessageKind:
		count := 2
		if o := f.Message().Oneofs(); o.Len() > 0 {
			count = o.Get(0).Fields().Len()
		}
		for i := range count {
			fill(m.Mutable(f).List().AppendMutable().Message(), i)
		}
	case f.IsList():
		m.Mutable(f).List().Append(scalar(f, 1))
		m.Mutable(f).List().Append(scalar(f, 2))
	case f.Kind() == protoreflect.MessageKind:
		fill(m.Mutable(f).Message(), 0)
	default:
		m.Set(f, scalar(f, 1))
	}
}

// scalar is a value that tells its field, and the nth from others.
func scalar(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
	number := int(f.Number())*100 + n
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number))
	case protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(-int32(number))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(number))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(number))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(number) / 8)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(f.Name()))
	case protoreflect.BytesKind: // numbers, a hash or JSON: bytes of any value
		return protoreflect.ValueOfBytes(binary.LittleEndian.AppendUint64(nil, 0xff00_0000_0000+uint64(number)))
	default:
		panic("a field of kind " + f.Kind().String())
	}
}
