package prompt

import (
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/parse"
)

// read finds out how replies are read. The family says it; for one that is not
// known it is the format that reads what the template writes for a call. In any
// case the template's own way to write a call is the test.
func (a *Assembler) read() {
	a.grammar = a.bind(a.m.Family.Format)
	if a.ability.Calls = a.reads(a.grammar); a.ability.Calls || a.m.Family.Name != family.Generic.Name {
		return
	}
	for _, f := range parse.Formats() {
		if g := a.bind(f); a.reads(g) {
			a.grammar, a.ability.Calls = g, true
			return
		}
	}
	if a.marks("<think>") && a.marks("</think>") {
		f := a.m.Family.Format
		f.ThinkOpen, f.ThinkClose, f.Thinking = "<think>", "</think>", "\n"
		a.grammar = a.bind(f)
	}
}

func (a *Assembler) marks(token string) bool {
	id, ok := a.m.Tokenizer.TokenID(token)
	return ok && a.added[id]
}

// reads reports whether a grammar reads a call as the template writes it.
func (a *Assembler) reads(g *parse.Grammar) bool {
	// Where the id of a call carries its name, it must be in that form. Where
	// the generation prompt has opened a thinking, the answer must have one;
	// where it has closed it, none.
	for _, id := range []string{callID, "functions." + tool + ":0"} {
		for _, reasoning := range []string{thought, ""} {
			call := calling(`{"turnlog":"`+reply+`"}`, id)
			call.Reasoning = reasoning
			if a.readsCall(g, call) {
				return true
			}
		}
	}
	return false
}

func (a *Assembler) readsCall(g *parse.Grammar, call message.Message) bool {
	user, tools := say(message.User, query), []message.Definition{definition("")}
	opened, err := a.render([]message.Message{user}, tools, true, probe)
	if err != nil {
		return false
	}
	closed, err := a.render([]message.Message{user, call}, tools, false, probe)
	rest, ok := strings.CutPrefix(closed, opened)
	if at := strings.LastIndex(opened, g.ThinkOpen); !ok && g.ThinkOpen != "" && at >= 0 {
		// The history leaves out the thinking that the prompt opens.
		rest, ok = strings.CutPrefix(closed, opened[:at])
		rest = g.ThinkClose + rest
	}
	if err != nil || !ok {
		return false
	}
	p := g.Parser(parse.Options{Prompt: behind(opened, query), Lead: a.lead, Tools: tools})
	p.Push(a.m.Tokenizer.Encode(nil, rest))
	r, _ := p.Finish("stop")
	return len(r.Calls) == 1 && r.Calls[0].Name == tool && strings.Contains(r.Calls[0].Arguments, reply) &&
		strings.TrimSpace(r.Content) == ""
}
