package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// CheckGrammar refuses a constraint that a wire cannot carry: one that is left
// out silently would give an answer that is not what was asked for.
func CheckGrammar(g *engine.Grammar, kinds ...string) error {
	if g == nil {
		return nil
	}
	if !slices.Contains(kinds, g.Kind) {
		return &engine.Error{Class: engine.Refused, Message: fmt.Sprintf(
			"this engine cannot enforce a constraint of kind %q, only %s", g.Kind, strings.Join(kinds, ", "))}
	}
	if g.Kind == "json_schema" && rawjson.Valid([]byte(g.Value)) != nil {
		return &engine.Error{Class: engine.Refused, Message: "the JSON schema of the constraint is not JSON"}
	}
	return nil
}

// ResponseFormat adds a constraint of kind json_object or json_schema as OpenAI
// has it.
func ResponseFormat(o *Object, g *engine.Grammar) {
	o.Object("response_format", func(o *Object) {
		o.Text("type", g.Kind)
		if g.Kind != "json_schema" {
			return
		}
		o.Object("json_schema", func(o *Object) {
			o.Text("name", "answer")
			o.Raw("schema", []byte(g.Value))
		})
	})
}

// StructuralTag is a constraint in the form that sglang and vLLM hand to
// xgrammar (xgrammar 0.2.8, structural_tag.py): what has to be sampled, with the
// thinking before it.
func StructuralTag(g *engine.Grammar, thinking bool) string {
	p := answer(g)
	if thinking && g.Before != nil {
		p = parse.Pattern{Kind: parse.Sequence, Parts: []parse.Pattern{*g.Before, p}}
	}
	o := NewObject(nil)
	o.Text("type", "structural_tag")
	o.Raw("format", appendFormat(nil, p))
	return string(o.End())
}

// answer is the constraint as a pattern.
func answer(g *engine.Grammar) parse.Pattern {
	switch {
	case g.Pattern != nil:
		return *g.Pattern
	case g.Kind == "json_object":
		return parse.Pattern{Kind: parse.Value, Schema: []byte(`{"type":"object"}`)}
	}
	return parse.Pattern{Kind: parse.Value, Schema: []byte(g.Value)}
}

// maxBlank is how much white space may stand in one place of a JSON value: a
// grammar must not allow a loop that says nothing.
const maxBlank = 16

func appendFormat(dst []byte, p parse.Pattern) []byte {
	o := NewObject(dst)
	add := func(typ string) { o.Raw("type", rawjson.AppendText(nil, typ)) }
	parts := func(key string) {
		list := []byte{'['}
		for i, part := range p.Parts {
			if i > 0 {
				list = append(list, ',')
			}
			list = appendFormat(list, part)
		}
		o.Raw(key, append(list, ']'))
	}
	switch p.Kind {
	case parse.Literal:
		add("const_string")
		o.Raw("value", rawjson.AppendText(nil, p.Text))
	case parse.Token:
		add("token")
		o.Int("token", int64(p.Token))
	case parse.Class:
		add("regex")
		o.Text("pattern", p.Text)
	case parse.Free:
		if p.Text != "" {
			add("regex")
			o.Text("pattern", p.Text)
			break
		}
		add("any_text")
		excludes(o, p.Not)
	case parse.Value:
		add("json_schema")
		o.Raw("json_schema", p.Schema)
		o.Int("max_whitespace_cnt", maxBlank)
		if !bytes.Contains(p.Schema, []byte("Length")) { // xgrammar has one or the other
			excludes(o, p.Not)
		}
	case parse.Sequence:
		add("sequence")
		parts("elements")
	case parse.Either:
		add("or")
		parts("elements")
	case parse.Optional:
		add("optional")
		o.Raw("content", appendFormat(nil, p.Parts[0]))
	case parse.Repeated:
		add("plus")
		o.Raw("content", appendFormat(nil, p.Parts[0]))
	}
	return o.End()
}

// excludes are texts that must not come.
func excludes(o *Object, texts []string) {
	if len(texts) == 0 {
		return
	}
	list := []byte{'['}
	for i, text := range texts {
		if i > 0 {
			list = append(list, ',')
		}
		list = rawjson.AppendText(list, text)
	}
	o.Raw("excludes", append(list, ']'))
}
