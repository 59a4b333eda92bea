package jinja

import "slices"

// Reading the arguments of filters, tests, methods and global functions.

// arg is argument i, or the keyword of that name, or def. An i of -1 is a
// keyword only.
func arg(args []Value, kw []kwarg, i int, name string, def Value) Value {
	if i >= 0 && i < len(args) {
		return args[i]
	}
	if v, ok := keyword(kw, name); ok {
		return v
	}
	return def
}

// accept raises what Python raises of arguments that do not fit params, the
// first of which, as many as needs says, have no default.
func accept(name string, params []string, needs int, args []Value, kw []kwarg) {
	if len(args) > len(params) {
		raise("TypeError", "%s takes at most %d arguments, got %d", name, len(params), len(args))
	}
	for _, k := range kw {
		if i := slices.Index(params, k.name); i < len(args) { // unknown, or given already
			raise("TypeError", "%s got an unexpected keyword argument '%s'", name, k.name)
		}
	}
	for _, param := range params[min(len(args), needs):needs] {
		if _, ok := keyword(kw, param); !ok {
			raise("TypeError", "%s needs the argument '%s'", name, param)
		}
	}
}

// first is the one argument that a method cannot do without.
func first(args []Value) Value {
	if len(args) == 0 {
		raise("TypeError", "expected at least 1 argument, got 0")
	}
	return args[0]
}

func needInt(v Value) int64 {
	n, ok := asNumber(v)
	if !ok || n.isFloat {
		raise("TypeError", "'%s' object cannot be interpreted as an integer", typeName(v))
	}
	if n.big != nil {
		raise("OverflowError", "Python int too large to convert to C ssize_t")
	}
	return n.i
}

func needText(v Value) string {
	s, ok := text(v)
	if !ok {
		raise("TypeError", "expected a str, got '%s'", typeName(v))
	}
	return s
}
