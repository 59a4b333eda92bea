package parse

import (
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// Pattern is what a reply, or a part of it, has to look like, in terms that the
// grammars of all engines have. A mark that is a token of the vocabulary is
// asked for by its id: the same letters in other tokens would be text.
type Pattern struct {
	Kind PatternKind
	// Text is a Literal, or a Class with its repetition, such as [0-9]+.
	Text string
	// Token is the id of Token and Until.
	Token uint32
	// Parts are those of Sequence and Either; Optional and Repeated have one.
	Parts []Pattern
	// Schema is the JSON schema of a Value, Style how it is written.
	Schema []byte
	Style  Style
}

// PatternKind is a kind of Pattern.
type PatternKind uint8

// The kinds.
const (
	Literal  PatternKind = iota
	Token                // the token
	Until                // any tokens up to Token, and it; or any text up to Text, and it
	Class                // characters of a class
	Value                // a JSON value, or the arguments of a call
	Sequence             // all parts in order
	Either               // one of the parts
	Optional             // the part or nothing
	Repeated             // the part, once or more
)

// Style is how the arguments of a call are written.
type Style string

// The styles: JSON, and the tags of two formats.
const (
	JSON       Style = ""
	QwenTags   Style = "qwen_xml"
	MiniMaxTag Style = "minimax_xml"
)

// shape is how a format writes calls: marks and text, with the two holes below.
type shape struct {
	open, close []string // once, around all calls
	call        []string // one call
	join        string   // between two
	style       Style
}

// The holes of a shape: the tool's name as it is, or as a JSON text, its
// arguments, and the digits of a call's number.
const (
	holeName      = "\x00name"
	holeQuoted    = "\x00quoted"
	holeArguments = "\x00arguments"
	holeNumber    = "\x00number"
)

// blank is the white space that models write between their thinking and what
// follows.
const blank = `[ \n]{0,4}`

// Forced is the pattern of a reply that calls tools and says nothing else: the
// tool of that name, or any where it is empty, and only one if single is set.
// Thinking is not part of it; see Grammar.Thoughts. It is false for formats in
// which a call cannot be asked for exactly, and where no tool has the name.
func (g *Grammar) Forced(tools []message.Definition, name string, single bool) (Pattern, bool) {
	s := g.shape
	if s == nil {
		return Pattern{}, false
	}
	either := Pattern{Kind: Either}
	for _, t := range tools {
		if name == "" || t.Name == name {
			either.Parts = append(either.Parts, g.fill(s.call, t, s.style))
		}
	}
	if len(either.Parts) == 0 {
		return Pattern{}, false
	}
	calls := either
	if !single {
		more := sequence(g.fill([]string{s.join}, message.Definition{}, JSON), either)
		calls = sequence(either, Pattern{Kind: Optional, Parts: []Pattern{{Kind: Repeated, Parts: []Pattern{more}}}})
	}
	return sequence(
		g.fill(s.open, message.Definition{}, JSON), calls, g.fill(s.close, message.Definition{}, JSON),
	), true
}

// Thoughts is the pattern of what may, or has to, come before an answer to the
// prompt: nil where the prompt has closed the thinking, or there is none.
func (g *Grammar) Thoughts(prompt string) *Pattern {
	if g.ThinkOpen == "" {
		return nil
	}
	end := g.until(g.ThinkClose)
	if g.Format.Thinking != "" {
		end = sequence(end, Pattern{Kind: Class, Text: blank})
	}
	switch newTagged(g, Options{Prompt: prompt}).state {
	case inContent:
		return nil
	case inReasoning:
		return &end
	}
	return &Pattern{Kind: Optional, Parts: []Pattern{sequence(g.fill([]string{g.ThinkOpen}, message.Definition{}, JSON), end)}}
}

func sequence(parts ...Pattern) Pattern {
	out := Pattern{Kind: Sequence}
	for _, p := range parts {
		switch {
		case p.Kind == Sequence:
			out.Parts = append(out.Parts, p.Parts...)
		case p.Kind != Literal || p.Text != "":
			out.Parts = append(out.Parts, p)
		}
	}
	if len(out.Parts) == 1 {
		return out.Parts[0]
	}
	return out
}

func (g *Grammar) until(mark string) Pattern {
	if id, ok := g.vocabulary.id(mark); ok {
		return Pattern{Kind: Until, Token: id}
	}
	return Pattern{Kind: Until, Text: mark}
}

// fill is the pattern of a part of a shape for one tool.
func (g *Grammar) fill(parts []string, tool message.Definition, style Style) Pattern {
	var out []Pattern
	text := ""
	end := func() {
		out = append(out, Pattern{Text: text})
		text = ""
	}
	for _, part := range parts {
		id, mark := g.vocabulary.id(part)
		switch {
		case part == holeName:
			text += tool.Name
		case part == holeQuoted:
			text += string(rawjson.AppendText(nil, tool.Name))
		case part == holeNumber:
			end()
			out = append(out, Pattern{Kind: Class, Text: "[0-9]{1,4}"})
		case part == holeArguments:
			end()
			out = append(out, Pattern{Kind: Value, Schema: parameters(tool), Style: style})
		case mark:
			end()
			out = append(out, Pattern{Kind: Token, Token: id})
		default:
			text += part
		}
	}
	end()
	return sequence(out...)
}

// parameters is the schema of a tool's arguments: an object, whatever is said
// of it.
func parameters(tool message.Definition) []byte {
	schema, _ := rawjson.Get(tool.Raw, "function")
	schema, _ = rawjson.Get(schema, "parameters")
	if typ, _ := rawjson.Get(schema, "type"); rawjson.Text(typ) != "object" {
		return []byte(`{"type":"object"}`)
	}
	return schema
}
