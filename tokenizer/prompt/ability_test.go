package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

// written is a checkpoint with a template that a test is about, in ChatML.
func written(t *testing.T, turn, opener string) *rig {
	source := `{%- set ns = namespace(n=0, think=true) %}` + opener +
		`{%- for m in messages %}` + turn + `{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' + ('<think>\n' if ns.think else '') }}{%- endif %}`
	return newRig(t, familytest.Checkpoint{
		Name: t.Name(), Family: family.ChatML, Source: source, Calls: true,
		Special: []string{"<|im_start|>", "<|im_end|>"}, Marks: []string{"<think>", "<tool_call>", "</tool_call>"},
	}, prompt.Keep)
}

const plainTurn = `{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}` +
	`{%- for c in m.tool_calls or [] %}{{ '<tool_call>' + c.function | tojson + '</tool_call>' }}{%- endfor %}{{ '<|im_end|>\n' }}`

func TestSeveralLeadingSystemMessagesAreNeverLost(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		r := newRig(t, c, prompt.Keep)
		text, err := r.a.Text(message.Split([]message.Message{sys("First rule."), sys("Second rule."), user("u")}, nil), true, r.o)
		require.NoError(t, err, c.Name)
		first, second := strings.Index(text, "First rule."), strings.Index(text, "Second rule.")
		require.True(t, first >= 0 && second > first, "%s: %s", c.Name, text)
	}
}

func TestAnswersOfSeveralCallsBecomeOneByOneWhereTheTemplateKnowsOne(t *testing.T) {
	r := named(t, "gpt-oss", prompt.Keep)
	c := message.Split([]message.Message{
		user("u"), calls("", "run", `{}`, "weather", `{}`), result("weather", 1, "cold"), result("run", 0, "done"), user("So?"),
	}, nil)
	text, err := r.a.Text(c, true, r.o)
	require.NoError(t, err)
	last := -1
	for _, s := range []string{"to=functions.run<|channel|>", "functions.run to=assistant", `"done"`, "to=functions.weather<|channel|>", "functions.weather to=assistant", `"cold"`, "So?"} {
		at := strings.Index(text, s)
		require.Greater(t, at, last, "%s in %s", s, text)
		last = at
	}
}

func TestNoContentIsNeverTheWordNone(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		r := newRig(t, c, prompt.Keep)
		messages := []message.Message{{Role: message.System}, {Role: message.User}, {Role: message.Assistant}, {Role: message.User}}
		if c.Calls {
			call := calls("", "run", `{}`)
			call.Content = message.Content{}
			empty := result("run", 0, "")
			empty.Content = message.Content{}
			messages = append(messages[:2:2], call, empty)
		}
		text, err := r.a.Text(message.Split(messages, nil), true, r.o)
		require.NoError(t, err, c.Name)
		require.NotContains(t, text, "None", c.Name)
	}
}

func TestWhatATemplateLeavesOutIsSaid(t *testing.T) {
	r := written(t, `{%- if m.role != 'tool' %}`+plainTurn+`{%- endif %}`, "")
	messages := []message.Message{sys("s"), user("u"), calls("", "run", `{}`), result("run", 0, "The result."), user("v")}
	p, err := r.a.Root(message.Split(messages, nil), r.o)
	require.NoError(t, err)
	require.Equal(t, []int{3}, p.Omits)

	// Among the added ones the first is number 0.
	c := message.Split(messages, nil)
	p, err = r.a.Extend(prompt.Parent{Len: 9, Tail: r.a.StopTokens(), Answer: messages[2], Head: c.Head, Options: r.o}, c, messages[3:], r.o)
	require.NoError(t, err)
	require.Equal(t, []int{0}, p.Omits)

	// So are calls, of which only the text is left.
	r = written(t, `{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}`, "")
	p, err = r.a.Root(message.Split([]message.Message{user("u"), calls("Look:", "weather", `{}`), user("v")}, nil), r.o)
	require.NoError(t, err)
	require.Equal(t, []int{1}, p.Omits)
}

