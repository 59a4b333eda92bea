package llamacpp

import (
	"strconv"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/tokenizer/parse"
)

// values are the rules of JSON as models write it. White space is bounded: a
// grammar must not allow a loop that says nothing.
const values = `
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" blank ( member ( blank "," blank member )* )? blank "}"
member ::= string blank ":" blank value
array ::= "[" blank ( value ( blank "," blank value )* )? blank "]"
string ::= "\"" ( [^"\\\x00-\x1F] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} ) )* "\""
number ::= "-"? ( "0" | [1-9] [0-9]{0,15} ) ( "." [0-9]{1,15} )? ( [eE] [-+]? [0-9]{1,3} )?
blank ::= [ \n\t]{0,8}
`

// gbnf writes a pattern in llama.cpp's grammar, in which <[7]> is the token 7
// (grammars/README.md). Arguments have to be a JSON object there, whatever the
// tool's schema says; other styles of arguments, and thinking whose end is no
// token, cannot be written.
func gbnf(g *engine.Grammar) (string, error) {
	w := gbnfWriter{}
	w.b.WriteString("root ::= ")
	if g.Thinking != nil {
		w.pattern(*g.Thinking)
	}
	w.pattern(*g.Pattern)
	w.b.WriteString(values)
	if w.fault != "" {
		return "", &engine.Error{Class: engine.Refused, Message: "llama.cpp has no grammar for " + w.fault + "; use tool_choice auto, or a pool of sglang or vLLM"}
	}
	return w.b.String(), nil
}

type gbnfWriter struct {
	b     strings.Builder
	fault string
}

func (w *gbnfWriter) pattern(p parse.Pattern) {
	switch p.Kind {
	case parse.Literal:
		w.b.WriteString(literal(p.Text))
	case parse.Token:
		w.token("", p.Token)
	case parse.Until:
		if p.Text != "" {
			w.fault = "thinking that no token ends"
		}
		w.token("!", p.Token)
		w.b.WriteString("* ")
		w.token("", p.Token)
	case parse.Class:
		w.b.WriteString(p.Text)
	case parse.Value:
		if p.Style != parse.JSON {
			w.fault = "calls whose arguments are written as tags"
		}
		w.b.WriteString("object")
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

func (w *gbnfWriter) token(not string, id uint32) {
	w.b.WriteString(not + "<[" + strconv.FormatUint(uint64(id), 10) + "]>")
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

func literal(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + `"`
}

// constrain writes a constraint into a request.
func constrain(o *wire.Object, g *engine.Grammar) error {
	if g == nil {
		return nil
	}
	if g.Thinking != nil && g.Pattern == nil {
		return &engine.Error{Class: engine.Refused, Message: "llama.cpp cannot leave a model its thinking before an answer of kind " + g.Kind + "; turn thinking off in the request"}
	}
	switch g.Kind {
	case "json_object":
		o.Raw("json_schema", []byte(`{"type":"object"}`))
	case "json_schema":
		o.Raw("json_schema", []byte(g.Value))
	case "gbnf":
		o.Text("grammar", g.Value)
	case "tool_choice":
		text, err := gbnf(g)
		if err != nil {
			return err
		}
		o.Text("grammar", text)
	}
	return nil
}
