package parse

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/demo"
)

// marked is the demo tokenizer with the marks of a format as tokens.
type marked struct {
	tokenizer.Tokenizer
	marks []string
}

const firstMark = 1 << 20

func (m marked) Added() []tokenizer.AddedToken {
	var out []tokenizer.AddedToken
	for i, s := range m.marks {
		out = append(out, tokenizer.AddedToken{ID: uint32(firstMark + i), Content: s, Special: true})
	}
	return out
}

func (m marked) AppendBytes(dst []byte, id uint32) ([]byte, bool) {
	if id >= firstMark {
		return append(dst, m.marks[id-firstMark]...), true
	}
	return m.Tokenizer.AppendBytes(dst, id)
}

// free is a text with what might be taken for markup.
const free = `a <b> "c" { \ n`

// say samples what a pattern allows. Either of several ways is the given one, as
// far as there are so many.
func (m marked) say(p Pattern, way int) (ids []uint32) {
	switch p.Kind {
	case Literal:
		return m.Encode(nil, p.Text)
	case Token:
		return []uint32{p.Token}
	case Free:
		if p.Text != "" {
			return m.Encode(nil, "x-7")
		}
		if strings.Contains(strings.ToLower(p.Not[0]), "think") || p.Not[0] == "<|end|>" {
			return m.Encode(nil, "Hm.")
		}
		return m.Encode(nil, free)
	case Class:
		return m.Encode(nil, map[string]string{
			"[1-9][0-9]{0,3}": "3", "[a-zA-Z0-9]{9}": "abcdefghi", blank: "\n\n", `[\n]{0,1}`: strings.Repeat("\n", way%2), `[ ]{0,1}`: " ",
		}[p.Text])
	case Value:
		switch kind, _ := rawjson.Get(p.Schema, "type"); {
		case rawjson.Text(kind) == "integer":
			return m.Encode(nil, "1")
		case rawjson.KindOf(kind) == rawjson.Array: // of types, a string among them
			return m.Encode(nil, string(rawjson.AppendText(nil, free)))
		}
		if len(p.Schema) < 40 { // of one argument
			return m.Encode(nil, `{"z": "<y>"}`)
		}
		return m.Encode(nil, wanted)
	case Either:
		return m.say(p.Parts[min(way, len(p.Parts)-1)], way)
	}
	for _, part := range p.Parts {
		ids = append(ids, m.say(part, way)...)
	}
	return ids
}

// wanted are the arguments that say comes to, and tools have them.
const (
	wanted = `{"at": 1, "q": "a <b> \"c\" { \\ n", "unit": "K", "code": "x-7", "deep": {"z": "<y>"}, "maybe": "a <b> \"c\" { \\ n", "place": "a <b> \"c\" { \\ n"}`
	tools  = `[{"type":"function","function":{"name":"other"}},
		{"type":"function","function":{"name":"look_up","parameters":{"type":"object","required":["at","q"],"properties":{
			"at":{"type":"integer"},"q":{"type":"string"},"unit":{"enum":["K"]},"code":{"type":"string","pattern":"^[a-z]-[0-9]$"},
			"deep":{"type":"object"},"maybe":{"type":["string","null"]},"place":{"$ref":"#/$defs/place"}},
			"$defs":{"place":{"type":"string"}}}}}]`
)

// bound is a format with a tokenizer that has its marks as tokens, or spelled.
func bound(f Format, spelled bool) (*Grammar, marked) {
	tok := marked{Tokenizer: demo.Tokenizer()}
	all := append([]string{f.ThinkOpen, f.ThinkClose, f.CallOpen, f.CallClose}, f.marks...)
	if f.harmony {
		all = harmonyMarks
	}
	for _, m := range all {
		const inside = "｜DSML｜" // is a token, and what it stands in is none
		if m != "" && !spelled && (m == inside || !strings.Contains(m, inside)) {
			tok.marks = append(tok.marks, m)
		}
	}
	return Bind(f, tok, nil), tok
}

