package parse

import (
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
)

// Format is how a family of models writes its replies. The formats of this
// package are values such as Hermes; a caller may change a copy.
//
// White space: what the family's template writes around a part is not a part.
// Each format takes away exactly that, so that rendering the reply again gives
// the text that was sampled, where the model wrote it as the template would.
type Format struct {
	Name string
	// ThinkOpen and ThinkClose enclose the reasoning. Empty if the family does
	// not think.
	ThinkOpen, ThinkClose string
	// CallOpen and CallClose enclose one block of calls. Without CallClose the
	// block runs to the end of the turn.
	CallOpen, CallClose string
	// CallEndsThinking: a block that opens inside the reasoning ends it.
	CallEndsThinking bool
	// Bare: a reply that is one JSON object is a call, if tools were offered.
	Bare bool
	// Thinking is the white space that is no part of the reasoning's ends nor
	// of the start of the content behind it.
	Thinking string
	// Joint is what the template writes between content and a call.
	Joint string
	// Trims: the template trims the content that a call follows.
	Trims bool

	// marks are the tokens inside a block.
	marks []string
	// block reads a block of calls.
	block func(*block) []Call
	// shapes are how calls are asked for: the first whose token the model has.
	shapes []shape
	// harmony is its own machine.
	harmony bool
}

// Options is what a single reply needs.
type Options struct {
	// Prompt is how the prompt ends: a family's template may have opened, or
	// closed, the thinking as the last thing there.
	Prompt string
	// Lead is the white space that the template writes between the generation
	// prompt and an answer without thinking; it is no part of the content.
	Lead string
	// Tools gives the types of arguments to formats that write them as tags.
	Tools []message.Definition
}

// Grammar is a format bound to a vocabulary. It is immutable and safe for
// concurrent use.
type Grammar struct {
	Format
	vocabulary *vocabulary
	thinkOpen, thinkClose,
	callOpen, callClose string
}

// Bind prepares a format for a tokenizer. A reply ends at the first of the
// stop tokens, which are named by their spelling.
func Bind(f Format, tok tokenizer.Tokenizer, stops []string) *Grammar {
	marks := []string{f.ThinkOpen, f.ThinkClose, f.CallOpen, f.CallClose}
	if f.harmony {
		marks = harmonyMarks
	}
	g := &Grammar{Format: f, vocabulary: newVocabulary(tok, append(marks, f.marks...), stops)}
	g.thinkOpen, g.thinkClose = g.vocabulary.mark(f.ThinkOpen), g.vocabulary.mark(f.ThinkClose)
	g.callOpen, g.callClose = g.vocabulary.mark(f.CallOpen), g.vocabulary.mark(f.CallClose)
	return g
}

// Parser returns a parser for one reply.
func (g *Grammar) Parser(o Options) Parser {
	if g.harmony {
		return newHarmony(g, o)
	}
	return newTagged(g, o)
}
