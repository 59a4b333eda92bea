package prompt_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

// any makes a message whose content a client may send in any form.
func (d dice) any(m message.Message) message.Message {
	text := d.rough()
	switch d.IntN(6) {
	case 0:
		m.Content = message.Content{}
	case 1:
		m = parts(m, text, "", d.rough())
	case 2:
		m = parts(m)
	default:
		m.Content = message.TextContent(text)
	}
	if d.IntN(5) == 0 {
		raw, _ := json.Marshal(map[string]string{"note": d.rough(), "turnlog": "turnlogreply"})
		m.Extra = raw
	}
	if m.Role == message.User && d.IntN(6) == 0 {
		m.Name = "someone"
	}
	return m
}

// foreign is an answer that was not sampled here.
func (d dice) foreign(c familytest.Checkpoint) message.Message {
	m := d.any(says(""))
	if d.IntN(2) == 0 {
		m.Reasoning = d.rough()
	}
	for i := range d.IntN(3) {
		if c.Calls {
			m.Calls = append(m.Calls, d.call(i))
		}
	}
	return m
}

func (d dice) call(i int) message.Call {
	arguments, _ := json.Marshal(map[string]any{"city": d.rough(), "n": d.IntN(9)})
	return message.Call{ID: id("weather", i), ModelID: "", Name: "weather", Arguments: string(arguments)}
}

// behindAnswer is what may follow an answer.
func (d dice) behindAnswer(answer message.Message) (added []message.Message) {
	for i := range answer.Calls {
		m := d.any(message.Message{Role: message.Tool})
		m.CallID, m.Name = answer.Calls[i].ID, answer.Calls[i].Name
		added = append(added, m)
	}
	if len(added) == 0 || d.IntN(3) == 0 {
		added = append(added, d.any(user("")))
	}
	if d.IntN(8) == 0 {
		added = append(added, d.any(sys("")), d.any(user("")))
	}
	if d.IntN(8) == 0 {
		m := d.any(message.Message{Role: message.Tool})
		m.CallID = id("late", 7)
		added = append(added, m)
	}
	return added
}

// completion is what a model may sample: anything.
func (d dice) completion(r *rig) []uint32 {
	ids := r.tok.Encode(nil, d.rough()+d.plain())
	if r.Calls && d.IntN(2) == 0 {
		said := calls("", "weather", `{"city": "Oslo"}`)
		if r.Parallel && d.IntN(2) == 0 {
			said = calls("", "weather", `{"city": "Oslo"}`, "run", `{"n": 1}`)
		}
		if said, ok := r.sample([]message.Message{user("u")}, said, nil); ok {
			ids = append(ids, said[:len(said)-1]...)
		}
		if r.Family.Name == family.Llama3.Name && d.IntN(2) == 0 {
			ids = r.tok.Encode(nil, `{"name": "weather", "parameters": {}}; {"name": "run", "parameters": {}}`)
		}
	}
	if stops := r.a.StopTokens(); d.IntN(4) > 0 && len(stops) > 0 {
		ids = append(ids, stops[d.IntN(len(stops))])
	}
	return ids
}

