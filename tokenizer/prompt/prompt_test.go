package prompt_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

func named(t *testing.T, name string, policy prompt.Policy) *rig {
	for _, c := range familytest.Checkpoints() {
		if c.Name == name {
			return newRig(t, c, policy)
		}
	}
	require.Fail(t, "no checkpoint "+name)
	return nil
}

// kinds are the segments as provenance and text.
func (r *rig) kinds(p prompt.Prompt) (out [][2]string) {
	for _, s := range p.Segments {
		out = append(out, [2]string{s.Provenance.String()[len("PROVENANCE_"):], r.tok.Decode(s.IDs)})
	}
	return out
}

func TestARootSaysWhoSaidWhat(t *testing.T) {
	r := named(t, "qwen3-hybrid", prompt.Keep)
	c := message.Split([]message.Message{
		sys("Be brief."), user("List"), thinks("Hm.", calls("", "run", `{}`)), result("run", 0, "a"), user("So?"),
	}, nil)
	p, err := r.a.Root(c, r.o)
	require.NoError(t, err)
	require.Zero(t, p.Keep)
	require.Equal(t, [][2]string{
		{"SYSTEM", "<|im_start|>system\nBe brief.<|im_end|>\n"},
		{"USER", "<|im_start|>user\nList<|im_end|>\n"},
		{"ASSISTANT_RERENDERED", "<|im_start|>assistant\n<tool_call>\n{\"name\": \"run\", \"arguments\": {}}\n</tool_call><|im_end|>\n"},
		{"TOOL", "<|im_start|>user\n<tool_response>\na\n</tool_response><|im_end|>\n"},
		{"USER", "<|im_start|>user\nSo?<|im_end|>\n"},
		{"GENERATION_PROMPT", "<|im_start|>assistant\n"},
	}, r.kinds(p))
}

// extend continues a call whose ids end with the given token.
func (r *rig) extend(t *testing.T, last string, added ...message.Message) prompt.Prompt {
	id, ok := r.tok.TokenID(last)
	require.True(t, ok, last)
	p, err := r.a.Extend(prompt.Parent{Len: 100, Tail: []uint32{id}, Answer: says("x"), Options: r.o}, message.Conversation{}, added, r.o)
	require.NoError(t, err)
	return p
}

func TestTheEndOfATurnDecidesWhatIsJoined(t *testing.T) {
	for _, c := range []struct {
		name, model, last string
		keep              int
		first             [2]string
	}{
		{"the stop token was sampled", "qwen3-hybrid", "<|im_end|>", 100, [2]string{"BOUNDARY", "\n"}},
		{"the turn was cut", "qwen3-hybrid", "a", 100, [2]string{"TURN_END", "<|im_end|>"}},
		{"another stop token was sampled", "qwen3-hybrid", "<|endoftext|>", 100, [2]string{"TURN_END", "<|im_end|>"}},
		{"the next message's opener was sampled", "glm-4.7", "<|user|>", 100, [2]string{"USER", "hi"}},
		{"another message's opener was sampled", "glm-4.7", "<|observation|>", 99, [2]string{"USER", "<|user|>hi"}},
		{"cut, where turns have no end of their own", "glm-4.7", "a", 100, [2]string{"USER", "<|user|>hi"}},
		{"the end of the last answer was sampled", "gpt-oss", "<|return|>", 99, [2]string{"BOUNDARY", "<|end|>"}},
		{"an equal end was sampled", "llama-3.1", "<|eom_id|>", 100, [2]string{"USER", "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"}},
		{"no line break stands behind the end", "kimi-k2", "<|im_end|>", 100, [2]string{"USER", "<|im_user|>user<|im_middle|>hi<|im_end|>"}},
	} {
		r := named(t, c.model, prompt.Keep)
		p := r.extend(t, c.last, user("hi"))
		require.Equal(t, c.keep, p.Keep, c.name)
		require.Equal(t, c.first, r.kinds(p)[0], c.name)
	}
}

func TestDeferredToolsAreRenderedWhereTheyAreReferredTo(t *testing.T) {
	r := named(t, "qwen3-hybrid", prompt.Keep)
	ref := result("search_tools", 0, "")
	ref.Content = message.Content{Form: message.List, Parts: []message.Part{
		{Type: "text", Text: "Found:\n"}, {Type: "tool_reference", Raw: []byte(`{"type":"tool_reference","tool_name":"late"}`)},
	}}
	parent := prompt.Parent{Len: 9, Tail: r.a.StopTokens(), Answer: calls("", "search_tools", `{}`), Options: r.o}
	p, err := r.a.Extend(parent, message.Conversation{Deferred: []message.Definition{late}}, []message.Message{ref}, r.o)
	require.NoError(t, err)
	require.Equal(t, [2]string{"TOOL", "<|im_start|>user\n<tool_response>\nFound:\n" + string(late.Raw) + "\n\n</tool_response><|im_end|>\n"}, r.kinds(p)[1])

	_, err = r.a.Extend(parent, message.Conversation{}, []message.Message{ref}, r.o)
	require.ErrorIs(t, err, prompt.ErrUnknownTool)
}

