package jinja

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