// hostile makes a conversation of anything, samples anything, and continues it
// with anything. It returns "=" if the new ids are those of a render of the
// whole, and else why the call is no continuation.
func (r *rig) hostile(d dice) string {
	if r.tools = tools; d.IntN(4) == 0 {
		r.tools = nil
	}
	var history []message.Message
	for range d.IntN(3) {
		history = append(history, d.any(sys("")))
	}
	history = append(history, d.any(user("")))
	for range d.IntN(3) {
		m := d.foreign(r.Checkpoint)
		history = append(append(history, m), d.behindAnswer(m)...)
	}
	root, err := r.root(history, nil)
	if err != nil {
		return "refused"
	}
	if fault := r.omits(root, history); fault != "" {
		return "WRONG " + fault
	}
	ids := root.Append(nil, nil)
	completion := d.completion(r)
	parser := r.a.Parser(root, message.Split(history, r.tools))
	parser.Push(completion)
	reply, _ := parser.Finish("stop")
	answer := says(reply.Content)
	answer.Reasoning = reply.Reasoning
	for i, c := range reply.Calls {
		answer.Calls = append(answer.Calls, message.Call{ID: fmt.Sprintf("call0000%d", i), ModelID: c.ModelID, Name: c.Name, Arguments: c.Arguments})
	}
	added := d.behindAnswer(answer)
	tr := trajectory{messages: slices.Concat(history, []message.Message{answer}, added)}
	c := message.Split(tr.messages, r.tools)
	next, err := r.a.Extend(prompt.Parent{
		Len: len(ids) + len(completion), Tail: completion, Answer: answer, Head: c.Head, Options: r.o,
	}, c, added, r.o)
	var unfit *prompt.NotAppendOnlyError
	if errors.As(err, &unfit) {
		return string(unfit.Reason)
	}
	_, fresh := r.root(tr.messages, nil)
	if _, closed := r.a.Text(message.Split(tr.messages[:len(history)+1], r.tools), false, r.o); closed != nil {
		return "no render" // not even without what is new
	}
	if (err == nil) != (fresh == nil) {
		return fmt.Sprintf("WRONG Extend says %v, Root says %v", err, fresh)
	}
	if err != nil {
		return "refused"
	}
	at := len(history)
	if fault := r.joined(next, len(ids), completion, tr, at, len(tr.messages)); fault != "" {
		return "WRONG " + fault
	}
	if fault := r.omits(next, added); fault != "" {
		return "WRONG " + fault
	}
	return "="
}

// omits checks that a text which is not in the prompt was said to be left out.
func (r *rig) omits(p prompt.Prompt, messages []message.Message) string {
	text := ""
	for _, s := range p.Segments {
		text += r.tok.Decode(s.IDs)
	}
	for i, m := range messages {
		// As the tokenizer spells it: some compose characters.
		said := r.tok.Decode(r.tok.Encode(nil, strings.TrimSpace(m.Content.String())))
		quoted, _ := json.Marshal(said)
		plain := strings.Contains(text, said) || strings.Contains(unquoted(text), said) || strings.Contains(text, string(quoted[1:len(quoted)-1]))
		if !plain && !slices.Contains(p.Omits, i) {
			return fmt.Sprintf("%q is left out and nobody says so:\n%s", said, quote(text))
		}
	}
	return ""
}

// unquoted reads the escapes of JSON wherever they stand.
func unquoted(s string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r", `\f`, "\f", `\b`, "\b", `\"`, `"`, `\\`, `\`,
		`\u000b`, "\v", `\u0000`, "\x00").Replace(s)
}

func TestNoDataMakesExtendDifferFromARenderOfTheWhole(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 15
	}
	for _, c := range familytest.Checkpoints() {
		t.Run(c.Name, func(t *testing.T) {
			r := newRig(t, c, prompt.Keep)
			came := r.attacked(t, rounds)
			require.Greater(t, came["="], rounds/10, "%v", came)
		})
	}
}

// attacked runs hostile conversations and counts what came of them.
func (r *rig) attacked(t *testing.T, rounds int) map[string]int {
	came := map[string]int{}
	for seed := range rounds {
		outcome := r.hostile(dice{rand.New(rand.NewPCG(uint64(seed), 11))})
		require.NotContains(t, outcome, "WRONG", "seed %d", seed)
		came[outcome]++
	}
	for outcome := range came {
		require.Contains(t, []string{
			"=", "refused", "no render", string(prompt.EarlierCall), string(prompt.OneCall), string(prompt.Rewritten),
			string(prompt.Refused), string(prompt.Counted), string(prompt.Switched), string(prompt.Unjoined),
		}, outcome)
	}
	return came
}
