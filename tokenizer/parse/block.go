package parse

import (
	"slices"
	"strings"
	"unicode"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// block is a cursor in the text between a format's call marks.
type block struct {
	*vocabulary
	tools []message.Definition
	rest  string
	flags flags
}

func (b *block) space() { b.rest = strings.TrimLeft(b.rest, space) }

// take consumes s, which may name marks, if the rest begins with it.
func (b *block) take(s string) (ok bool) {
	b.rest, ok = strings.CutPrefix(b.rest, b.mark(s))
	return ok
}

// until consumes everything up to s and s itself.
func (b *block) until(s string) (string, bool) {
	before, after, ok := strings.Cut(b.rest, b.mark(s))
	if ok {
		b.rest = after
	}
	return b.text(before), ok
}

// json consumes all that is left, which must be one value.
func (b *block) json() (string, bool) {
	s := strings.Trim(b.text(b.rest), space)
	b.rest = ""
	return s, rawjson.Valid([]byte(s)) == nil
}

// object reads {"name":..., "arguments":...} where arguments may be called
// otherwise; others are the members that may stand beside them. A call that
// leaves one of the two out or says it twice is none, nor is one that says more:
// what was meant nobody knows.
func object(raw []byte, arguments []string, others ...string) (c Call, ok bool) {
	seen := map[string]bool{}
	for k, v := range rawjson.Members(raw) {
		if slices.Contains(arguments, k) {
			k = "arguments"
			c.Arguments = string(v)
		} else if k != "name" && !slices.Contains(others, k) {
			return Call{}, false
		}
		if seen[k] {
			return Call{}, false
		}
		seen[k] = true
		switch {
		case k == "arguments":
		case rawjson.KindOf(v) != rawjson.String:
			return Call{}, false
		case k == "name":
			c.Name = rawjson.Text(v)
		case k == "id":
			c.ModelID = rawjson.Text(v)
		case k == "type" && rawjson.Text(v) != "function":
			return Call{}, false
		}
	}
	return c, isName(c.Name) && isObject(c.Arguments)
}

// isName reports whether text can be the name of a tool: something without
// space, brackets and quotes.
func isName(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("<>[]{}()|\"'`,;\uFFFD", r)
	}) < 0
}

// isObject reports whether text is a JSON object: what arguments must be.
func isObject(text string) bool {
	return rawjson.KindOf([]byte(text)) == rawjson.Object && rawjson.Valid([]byte(text)) == nil
}

// arguments builds an object from arguments that came as tags.
type arguments struct {
	b          *block
	tool       schema
	properties []byte
	json       []byte
	seen       map[string]bool
}

func (b *block) arguments(tool string) *arguments {
	a := &arguments{b: b, json: []byte{'{'}, seen: map[string]bool{}}
	for _, t := range b.tools {
		if t.Name != tool {
			continue
		}
		a.tool = schemaOf(t)
		a.properties = a.tool.get("properties")
	}
	return a
}

// add decides by the tool's schema whether value is a string or JSON. It reports
// false if the key has no name or was there before: then the call is none.
func (a *arguments) add(key, value string) bool {
	if !a.new(key) {
		return false
	}
	prop, known := rawjson.Get(a.properties, key)
	str, other := a.tool.at(prop).types()
	raw := []byte(strings.Trim(value, space))
	valid := rawjson.Valid(raw) == nil
	switch {
	case !known:
		a.b.flags.set(UntypedArgument)
		a.set(key, rawjson.AppendText(nil, value))
	case valid && (!str || other && rawjson.KindOf(raw) != rawjson.String):
		a.set(key, raw)
	default:
		if !str {
			a.b.flags.set(UntypedArgument)
		}
		a.set(key, rawjson.AppendText(nil, value))
	}
	return true
}

// new reports whether a key has a name and was not there before.
func (a *arguments) new(key string) bool {
	if key == "" || a.seen[key] {
		return false
	}
	a.seen[key] = true
	return true
}

func (a *arguments) set(key string, raw []byte) {
	if len(a.json) > 1 {
		a.json = append(a.json, ", "...)
	}
	a.json = append(append(rawjson.AppendText(a.json, key), ": "...), raw...)
}

func (a *arguments) String() string { return string(append(a.json, '}')) }
