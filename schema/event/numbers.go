package event

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AppendIDs appends token ids in the log's form: 4 bytes each, little-endian.
func AppendIDs(dst []byte, ids []uint32) []byte {
	for _, id := range ids {
		dst = binary.LittleEndian.AppendUint32(dst, id)
	}
	return dst
}

// IDs returns n ids in the log's form as numbers, appended to dst. A rest of
// fewer than 4 bytes is ignored; see CheckArray.
func IDs(dst []uint32, b []byte) []uint32 {
	for ; len(b) >= 4; b = b[4:] {
		dst = append(dst, binary.LittleEndian.Uint32(b))
	}
	return dst
}

// AppendFloats appends float32 values in the log's form.
func AppendFloats(dst []byte, v []float32) []byte {
	for _, f := range v {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}

// Floats is the inverse of AppendFloats, appended to dst.
func Floats(dst []float32, b []byte) []float32 {
	for ; len(b) >= 4; b = b[4:] {
		dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return dst
}

// AppendInts appends int32 values in the log's form.
func AppendInts(dst []byte, v []int32) []byte {
	for _, n := range v {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	return dst
}

// Ints is the inverse of AppendInts, appended to dst.
func Ints(dst []int32, b []byte) []int32 {
	for ; len(b) >= 4; b = b[4:] {
		dst = append(dst, int32(binary.LittleEndian.Uint32(b)))
	}
	return dst
}

// Count is the number of 4-byte elements of an array.
func Count(b []byte) int { return len(b) / 4 }

// CheckArray reports an array that is not whole elements. The error wraps
// ErrMalformed.
func CheckArray(name string, b []byte) error {
	if len(b)%4 != 0 {
		return fmt.Errorf("%w: %s has %d bytes, not a multiple of 4", ErrMalformed, name, len(b))
	}
	return nil
}

// NewIDs is the number of ids that a turn adds to its base: prompt and
// completion.
func (t *TurnCommitted) NewIDs() int {
	n := Count(t.GetCompletion().GetIds())
	for _, s := range t.GetSegments() {
		n += Count(s.GetIds())
	}
	return n
}
