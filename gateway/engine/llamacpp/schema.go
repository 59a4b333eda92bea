package llamacpp

import (
	"slices"
	"strings"

	"turnlog.dev/schema/rawjson"
)

// values are the rules of JSON as models write it. White space is bounded: a
// grammar must not allow a loop that says nothing.
const values = `
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" blank ( member ( blank "," blank member )* )? blank "}"
member ::= string blank ":" blank value
array ::= "[" blank ( value ( blank "," blank value )* )? blank "]"
string ::= "\"" ( [^"\\\x00-\x1F] | escape )* "\""
escape ::= "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )
integer ::= "-"? ( "0" | [1-9] [0-9]{0,15} )
number ::= integer ( "." [0-9]{1,15} )? ( [eE] [-+]? [0-9]{1,3} )?
blank ::= [ \n\t]{0,8}
`

// schema writes the rule of a JSON value that a schema allows, and returns its
// name. Objects hold the properties that are declared, in the order of the
// schema. What else a schema may say is left out, and noted: bounds, formats,
// patterns. The strings of the schema do not hold the texts not.
func (w *gbnfWriter) schema(raw []byte, not []string) string {
	w.text = "string"
	if len(not) > 0 {
		w.text = `( "\"" ` + w.without(not, `"\\\x00-\x1F`, "escape") + ` "\"" )`
	}
	return w.within(raw, raw)
}

// simple are the types that have a rule of their own.
var simple = map[string]string{
	"integer": "integer", "number": "number", "boolean": `( "true" | "false" )`, "null": `"null"`,
}

// known are the members of schemas that the rules carry out, or that allow
// anything.
var known = []string{
	"type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "$ref", "$defs", "definitions",
	"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated", "additionalProperties", "strict",
}

// within writes the rule of a schema inside another, which holds what it may
// refer to. The name stands before the rule does, so that a schema may refer to
// itself.
func (w *gbnfWriter) within(root, raw []byte) string {
	key := "schema " + w.text + string(raw)
	if name, ok := w.rules[key]; ok {
		return name
	}
	name := w.rule(key)
	w.extra.WriteString(name + " ::= " + w.body(root, raw) + "\n")
	return name
}

func (w *gbnfWriter) body(root, raw []byte) string {
	get := func(key string) []byte { v, _ := rawjson.Get(raw, key); return v }
	for key := range rawjson.Members(raw) {
		if !slices.Contains(known, key) {
			w.leave(key)
		}
	}
	if ref := get("$ref"); ref != nil {
		target, ok := lookUp(root, rawjson.Text(ref))
		if !ok {
			w.leave("$ref")
			return "value"
		}
		return w.within(root, target)
	}
	if v := get("const"); v != nil {
		return literal(string(v))
	}
	var ways []string
	for e := range rawjson.Elements(get("enum")) {
		ways = append(ways, literal(string(e)))
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		for e := range rawjson.Elements(get(key)) {
			ways = append(ways, w.within(root, e))
		}
	}
	if len(ways) > 0 {
		return strings.Join(ways, " | ")
	}
	typ := get("type")
	if rawjson.KindOf(typ) == rawjson.String {
		return w.typed(root, raw, rawjson.Text(typ))
	}
	for e := range rawjson.Elements(typ) {
		ways = append(ways, w.typed(root, raw, rawjson.Text(e)))
	}
	if len(ways) == 0 {
		return "value"
	}
	return strings.Join(ways, " | ")
}

// typed is what stands for a value of one type.
func (w *gbnfWriter) typed(root, raw []byte, typ string) string {
	switch typ {
	case "array":
		items, ok := rawjson.Get(raw, "items")
		if !ok {
			return "array"
		}
		item := w.within(root, items)
		return `( "[" blank ( ` + item + ` ( blank "," blank ` + item + ` )* )? blank "]" )`
	case "object":
		return w.object(root, raw)
	case "string":
		return w.text
	}
	if rule, ok := simple[typ]; ok {
		return rule
	}
	w.leave("type " + typ)
	return "value"
}

func (w *gbnfWriter) object(root, raw []byte) string {
	properties, _ := rawjson.Get(raw, "properties")
	list, _ := rawjson.Get(raw, "required")
	var required []string
	for e := range rawjson.Elements(list) {
		required = append(required, rawjson.Text(e))
	}
	type member struct {
		rule string
		must bool
	}
	var members []member
	for name, value := range rawjson.Members(properties) {
		rule := literal(string(rawjson.AppendText(nil, name))) + ` blank ":" blank ` + w.within(root, value)
		members = append(members, member{rule, slices.Contains(required, name)})
		required = slices.DeleteFunc(required, func(s string) bool { return s == name })
	}
	if len(required) > 0 {
		w.leave("required")
	}
	if len(members) == 0 {
		switch more, _ := rawjson.Get(raw, "additionalProperties"); {
		case string(more) == "false":
			return `( "{" blank "}" )`
		case rawjson.KindOf(more) == rawjson.Object:
			entry := `string blank ":" blank ` + w.within(root, more)
			return `( "{" blank ( ` + entry + ` ( blank "," blank ` + entry + ` )* )? blank "}" )`
		}
		return "object"
	}
	// What may follow once a member was written, and what may while none was.
	const comma = `blank "," blank `
	after, first := "", ""
	for _, m := range slices.Backward(members) {
		if m.must {
			first = "( " + m.rule + " " + after + " )"
			after = comma + m.rule + " " + after
			continue
		}
		if first == "" {
			first = "( " + m.rule + " " + after + " )?"
		} else {
			first = "( " + m.rule + " " + after + " | " + first + " )"
		}
		after = "( " + comma + m.rule + " )? " + after
	}
	return `( "{" blank ` + first + ` blank "}" )`
}

// lookUp finds what a reference such as #/$defs/place means.
func lookUp(root []byte, ref string) (raw []byte, ok bool) {
	path := strings.Split(ref, "/")
	if path[0] != "#" {
		return nil, false
	}
	raw = root
	for _, key := range path[1:] {
		if raw, ok = rawjson.Get(raw, key); !ok {
			return nil, false
		}
	}
	return raw, len(path) > 1
}