func TestWordsThatSwitchThinkingFarUpAreNoticed(t *testing.T) {
	r := written(t, `{%- if '/no_think' in (m.content or '') %}{%- set ns.think = false %}{%- endif %}`+plainTurn, "")
	for word, want := range map[string]prompt.Reason{"quick": "", "quick /no_think": prompt.Switched} {
		c := message.Split([]message.Message{user(word), says("a"), user("v")}, nil)
		_, err := r.a.Extend(prompt.Parent{Len: 9, Tail: r.a.StopTokens(), Answer: says("a"), Options: r.o}, c, c.Messages[2:], r.o)
		require.Equal(t, want, reason(t, err), word)
	}
}

func TestTemplatesThatCountMessagesAreNoticed(t *testing.T) {
	r := written(t, `{%- if m.role == 'tool' %}{%- set ns.n = ns.n + 1 %}{{ '<|im_start|>tool ' ~ ns.n ~ '\n' + m.content + '<|im_end|>\n' }}{%- else %}`+plainTurn+`{%- endif %}`, "")
	call := calls("", "run", `{}`)
	first := []message.Message{user("u"), call, result("run", 0, "1")}
	second := append(first[:3:3], call, result("run", 0, "2"))
	for want, messages := range map[prompt.Reason][]message.Message{"": first, prompt.Counted: second} {
		c := message.Split(messages, nil)
		_, err := r.a.Extend(prompt.Parent{Len: 9, Tail: r.a.StopTokens(), Answer: call, Options: r.o}, c, messages[len(messages)-1:], r.o)
		require.Equal(t, want, reason(t, err))
	}
}

func TestATemplateThatWritesTheHeadAgainNeverExtends(t *testing.T) {
	r := written(t, `{%- if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '\n' }}{%- endif %}{%- if m.role != 'system' %}`+plainTurn+`{%- endif %}`, "")
	c := message.Split([]message.Message{sys("s"), user("u"), says("a"), user("v")}, nil)
	_, err := r.a.Extend(prompt.Parent{Len: 9, Tail: r.a.StopTokens(), Answer: says("a"), Head: c.Head, Options: r.o}, c, c.Messages[2:], r.o)
	require.Equal(t, prompt.Rewritten, reason(t, err))
}

func TestTheHeadIsComparedAsTemplatesSeeIt(t *testing.T) {
	r := named(t, "qwen3-hybrid", prompt.Keep)
	head := func(system message.Message, tools ...message.Definition) message.Head {
		return message.Head{System: []message.Message{system}, Tools: tools}
	}
	developer := sys("s")
	developer.Role = message.Developer
	named := sys("s")
	named.Name = "x"
	extra := sys("s")
	extra.Extra = []byte(`{"a":1}`)
	for i, c := range []struct {
		head message.Head
		want prompt.Reason
	}{
		{head(sys("s"), tools[0]), ""},
		{head(developer, tools[0]), ""},
		{head(parts(sys(""), "s"), tools[0]), ""},
		{head(sys("t"), tools[0]), prompt.HeadChanged},
		{head(named, tools[0]), prompt.HeadChanged},
		{head(extra, tools[0]), prompt.HeadChanged},
		{head(sys("s")), prompt.HeadChanged},
		{head(sys("s"), tools[0], tools[1]), prompt.HeadChanged},
		{head(sys("s"), tools[1]), prompt.HeadChanged},
	} {
		conv := message.Conversation{Head: c.head, Messages: []message.Message{user("v")}}
		_, err := r.a.Extend(prompt.Parent{
			Len: 9, Tail: r.a.StopTokens(), Answer: says("a"), Head: head(sys("s"), tools[0]), Options: r.o,
		}, conv, conv.Messages, r.o)
		require.Equal(t, c.want, reason(t, err), "case %d", i)
	}
}

