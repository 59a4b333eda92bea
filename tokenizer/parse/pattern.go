package parse

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// Pattern is what a reply, or a part of it, has to look like, in terms that the
// grammars of all engines have. A mark that is a token of the vocabulary is
// asked for by its id: the same letters in other tokens would be text.
type Pattern struct {
	Kind PatternKind
	// Text is a Literal, classes with their repetition such as [0-9]+, or the
	// regular expression, possibly none, that Free text has to match.
	Text string
	// Token is the id of a Token.
	Token uint32
	// Not is what Free text, and the strings of a Value, do not hold, spelled by
	// whatever tokens: it would be taken for markup.
	Not []string
	// Parts are those of Sequence and Either; Optional and Repeated have one.
	Parts []Pattern
	// Schema is the JSON schema of a Value.
	Schema []byte
}

// PatternKind is a kind of Pattern.
type PatternKind uint8

// The kinds.
const (
	Literal  PatternKind = iota
	Token                // the token
	Free                 // any text, or none, without what it must not hold
	Class                // characters of classes
	Value                // a JSON value
	Sequence             // all parts in order
	Either               // one of the parts
	Optional             // the part or nothing
	Repeated             // the part, once or more
)

// shape is how a format writes calls: marks and text, with holes.
type shape struct {
	// needs is a mark that must be a token for the shape to be the model's.
	needs string
	// open and close stand once, around all calls.
	open, close []string
	// forms are the ways to write one call.
	forms [][]string
	// join stands between two calls; alone: a call is the end of the reply.
	join  []string
	alone bool
	// parameter is an argument that is written as a tag; nil is JSON.
	parameter *parameter
}

// parameter is how a format writes one argument as a tag.
type parameter struct {
	// text is how a string is written; json anything else, the same if nil.
	text, json []string
	// end is what neither may hold: it would be taken for their end.
	end string
}

// The holes of a shape.
const (
	holeName      = "\x00name"      // the tool's name as it is
	holeQuoted    = "\x00quoted"    // the tool's name as a JSON text
	holeArguments = "\x00arguments" // its arguments
	holeNumber    = "\x00number"    // the digits of a call's number
	holeID        = "\x00id"        // a call's id in letters and digits
	holeKey       = "\x00key"       // the name of an argument
	holeValue     = "\x00value"     // its value
	holeBreak     = "\x00break"     // a line break, which some versions write
	holeSpace     = "\x00space"     // a space, which some models write
)

// blank is the white space that models write between their thinking and what
// follows.
const blank = `[ \n]{0,4}`

// Forced is the pattern of a reply that calls tools and says nothing else: the
// tool of that name, or any where it is empty, and only one if single is set.
// What comes before is not part of it; see Grammar.Before. The error says why a
// call cannot be asked for.
func (g *Grammar) Forced(tools []message.Definition, name string, single bool) (Pattern, error) {
	s, err := g.shape()
	if err != nil {
		return Pattern{}, err
	}
	var ways []Pattern
	for _, t := range tools {
		if name != "" && t.Name != name {
			continue
		}
		f := filler{Grammar: g, shape: s, tool: t}
		for _, form := range s.forms {
			if s.needs != "" && !g.hasMarks(form) {
				continue
			}
			call, err := f.fill(form)
			if err != nil {
				return Pattern{}, fmt.Errorf("the tool %q: %w", t.Name, err)
			}
			ways = append(ways, call)
		}
	}
	if len(ways) == 0 {
		return Pattern{}, errors.New("no such tool was given")
	}
	calls := either(ways)
	if !single && !s.alone {
		more := sequence(g.plain(s.join), calls)
		calls = sequence(calls, Pattern{Kind: Optional, Parts: []Pattern{{Kind: Repeated, Parts: []Pattern{more}}}})
	}
	return sequence(g.plain(s.open), calls, g.plain(s.close)), nil
}

// shape is how this model writes calls.
func (g *Grammar) shape() (*shape, error) {
	for i := range g.shapes {
		if _, ok := g.vocabulary.id(g.shapes[i].needs); ok || g.shapes[i].needs == "" {
			return &g.shapes[i], nil
		}
	}
	if len(g.shapes) == 0 {
		return nil, fmt.Errorf("models of the format %s call no tools", g.Name)
	}
	return nil, fmt.Errorf("the tokenizer has no token %s, with which models of the format %s call tools", g.shapes[0].needs, g.Name)
}

