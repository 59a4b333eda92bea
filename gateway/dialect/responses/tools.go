package responses

import (
	"fmt"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// toolset is what a request offers, and how its names map to the model's.
type toolset struct {
	definitions []message.Definition
	byName      map[string]tool
}

// tool is what a client calls a tool that the model knows by another name, or
// calls otherwise.
type tool struct {
	namespace, name string
	custom          bool
}

// decodeTools reads functions, namespaces of functions and custom tools. Tools
// that OpenAI runs are skipped.
func decodeTools(raw []byte) (s toolset, err error) {
	if err := dialect.Array("tools", raw); err != nil {
		return s, err
	}
	s.byName = map[string]tool{}
	// Plain names first, so that they do not depend on what else is there.
	for e := range rawjson.Elements(raw) {
		if typ, _ := rawjson.Get(e, "type"); rawjson.Text(typ) != "namespace" {
			s.byName[nameOf(e)] = tool{name: nameOf(e)}
		}
	}
	n := 0
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("tools[%d]", n)
		n++
		if kind := rawjson.KindOf(e); kind != rawjson.Object {
			return s, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
		}
		typ, _ := rawjson.Get(e, "type")
		switch rawjson.Text(typ) {
		case "function":
			err = s.add(at, e, tool{name: nameOf(e)}, nameOf(e))
		case "custom":
			err = s.add(at, e, tool{name: nameOf(e), custom: true}, nameOf(e))
		case "namespace":
			err = s.namespace(at, e)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func nameOf(raw []byte) string {
	name, _ := rawjson.Get(raw, "name")
	return rawjson.Text(name)
}

func (s *toolset) namespace(at string, raw []byte) error {
	inside, _ := rawjson.Get(raw, "tools")
	for e := range rawjson.Elements(inside) {
		if typ, _ := rawjson.Get(e, "type"); rawjson.Text(typ) != "function" {
			continue
		}
		t := tool{namespace: nameOf(raw), name: nameOf(e)}
		name := t.name
		if _, taken := s.byName[name]; taken {
			name = t.namespace + "__" + t.name
		}
		if err := s.add(at, e, t, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *toolset) add(at string, raw []byte, t tool, name string) error {
	if t.name == "" {
		return gateway.Invalidf(at, "%s needs a name", at)
	}
	description, _ := rawjson.Get(raw, "description")
	parameters, _ := rawjson.Get(raw, "parameters")
	definition := dialect.Function(name, description, parameters)
	if t.custom {
		format, _ := rawjson.Get(raw, "format")
		definition = dialect.CustomFunction(name, description, format)
	}
	s.byName[name] = t
	s.definitions = append(s.definitions, message.Definition{Name: name, Raw: definition})
	return nil
}

// modelName is what the model calls a tool of the client.
func (s *toolset) modelName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	if long := namespace + "__" + name; s.byName[long].namespace == namespace {
		return long
	}
	return name
}
