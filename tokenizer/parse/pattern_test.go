package parse

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
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

// say samples what a pattern allows: the shortest, with these arguments.
func (m marked) say(p Pattern, arguments map[Style]string) (ids []uint32) {
	switch p.Kind {
	case Literal:
		return m.Encode(nil, p.Text)
	case Token:
		return []uint32{p.Token}
	case Until:
		if p.Text != "" {
			return m.Encode(nil, "Hm."+p.Text)
		}
		return append(m.Encode(nil, "Hm."), p.Token)
	case Class:
		return m.Encode(nil, map[string]string{"[0-9]{1,4}": "3", blank: "\n\n"}[p.Text])
	case Value:
		return m.Encode(nil, arguments[p.Style])
	case Either:
		return m.say(p.Parts[len(p.Parts)-1], arguments)
	}
	for _, part := range p.Parts {
		ids = append(ids, m.say(part, arguments)...)
	}
	return ids
}

// TestWhatAForcedCallAllowsIsReadAsCalls: every format that has a shape reads
// what its own pattern allows as calls, and nothing but calls and thinking.
func TestWhatAForcedCallAllowsIsReadAsCalls(t *testing.T) {
	tools, err := message.ParseTools([]byte(`[{"type":"function","function":{"name":"other"}},
		{"type":"function","function":{"name":"look_up","parameters":{"type":"object","properties":{"at":{"type":"integer"},"q":{"type":"string"}}}}}]`))
	require.NoError(t, err)
	arguments := map[Style]string{
		JSON:       `{"at": 1, "q": "a <b> \"c\""}`,
		QwenTags:   "<parameter=at>\n1\n</parameter>\n<parameter=q>\na <b> \"c\"\n</parameter>",
		MiniMaxTag: `<parameter name="at">1</parameter>` + "\n" + `<parameter name="q">a <b> "c"</parameter>`,
	}
	shaped := 0
	for _, f := range Formats() {
		all := append([]string{f.ThinkOpen, f.ThinkClose, f.CallOpen, f.CallClose}, f.marks...)
		for _, spelled := range []bool{false, true} {
			tok := marked{Tokenizer: demo.Tokenizer()}
			for _, m := range all {
				if m != "" && !spelled {
					tok.marks = append(tok.marks, m)
				}
			}
			g := Bind(f, tok, nil)
			_, ok := g.Forced(tools, "", false)
			require.Equal(t, f.shape != nil, ok, f.Name)
			if !ok {
				continue
			}
			shaped++
			for _, prompt := range []string{"", f.ThinkOpen + "\n", f.ThinkOpen + "\n\n" + f.ThinkClose + "\n\n"} {
				for _, single := range []bool{true, false} {
					calls, ok := g.Forced(tools, "look_up", single)
					require.True(t, ok)
					before := g.Thoughts(prompt)
					require.Equal(t, f.ThinkOpen == "" || strings.Contains(prompt, f.ThinkClose), before == nil, f.Name)
					p := g.Parser(Options{Prompt: prompt, Tools: tools})
					if before != nil {
						p.Push(tok.say(*before, arguments))
					}
					p.Push(tok.say(calls, arguments))
					got, _ := p.Finish("stop")
					require.Len(t, got.Calls, map[bool]int{true: 1, false: 2}[single], "%s: %+v", f.Name, got)
					require.Empty(t, got.Content, f.Name)
					if f.Name == Kimi.Name && !single {
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
						require.JSONEq(t, arguments[JSON], c.Arguments, f.Name)
					}
				}
			}
			_, ok = g.Forced(tools, "missing", true)
			require.False(t, ok, "no such tool")
		}
	}
	require.Equal(t, 2*7, shaped, "hermes, qwen_xml, minimax, deepseek_v3, deepseek_v31, kimi, llama")
}