// hasMarks reports whether all marks of a form are tokens.
func (g *Grammar) hasMarks(form []string) bool {
	for _, part := range form {
		if _, ok := g.vocabulary.id(part); !ok && slices.Contains(g.marks, part) {
			return false
		}
	}
	return true
}

// Before is the pattern of what may, or has to, come before an answer to the
// prompt, or before a forced call: nil where the prompt has closed the thinking,
// or there is none.
func (g *Grammar) Before(prompt string, call bool) *Pattern {
	if g.harmony {
		return g.harmonyBefore(call)
	}
	if g.ThinkOpen == "" {
		return nil
	}
	var others []string
	if g.CallEndsThinking {
		others = []string{g.CallOpen}
	}
	end := g.until(g.ThinkClose, others...)
	if g.Format.Thinking != "" {
		end = sequence(end, Pattern{Kind: Class, Text: blank})
	}
	switch newTagged(g, Options{Prompt: prompt}).state {
	case inContent:
		return nil
	case inReasoning:
		return &end
	}
	return &Pattern{Kind: Optional, Parts: []Pattern{sequence(g.plain([]string{g.ThinkOpen}), end)}}
}

// harmonyBefore is any number of messages that think and, before an answer, the
// header of the message that it stands in.
func (g *Grammar) harmonyBefore(call bool) *Pattern {
	thought := sequence(
		g.plain([]string{"<|channel|>", "analysis", "<|message|>"}), g.until("<|end|>", harmonyMarks...), g.plain([]string{"<|start|>", "assistant"}))
	thoughts := Pattern{Kind: Optional, Parts: []Pattern{{Kind: Repeated, Parts: []Pattern{thought}}}}
	if !call {
		thoughts = sequence(thoughts, g.plain([]string{"<|channel|>", "final", "<|message|>"}))
	}
	return &thoughts
}

func sequence(parts ...Pattern) Pattern {
	var out []Pattern
	for _, p := range parts {
		out = joined(out, p)
	}
	if len(out) == 1 {
		return out[0]
	}
	return Pattern{Kind: Sequence, Parts: out}
}

// joined is a sequence with p behind it.
func joined(out []Pattern, p Pattern) []Pattern {
	switch n := len(out); {
	case p.Kind == Sequence:
		for _, part := range p.Parts {
			out = joined(out, part)
		}
	case p.Kind == Literal && n > 0 && out[n-1].Kind == Literal:
		out[n-1].Text += p.Text
	case p.Kind != Literal || p.Text != "":
		out = append(out, p)
	}
	return out
}

// until is anything up to a mark, and the mark; others may not come before it.
func (g *Grammar) until(mark string, others ...string) Pattern {
	return sequence(Pattern{Kind: Free, Not: append([]string{mark}, others...)}, g.plain([]string{mark}))
}

// markup is what would be taken for the end of a call, or for another one, if it
// stood in a call's arguments.
func (g *Grammar) markup() []string {
	if g.harmony {
		return harmonyMarks
	}
	return slices.DeleteFunc(append([]string{g.CallOpen, g.CallClose}, g.marks...), func(s string) bool { return s == "" })
}

// plain is the pattern of parts that hold nothing of a tool.
func (g *Grammar) plain(parts []string) Pattern {
	p, _ := filler{Grammar: g}.fill(parts)
	return p
}

// filler fills the holes of a shape for one tool.
type filler struct {
	*Grammar
	shape *shape
	tool  message.Definition
	// key and value are those of the argument at hand.
	key   string
	value Pattern
}

