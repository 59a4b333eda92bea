package jinja

// valueDepth bounds recursion over nested values. Python stops at about the
// same place with a RecursionError.
const valueDepth = 1000

// equal is Python's ==.
func (m *machine) equal(a, b Value) bool { return m.equalAt(a, b, 0) }

func (m *machine) equalAt(a, b Value, depth int) bool {
	m.step()
	if depth > valueDepth {
		exceeded(ErrDepth)
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		if len(x) == len(y) {
			m.scan(len(x))
		}
		return ok && x == y
	}
	switch x := a.(type) {
	case Tuple:
		y, ok := b.(Tuple)
		return ok && m.equalItems(x, y, depth+1)
	case *List:
		y, ok := b.(*List)
		return ok && m.equalItems(x.items, y.items, depth+1)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for i, k := range x.keys {
			v, ok := m.get(y, k)
			if !ok || !m.equalAt(x.vals[i], v, depth+1) {
				return false
			}
		}
		return true
	case *rangeValue:
		y, ok := b.(*rangeValue)
		n := x.len()
		return ok && n == y.len() && (n == 0 || x.start == y.start && (n == 1 || x.step == y.step))
	case *dictView:
		y, ok := b.(*dictView)
		if !ok || x.kind == viewValues || y.kind == viewValues {
			return a == b
		}
		return m.equalViews(x, y, depth)
	case Func:
		return false // functions compare by identity, which Go does not offer
	}
	if x, ok := asNumber(a); ok {
		y, ok := asNumber(b)
		if !ok {
			return false
		}
		order, ordered := compareNumbers(x, y)
		return ordered && order == 0
	}
	switch b.(type) {
	case Func, Tuple:
		return false
	}
	return a == b
}

// equalViews compares keys or items as Python does: as sets.
func (m *machine) equalViews(a, b *dictView, depth int) bool {
	if a.kind != b.kind || a.dict.Len() != b.dict.Len() {
		return false
	}
	for i, k := range a.dict.keys {
		v, ok := m.get(b.dict, k)
		if !ok || a.kind == viewItems && !m.equalAt(a.dict.vals[i], v, depth+1) {
			return false
		}
	}
	return true
}

func (m *machine) equalItems(a, b []Value, depth int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !m.equalAt(a[i], b[i], depth) {
			return false
		}
	}
	return true
}

// less is Python's <. It raises on types without an order.
func (m *machine) less(a, b Value) bool { return m.lessAt(a, b, 0) }

func (m *machine) lessAt(a, b Value, depth int) bool {
	m.step()
	if depth > valueDepth {
		exceeded(ErrDepth)
	}
	if x, ok := text(a); ok {
		if y, ok := text(b); ok {
			m.scan(min(len(x), len(y)))
			return x < y // the order of UTF-8 is the order of code points
		}
	}
	if x, ok := asNumber(a); ok {
		if y, ok := asNumber(b); ok {
			order, ordered := compareNumbers(x, y)
			return ordered && order < 0
		}
	}
	switch x := a.(type) {
	case Tuple:
		if y, ok := b.(Tuple); ok {
			return m.lessItems(x, y, depth+1)
		}
	case *List:
		if y, ok := b.(*List); ok {
			return m.lessItems(x.items, y.items, depth+1)
		}
	}
	if isUndefined(a) || isUndefined(b) {
		raise("UndefinedError", "an undefined value has no order")
	}
	raise("TypeError", "'<' not supported between instances of '%s' and '%s'", typeName(a), typeName(b))
	return false
}

func (m *machine) lessItems(a, b []Value, depth int) bool {
	for i := range a {
		if i >= len(b) {
			return false
		}
		if !m.equalAt(a[i], b[i], depth) {
			return m.lessAt(a[i], b[i], depth)
		}
	}
	return len(a) < len(b)
}

// lessOrEqual is Python's <=.
func (m *machine) lessOrEqual(a, b Value) bool { return m.less(a, b) || m.equal(a, b) }
