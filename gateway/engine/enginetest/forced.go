package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

// ForcedCall is a choice that forces calls of one model, as an engine is asked
// for it.
type ForcedCall struct {
	// Name is the model and the choice.
	Name  string
	Model prompt.Model
	// Prompt is where the answer begins, Stops are the tokens that end it, End is
	// the one that the model ends calls with.
	Prompt, Stops []uint32
	End           uint32
	Grammar       engine.Grammar
	// Read says what is wrong with an answer: it must be calls of the tool, in
	// number as asked for, with arguments that fit the schema, and thinking.
	Read func(ids []uint32) error
}

// forcedTools have arguments of all kinds that formats write in ways of their own.
const forcedTools = `[
	{"type":"function","function":{"name":"look_up","parameters":{"type":"object","required":["at","text","nested"],"properties":{
		"at":{"type":"integer"},"text":{"type":"string"},"exact":{"type":"boolean"},"unit":{"enum":["K","a b"]},
		"many":{"type":"array","items":{"enum":[1,2]}},"maybe":{"type":["string","null"]},
		"nested":{"$ref":"#/$defs/place"}},
		"$defs":{"place":{"type":"object","required":["far"],"properties":{"near":{"type":"boolean"},"far":{"type":"integer"}}}}}}},
	{"type":"function","function":{"name":"stop"}}]`

// ForcedCalls are choices for every model that calls tools.
func ForcedCalls() (list []ForcedCall, err error) {
	tools, err := message.ParseTools([]byte(forcedTools))
	if err != nil {
		return nil, err
	}
	for _, checkpoint := range familytest.Checkpoints() {
		if !checkpoint.Calls {
			continue
		}
		m := checkpoint.Model()
		a, err := prompt.New(m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", checkpoint.Name, err)
		}
		c := message.Conversation{
			Head:     message.Head{Tools: tools},
			Messages: []message.Message{{Role: message.User, Content: message.TextContent("Go.")}},
		}
		p, err := a.Root(c, prompt.Options{Kwargs: []byte(checkpoint.Kwargs), Time: time.Unix(0, 0)})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", checkpoint.Name, err)
		}
		for _, tool := range []string{"look_up", ""} {
			for _, single := range []bool{true, false} {
				call, err := a.Forced(c, tool, single)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", checkpoint.Name, err)
				}
				list = append(list, ForcedCall{
					Name: fmt.Sprintf("%s, tool %q, single %v", checkpoint.Name, tool, single), Model: m,
					Prompt: p.Append(nil, nil), Stops: a.StopTokens(), End: end(a, m),
					Grammar: engine.Grammar{Kind: "tool_choice", Pattern: &call, Before: a.Before(p, true)},
					Read: func(ids []uint32) error {
						parser := a.Parser(p, c)
						parser.Push(ids)
						reply, _ := parser.Finish("stop")
						return read(reply, tools, tool, single)
					},
				})
			}
		}
	}
	return list, nil
}

// end is <|call|> where the model has it: there, nothing else ends a call.
func end(a *prompt.Assembler, m prompt.Model) uint32 {
	if id, ok := m.Tokenizer.TokenID("<|call|>"); ok {
		return id
	}
	return a.StopTokens()[0]
}

func read(reply parse.Reply, tools []message.Definition, tool string, single bool) error {
	switch {
	case len(reply.Calls) == 0:
		return fmt.Errorf("there is no call: %+v", reply)
	case single && len(reply.Calls) > 1:
		return errors.New("there is more than one call")
	case strings.TrimSpace(reply.Content) != "": // blanks may stand behind the thinking
		return fmt.Errorf("there is content besides: %q", reply.Content)
	}
	for _, c := range reply.Calls {
		i := slices.IndexFunc(tools, func(t message.Definition) bool { return t.Name == c.Name })
		if i < 0 || tool != "" && c.Name != tool {
			return fmt.Errorf("the call is of %q", c.Name)
		}
		schema, _ := rawjson.Get(tools[i].Raw, "function")
		schema, _ = rawjson.Get(schema, "parameters")
		if err := fits(schema, schema, []byte(c.Arguments)); err != nil {
			return fmt.Errorf("%s(%s): %w", c.Name, c.Arguments, err)
		}
	}
	return nil
}

// kinds are the types of JSON schemas.
var kinds = map[string]rawjson.Kind{
	"object": rawjson.Object, "array": rawjson.Array, "string": rawjson.String, "integer": rawjson.Number, "boolean": rawjson.Bool, "null": rawjson.Null,
}

// fits checks a value against what the schemas here say.
func fits(root, schema, value []byte) error {
	get := func(key string) []byte { v, _ := rawjson.Get(schema, key); return v }
	if get("$ref") != nil {
		schema, _ = rawjson.Get(root, "$defs")
		schema = get("place")
	}
	if values := get("enum"); values != nil {
		for e := range rawjson.Elements(values) {
			if string(e) == string(value) {
				return nil
			}
		}
		return fmt.Errorf("%s is not one of %s", value, values)
	}
	if typ := get("type"); rawjson.KindOf(typ) == rawjson.String && rawjson.KindOf(value) != kinds[rawjson.Text(typ)] {
		return fmt.Errorf("%s is not of type %s", value, typ)
	}
	for e := range rawjson.Elements(get("required")) {
		if _, ok := rawjson.Get(value, rawjson.Text(e)); !ok {
			return fmt.Errorf("%s is missing", e)
		}
	}
	properties := get("properties")
	for name, v := range rawjson.Members(value) {
		s, ok := rawjson.Get(properties, name)
		if !ok && properties != nil {
			return fmt.Errorf("%q is no property", name)
		}
		if err := fits(root, s, v); err != nil {
			return err
		}
	}
	for e := range rawjson.Elements(value) {
		if err := fits(root, get("items"), e); err != nil {
			return err
		}
	}
	return nil
}