func (f filler) fill(parts []string) (Pattern, error) {
	var out []Pattern
	for _, part := range parts {
		p := Pattern{Text: part}
		switch part {
		case holeName:
			p.Text = f.tool.Name
		case holeQuoted:
			p.Text = string(rawjson.AppendText(nil, f.tool.Name))
		case holeNumber:
			p = either([]Pattern{{Text: "0"}, {Kind: Class, Text: "[1-9][0-9]{0,3}"}})
		case holeID:
			p = Pattern{Kind: Class, Text: "[a-zA-Z0-9]{9}"}
		case holeBreak:
			p = Pattern{Kind: Class, Text: `[\n]{0,1}`}
		case holeSpace:
			p = Pattern{Kind: Class, Text: `[ ]{0,1}`}
		case holeKey:
			p.Text = f.key
		case holeValue:
			p = f.value
		case holeArguments:
			var err error
			if p, err = f.arguments(); err != nil {
				return Pattern{}, err
			}
		default:
			if id, ok := f.vocabulary.id(part); ok {
				p = Pattern{Kind: Token, Token: id}
			}
		}
		out = append(out, p)
	}
	return sequence(out...), nil
}

// arguments is the pattern of a tool's arguments: a JSON object or, in the order
// of the schema, the tags of those that must be there and may be there.
func (f filler) arguments() (Pattern, error) {
	root := schemaOf(f.tool)
	if f.shape.parameter == nil {
		return Pattern{Kind: Value, Schema: root.raw, Not: f.markup()}, nil
	}
	required := map[string]bool{}
	list, _ := rawjson.Get(root.raw, "required")
	for e := range rawjson.Elements(list) {
		required[rawjson.Text(e)] = true
	}
	var out []Pattern
	properties, _ := rawjson.Get(root.raw, "properties")
	for name, raw := range rawjson.Members(properties) {
		p, err := f.argument(name, root.at(raw))
		if err != nil {
			return Pattern{}, fmt.Errorf("its argument %q: %w", name, err)
		}
		if !required[name] {
			p = Pattern{Kind: Optional, Parts: []Pattern{p}}
		}
		delete(required, name)
		out = append(out, p)
	}
	for name := range required {
		return Pattern{}, fmt.Errorf("its argument %q is required, and not among its properties", name)
	}
	return sequence(out...), nil
}

// argument is the tag of one argument.
func (f filler) argument(name string, s schema) (Pattern, error) {
	if name == "" || strings.ContainsAny(name, "<>\"\n") {
		return Pattern{}, errors.New("no tag can hold such a name")
	}
	f.key = name
	tag := f.shape.parameter
	free := Pattern{Kind: Free, Not: []string{tag.end}}
	if !strings.Contains(f.CallClose, tag.end) {
		free.Not = append(free.Not, f.CallClose)
	}
	str, other := s.types()
	if values, ok := s.values(); ok {
		return f.oneOf(values, tag, free.Not)
	}
	var ways []Pattern
	add := func(parts []string, value Pattern) error {
		f.value = value
		way, err := f.fill(parts)
		ways = append(ways, way)
		return err
	}
	if str {
		// Where the same tag holds strings and other values, text is both.
		free.Text = s.pattern()
		if err := add(tag.text, free); err != nil {
			return Pattern{}, err
		}
	}
	if !str || other && tag.json != nil {
		raw, err := s.alone()
		if err != nil {
			return Pattern{}, err
		}
		parts := tag.json
		if parts == nil {
			parts = tag.text
		}
		if err := add(parts, Pattern{Kind: Value, Schema: raw, Not: append(f.markup(), tag.end)}); err != nil {
			return Pattern{}, err
		}
	}
	return either(ways), nil
}

// oneOf is the tag of an argument that is one of a few values.
func (f filler) oneOf(values [][]byte, tag *parameter, not []string) (Pattern, error) {
	var ways []Pattern
	for _, raw := range values {
		parts, text := tag.json, string(raw)
		if rawjson.KindOf(raw) == rawjson.String {
			parts, text = tag.text, rawjson.Text(raw)
		} else if parts == nil {
			parts = tag.text
		}
		if slices.ContainsFunc(not, func(s string) bool { return strings.Contains(text, s) }) {
			return Pattern{}, fmt.Errorf("its value %q would be taken for the end of the tag", text)
		}
		f.value = Pattern{Text: text}
		way, err := f.fill(parts)
		if err != nil {
			return Pattern{}, err
		}
		ways = append(ways, way)
	}
	return either(ways), nil
}

func either(ways []Pattern) Pattern {
	if len(ways) == 1 {
		return ways[0]
	}
	return Pattern{Kind: Either, Parts: ways}
}
