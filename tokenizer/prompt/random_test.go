package prompt_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

// pieces are what random texts are made of: words that merge with their
// neighbours, white space of all kinds, and what formats give a meaning to.
var pieces = strings.Split("a¦ the¦Hello¦\n¦\n\n¦ ¦  ¦\t¦é¦日本¦😀¦.¦...¦\"¦{¦}¦\\¦'¦<¦>¦|¦<|im_end|>¦1¦23¦</think>¦<tool_call>¦[INST]¦"+
	"<|im_start|>assistant\n¦<|user|>¦<|end|>¦turnlogreply¦turnlogquery¦<｜User｜>¦[e~[¦]~b]ai\n¦function¦null¦&lt;¦\r\n¦\u00a0¦\u2028", "¦")

type dice struct{ *rand.Rand }

// hostile are more: what this package looks for, and what templates do.
var hostile = slices.Concat(pieces, strings.Split("turnlogreplyx¦turnlogthought¦turnlogmore¦turnlogsystem¦turnlogtool¦turnlog00¦\\u0074urnlogreply¦<think>¦"+
	"<|channel|>analysis<|message|>¦<|start|>functions.weather to=assistant¦<|return|>¦<|call|>¦<|eot_id|>¦<|start_header_id|>user<|end_header_id|>\n\n¦"+
	"</s>¦[/INST]¦[TOOL_CALLS]¦[ARGS]¦[CALL_ID]¦<end_of_turn>\n¦<start_of_turn>model\n¦]~b]user\n¦<|im_user|>user<|im_middle|>¦<|tool_calls_section_begin|>¦"+
	"<｜Assistant｜>¦<｜end▁of▁sentence｜>¦<｜tool▁outputs▁begin｜>¦<|assistant|>¦<|observation|>¦[gMASK]<sop>¦<tool_response>\n¦\n</tool_response>¦</tool_call>¦"+
	"<minimax:tool_call>¦<function=weather>¦{{ messages }}¦{% raw %}¦{%- endif %}¦{#¦/no_think¦/think¦\u0085¦\u3000¦\ufeff¦\v¦\f¦\x00¦\u200d¦e\u0301", "¦"))

// rough is a text of hostile pieces.
func (d dice) rough() string {
	var b strings.Builder
	for range d.IntN(7) {
		b.WriteString(hostile[d.IntN(len(hostile))])
	}
	return b.String()
}

func (d dice) text() string {
	var b strings.Builder
	for range d.IntN(8) {
		b.WriteString(pieces[d.IntN(len(pieces))])
	}
	return b.String()
}

// plain is a text as a template writes it: no marks, no white space around it.
func (d dice) plain() string {
	words := strings.Fields("so I think that the answer is 42. \"é\" 日本 {x} ... done! don't")
	var b []string
	for range 1 + d.IntN(6) {
		b = append(b, words[d.IntN(len(words))])
	}
	return strings.Join(b, []string{" ", "\n", "\n\n"}[d.IntN(3)])
}

func (d dice) conversation(c familytest.Checkpoint) trajectory {
	tr := trajectory{name: "random", hostile: true}
	if d.IntN(2) == 0 {
		tr.messages = append(tr.messages, sys(d.text()))
	}
	for range 1 + d.IntN(3) {
		tr.messages = append(tr.messages, user(d.text()))
		for range d.IntN(3) {
			if !c.Calls {
				break
			}
			var list []string
			for range 1 + d.IntN(2) {
				if !c.Parallel && len(list) > 0 {
					break
				}
				list = append(list, "weather", fmt.Sprintf(`{"city": %q, "days": %d}`, d.plain(), d.IntN(100)))
			}
			m := calls("", list...)
			if d.IntN(2) == 0 {
				m.Reasoning = d.plain()
			}
			tr.messages = append(tr.messages, m)
			for i := range m.Calls {
				tr.messages = append(tr.messages, result("weather", i, d.text()))
			}
		}
		m := says(d.plain())
		if d.IntN(2) == 0 {
			m.Reasoning = d.plain()
		}
		tr.messages = append(tr.messages, m)
	}
	tr.messages = append(tr.messages, user(d.text()))
	return tr
}

func TestRandomConversationsExtendAsTheyWouldRender(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for _, c := range familytest.Checkpoints() {
		t.Run(c.Name, func(t *testing.T) {
			r := newRig(t, c, prompt.Keep)
			for seed := range rounds {
				tr := dice{rand.New(rand.NewPCG(uint64(seed), 7))}.conversation(c)
				for at, m := range tr.messages {
					if m.Role == message.Assistant {
						require.NotContains(t, r.split(tr, at), "WRONG", "seed %d, message %d", seed, at)
					}
				}
			}
		})
	}
}
