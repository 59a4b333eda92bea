package mock

import (
	"strings"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// constrained is what the model says under a structural tag, or under a grammar
// of one literal: the shortest that it allows. Nil is no constraint, or one that
// the double does not know; it then says what its script says.
func (s *Server) constrained(c *call) []uint32 {
	if s.cfg.Reasons {
		return nil // the reasoning never ends
	}
	if text, ok := strings.CutPrefix(c.grammar, `root ::= "`); ok {
		return s.tok.Encode(nil, strings.TrimSuffix(text, `"`))
	}
	format, _ := rawjson.Get([]byte(c.tag), "format")
	if format == nil {
		return nil
	}
	return s.shortest(nil, format)
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
	case "tag":
		return s.bound(s.shortest(s.bound(dst, get("begin")), get("content")), get("end"))
	case "sequence", "or":
		for e := range rawjson.Elements(get("elements")) {
			if dst = s.shortest(dst, e); text == "or" {
				break
			}
		}
		return dst
	case "plus":
		return s.shortest(dst, get("content"))
	case "regex":
		if p := get("pattern"); strings.HasPrefix(rawjson.Text(p), "[0-9]") {
			return s.tok.Encode(dst, "0")
		}
		return dst
	case "json_schema":
		style := get("style")
		return s.tok.Encode(dst, fitting(get("json_schema"), rawjson.Text(style)))
	}
	return dst // optional, any_tokens, any_text
}

// bound is the begin or end of a tag: a text or a token.
func (s *Server) bound(dst []uint32, raw []byte) []uint32 {
	if rawjson.KindOf(raw) == rawjson.Object {
		return s.shortest(dst, raw)
	}
	return s.tok.Encode(dst, rawjson.Text(raw))
}

// fitting is a small value that fits an object's schema, in a style.
func fitting(schema []byte, style string) string {
	switch style {
	case "qwen_xml":
		return strings.TrimSuffix(tags(schema, "<parameter=", ">\n", "\n</parameter>\n"), "\n")
	case "minimax_xml":
		return strings.TrimSuffix(tags(schema, `<parameter name="`, `">`, "</parameter>\n"), "\n")
	}
	return instance(schema)
}

func tags(schema []byte, open, middle, end string) string {
	var b strings.Builder
	members(schema, func(name string, value []byte) {
		text := instance(value)
		if raw := []byte(text); rawjson.KindOf(raw) == rawjson.String {
			text = rawjson.Text(raw)
		}
		b.WriteString(open + name + middle + text + end)
	})
	return b.String()
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
