// Package event is the log's format: the events that gateways and recorders
// append, and how they are encoded.
//
// The types are generated from event.proto, which documents every field. An
// event's body is its deterministic protobuf encoding; Hash is taken over it.
// A body above CompressAbove travels zstd-compressed if that makes it smaller,
// which the carrier names
// outside the body, as it does the chain to the event before.
package event

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"
)

// Major is the version of the format that this package writes. It reads all
// versions up to this one.
const Major = 1

// CompressAbove is the size in bytes above which a body travels compressed.
const CompressAbove = 4 << 10

// MaxBody bounds a decompressed body in bytes.
const MaxBody = 64 << 20

// Errors of Decode and Unpack.
var (
	// ErrMajor is a body of a newer major version than Major.
	ErrMajor = errors.New("event: newer format version")
	// ErrTooLarge is an event whose body is above MaxBody: nobody would read it
	// again.
	ErrTooLarge = errors.New("event: too large")
	// ErrMalformed is a body that is no event.
	ErrMalformed = errors.New("event: malformed")
)

// Hash is a sha256.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads what String wrote.
func ParseHash(s string) (h Hash, err error) {
	if len(s) != hex.EncodedLen(len(h)) {
		return Hash{}, fmt.Errorf("event: %.80q is no hash", s)
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return Hash{}, fmt.Errorf("event: %q is no hash: %w", s, err)
	}
	return h, nil
}

// Sum returns the hash of a body.
func Sum(body []byte) Hash { return sha256.Sum256(body) }

// Chain returns the hash that binds a body to everything before it in its
// session. The first event's prev is the zero Hash.
func Chain(prev, body Hash) Hash {
	var b [2 * sha256.Size]byte
	copy(b[:], prev[:])
	copy(b[sha256.Size:], body[:])
	return sha256.Sum256(b[:])
}

// Kind names what an event says, as it is written in headers and logs.
type Kind string

// The kinds of the turn stream, and the one of the trajectory stream.
const (
	KindSessionOpened    Kind = "session_opened"
	KindTurnCommitted    Kind = "turn_committed"
	KindTurnAborted      Kind = "turn_aborted"
	KindDeliveryFailed   Kind = "delivery_failed"
	KindRewardAssigned   Kind = "reward_assigned"
	KindAnnotated        Kind = "annotated"
	KindSessionClosed    Kind = "session_closed"
	KindRunOpened        Kind = "run_opened"
	KindWeightsUpdated   Kind = "weights_updated"
	KindRunFenced        Kind = "run_fenced"
	KindRunServed        Kind = "run_served"
	KindSessionReleased  Kind = "session_released"
	KindTrajectoryUpdate Kind = "trajectory_update"
	// KindUnknown is a body that this version does not know.
	KindUnknown Kind = "unknown"
)

// Kind returns what the event says.
func (e *Event) Kind() Kind {
	switch e.GetBody().(type) {
	case *Event_SessionOpened:
		return KindSessionOpened
	case *Event_TurnCommitted:
		return KindTurnCommitted
	case *Event_TurnAborted:
		return KindTurnAborted
	case *Event_DeliveryFailed:
		return KindDeliveryFailed
	case *Event_RewardAssigned:
		return KindRewardAssigned
	case *Event_Annotated:
		return KindAnnotated
	case *Event_SessionClosed:
		return KindSessionClosed
	case *Event_RunOpened:
		return KindRunOpened
	case *Event_WeightsUpdated:
		return KindWeightsUpdated
	case *Event_RunFenced:
		return KindRunFenced
	case *Event_RunServed:
		return KindRunServed
	case *Event_SessionReleased:
		return KindSessionReleased
	case *Event_TrajectoryUpdate:
		return KindTrajectoryUpdate
	default:
		return KindUnknown
	}
}

// Encode returns the body of e: the same bytes for the same event, always. It
// sets the schema version.
func Encode(e *Event) ([]byte, error) { return encode(nil, e) }

func encode(dst []byte, e *Event) ([]byte, error) {
	e.Schema = Major
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, e)
	if err != nil {
		return nil, fmt.Errorf("event: encode %s: %w", e.Kind(), err)
	}
	if n := len(b) - len(dst); n > MaxBody {
		return nil, fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrTooLarge, e.Kind(), n, MaxBody)
	}
	return b, nil
}

// Decode reads a body. The error wraps ErrMalformed or ErrMajor.
func Decode(body []byte) (*Event, error) {
	e := new(Event)
	if err := proto.Unmarshal(body, e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch {
	case e.Schema > Major:
		return nil, fmt.Errorf("%w: %d; this program reads up to %d", ErrMajor, e.Schema, Major)
	case e.Schema == 0 || e.Id == "" || e.Session == "":
		return nil, fmt.Errorf("%w: no schema version, id or session", ErrMalformed)
	}
	return e, nil
}

// Clone returns what Decode would make of the body of e: a copy that shares no
// memory with it.
func Clone(e *Event) *Event { return proto.CloneOf(e) }

// Size is the length of the body of e.
func Size(e *Event) int { return proto.Size(e) }

// Encoding names how a body travels.
type Encoding string

// The encodings. Plain is not named on the wire.
const (
	Plain Encoding = ""
	Zstd  Encoding = "zstd"
)

var coder = sync.OnceValue(func() *zstd.Encoder {
	// As many at once as there are processors. The chain is the checksum.
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // only for impossible options
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBody))
	if err != nil {
		panic(err) // only for impossible options
	}
	return d
})

// Sealed is an event as it travels.
type Sealed struct {
	Packed   []byte
	Encoding Encoding
	// Sum is the hash of the body.
	Sum Hash
}

// Seal encodes e, as Encode and Pack do, without the memory for what does not
// travel.
func Seal(e *Event) (Sealed, error) {
	s := scratches.Get().(*scratch)
	defer s.giveBack()
	var err error
	if s.body, err = encode(s.body[:0], e); err != nil {
		return Sealed{}, err
	}
	packed, enc := s.pack()
	return Sealed{Packed: slices.Clone(packed), Encoding: enc, Sum: Sum(s.body)}, nil
}

// scratch is memory that events are encoded in, one after the other.
type scratch struct{ body, packed []byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// scratchLimit is what a scratch may have grown to and still be kept, in bytes.
const scratchLimit = 2 << 20

func (s *scratch) giveBack() {
	if cap(s.body)+cap(s.packed) <= scratchLimit {
		scratches.Put(s)
	}
}

// pack is Pack of the body; the result lasts as long as the scratch.
func (s *scratch) pack() ([]byte, Encoding) {
	if len(s.body) <= CompressAbove {
		return s.body, Plain
	}
	if s.packed = coder().EncodeAll(s.body, s.packed[:0]); len(s.packed) >= len(s.body) {
		return s.body, Plain
	}
	return s.packed, Zstd
}

// Pack returns what travels for a body, and how it is encoded: as it is, where
// compressing it would save nothing.
func Pack(body []byte) ([]byte, Encoding) {
	return (&scratch{body: body}).pack()
}

// Unpack is the inverse of Pack. The error wraps ErrMalformed.
func Unpack(packed []byte, enc Encoding) ([]byte, error) {
	switch enc {
	case Plain:
		return packed, nil
	case Zstd:
		b, err := decoder().DecodeAll(packed, nil)
		if err != nil {
			return nil, fmt.Errorf("%w: zstd: %w", ErrMalformed, err)
		}
		return b, nil
	default:
		return nil, fmt.Errorf("%w: encoding %q", ErrMalformed, enc)
	}
}
