package mock

import (
	"turnlog.dev/gateway/engine/mock/gbnf"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// constrained is what the model says under a structural tag or a grammar: the
// shortest that it allows. Nil is no constraint, or one that the double does not
// know; it then says what its script says.
func (s *Server) constrained(c *call) []uint32 {
	if s.cfg.Reasons {
		return nil // the reasoning never ends
	}
	if c.grammar != "" {
		return s.flattest(c.grammar)
	}
	format, _ := rawjson.Get([]byte(c.tag), "format")
	if format == nil {
		return nil
	}
	return s.shortest(nil, format)
}

// flattest is what a grammar allows with the fewest rules inside each other.
func (s *Server) flattest(grammar string) (ids []uint32) {
	g, err := gbnf.Parse(grammar)
	if err != nil {
		return nil
	}
	for _, p := range g.Say(nil, 0) {
		switch {
		case p.No: // any other
			ids = append(ids, s.tok.Encode(nil, "x")...)
		case p.IsToken:
			ids = append(ids, p.Token)
		default:
			ids = s.tok.Encode(ids, p.Text)
		}
	}
	return ids
}

func (s *Server) shortest(dst []uint32, format []byte) []uint32 {
	get := func(key string) []byte { v, _ := rawjson.Get(format, key); return v }
	kind := get("type")
	switch text := rawjson.Text(kind); text {
	case "const_string":
		v := get("value")
		return s.tok.Encode(dst, rawjson.Text(v))
	case "token":
		id, _ := wire.ID(get("token"))
		return append(dst, id)
	case "sequence", "or":
		for e := range rawjson.Elements(get("elements")) {
			if dst = s.shortest(dst, e); text == "or" {
				break
			}
		}
		return dst
	case "plus":
		return s.shortest(dst, get("content"))
	case "json_schema":
		return s.tok.Encode(dst, instance(get("json_schema")))
	case "any_text":
		return s.tok.Encode(dst, "x")
	}
	return dst // optional; and regex, which the double leaves empty
}

// members calls f for every required property.
func members(schema []byte, f func(name string, value []byte)) {
	required, _ := rawjson.Get(schema, "required")
	properties, _ := rawjson.Get(schema, "properties")
	for name := range rawjson.Elements(required) {
		value, _ := rawjson.Get(properties, rawjson.Text(name))
		f(rawjson.Text(name), value)
	}
}

func instance(schema []byte) string {
	list, _ := rawjson.Get(schema, "enum")
	for e := range rawjson.Elements(list) {
		return string(e)
	}
	typ, _ := rawjson.Get(schema, "type")
	switch rawjson.Text(typ) {
	case "object":
		o := wire.NewObject(nil)
		members(schema, func(name string, value []byte) { o.Raw(name, []byte(instance(value))) })
		return string(o.End())
	case "array":
		return "[]"
	case "integer", "number":
		return "1"
	case "boolean":
		return "true"
	case "null":
		return "null"
	}
	return `"x"`
}