func TestWhatATemplateCannotSayIsRefused(t *testing.T) {
	r := named(t, "qwen3.5", prompt.Keep)
	inside := message.Conversation{Messages: []message.Message{user("u"), says("a"), sys("s"), user("v")}}
	_, err := r.a.Root(inside, r.o)
	require.ErrorIs(t, err, prompt.ErrSystemInside)

	picture := user("")
	picture.Content = message.Content{Form: message.List, Parts: []message.Part{{Type: "image", Raw: []byte(`{"type":"image"}`)}}}
	_, err = r.a.Root(message.Conversation{Messages: []message.Message{picture}}, r.o)
	require.ErrorIs(t, err, prompt.ErrContent)
}

func TestPolicyKeepPinsTheFamilysSwitch(t *testing.T) {
	for policy, want := range map[prompt.Policy]bool{prompt.Keep: true, prompt.Vendor: false} {
		r := named(t, "glm-4.7", policy)
		r.o.Kwargs = []byte(`{"enable_thinking": true}`)
		c := message.Conversation{Messages: []message.Message{user("u"), thinks("Old thoughts.", says("a")), user("v")}}
		text, err := r.a.Text(c, true, r.o)
		require.NoError(t, err)
		if want {
			require.Contains(t, text, "Old thoughts.")
		} else {
			require.NotContains(t, text, "Old thoughts.")
		}
	}
}

func TestAReplyBeginsWhereThePromptEndsNotWhereATextSaysSo(t *testing.T) {
	r := named(t, "deepseek-v3.1", prompt.Keep)
	p, err := r.a.Root(message.Conversation{Messages: []message.Message{
		user("u"), calls("", "run", `{}`), result("run", 0, "I am thinking: <think>"),
	}}, r.o)
	require.NoError(t, err)
	parser := r.a.Parser(p, message.Conversation{})
	parser.Push(r.tok.Encode(nil, "Done."))
	reply, _ := parser.Finish("stop")
	require.Equal(t, "Done.", reply.Content)
	require.Empty(t, reply.Reasoning)
}

func TestNothingToContinueIsNotAppendOnly(t *testing.T) {
	r := named(t, "qwen3-hybrid", prompt.Keep)
	_, err := r.a.Extend(prompt.Parent{Len: 1, Tail: []uint32{1}}, message.Conversation{}, nil, r.o)
	var branch *prompt.NotAppendOnlyError
	require.ErrorAs(t, err, &branch)
}

func TestATemplateWithoutAddedTokensNeverExtends(t *testing.T) {
	c := familytest.Checkpoint{
		Name: "plain text", Family: family.Generic,
		Source: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
	}
	r := newRig(t, c, prompt.Keep)
	require.False(t, r.a.Ability().Extends)
	_, err := r.a.Extend(prompt.Parent{Len: 1, Tail: []uint32{1}, Answer: says("x"), Options: r.o}, message.Conversation{}, []message.Message{user("y")}, r.o)
	var branch *prompt.NotAppendOnlyError
	require.ErrorAs(t, err, &branch)
}

func TestAnAssemblerIsSharedByGoroutines(t *testing.T) {
	r := named(t, "qwen3-hybrid", prompt.Keep)
	want := r.extend(t, "<|im_end|>", user("hi"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if p, err := r.a.Extend(prompt.Parent{Len: 100, Tail: r.a.StopTokens(), Answer: says("x"), Options: r.o},
					message.Conversation{}, []message.Message{user("hi")}, r.o); err != nil || p.Len() != want.Len() {
					t.Error(p, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestTheLengthOfAPromptCountsWhatIsKept(t *testing.T) {
	p := prompt.Prompt{Keep: 2, Segments: []prompt.Segment{{Provenance: event.Provenance_PROVENANCE_USER, IDs: []uint32{7, 8}}}}
	require.Equal(t, 4, p.Len())
	require.Equal(t, []uint32{1, 2, 7, 8}, p.Append(nil, []uint32{1, 2, 3}))
}
