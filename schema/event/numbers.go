package event

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"
)

// Arrays of ids and of what belongs to them are little-endian, 4 bytes an
// element: most machines hold them so in memory, where reading and writing is
// copying.

type element interface{ uint32 | int32 | float32 }

// AppendIDs appends token ids in the log's form.
func AppendIDs(dst []byte, ids []uint32) []byte { return appendArray(dst, ids) }

// AppendFloats appends float32 values in the log's form.
func AppendFloats(dst []byte, v []float32) []byte { return appendArray(dst, v) }

// AppendInts appends int32 values in the log's form.
func AppendInts(dst []byte, v []int32) []byte { return appendArray(dst, v) }

// IDs returns ids in the log's form as numbers, appended to dst. A rest of
// fewer than 4 bytes is ignored; see CheckArray.
func IDs(dst []uint32, b []byte) []uint32 { return array(dst, b) }

// Floats is the inverse of AppendFloats, appended to dst.
func Floats(dst []float32, b []byte) []float32 { return array(dst, b) }

// Ints is the inverse of AppendInts, appended to dst.
func Ints(dst []int32, b []byte) []int32 { return array(dst, b) }

// PutIDs writes ids in the log's form to dst, as many as both hold.
func PutIDs(dst []uint32, b []byte) { put(dst, b) }

func appendArray[T element](dst []byte, v []T) []byte {
	at := len(dst)
	dst = append(dst, memory(v)...)
	toNative(dst[at:])
	return dst
}

func array[T element](dst []T, b []byte) []T {
	at, n := len(dst), Count(b)
	dst = slices.Grow(dst, n)[:at+n]
	put(dst[at:], b)
	return dst
}

func put[T element](dst []T, b []byte) {
	n := min(len(dst), Count(b))
	m := memory(dst[:n])
	copy(m, b)
	toNative(m)
}

// memory is the memory of v.
func memory[T element](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// toNative turns elements from the log's order of bytes to the machine's, or
// back: mostly the same.
func toNative(b []byte) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return
	}
	for ; len(b) >= 4; b = b[4:] {
		b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	}
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
