package jinja

// globals are the functions that every template has. strftime_now is not one
// of them: the host passes it as a variable, with the time of its choice.
var globals = map[string]func(m *machine, args []Value, kw []kwarg) Value{
	"range":           globalRange,
	"namespace":       globalNamespace,
	"dict":            globalDict,
	"cycler":          globalCycler,
	"joiner":          globalJoiner,
	"raise_exception": globalRaise,
	"lipsum": func(*machine, []Value, []kwarg) Value {
		raise("TypeError", "lipsum() is not supported: its text is random")
		return nil
	},
}

// maxRange is the sandbox's limit on range().
const maxRange = 100_000

func globalRange(_ *machine, args []Value, _ []kwarg) Value {
	r := &rangeValue{step: 1}
	switch len(args) {
	case 1:
		r.stop = needInt(args[0])
	case 2, 3:
		r.start, r.stop = needInt(args[0]), needInt(args[1])
		if len(args) == 3 {
			r.step = needInt(args[2])
		}
	default:
		raise("TypeError", "range expected 1 to 3 arguments, got %d", len(args))
	}
	if r.step == 0 {
		raise("ValueError", "range() arg 3 must not be zero")
	}
	if r.len() > maxRange {
		raise("OverflowError", "Range too big. The sandbox blocks ranges larger than %d.", maxRange)
	}
	return r
}

func globalNamespace(m *machine, args []Value, kw []kwarg) Value {
	return &namespace{*makeDict(m, args, kw)}
}

func globalDict(m *machine, args []Value, kw []kwarg) Value { return makeDict(m, args, kw) }

// makeDict is Python's dict(): from a mapping or pairs, then keywords.
func makeDict(m *machine, args []Value, kw []kwarg) *Dict {
	d := NewDict(len(kw))
	if len(args) > 1 {
		raise("TypeError", "dict expected at most 1 argument, got %d", len(args))
	}
	if len(args) == 1 {
		if from, ok := args[0].(*Dict); ok {
			m.use(from.Len() * entrySize)
			for i, k := range from.keys {
				m.put(d, k, from.vals[i])
			}
		} else {
			for _, pair := range m.iterate(args[0]) {
				m.use(entrySize)
				m.step()
				kv := m.iterate(pair)
				if len(kv) != 2 {
					raise("ValueError", "dictionary update sequence element has length %d; 2 is required", len(kv))
				}
				m.put(d, kv[0], kv[1])
			}
		}
	}
	for _, k := range kw {
		d.Set(k.name, k.value)
	}
	return d
}

// cycler goes round its items.
type cycler struct {
	items []Value
	i     int
}

func globalCycler(_ *machine, args []Value, _ []kwarg) Value {
	if len(args) == 0 {
		raise("RuntimeError", "at least one item has to be provided")
	}
	return &cycler{items: args}
}

func (c *cycler) call(method string) Value {
	if method == "reset" {
		c.i = 0
		return nil
	}
	v := c.items[c.i]
	c.i = (c.i + 1) % len(c.items)
	return v
}

// joiner is empty when first called, then its separator.
type joiner struct {
	separator Value
	used      bool
}

func globalJoiner(_ *machine, args []Value, kw []kwarg) Value {
	return &joiner{separator: arg(args, kw, 0, "sep", ", ")}
}

func globalRaise(m *machine, args []Value, kw []kwarg) Value {
	panic(&RaiseError{Msg: m.str(arg(args, kw, 0, "message", ""))})
}