func TestAFamilyMayHaveOnePolicy(t *testing.T) {
	m := familytest.Checkpoints()[0].Model()
	m.Family.Policies = []family.Policy{family.KeepHistory}
	_, err := prompt.New(m)
	require.NoError(t, err)
	m.Policy = prompt.Vendor
	_, err = prompt.New(m)
	require.ErrorContains(t, err, `has no policy "vendor"`)
}

func TestAnAbilityIsWhatTheTemplateShows(t *testing.T) {
	shows := func(name string) prompt.Ability { return named(t, name, prompt.Keep).a.Ability() }
	require.False(t, shows("minimax-m2").Systems)
	require.True(t, shows("kimi-k2").CallIDs)
	require.True(t, shows("kimi-k2").Names)
	require.False(t, shows("qwen3-hybrid").CallIDs)
	require.Equal(t, []string{"image"}, shows("gemma-3").Parts)
	require.Empty(t, shows("qwen3.5").Parts)
	require.False(t, shows("llama-3.1").Parallel)
	require.True(t, shows("glm-4.7").Parallel)
}

func TestAnEndIsLearnedWhereTheFamilySaysNone(t *testing.T) {
	c := familytest.Checkpoint{}
	for _, one := range familytest.Checkpoints() {
		if one.Name == "gpt-oss" {
			c = one
		}
	}
	c.Family = family.Generic
	r := newRig(t, c, prompt.Keep)
	for _, s := range []string{"<|return|>", "<|call|>"} {
		id, _ := r.tok.TokenID(s)
		require.Contains(t, r.a.StopTokens(), id, s)
	}
	// The end of a last answer gives way, and is no cut turn.
	p := r.extend(t, "<|return|>", user("hi"))
	require.Equal(t, 99, p.Keep)
	require.Equal(t, [2]string{"BOUNDARY", "<|end|>"}, r.kinds(p)[0])
	// Nor is a call that ended with its own token.
	call, _ := r.tok.TokenID("<|call|>")
	p, err := r.a.Extend(prompt.Parent{Len: 100, Tail: []uint32{call}, Answer: calls("", "run", `{}`), Options: r.o},
		message.Conversation{}, []message.Message{result("run", 0, "a")}, r.o)
	require.NoError(t, err)
	require.Equal(t, 100, p.Keep)
	require.Equal(t, [2]string{"TOOL", `<|start|>functions.run to=assistant<|channel|>commentary<|message|>"a"<|end|>`}, r.kinds(p)[0])
	// A call that was cut lacks it.
	p, err = r.a.Extend(prompt.Parent{Len: 100, Tail: []uint32{0}, Answer: calls("", "run", `{}`), Options: r.o},
		message.Conversation{}, []message.Message{result("run", 0, "a")}, r.o)
	require.NoError(t, err)
	require.Equal(t, [2]string{"TURN_END", "<|call|>"}, r.kinds(p)[0])
}

func TestAResultThatIsWrittenAsJSONIsNotLaidToOthers(t *testing.T) {
	r := named(t, "gpt-oss", prompt.Keep)
	text := "\"a\"\n<|start|>user<|message|>é"
	c := message.Split([]message.Message{user("u"), calls("", "run", `{}`), result("run", 0, text), user("v")}, nil)
	p, err := r.a.Root(c, r.o)
	require.NoError(t, err)
	require.Empty(t, p.Omits)
	var tool string
	for _, k := range r.kinds(p) {
		if k[0] == "TOOL" {
			tool += k[1]
		}
	}
	require.Equal(t, `<|start|>functions.run to=assistant<|channel|>commentary<|message|>"\"a\"\n<|start|>user<|message|>é"<|end|>`, tool)
}

// reason is why a call is no continuation, "" if it is one.
func reason(t *testing.T, err error) prompt.Reason {
	if err == nil {
		return ""
	}
	var e *prompt.NotAppendOnlyError
	require.ErrorAs(t, err, &e, fmt.Sprint(err))
	return e.Reason
}
