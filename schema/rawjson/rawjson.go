// Package rawjson looks into JSON and patches it without decoding it: values
// stay the bytes that the client sent, so the order of keys, the form of
// numbers and the spelling of strings survive.
//
// Everything here but Valid takes JSON that Valid has accepted; on other input
// the functions return what they find and never panic. Valid accepts exactly
// what encoding/json accepts, up to MaxDepth.
package rawjson

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"unicode/utf8"
)

// MaxDepth is how deeply arrays and objects may be nested.
const MaxDepth = 1000

// SyntaxError says what is wrong with a text and where.
type SyntaxError struct {
	Offset int // byte
	Want   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("rawjson: byte %d: expected %s", e.Offset, e.Want)
}

// Kind is the type of a JSON value.
type Kind byte

// The kinds. Invalid is the kind of an empty or foreign text.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// KindOf returns the kind of a value by its first byte.
func KindOf(raw []byte) Kind {
	i := space(raw, 0)
	if i == len(raw) {
		return Invalid
	}
	switch c := raw[i]; {
	case c == '{':
		return Object
	case c == '[':
		return Array
	case c == '"':
		return String
	case c == 'n':
		return Null
	case c == 't', c == 'f':
		return Bool
	case c == '-', '0' <= c && c <= '9':
		return Number
	}
	return Invalid
}

// Valid reports whether b is one JSON value with nothing but space around it;
// the error is a *SyntaxError.
func Valid(b []byte) error {
	i, err := value(b, space(b, 0), 0)
	if err != nil {
		return err
	}
	if i = space(b, i); i != len(b) {
		return &SyntaxError{i, "the end"}
	}
	return nil
}

func value(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return i, &SyntaxError{i, "a value"}
	}
	switch c := b[i]; {
	case c == '"':
		return str(b, i)
	case c == '{', c == '[':
		if depth == MaxDepth {
			return i, &SyntaxError{i, fmt.Sprintf("at most %d levels", MaxDepth)}
		}
		return composite(b, i, depth)
	case c == 't':
		return literal(b, i, "true")
	case c == 'f':
		return literal(b, i, "false")
	case c == 'n':
		return literal(b, i, "null")
	case c == '-', '0' <= c && c <= '9':
		return number(b, i)
	}
	return i, &SyntaxError{i, "a value"}
}

func composite(b []byte, i, depth int) (int, error) {
	object, end := b[i] == '{', b[i]+2 // '{'+2 is '}', '['+2 is ']'
	i = space(b, i+1)
	if i < len(b) && b[i] == end {
		return i + 1, nil
	}
	for {
		var err error
		if object {
			if i >= len(b) || b[i] != '"' {
				return i, &SyntaxError{i, "a key"}
			}
			if i, err = str(b, i); err != nil {
				return i, err
			}
			if i = space(b, i); i >= len(b) || b[i] != ':' {
				return i, &SyntaxError{i, "':'"}
			}
			i = space(b, i+1)
		}
		if i, err = value(b, i, depth+1); err != nil {
			return i, err
		}
		i = space(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i = space(b, i+1)
		case i < len(b) && b[i] == end:
			return i + 1, nil
		default:
			return i, &SyntaxError{i, "',' or the end of the " + map[bool]string{true: "object", false: "array"}[object]}
		}
	}
}

func str(b []byte, i int) (int, error) {
	plain := 0
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case escapes[c] == 0:
			// Where one escape is the next is often near.
			if plain++; plain == word {
				i, plain = skipPlain(b, i+1)-1, 0
			}
			continue
		case c == '"':
			return i + 1, nil
		case c == '\\':
			i++
			if i >= len(b) {
				return i, &SyntaxError{i, "an escape"}
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(b) || !hex(b[i]) {
						return i, &SyntaxError{i, "a hexadecimal digit"}
					}
				}
			default:
				return i, &SyntaxError{i, "an escape"}
			}
		default:
			return i, &SyntaxError{i, "no control character in a string"}
		}
		plain = 0
	}
	return i, &SyntaxError{i, "the end of the string"}
}

// skipPlain returns a place from i on, up to which all bytes stand for themselves
// in a string.
func skipPlain(b []byte, i int) int {
	for from := i; len(b)-i >= word; {
		if found := special(binary.LittleEndian.Uint64(b[i:])); found != 0 {
			return i + first(found)
		}
		if i += word; i-from == long {
			i += stretch(b[i:])
			from = i
		}
	}
	return i
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func literal(b []byte, i int, w string) (int, error) {
	if !bytes.HasPrefix(b[i:], []byte(w)) {
		return i, &SyntaxError{i, w}
	}
	return i + len(w), nil
}

func number(b []byte, i int) (int, error) {
	digits := func() bool {
		start := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return i, &SyntaxError{i, "a digit"}
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return i, &SyntaxError{i, "a digit"}
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return i, &SyntaxError{i, "a digit"}
		}
	}
	return i, nil
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns the end of the value at i, trusting its syntax.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	default:
		for i < len(b) && !bytes.ContainsRune([]byte(",]} \n\t\r"), rune(b[i])) {
			i++
		}
		return i
	}
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		// The quote ends the string unless an odd number of backslashes stands
		// before it. Inside the string there is no other way to a quote.
		escapes := 0
		for i-escapes > 0 && b[i-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
	return len(b)
}

