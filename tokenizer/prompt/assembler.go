package prompt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/parse"
)

// Assembler makes the prompts of one model. It is immutable and safe for
// concurrent use.
type Assembler struct {
	m       Model
	grammar *parse.Grammar
	// added are the ids of all added tokens: where text may be cut.
	added map[uint32]bool
	// stops end a turn when they are sampled. closers are the spellings of the
	// tokens that end a turn in a render: stops, and what a template may write
	// for one.
	stops      []uint32
	closers    []string
	ends, trim map[uint32]bool
	// opens: a turn has no end of its own but ends where the next message opens.
	opens bool
	// boundary are the tokens that what is new may begin with: closers, or, where
	// a turn has none, what messages begin with.
	boundary map[uint32]bool
	// counts are the roles whose messages the template writes otherwise where
	// others of their role came before. switches are words in a history that change what it writes
	// further down.
	counts   map[message.Role]bool
	switches []string
	// lead is the white space between a generation prompt and an answer.
	lead  string
	heads heads
	// textual: the template wants the arguments of calls as text. listed: it
	// wants all content as lists of parts. nulls: it writes the missing content of
	// an answer with calls as a word.
	textual, listed, nulls bool
	ability                Ability
	// learned: ability is complete but for how replies are read.
	learned bool
}

// Ability is what New found out about a template by rendering with it.
type Ability struct {
	// SystemInside: system messages may stand behind other messages. Systems:
	// several may lead; otherwise they become one.
	SystemInside, Systems bool
	// Parts are the types of content parts, besides text, that are rendered.
	Parts []string
	// Names: the names of speakers are rendered. CallIDs: so are the ids that
	// results answer. Where they are not, a model never sees them, as its vendor
	// means it to.
	Names, CallIDs bool
	// Extends: turns can be joined at an added token. Without it every call is
	// a root.
	Extends bool
	// Format names how replies are read.
	Format string
	// Calls: a call is read as the template writes it. If the family says that
	// its models call tools, but this is false, the family is the wrong one.
	// Parallel: an answer may hold several calls.
	Calls, Parallel bool
}

// New learns the template's ways by rendering a few short conversations.
func New(m Model) (*Assembler, error) {
	if m.Renderer == nil || m.Tokenizer == nil {
		return nil, errors.New("prompt: a renderer and a tokenizer are needed")
	}
	if m.Policy == "" {
		m.Policy = Keep
	}
	if m.Policy != Keep && m.Policy != Vendor {
		return nil, fmt.Errorf("prompt: policy %q is not known; there are %s and %s", m.Policy, Keep, Vendor)
	}
	if !m.Family.Allows(m.Policy) {
		return nil, fmt.Errorf("prompt: family %s has no policy %q; it has %q", m.Family.Name, m.Policy, m.Family.Policies)
	}
	a := &Assembler{m: m, added: map[uint32]bool{}, boundary: map[uint32]bool{}, counts: map[message.Role]bool{}}
	for _, t := range m.Tokenizer.Added() {
		a.added[t.ID] = true
	}
	a.ends, a.trim = ids(m.Tokenizer, m.Family.Ends), ids(m.Tokenizer, m.Family.Trim)
	for _, s := range m.Family.Stops {
		if id, ok := m.Tokenizer.TokenID(s); ok && a.added[id] {
			a.closes(id)
		}
	}
	for _, id := range m.StopTokens {
		a.closes(id)
	}
	if err := a.learn(); err != nil {
		return nil, fault("learn the template", err)
	}
	a.read()
	a.ability.Format = a.grammar.Name
	return a, nil
}

func (a *Assembler) bind(f parse.Format) *parse.Grammar {
	stops := make([]string, len(a.stops))
	for i, id := range a.stops {
		stops[i], _ = a.m.Tokenizer.Token(id)
	}
	return parse.Bind(f, a.m.Tokenizer, stops)
}

func (a *Assembler) closes(id uint32) {
	if s, ok := a.m.Tokenizer.Token(id); ok && !slices.Contains(a.stops, id) {
		a.stops, a.closers = append(a.stops, id), append(a.closers, s)
	}
}

func ids(tok tokenizer.Tokenizer, tokens []string) map[uint32]bool {
	set := map[uint32]bool{}
	for _, t := range tokens {
		if id, ok := tok.TokenID(t); ok {
			set[id] = true
		}
	}
	return set
}

// Ability returns what New found out.
func (a *Assembler) Ability() Ability { return a.ability }

// Policy is the history policy that prompts are made under.
func (a *Assembler) Policy() Policy { return a.m.Policy }

// StopTokens are the ids at which an engine must end a turn.
func (a *Assembler) StopTokens() []uint32 { return slices.Clone(a.stops) }

// Parser returns a parser for the reply to p, the prompt of conversation c.
func (a *Assembler) Parser(p Prompt, c message.Conversation) parse.Parser {
	return a.grammar.Parser(parse.Options{
		Prompt: a.end(p), Lead: a.lead, Tools: slices.Concat(c.Head.Tools, c.Deferred),
	})
}

// end is the text that a prompt ends with.
func (a *Assembler) end(p Prompt) string {
	var end []uint32
	if n := len(p.Segments); n > 0 {
		end = p.Segments[n-1].IDs
	}
	return a.m.Tokenizer.Decode(end[max(0, len(end)-promptEnd):])
}

// Forced is the pattern of a reply that calls a tool of conversation c; see
// parse.Grammar.Forced.
func (a *Assembler) Forced(c message.Conversation, name string, single bool) (parse.Pattern, error) {
	return a.grammar.Forced(slices.Concat(c.Head.Tools, c.Deferred), name, single)
}

// Before is the pattern of what comes before an answer to p, or before a forced
// call; see parse.Grammar.Before.
func (a *Assembler) Before(p Prompt, call bool) *parse.Pattern {
	return a.grammar.Before(a.end(p), call)
}

// promptEnd is how many ids of a prompt a parser looks at: enough for an opened
// or closed thinking and the white space behind it.
const promptEnd = 16

// closer finds the first token in text that ends a turn.
func (a *Assembler) closer(text string) (at, n int) {
	at = -1
	for _, c := range a.closers {
		if i := strings.Index(text, c); i >= 0 && (at < 0 || i < at) {
			at, n = i, len(c)
		}
	}
	return at, n
}
