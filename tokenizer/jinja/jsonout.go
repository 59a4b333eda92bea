package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// jsonFormat holds the arguments of json.dumps that |tojson passes on.
type jsonFormat struct {
	ascii, sortKeys bool
	pretty          bool // indent was given
	indent          string
	item, key       string // separators
}

// json writes v as Python's json.dumps does.
func (w textWriter) json(v Value, f *jsonFormat, depth int) {
	w.m.step()
	if depth > valueDepth {
		exceeded(ErrDepth)
	}
	switch v := v.(type) {
	case nil:
		w.write("null")
	case bool:
		w.write(strconv.FormatBool(v))
	case int64:
		w.write(strconv.FormatInt(v, 10))
	case *big.Int:
		w.m.scan(number{big: v}.words() * number{big: v}.words())
		w.write(bigText(v))
	case float64:
		w.write(jsonFloat(v))
	case string:
		w.jsonString(v, f.ascii)
	case markup:
		w.jsonString(string(v), f.ascii)
	case Tuple:
		w.jsonArray(v, f, depth)
	case *List:
		w.jsonArray(v.items, f, depth)
	case *Dict:
		w.jsonObject(v, f, depth)
	default:
		raise("TypeError", "Object of type %s is not JSON serializable", typeName(v))
	}
}

func (w textWriter) newline(f *jsonFormat, depth int) {
	if !f.pretty {
		return
	}
	w.write("\n")
	for range depth {
		w.write(f.indent)
	}
}

func (w textWriter) jsonArray(items []Value, f *jsonFormat, depth int) {
	if len(items) == 0 {
		w.write("[]")
		return
	}
	w.write("[")
	for i, x := range items {
		if i > 0 {
			w.write(f.item)
		}
		w.newline(f, depth+1)
		w.json(x, f, depth+1)
	}
	w.newline(f, depth)
	w.write("]")
}

func (w textWriter) jsonObject(d *Dict, f *jsonFormat, depth int) {
	if d.Len() == 0 {
		w.write("{}")
		return
	}
	w.write("{")
	if !f.sortKeys {
		for i := range d.keys {
			w.jsonMember(d, i, i == 0, f, depth)
		}
	} else {
		order := make([]int, d.Len())
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case w.m.less(d.keys[i], d.keys[j]):
				return -1
			case w.m.less(d.keys[j], d.keys[i]):
				return 1
			}
			return 0
		})
		for n, i := range order {
			w.jsonMember(d, i, n == 0, f, depth)
		}
	}
	w.newline(f, depth)
	w.write("}")
}

func (w textWriter) jsonMember(d *Dict, i int, first bool, f *jsonFormat, depth int) {
	if !first {
		w.write(f.item)
	}
	w.newline(f, depth+1)
	switch k := d.keys[i].(type) {
	case string:
		w.jsonString(k, f.ascii)
	case nil:
		w.write(`"null"`)
	case bool:
		w.write(`"` + strconv.FormatBool(k) + `"`)
	case int64:
		w.write(`"` + strconv.FormatInt(k, 10) + `"`)
	case float64:
		w.write(`"` + jsonFloat(k) + `"`)
	case *big.Int:
		w.write(`"` + bigText(k) + `"`)
	default:
		raise("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(k))
	}
	w.write(f.key)
	w.json(d.vals[i], f, depth+1)
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatText(f)
}

// shortEscapes are the characters with an escape of one letter.
var shortEscapes = [utf8.RuneSelf]byte{
	'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f',
}

// jsonEscaped are the bytes at which an escape begins: with and without
// ensure_ascii.
var jsonEscaped, jsonEscapedASCII = func() (some, all [256]bool) {
	for c := range 256 {
		some[c] = c < ' ' || c == '"' || c == '\\'
		all[c] = some[c] || c >= 0x7f
	}
	return some, all
}()

func (w textWriter) jsonString(s string, ascii bool) {
	w.m.use(len(s) + 2)
	escaped := &jsonEscaped
	if ascii {
		escaped = &jsonEscapedASCII
	}
	out := append(w.m.out, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !escaped[c] {
			continue
		}
		out = append(out, s[start:i]...)
		if c < utf8.RuneSelf && shortEscapes[c] != 0 {
			out = append(out, '\\', shortEscapes[c])
		} else {
			r, size := utf8.DecodeRuneInString(s[i:])
			out = appendUnicodeEscape(out, r)
			i += size - 1
		}
		start = i + 1
	}
	w.m.out = append(append(out, s[start:]...), '"')
}

func appendUnicodeEscape(out []byte, r rune) []byte {
	if r >= 0x10000 {
		r -= 0x10000
		return fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}