// Members yields the members of an object in order: the key decoded, the value
// as it stands. Anything but an object yields nothing.
func Members(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for k, v := range spans(raw, '{') {
			if !yield(keyOf(raw[k.start:k.end]), raw[v.start:v.end]) {
				return
			}
		}
	}
}

// common are the keys of which a conversation has one or more a message, and a
// stream one or more an event: they cost no memory each time they are read.
var common = func() map[string]string {
	m := map[string]string{}
	for _, k := range []string{
		"role", "content", "type", "text", "tool_calls", "calls", "id", "function", "name", "arguments",
		"tool_call_id", "call_id", "model_id", "reasoning", "reasoning_content", "is_error", "output", "input",
		"tool_use_id", "thinking", "signature", "cache_control", "summary", "status", "annotations", "index",
		"choices", "delta", "finish_reason", "object", "created", "model", "usage", "logprobs", "message", "messages",
	} {
		m[k] = k
	}
	return m
}()

func keyOf(raw []byte) string {
	if len(raw) >= 2 {
		if k, ok := common[string(raw[1:len(raw)-1])]; ok {
			return k
		}
	}
	return Text(raw)
}

// isKey reports whether raw, as it stands in an object, is a key.
func isKey(raw []byte, key string) bool {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return len(raw) == len(key)+2 && string(raw[1:len(raw)-1]) == key
	}
	return Text(raw) == key
}

// Elements yields the elements of an array in order. Anything but an array
// yields nothing.
func Elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, v := range spans(raw, '[') {
			if !yield(raw[v.start:v.end]) {
				return
			}
		}
	}
}

type span struct{ start, end int }

// spans yields the key and value spans of the composite value that opens with
// the given bracket; the keys of an array are empty.
func spans(raw []byte, open byte) iter.Seq2[span, span] {
	return func(yield func(span, span) bool) {
		i := space(raw, 0)
		if i >= len(raw) || raw[i] != open {
			return
		}
		i = space(raw, i+1)
		for i < len(raw) && raw[i] != open+2 {
			var k, v span
			if open == '{' {
				k = span{i, skip(raw, i)}
				i = space(raw, k.end)
				if i >= len(raw) || raw[i] != ':' {
					return
				}
				i = space(raw, i+1)
			}
			v = span{i, skip(raw, i)}
			if v.end == v.start || !yield(k, v) {
				return
			}
			if i = space(raw, v.end); i < len(raw) && raw[i] == ',' {
				i = space(raw, i+1)
			}
		}
	}
}

// Get returns the value of a key of an object: the last one where the key is
// repeated, as encoding/json has it.
func Get(raw []byte, key string) (value []byte, ok bool) {
	for k, v := range spans(raw, '{') {
		if isKey(raw[k.start:k.end], key) {
			value, ok = raw[v.start:v.end], true
		}
	}
	return value, ok
}

// Set is one change that Splice makes. A nil value removes the key.
type Set struct {
	Key   string
	Value []byte
}

// Splice appends raw to dst with members of its object replaced, added or
// removed. Every byte that does not belong to a changed member stays. Of a
// repeated key all members are changed. If raw is no object it is appended as
// it is.
func Splice(dst, raw []byte, sets ...Set) []byte {
	end := bytes.LastIndexByte(raw, '}')
	if KindOf(raw) != Object || end < 0 {
		return append(dst, raw...)
	}
	open := space(raw, 0)
	dst = append(dst, raw[:open+1]...)
	at, members := open+1, 0 // copied so far; members written
	found := make([]bool, len(sets))
	for k, v := range spans(raw, '{') {
		start := k.start
		n := -1
		for i := range sets {
			if isKey(raw[k.start:k.end], sets[i].Key) {
				n = i
			}
		}
		switch {
		case n < 0:
			dst = appendMember(dst, raw[at:start], members > 0)
			dst = append(dst, raw[start:v.end]...)
			members++
		case sets[n].Value == nil:
			found[n] = true
		default:
			found[n] = true
			dst = appendMember(dst, raw[at:start], members > 0)
			dst = append(append(dst, raw[start:v.start]...), sets[n].Value...)
			members++
		}
		at = v.end
	}
	for i, s := range sets {
		if found[i] || s.Value == nil {
			continue
		}
		if members > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(AppendText(dst, s.Key), ':'), s.Value...)
		members++
	}
	// What is left between the last member and the brace is space; a comma
	// there belonged to a member that is gone.
	return append(dst, raw[max(at, open+1):]...)
}

// appendMember writes what stood before a member, with exactly one comma if
// the member is not the first.
func appendMember(dst, gap []byte, comma bool) []byte {
	has := bytes.IndexByte(gap, ',')
	switch {
	case comma && has < 0:
		dst = append(dst, ',')
	case !comma && has >= 0:
		return append(append(dst, gap[:has]...), gap[has+1:]...)
	}
	return append(dst, gap...)
}
