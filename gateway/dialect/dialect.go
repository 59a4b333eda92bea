// Package dialect holds what the client protocols share: how values are read
// from a request body, and how events are streamed. Each protocol is a
// subpackage that translates requests to the gateway's canonical form and
// answers back.
//
// A dialect never decodes a body into Go values as a whole: it walks the raw
// JSON, takes what it knows, keeps the bytes of what it does not interpret
// (tool definitions, foreign parts) and ignores fields that it has no use for.
package dialect

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/rawjson"
)

// Object checks that a request body is a JSON object.
func Object(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return gateway.Invalidf("", "the body is empty; it must be a JSON object")
	}
	if err := rawjson.Valid(body); err != nil {
		return gateway.Invalidf("", "the body is not valid JSON: %s", err)
	}
	if kind := rawjson.KindOf(body); kind != rawjson.Object {
		return gateway.Invalidf("", "the body is %s; it must be a JSON object", kind)
	}
	return nil
}

// Text reads a string; null is "".
func Text(param string, raw []byte) (string, error) {
	switch rawjson.KindOf(raw) {
	case rawjson.String:
		return rawjson.Text(raw), nil
	case rawjson.Null:
		return "", nil
	}
	return "", gateway.Invalidf(param, "%s is %s; it must be a string", param, rawjson.KindOf(raw))
}

// Bool reads a boolean; null is false.
func Bool(param string, raw []byte) (bool, error) {
	switch rawjson.KindOf(raw) {
	case rawjson.Bool:
		return string(bytes.TrimSpace(raw)) == "true", nil
	case rawjson.Null:
		return false, nil
	}
	return false, gateway.Invalidf(param, "%s is %s; it must be true or false", param, rawjson.KindOf(raw))
}

// Array checks that a value is an array; null is an empty one.
func Array(param string, raw []byte) error {
	if kind := rawjson.KindOf(raw); kind != rawjson.Array && kind != rawjson.Null {
		return gateway.Invalidf(param, "%s is %s; it must be an array", param, kind)
	}
	return nil
}

// IsNull reports whether a value is null.
func IsNull(raw []byte) bool { return rawjson.KindOf(raw) == rawjson.Null }

// BodyHash identifies a request whatever way of delivery it asks for. It is a
// sha256 over the members of a body, in order, but for "stream" and
// "stream_options".
type BodyHash struct{ h hash.Hash }

// NewBodyHash returns the hash of a body without members.
func NewBodyHash() BodyHash { return BodyHash{sha256.New()} }

// Add adds a member.
func (b BodyHash) Add(key string, value []byte) {
	if key == "stream" || key == "stream_options" {
		return
	}
	var lengths [16]byte
	binary.LittleEndian.PutUint64(lengths[:], uint64(len(key)))
	binary.LittleEndian.PutUint64(lengths[8:], uint64(len(value)))
	b.h.Write(lengths[:])
	b.h.Write([]byte(key))
	b.h.Write(value)
}

// Sum returns the hash.
func (b BodyHash) Sum() []byte { return b.h.Sum(nil) }

// Pick returns the values of an object's keys, nil for each that is not there,
// and the last one of each that is repeated. It reads the object once, however
// many are picked; there may be eight.
func Pick(raw []byte, keys ...string) (values [8][]byte) {
	for k, v := range rawjson.Members(raw) {
		for i, key := range keys {
			if key == k {
				values[i] = v
				break
			}
		}
	}
	return values
}

// Int reads an integer that decides nothing exact; anything else is 0.
func Int(raw []byte) int64 {
	f, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	if err != nil || rawjson.KindOf(raw) != rawjson.Number {
		return 0
	}
	return int64(f)
}
