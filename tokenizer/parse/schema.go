package parse

import (
	"bytes"
	"errors"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// schema is a JSON schema inside the schema of a tool's arguments, which holds
// what it may refer to.
type schema struct{ root, raw []byte }

// schemaOf is the schema of a tool's arguments: an object, whatever is said of
// it.
func schemaOf(tool message.Definition) schema {
	raw, _ := rawjson.Get(tool.Raw, "function")
	raw, _ = rawjson.Get(raw, "parameters")
	if typ, _ := rawjson.Get(raw, "type"); rawjson.Text(typ) != "object" {
		raw = []byte(`{"type":"object"}`)
	}
	return schema{raw, raw}
}

// definitions are the members of a root in which a reference is looked up.
var definitions = []string{"$defs", "definitions"}

// maxReferences is how many references may lead on to others.
const maxReferences = 8

// at is a schema inside s, followed to what it refers to.
func (s schema) at(raw []byte) schema {
	for range maxReferences {
		ref, _ := rawjson.Get(raw, "$ref")
		path := strings.Split(rawjson.Text(ref), "/")
		if len(path) != 3 || path[0] != "#" {
			break
		}
		list, _ := rawjson.Get(s.root, path[1])
		next, ok := rawjson.Get(list, path[2])
		if !ok {
			break
		}
		raw = next
	}
	return schema{s.root, raw}
}

// get is a member of the schema.
func (s schema) get(key string) []byte {
	v, _ := rawjson.Get(s.raw, key)
	return v
}

// types says whether a schema allows strings, and whether anything else.
func (s schema) types() (str, other bool) { return s.typesWithin(maxReferences) }

func (s schema) typesWithin(depth int) (str, other bool) {
	add := func(is bool) { str, other = str || is, other || !is }
	switch t := s.get("type"); {
	case depth == 0:
		return false, false
	case rawjson.KindOf(t) == rawjson.String:
		add(rawjson.Text(t) == "string")
		return str, other
	case t != nil:
		for e := range rawjson.Elements(t) {
			add(rawjson.Text(e) == "string")
		}
		return str, other
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		for e := range rawjson.Elements(s.get(k)) {
			a, b := s.at(e).typesWithin(depth - 1)
			str, other = str || a, other || b
		}
	}
	if values, ok := s.values(); ok && !str && !other {
		for _, v := range values {
			add(rawjson.KindOf(v) == rawjson.String)
		}
	}
	return str, other
}

// values are all that the schema allows, where it lists them.
func (s schema) values() (list [][]byte, ok bool) {
	if v := s.get("const"); v != nil {
		return [][]byte{v}, true
	}
	for e := range rawjson.Elements(s.get("enum")) {
		list = append(list, e)
	}
	return list, len(list) > 0
}

// pattern is the regular expression of a string, without anchors: a text that
// matches as a whole is one that matches anywhere.
func (s schema) pattern() string {
	p := s.get("pattern")
	return strings.TrimSuffix(strings.TrimPrefix(rawjson.Text(p), "^"), "$")
}

// alone is the schema with all that it refers to.
func (s schema) alone() ([]byte, error) {
	if !bytes.Contains(s.raw, []byte(`"$ref"`)) {
		return s.raw, nil
	}
	var sets []rawjson.Set
	for _, key := range definitions {
		if list, ok := rawjson.Get(s.root, key); ok {
			sets = append(sets, rawjson.Set{Key: key, Value: list})
		}
	}
	if len(sets) == 0 {
		return nil, errors.New("it refers to a schema that is not among the $defs")
	}
	return rawjson.Splice(nil, s.raw, sets...), nil
}
