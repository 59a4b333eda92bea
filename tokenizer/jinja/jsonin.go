package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonDepth is how deep FromJSON lets arrays and objects nest.
const jsonDepth = 500

// FromJSON decodes one JSON value as Python's json.loads does: the order of
// keys is kept, integers of any size stay integers, numbers with a fraction or
// an exponent become floats, of equal keys the last value wins. Unlike Python,
// it refuses NaN and Infinity, which are not JSON, and reads a surrogate
// escape without its partner as U+FFFD.
func FromJSON(data []byte) (Value, error) {
	d := jsonDecoder{s: string(data)}
	v, err := d.value(0)
	if err == nil {
		if d.space(); d.i != len(d.s) {
			err = errors.New("more text after the value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("jinja: json: offset %d: %w", d.i, err)
	}
	return v, nil
}

// jsonDecoder reads from s, a copy that the strings of the result share.
type jsonDecoder struct {
	s string
	i int
}

func (d *jsonDecoder) space() {
	for d.i < len(d.s) {
		switch d.s[d.i] {
		case ' ', '\t', '\n', '\r':
			d.i++
		default:
			return
		}
	}
}

// skip consumes c, after white space.
func (d *jsonDecoder) skip(c byte) bool {
	d.space()
	if d.i < len(d.s) && d.s[d.i] == c {
		d.i++
		return true
	}
	return false
}

func (d *jsonDecoder) value(depth int) (Value, error) {
	if depth > jsonDepth {
		return nil, ErrDepth
	}
	d.space()
	if d.i >= len(d.s) {
		return nil, errors.New("unexpected end")
	}
	switch c := d.s[d.i]; {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		return d.str()
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	}
	for _, lit := range [...]struct {
		word  string
		value Value
	}{{"null", nil}, {"true", true}, {"false", false}} {
		if len(d.s)-d.i >= len(lit.word) && d.s[d.i:d.i+len(lit.word)] == lit.word {
			d.i += len(lit.word)
			return lit.value, nil
		}
	}
	return nil, fmt.Errorf("unexpected %q", d.s[d.i])
}

func (d *jsonDecoder) object(depth int) (Value, error) {
	d.i++
	dict := NewDict(4)
	if d.skip('}') {
		return dict, nil
	}
	for {
		if d.space(); d.i >= len(d.s) || d.s[d.i] != '"' {
			return nil, errors.New("expected a key")
		}
		k, err := d.str()
		if err != nil {
			return nil, err
		}
		if !d.skip(':') {
			return nil, errors.New("expected ':'")
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		dict.Set(k, v)
		if d.skip('}') {
			return dict, nil
		}
		if !d.skip(',') {
			return nil, errors.New("expected ',' or '}'")
		}
	}
}

func (d *jsonDecoder) array(depth int) (Value, error) {
	d.i++
	list := &List{}
	if d.skip(']') {
		return list, nil
	}
	for {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, v)
		if d.skip(']') {
			return list, nil
		}
		if !d.skip(',') {
			return nil, errors.New("expected ',' or ']'")
		}
	}
}

// str reads a string at its opening quote. Without escapes it is a slice of
// the input.
func (d *jsonDecoder) str() (string, error) {
	d.i++
	start := d.i
	for d.i < len(d.s) {
		switch c := d.s[d.i]; {
		case c == '"':
			s := d.s[start:d.i]
			d.i++
			return validText(s), nil
		case c == '\\':
			return d.escaped(start)
		case c < 0x20:
			return "", errors.New("control character in a string")
		default:
			d.i++
		}
	}
	return "", errors.New("unterminated string")
}

// escaped goes on from the first backslash.
func (d *jsonDecoder) escaped(start int) (string, error) {
	b := append(make([]byte, 0, d.i-start+32), d.s[start:d.i]...)
	for d.i < len(d.s) {
		c := d.s[d.i]
		switch {
		case c == '"':
			d.i++
			return validText(string(b)), nil
		case c < 0x20:
			return "", errors.New("control character in a string")
		case c != '\\':
			b = append(b, c)
			d.i++
			continue
		}
		if d.i+1 >= len(d.s) {
			break
		}
		c = d.s[d.i+1]
		d.i += 2
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, err := d.hex4()
			if err != nil {
				return "", err
			}
			if utf16.IsSurrogate(r) && d.i+1 < len(d.s) && d.s[d.i] == '\\' && d.s[d.i+1] == 'u' {
				at := d.i
				d.i += 2
				low, err := d.hex4()
				if err != nil {
					return "", err
				}
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					r = pair
				} else {
					d.i = at // the second escape stands for itself
				}
			}
			b = utf8.AppendRune(b, r) // a lone surrogate becomes U+FFFD
		default:
			return "", fmt.Errorf("unknown escape \\%c", c)
		}
	}
	return "", errors.New("unterminated string")
}

func (d *jsonDecoder) hex4() (rune, error) {
	if d.i+4 > len(d.s) {
		return 0, errors.New("short \\u escape")
	}
	v, err := strconv.ParseUint(d.s[d.i:d.i+4], 16, 16)
	if err != nil {
		return 0, errors.New("bad \\u escape")
	}
	d.i += 4
	return rune(v), nil
}

// validText replaces invalid UTF-8; most text is valid and not copied.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func (d *jsonDecoder) number() (Value, error) {
	start := d.i
	if d.s[d.i] == '-' {
		d.i++
	}
	whole := d.digits()
	if whole == 0 || whole > 1 && d.s[d.i-whole] == '0' {
		return nil, errors.New("bad number")
	}
	isFloat := false
	if d.i < len(d.s) && d.s[d.i] == '.' {
		d.i++
		isFloat = true
		if d.digits() == 0 {
			return nil, errors.New("bad number")
		}
	}
	if d.i < len(d.s) && d.s[d.i]|0x20 == 'e' {
		d.i++
		isFloat = true
		if d.i < len(d.s) && (d.s[d.i] == '+' || d.s[d.i] == '-') {
			d.i++
		}
		if d.digits() == 0 {
			return nil, errors.New("bad number")
		}
	}
	s := d.s[start:d.i]
	if isFloat {
		f, _ := strconv.ParseFloat(s, 64) // out of range gives an infinity, as in Python
		return f, nil
	}
	if len(s) < 19 {
		i, err := strconv.ParseInt(s, 10, 64)
		return i, err
	}
	v, ok := parseInt(s, 10)
	if !ok {
		return nil, fmt.Errorf("an integer of more than %d digits", maxIntDigits)
	}
	return v, nil
}

func (d *jsonDecoder) digits() int {
	start := d.i
	for d.i < len(d.s) && d.s[d.i] >= '0' && d.s[d.i] <= '9' {
		d.i++
	}
	return d.i - start
}
