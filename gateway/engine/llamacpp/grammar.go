package llamacpp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/tokenizer/parse"
)

// constrain writes a constraint into a request. The server makes a grammar of a
// schema by itself, but of none with something before it.
func constrain(o *wire.Object, g *engine.Grammar) error {
	switch {
	case g == nil:
	case g.Pattern != nil:
		text, _ := grammarOf(g.Before, *g.Pattern)
		o.Text("grammar", text)
	case g.Kind == "gbnf":
		o.Text("grammar", g.Value)
	case g.Before == nil:
		o.Raw("json_schema", schemaOf(g))
	default:
		text, left := grammarOf(g.Before, parse.Pattern{Kind: parse.Value, Schema: schemaOf(g)})
		if left != nil {
			return &engine.Error{Class: engine.Refused, Message: fmt.Sprintf(
				"llama.cpp cannot keep an answer behind a model's thinking to %s in its schema; turn thinking off in the request, or leave that out",
				strings.Join(left, ", "))}
		}
		o.Text("grammar", text)
	}
	return nil
}

// schemaOf is the schema of an answer of kind json_object or json_schema.
func schemaOf(g *engine.Grammar) []byte {
	if g.Kind == "json_object" {
		return []byte(`{"type":"object"}`)
	}
	return []byte(g.Value)
}

// grammarOf writes a pattern in llama.cpp's grammar, in which <[7]> is the token 7
// (grammars/README.md), and says what of its schemas the grammar leaves out.
func grammarOf(before *parse.Pattern, p parse.Pattern) (text string, left []string) {
	w := gbnfWriter{rules: map[string]string{}}
	if before != nil {
		w.pattern(*before)
	}
	w.pattern(p)
	root := "root ::= " + w.b.String()
	return root + values + w.extra.String(), w.left
}

type gbnfWriter struct {
	b, extra strings.Builder
	// rules are the names of the rules in extra, by what they are of.
	rules map[string]string
	left  []string
	// text is the rule of a string in a JSON value.
	text string
}

func (w *gbnfWriter) pattern(p parse.Pattern) {
	switch p.Kind {
	case parse.Literal:
		w.b.WriteString(literal(p.Text))
	case parse.Token:
		w.b.WriteString("<[" + strconv.FormatUint(uint64(p.Token), 10) + "]>")
	case parse.Free:
		if p.Text != "" {
			w.leave("pattern")
		}
		w.b.WriteString(w.without(p.Not, "", ""))
	case parse.Class:
		w.b.WriteString(p.Text)
	case parse.Value:
		w.b.WriteString(w.schema(p.Schema, p.Not))
	case parse.Sequence:
		w.group(p.Parts, " ")
	case parse.Either:
		w.group(p.Parts, " | ")
	case parse.Optional:
		w.group(p.Parts, " ")
		w.b.WriteByte('?')
	case parse.Repeated:
		w.group(p.Parts, " ")
		w.b.WriteByte('+')
	}
	w.b.WriteByte(' ')
}

func (w *gbnfWriter) group(parts []parse.Pattern, between string) {
	w.b.WriteString("( ")
	for i, p := range parts {
		if i > 0 {
			w.b.WriteString(between)
		}
		w.pattern(p)
	}
	w.b.WriteByte(')')
}

// without is the rule of a text that holds none of some others. A rule stands
// for what could become one of them: the longest end of the text that is a
// beginning of one. Each lets the text end there, and none leads on to a whole
// one. The text has no character of the class no, and may hold what matches the
// rule also.
func (w *gbnfWriter) without(texts []string, no, also string) string {
	key := "text without " + no + strings.Join(texts, "\x00")
	if name, ok := w.rules[key]; ok {
		return name
	}
	name := w.rule(key)
	states := []string{""}
	for _, t := range texts {
		for i := range t {
			if i > 0 && !slices.Contains(states, t[:i]) {
				states = append(states, t[:i])
			}
		}
	}
	of := func(state string) string {
		if state == "" {
			return name
		}
		return name + "-" + strconv.Itoa(slices.Index(states, state))
	}
	for _, state := range states {
		out := of(state) + ` ::= ""`
		var steps []rune
		for _, other := range append(slices.Clone(states), texts...) {
			// A character after which this is no longer the beginning it was.
			for i, r := range other {
				if strings.HasSuffix(state, other[:i]) && !slices.Contains(steps, r) && !strings.ContainsRune(no, r) {
					steps = append(steps, r)
				}
			}
		}
		for _, r := range steps {
			if next, ok := longest(state+string(r), states, texts); ok {
				out += " | " + literal(string(r)) + " " + of(next)
			}
		}
		if also != "" {
			out += " | " + also + " " + name
		}
		w.extra.WriteString(out + " | [^" + no + class(steps) + "] " + name + "\n")
	}
	return name
}

// longest is the longest end of s that is one of the states; false if it ends
// with one of the texts.
func longest(s string, states, texts []string) (state string, ok bool) {
	for _, t := range texts {
		if strings.HasSuffix(s, t) {
			return "", false
		}
	}
	for _, t := range states {
		if len(t) > len(state) && strings.HasSuffix(s, t) {
			state = t
		}
	}
	return state, true
}

// rule names a new rule.
func (w *gbnfWriter) rule(key string) string {
	name := "r" + strconv.Itoa(len(w.rules))
	w.rules[key] = name
	return name
}

// leave notes what the grammar does not say.
func (w *gbnfWriter) leave(what string) {
	if !slices.Contains(w.left, what) {
		w.left = append(w.left, what)
	}
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`)

func literal(s string) string { return `"` + escapes.Replace(s) + `"` }

// class is the inside of a character class.
func class(runes []rune) string {
	var b strings.Builder
	for _, r := range runes {
		fmt.Fprintf(&b, `\U%08X`, r)
	}
	return b.String()
}
