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
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/rawjson"
)

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

// Int reads an integer, or what is left of a number before its point; anything
// else is 0.
func Int(raw []byte) int64 {
	text := string(bytes.TrimSpace(raw))
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || rawjson.KindOf(raw) != rawjson.Number {
		return 0
	}
	return int64(f)
}
