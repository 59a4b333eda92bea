package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// jsonReader walks through JSON text without building values: a vocabulary is
// 10 to 30 MB, and is read in one pass into its final form.
type jsonReader struct {
	s string
	i int
}

var errJSON = errors.New("not valid JSON")

func (r *jsonReader) fail(want string) error {
	return fmt.Errorf("%w: expected %s at offset %d", errJSON, want, r.i)
}

func (r *jsonReader) space() {
	for r.i < len(r.s) {
		switch r.s[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

// skip consumes c after white space.
func (r *jsonReader) skip(c byte) bool {
	if r.i < len(r.s) && r.s[r.i] > ' ' { // the common case, without the loop
		if r.s[r.i] != c {
			return false
		}
		r.i++
		return true
	}
	r.space()
	if r.i < len(r.s) && r.s[r.i] == c {
		r.i++
		return true
	}
	return false
}

// object calls member for each key; member must consume the value.
func (r *jsonReader) object(member func(key string) error) error {
	if !r.skip('{') {
		return r.fail("an object")
	}
	if r.skip('}') {
		return nil
	}
	for {
		key, err := r.str()
		if err != nil {
			return err
		}
		if !r.skip(':') {
			return r.fail("':'")
		}
		if err := member(key); err != nil {
			return err
		}
		if r.skip(',') {
			continue
		}
		if r.skip('}') {
			return nil
		}
		return r.fail("',' or '}'")
	}
}

// array calls element before each element; element must consume it.
func (r *jsonReader) array(element func() error) error {
	if !r.skip('[') {
		return r.fail("an array")
	}
	if r.skip(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if r.skip(',') {
			continue
		}
		if r.skip(']') {
			return nil
		}
		return r.fail("',' or ']'")
	}
}

// str reads a string; without escapes it is a part of the input.
func (r *jsonReader) str() (string, error) {
	if !r.skip('"') {
		return "", r.fail("a string")
	}
	start, escaped := r.i, false
	for i := start; i < len(r.s); i++ {
		switch r.s[i] {
		case '"':
			r.i = i + 1
			if !escaped {
				return r.s[start:i], nil
			}
			var out string
			if err := json.Unmarshal([]byte(r.s[start-1:r.i]), &out); err != nil {
				return "", fmt.Errorf("%w: string at offset %d: %w", errJSON, start, err)
			}
			return out, nil
		case '\\':
			escaped = true
			i++
		}
	}
	return "", r.fail("the end of a string")
}

// id reads a token id.
func (r *jsonReader) id() (uint32, error) {
	r.space()
	start, n := r.i, uint64(0)
	for r.i < len(r.s) && r.s[r.i] >= '0' && r.s[r.i] <= '9' {
		if n = n*10 + uint64(r.s[r.i]-'0'); n > maxID {
			return 0, fmt.Errorf("id above %d at offset %d", maxID, start)
		}
		r.i++
	}
	if r.i == start {
		return 0, r.fail("an id")
	}
	return uint32(n), nil
}

// structural are the characters that value must look at.
var structural = [256]bool{'"': true, '{': true, '[': true, '}': true, ']': true, ',': true}

// value consumes any value and returns its text.
func (r *jsonReader) value() (string, error) {
	r.space()
	start, depth := r.i, 0
	for i := start; i < len(r.s); i++ {
		if !structural[r.s[i]] {
			continue
		}
		switch r.s[i] {
		case '"':
			for i++; i < len(r.s) && r.s[i] != '"'; i++ {
				if r.s[i] == '\\' {
					i++
				}
			}
			if depth > 0 || i >= len(r.s) {
				continue
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		}
		switch {
		case depth < 0 || depth == 0 && r.s[i] == ',': // what follows a plain value
			r.i = i
			return strings.TrimRight(r.s[start:i], " \t\r\n"), nil
		case depth == 0: // the end of an object, an array or a string
			r.i = i + 1
			return r.s[start:r.i], nil
		}
	}
	return "", r.fail("the end of a value")
}
