package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// Value is what a template computes with. Its dynamic type is one of
//
//	nil                  None
//	bool                 bool
//	int64, *big.Int      int (a *big.Int only beyond the range of int64)
//	float64              float
//	string               str
//	*List, Tuple, *Dict  list, tuple, dict
//	Func                 a function of the host
//
// and, inside a render, types that a host never sees: undefined, Markup,
// generators, namespaces, macros.
//
// A render never changes the values that it is given, so one value may be
// used by any number of renders at once.
type Value = any

type (
	// List is a Python list.
	List struct{ items []Value }
	// Tuple is a Python tuple.
	Tuple []Value
	// Func is a function of the host that a template may call, such as
	// strftime_now. Its error ends the render.
	Func func(args []Value) (Value, error)
)

// NewList makes a list of items, which it keeps.
func NewList(items ...Value) *List { return &List{items} }

// Len is the number of items.
func (l *List) Len() int { return len(l.items) }

// At is item i, counted from 0.
func (l *List) At(i int) Value { return l.items[i] }

// newGroup makes a tuple of two whose items are also called grouper and list, as
// |groupby makes them. It is marked behind its end, for it is like any other
// tuple but for these names.
func newGroup(grouper Value, list *List) Tuple { return Tuple{grouper, list, unset}[:2] }

func (t Tuple) isGroup() bool { return len(t) == 2 && cap(t) == 3 && t[:3][2] == unset }

type (
	undefinedType struct{}
	// markup is text that |safe marked: adding a plain string escapes it.
	markup    string
	namespace struct{ vars Dict }
	// generator is what select, map, items and others return: always true,
	// without a length, empty after the first use.
	generator struct {
		items []Value
		next  int
		dict  *Dict // what |items has not been asked for yet, instead of items
	}
	rangeValue struct{ start, stop, step int64 }
	// dictView is the result of keys(), values() or items().
	dictView struct {
		kind viewKind
		dict *Dict
	}
	// boundMethod is a method read as a value: {{ d.items }}.
	boundMethod struct {
		name string
		recv Value
	}
	// builtin is a function that the engine itself provides.
	builtin struct {
		name string
		call func(m *machine, args []Value, kw []kwarg) Value
	}
	kwarg struct {
		name  string
		value Value
	}
)

type viewKind uint8

const (
	viewKeys viewKind = iota
	viewValues
	viewItems
)

// undefined is the one value of undefinedType: a variable that was never set.
var undefined Value = &undefinedType{}

func isUndefined(v Value) bool { return v == undefined }

func typeName(v Value) string {
	switch v.(type) {
	case nil:
		return "NoneType"
	case *undefinedType:
		return "Undefined"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case Tuple:
		return "tuple"
	case *List:
		return "list"
	case *Dict:
		return "dict"
	case *generator:
		return "generator"
	case *rangeValue:
		return "range"
	case *dictView:
		return "dict view"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	case Func, *builtin:
		return "function"
	case *boundMethod:
		return "builtin_function_or_method"
	}
	return fmt.Sprintf("%T", v)
}

func truthy(v Value) bool {
	switch v := v.(type) {
	case nil, *undefinedType:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case Tuple:
		return len(v) > 0
	case *List:
		return len(v.items) > 0
	case *Dict:
		return v.Len() > 0
	case *dictView:
		return v.dict.Len() > 0
	case *rangeValue:
		return v.len() > 0
	}
	return true
}

// text returns the characters of a str or Markup.
func text(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// likeText gives s the string type of v: most filters keep Markup.
func likeText(v Value, s string) Value {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

func (r *rangeValue) len() int64 {
	// The distance of two int64 may need 64 bits: count unsigned, and cap.
	var n uint64
	switch {
	case r.step > 0 && r.start < r.stop:
		n = (uint64(r.stop)-uint64(r.start)-1)/uint64(r.step) + 1
	case r.step < 0 && r.start > r.stop:
		n = (uint64(r.start)-uint64(r.stop)-1)/-uint64(r.step) + 1
	}
	return int64(min(n, math.MaxInt64))
}

// slice is r[start:stop:step], which is a range again.
func (r *rangeValue) slice(start, stop *int64, step int64) *rangeValue {
	from, to := sliceBounds(r.len(), start, stop, step)
	return &rangeValue{r.start + from*r.step, r.start + to*r.step, r.step * step}
}

func (r *rangeValue) at(i int64) Value { return r.start + i*r.step }

func (v *dictView) items() []Value {
	switch v.kind {
	case viewKeys:
		return v.dict.keys
	case viewValues:
		return v.dict.vals
	}
	pairs := make([]Value, v.dict.Len())
	flat := make([]Value, 0, 2*len(pairs)) // one allocation for all pairs
	for i, k := range v.dict.keys {
		flat = append(flat, k, v.dict.vals[i])
		pairs[i] = Tuple(flat[2*i : 2*i+2 : 2*i+2])
	}
	return pairs
}

// iterate returns the items that a for loop over v visits. The result is
// shared with v and must not be changed.
func (m *machine) iterate(v Value) []Value {
	switch v := v.(type) {
	case *undefinedType:
		return nil
	case Tuple:
		return v
	case *List:
		return v.items
	case *Dict:
		return v.keys
	case *dictView:
		m.use(v.dict.Len() * valueSize)
		return v.items()
	case *generator:
		if v.dict != nil {
			m.use(v.dict.Len() * valueSize)
			v.items, v.dict = (&dictView{viewItems, v.dict}).items(), nil
		}
		rest := v.items[v.next:]
		v.next = len(v.items)
		return rest
	case *rangeValue:
		n := v.len()
		m.use(int(n) * valueSize)
		items := make([]Value, n)
		for i := range items {
			items[i] = v.at(int64(i))
		}
		return items
	}
	if s, ok := text(v); ok {
		return m.characters(s)
	}
	raise("TypeError", "'%s' object is not iterable", typeName(v))
	return nil
}

func (m *machine) characters(s string) []Value {
	n := utf8.RuneCountInString(s)
	m.use(n * valueSize)
	items := make([]Value, 0, n)
	for i := 0; i < len(s); {
		_, w := utf8.DecodeRuneInString(s[i:])
		items = append(items, s[i:i+w])
		i += w
	}
	return items
}

func length(v Value) int64 {
	switch v := v.(type) {
	case *undefinedType:
		return 0
	case Tuple:
		return int64(len(v))
	case *List:
		return int64(len(v.items))
	case *Dict:
		return int64(v.Len())
	case *dictView:
		return int64(v.dict.Len())
	case *rangeValue:
		return v.len()
	case *loop:
		return int64(v.n)
	}
	if s, ok := text(v); ok {
		return int64(utf8.RuneCountInString(s))
	}
	raise("TypeError", "object of type '%s' has no len()", typeName(v))
	return 0
}

// contains is Python's "x in c".
func (m *machine) contains(c, x Value) bool {
	if s, ok := text(c); ok {
		sub, ok := text(x)
		if !ok {
			raise("TypeError", "'in <string>' requires string as left operand, not %s", typeName(x))
		}
		m.scan(len(s))
		return strings.Contains(s, sub)
	}
	switch c := c.(type) {
	case *Dict:
		if s, ok := x.(string); ok {
			return c.findText(s) >= 0
		}
		return c.find(m.key(x)) >= 0
	case *namespace, *loop, Func, *builtin, *boundMethod, *macro, bool, int64, float64, *big.Int, nil:
		raise("TypeError", "argument of type '%s' is not iterable", typeName(c))
	}
	for _, y := range m.iterate(c) {
		if m.equal(x, y) {
			return true
		}
	}
	return false
}
