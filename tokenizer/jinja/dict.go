package jinja

import (
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// Dict is a Python dict: it keeps the order of insertion, and numbers that
// are equal are one key (1, 1.0 and True).
type Dict struct {
	keys, vals []Value
	index      map[key]int // built when the dict outgrows a linear search
}

// linearSearch is the size up to which comparing keys one by one is faster
// than a map.
const linearSearch = 8

// key is a dict key in comparable form.
type key struct {
	kind keyKind
	s    string
	bits uint64
}

type keyKind uint8

const (
	keyIdentity keyKind = iota
	keyString
	keyInt
	keyFloat
	keyBig
	keyNone
	keyTuple
)

// NewDict makes an empty dict with room for n entries.
func NewDict(n int) *Dict {
	return &Dict{keys: make([]Value, 0, n), vals: make([]Value, 0, n)}
}

// Len is the number of entries.
func (d *Dict) Len() int { return len(d.keys) }

// Get returns the value at a string key.
func (d *Dict) Get(name string) (Value, bool) {
	if i := d.findText(name); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

// findText is find of a string.
func (d *Dict) findText(name string) int {
	if d.index != nil {
		return d.find(key{kind: keyString, s: name})
	}
	for i, k := range d.keys {
		if s, ok := k.(string); ok && s == name {
			return i
		}
	}
	return -1
}

// Set puts a value at a string key: in its place if the key exists, else at
// the end. A dict that a render may be reading must not be changed.
func (d *Dict) Set(name string, v Value) { d.put(name, key{kind: keyString, s: name}, v) }

// Clone copies the dict, not its values.
func (d *Dict) Clone() *Dict {
	c := NewDict(len(d.keys))
	for i, k := range d.keys {
		c.put(k, mustKey(k), d.vals[i])
	}
	return c
}

// Keys returns the string keys in order.
func (d *Dict) Keys() []string {
	names := make([]string, 0, len(d.keys))
	for _, k := range d.keys {
		if s, ok := k.(string); ok {
			names = append(names, s)
		}
	}
	return names
}

func (d *Dict) find(k key) int {
	if d.index != nil {
		if i, ok := d.index[k]; ok {
			return i
		}
		return -1
	}
	for i, x := range d.keys {
		if s, ok := x.(string); ok {
			if k.kind == keyString && s == k.s {
				return i
			}
		} else if k.kind != keyString && mustKey(x) == k {
			return i
		}
	}
	return -1
}

func (d *Dict) put(k Value, id key, v Value) {
	if i := d.find(id); i >= 0 {
		d.vals[i] = v
		return
	}
	if s, ok := k.(markup); ok {
		k = string(s)
	}
	d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	switch n := len(d.keys); {
	case d.index != nil:
		d.index[id] = n - 1
	case n > linearSearch:
		d.index = make(map[key]int, 2*n)
		for i, x := range d.keys {
			d.index[mustKey(x)] = i
		}
	}
}

// key is mustKey within the budget: a tuple of tuples may be far larger than
// what it is made of.
func (m *machine) key(v Value) key {
	m.chargeKey(v, 0)
	return mustKey(v)
}

func (m *machine) chargeKey(v Value, depth int) {
	switch v := v.(type) {
	case string:
		m.scan(len(v))
	case *big.Int:
		m.scan(v.BitLen())
	case Tuple:
		if depth > valueDepth {
			exceeded(ErrDepth)
		}
		// A dict without an index makes the keys of all its entries.
		m.use(len(v) * 2 * linearSearch * valueSize)
		for _, x := range v {
			m.step()
			m.chargeKey(x, depth+1)
		}
	}
}

// get is d[k] for any key; it raises on keys that Python cannot hash.
func (m *machine) get(d *Dict, k Value) (Value, bool) {
	if s, ok := k.(string); ok {
		m.scan(len(s))
		return d.Get(s)
	}
	if i := d.find(m.key(k)); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

func (m *machine) put(d *Dict, k, v Value) { d.put(k, m.key(k), v) }

// mustKey makes the comparable form of a key. Equal Python values give equal
// keys.
func mustKey(v Value) key {
	switch v := v.(type) {
	case string:
		return key{kind: keyString, s: v}
	case markup:
		return key{kind: keyString, s: string(v)}
	case nil:
		return key{kind: keyNone}
	case bool:
		if v {
			return key{kind: keyInt, bits: 1}
		}
		return key{kind: keyInt}
	case int64:
		return key{kind: keyInt, bits: uint64(v)}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return key{kind: keyInt, bits: uint64(int64(v))}
		}
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			i, _ := big.NewFloat(v).Int(nil)
			return mustKey(normalInt(i))
		}
		return key{kind: keyFloat, bits: math.Float64bits(v)}
	case *big.Int:
		return key{kind: keyBig, s: string(v.Append(nil, 62))}
	case Tuple:
		var b strings.Builder
		for _, x := range v {
			k := mustKey(x)
			b.WriteByte(byte(k.kind))
			b.WriteString(strconv.FormatUint(k.bits, 16))
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(len(k.s)))
			b.WriteByte(':')
			b.WriteString(k.s)
		}
		return key{kind: keyTuple, s: b.String()}
	case *List, *Dict, *dictView, Func:
		raise("TypeError", "unhashable type: '%s'", typeName(v))
	}
	// Everything else, undefined included, is a key by identity.
	return key{kind: keyIdentity, bits: uint64(reflect.ValueOf(v).Pointer())}
}