// TestWhatAForcedCallAllowsIsReadAsCalls: every format reads what its own
// pattern allows, in all its ways, as calls, and nothing but calls and thinking.
func TestWhatAForcedCallAllowsIsReadAsCalls(t *testing.T) {
	tools, err := message.ParseTools([]byte(tools))
	require.NoError(t, err)
	for _, f := range Formats() {
		for _, spelled := range []bool{false, true} {
			g, tok := bound(f, spelled)
			if f.harmony && spelled {
				_, err := g.Forced(tools, "", false)
				require.ErrorContains(t, err, "no token <|message|>")
				continue
			}
			for _, prompt := range []string{"", f.ThinkOpen + "\n", f.ThinkOpen + "\n\n" + f.ThinkClose + "\n\n"} {
				for _, single := range []bool{true, false} {
					for way := range 3 {
						calls, err := g.Forced(tools, "look_up", single)
						require.NoError(t, err)
						before := g.Before(prompt, true)
						closed := f.ThinkOpen == "" || strings.Contains(prompt, f.ThinkClose)
						require.Equal(t, closed && !f.harmony, before == nil, f.Name)
						p := g.Parser(Options{Prompt: prompt, Tools: tools})
						if before != nil {
							p.Push(tok.say(*before, way))
						}
						p.Push(tok.say(calls, way))
						if f.harmony {
							end, _ := g.vocabulary.id("<|call|>")
							p.Push([]uint32{end})
						}
						got, _ := p.Finish("stop")
						want := 2
						if single || f.harmony {
							want = 1
						}
						require.Len(t, got.Calls, want, "%s, spelled %v: %+v", f.Name, spelled, got)
						require.Empty(t, got.Content, f.Name)
						if len(got.Calls) == 2 && got.Calls[0].ModelID != "" {
							// This test counts all calls alike.
							require.Equal(t, []string{RepeatedID}, got.Flags)
						} else {
							require.Empty(t, got.Flags, f.Name)
						}
						if before != nil {
							require.Equal(t, "Hm.", got.Reasoning, f.Name)
						}
						for _, c := range got.Calls {
							require.Equal(t, "look_up", c.Name)
							require.JSONEq(t, wanted, c.Arguments, f.Name)
						}
					}
				}
			}
			_, err = g.Forced(tools, "missing", true)
			require.ErrorContains(t, err, "no such tool", f.Name)
		}
	}
}

// TestAnAnswerStandsBehindTheThinking: where a family's answers have a header,
// the pattern of what comes before has it, too.
func TestAnAnswerStandsBehindTheThinking(t *testing.T) {
	g, tok := bound(Harmony, false)
	p := g.Parser(Options{})
	p.Push(tok.say(*g.Before("", false), 0))
	p.Push(tok.Encode(nil, `{"a": 1}`))
	got, _ := p.Finish("stop")
	require.Equal(t, `{"a": 1}`, got.Content)
	require.Equal(t, "Hm.", got.Reasoning)
	require.Empty(t, got.Flags)
}

// TestAForcedCallThatNoGrammarCanSayIsRefused, with what is in the way.
func TestAForcedCallThatNoGrammarCanSayIsRefused(t *testing.T) {
	forced := func(f Format, parameters string) error {
		tools, err := message.ParseTools([]byte(`[{"type":"function","function":{"name":"f","parameters":` + parameters + `}}]`))
		require.NoError(t, err)
		g, _ := bound(f, false)
		_, err = g.Forced(tools, "", true)
		return err
	}
	for parameters, want := range map[string]string{
		`{"type":"object","properties":{"a>b":{"type":"string"}}}`:                   `the tool "f": its argument "a>b": no tag can hold such a name`,
		`{"type":"object","properties":{"a":{"enum":["x</parameter>"]}}}`:            `its value "x</parameter>" would be taken for the end of the tag`,
		`{"type":"object","properties":{},"required":["a"]}`:                         `its argument "a" is required, and not among its properties`,
		`{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"u"}}}}`: `it refers to a schema that is not among the $defs`,
	} {
		require.ErrorContains(t, forced(QwenXML, parameters), want)
		require.NoError(t, forced(Hermes, parameters), "JSON has room for all of it")
	}
	require.ErrorContains(t, forced(Plain, `{}`), "call no tools")
}
