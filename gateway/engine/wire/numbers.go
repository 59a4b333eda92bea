package wire

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"turnlog.dev/schema/rawjson"
)

// Errors of the number parsers. They are what an adapter reports as Broken.
var (
	// ErrNotInteger is a value that is no integer of the wanted range: a float,
	// a string, a boolean, a negative number.
	ErrNotInteger = errors.New("not an integer")
	// ErrNotFinite is a logprob that is null, NaN, infinite or no number.
	ErrNotFinite = errors.New("not a finite number")
	// ErrNotArray is a value that is no array.
	ErrNotArray = errors.New("not an array")
)

// AppendIDs appends ids as a JSON array.
func AppendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

// ID parses a token id: digits and nothing else, so that 7.0, "7" and true
// are refused and not rounded into an id.
func ID(raw []byte) (uint32, error) {
	if len(raw) == 0 || len(raw) > 10 {
		return 0, fmt.Errorf("%w: %.32s", ErrNotInteger, raw)
	}
	var n uint64
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: %.32s", ErrNotInteger, raw)
		}
		n = n*10 + uint64(c-'0')
	}
	if n > math.MaxUint32 {
		return 0, fmt.Errorf("%w: %.32s", ErrNotInteger, raw)
	}
	return uint32(n), nil
}

// IDs appends the ids of a JSON array to dst.
func IDs(dst []uint32, raw []byte) ([]uint32, error) {
	if rawjson.KindOf(raw) != rawjson.Array {
		return dst, ErrNotArray
	}
	for v := range rawjson.Elements(raw) {
		id, err := ID(v)
		if err != nil {
			return dst, err
		}
		dst = append(dst, id)
	}
	return dst, nil
}

// EqualIDs reports whether a JSON array holds exactly ids.
func EqualIDs(raw []byte, ids []uint32) (bool, error) {
	if rawjson.KindOf(raw) != rawjson.Array {
		return false, ErrNotArray
	}
	n := 0
	for v := range rawjson.Elements(raw) {
		id, err := ID(v)
		if err != nil {
			return false, err
		}
		if n >= len(ids) || ids[n] != id {
			return false, nil
		}
		n++
	}
	return n == len(ids), nil
}

// Int parses a count.
func Int(raw []byte) (int, error) {
	id, err := ID(raw)
	return int(id), err
}

// Logprob parses a logprob to the float32 nearest to what is written.
func Logprob(raw []byte) (float32, error) {
	if rawjson.KindOf(raw) != rawjson.Number {
		return 0, fmt.Errorf("%w: %.32s", ErrNotFinite, raw)
	}
	f, err := strconv.ParseFloat(unsafe.String(&raw[0], len(raw)), 32)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, fmt.Errorf("%w: %.32s", ErrNotFinite, raw)
	}
	return float32(f), nil
}

// AppendLogprob appends a logprob as Python writes a float32 that became a
// float: all the digits of the exact value. What is not finite becomes null.
func AppendLogprob(dst []byte, f float32) []byte {
	if v := float64(f); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	}
	return append(dst, "null"...)
}
