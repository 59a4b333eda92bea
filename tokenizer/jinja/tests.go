package jinja

import "math/big"

// testFunc is a test: v is name(args).
type testFunc func(m *machine, v Value, args []Value) bool

// tests are jinja2's. Set in init, since the test "test" looks others up.
var tests map[string]testFunc

func init() {
	is := func(f func(v Value) bool) testFunc {
		return func(_ *machine, v Value, _ []Value) bool { return f(v) }
	}
	compare := func(op operator) testFunc {
		return func(m *machine, v Value, args []Value) bool {
			if len(args) != 1 {
				raise("TypeError", "a comparing test needs one argument")
			}
			return m.compare(op, v, args[0])
		}
	}
	tests = map[string]testFunc{
		"defined":   is(func(v Value) bool { return !isUndefined(v) }),
		"undefined": is(isUndefined),
		"none":      is(func(v Value) bool { return v == nil }),
		"boolean":   is(func(v Value) bool { _, ok := v.(bool); return ok }),
		"true":      is(func(v Value) bool { b, ok := v.(bool); return ok && b }),
		"false":     is(func(v Value) bool { b, ok := v.(bool); return ok && !b }),
		"integer":   is(isInteger),
		"float":     is(func(v Value) bool { _, ok := v.(float64); return ok }),
		"number":    is(func(v Value) bool { _, ok := asNumber(v); return ok }),
		"string":    is(func(v Value) bool { _, ok := text(v); return ok }),
		"mapping":   is(func(v Value) bool { _, ok := v.(*Dict); return ok }),
		"iterable":  is(isIterable),
		"sequence":  is(isSequence),
		"callable":  is(isCallable),
		"escaped":   is(func(v Value) bool { _, ok := v.(markup); return ok }),

		"eq": compare(opEqual), "equalto": compare(opEqual), "==": compare(opEqual),
		"ne": compare(opNotEqual), "!=": compare(opNotEqual),
		"lt": compare(opLess), "lessthan": compare(opLess), "<": compare(opLess),
		"le": compare(opLessEqual), "<=": compare(opLessEqual),
		"gt": compare(opGreater), "greaterthan": compare(opGreater), ">": compare(opGreater),
		"ge": compare(opGreaterEqual), ">=": compare(opGreaterEqual),
		"in": compare(opIn),

		"sameas": func(m *machine, v Value, args []Value) bool {
			return typeName(v) == typeName(first(args)) && m.equal(v, args[0])
		},
		"odd":         func(m *machine, v Value, _ []Value) bool { return !m.divisible(v, int64(2)) },
		"even":        func(m *machine, v Value, _ []Value) bool { return m.divisible(v, int64(2)) },
		"divisibleby": func(m *machine, v Value, args []Value) bool { return m.divisible(v, first(args)) },
		"lower":       func(m *machine, v Value, _ []Value) bool { return isLower(m.str(v)) },
		"upper":       func(m *machine, v Value, _ []Value) bool { return isUpper(m.str(v)) },
		"filter":      func(m *machine, v Value, _ []Value) bool { return filters[m.str(v)] != nil },
		"test":        func(m *machine, v Value, _ []Value) bool { return tests[m.str(v)] != nil },
	}
}

func isInteger(v Value) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isIterable(v Value) bool {
	switch v.(type) {
	case *undefinedType, string, markup, Tuple, *List, *Dict, *dictView, *generator, *rangeValue, *loop:
		return true
	}
	return false
}

func isSequence(v Value) bool {
	switch v.(type) {
	case *undefinedType, string, markup, Tuple, *List, *Dict, *rangeValue:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *macro, Func, *builtin, *boundMethod, *undefinedType, *joiner:
		return true
	}
	return false
}

func (m *machine) divisible(v, by Value) bool {
	return m.equal(m.binary(opMod, v, by), int64(0))
}
