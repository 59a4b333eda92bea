package prompt_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

var now = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// rig is one checkpoint to take turns with.
type rig struct {
	familytest.Checkpoint
	model prompt.Model
	tok   tokenizer.Tokenizer
	a     *prompt.Assembler
	o     prompt.Options
}

func newRig(t testing.TB, c familytest.Checkpoint, policy prompt.Policy) *rig {
	m := c.Model()
	m.Policy = policy
	a, err := prompt.New(m)
	require.NoError(t, err, c.Name)
	r := &rig{Checkpoint: c, model: m, tok: m.Tokenizer, a: a, o: prompt.Options{Time: now}}
	if c.Kwargs != "" {
		r.o.Kwargs = []byte(c.Kwargs)
	}
	return r
}

func (r *rig) root(messages []message.Message, deferred []message.Definition) (prompt.Prompt, error) {
	return r.a.Root(message.Split(messages, slices.Concat(tools, deferred)), r.o)
}

// sample is the completion that says answer as the template writes it: what
// the render with the answer has behind the prompt, up to the token that ends
// the turn. It reports false if the template does not put an answer behind
// this prompt.
func (r *rig) sample(history []message.Message, answer message.Message, deferred []message.Definition) ([]uint32, bool) {
	messages := append(slices.Clone(history), answer)
	open := r.text(history, deferred, true)
	closed := r.text(messages, deferred, false)
	rest, ok := strings.CutPrefix(closed, open)
	if before, opened := strings.CutSuffix(open, "<think>\n"); !ok && opened && answer.Reasoning != "" {
		// The history leaves out the thinking that the prompt opens.
		if rest, ok = strings.CutPrefix(closed, before); ok {
			rest = answer.Reasoning + "\n</think>\n\n" + rest
		}
	}
	if !ok {
		return nil, false
	}
	ids := r.tok.Encode(nil, rest)
	for i, id := range ids {
		if slices.Contains(r.a.StopTokens(), id) {
			return ids[:i+1], true
		}
	}
	if len(r.a.StopTokens()) == 0 {
		return nil, false
	}
	// The turn ends where the next message opens.
	return append(ids, r.a.StopTokens()[0]), true
}

func (r *rig) text(messages []message.Message, deferred []message.Definition, generate bool) string {
	c := message.Split(messages, slices.Concat(tools, deferred))
	text, err := r.a.Text(c, generate, r.o)
	if err != nil {
		return "error: " + err.Error()
	}
	return text
}

// split takes one turn: everything before answer, the answer, and what is added
// behind it.
func (r *rig) split(tr trajectory, at int) (result string) {
	tr.messages = r.fit(tr.messages)
	history, answer := tr.messages[:at], tr.messages[at]
	for _, m := range tr.messages {
		if n := len(m.Calls); n > 0 && !r.Calls || n > 1 && !r.Parallel {
			return "-"
		}
	}
	if len(answer.Calls) > 0 && answer.Content.Text != "" && r.Alone {
		return "-"
	}
	end := at + 1
	for end < len(tr.messages) && tr.messages[end].Role != message.Assistant {
		end++
	}
	if tr.name == "a foreign answer between" {
		end = len(tr.messages)
	}
	added := tr.messages[at+1 : end]
	root, err := r.root(history, tr.deferred)
	if err != nil {
		return "refused: " + err.Error()
	}
	ids := root.Append(nil, nil)
	completion, ok := r.sample(history, answer, tr.deferred)
	if !ok && r.Thinks && answer.Reasoning == "" {
		// The generation prompt has opened the thinking.
		tr.messages = slices.Clone(tr.messages)
		tr.messages[at].Reasoning = "Hm."
		answer = tr.messages[at]
		completion, ok = r.sample(history, answer, tr.deferred)
	}
	if !ok {
		return "-"
	}
	parser := r.a.Parser(root, message.Split(history, slices.Concat(tools, tr.deferred)))
	parser.Push(completion)
	reply, _ := parser.Finish("stop")
	if fault := same(reply, answer, r.Thinks); fault != "" {
		if answer.Reasoning != "" && !strings.Contains(r.tok.Decode(completion), answer.Reasoning) {
			return "-" // the template leaves out the thinking even of the last answer
		}
		return "reply: " + fault
	}
	cut := tr.cut > 0 && at == 1
	if cut {
		completion = completion[:max(1, len(completion)-1-tr.cut)]
	}
	parent := prompt.Parent{
		Len: len(ids) + len(completion), Tail: completion[max(0, len(completion)-8):], Answer: answer,
		Thought: slices.ContainsFunc(tr.messages[:at+1], func(m message.Message) bool { return m.Reasoning != "" }),
	}
	c := message.Split(tr.messages[:end], slices.Concat(tools, tr.deferred))
	next, err := r.a.Extend(parent, c, added, r.o)
	var rewrites *prompt.NotAppendOnlyError
	if errors.As(err, &rewrites) {
		return "branch: " + rewrites.Reason
	}
	if err != nil {
		return "refused: " + err.Error()
	}
	if fault := r.provenance(next, added); fault != "" && !tr.hostile {
		return "WRONG provenance: " + fault
	}
	got := next.Append(nil, append(ids, completion...))
	fresh, err := r.root(tr.messages[:end], tr.deferred)
	if err != nil {
		return "fresh refused: " + err.Error()
	}
	want := fresh.Append(nil, nil)
	if slices.Equal(got, want) {
		return "="
	}
	if r.tok.Decode(got) == r.tok.Decode(want) {
		return "text" // the sampled ids are not those that the text encodes to
	}
	new := got[next.Keep:]
	if len(want) >= len(new) && slices.Equal(want[len(want)-len(new):], new) {
		return "kept"
	}
	return "WRONG\n got " + quote(r.tok.Decode(got)) + "\nwant " + quote(r.tok.Decode(want))
}

// fit gives calls the ids that the family's models write.
func (r *rig) fit(messages []message.Message) []message.Message {
	if r.Name != "kimi-k2" && r.Family.Name != family.KimiK2.Name {
		return messages
	}
	messages = slices.Clone(messages)
	n := 0
	for i, m := range messages {
		m.Calls = slices.Clone(m.Calls)
		for j, c := range m.Calls {
			m.Calls[j].ModelID = fmt.Sprintf("functions.%s:%d", c.Name, n)
			n++
		}
		messages[i] = m
	}
	return messages
}

func quote(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }

// same compares a reply with the message that it was made from.
func same(r parse.Reply, m message.Message, thinks bool) string {
	if len(r.Flags) > 0 {
		return "flags " + strings.Join(r.Flags, " ")
	}
	if thinks && r.Reasoning != m.Reasoning {
		return "reasoning " + r.Reasoning
	}
	if r.Content != m.Content.String() {
		return "content " + r.Content
	}
	if len(r.Calls) != len(m.Calls) {
		return "number of calls"
	}
	for i, c := range r.Calls {
		if c.Name != m.Calls[i].Name {
			return "name " + c.Name
		}
		if c.Arguments != m.Calls[i].Arguments {
			return "arguments " + c.Arguments
		}
	}
	return ""
}

// provenance checks that what each message says is in a segment of its own
// kind.
func (r *rig) provenance(p prompt.Prompt, added []message.Message) string {
	said := map[event.Provenance]string{}
	for _, s := range p.Segments {
		said[s.Provenance] += r.tok.Decode(s.IDs)
	}
	kinds := map[message.Role]event.Provenance{
		message.System: event.Provenance_PROVENANCE_SYSTEM, message.User: event.Provenance_PROVENANCE_USER,
		message.Tool: event.Provenance_PROVENANCE_TOOL, message.Assistant: event.Provenance_PROVENANCE_ASSISTANT_RERENDERED,
	}
	for _, m := range added {
		text := strings.TrimSpace(m.Content.String())
		if m.Role == message.Tool && strings.ContainsAny(text, "\"\n") {
			continue // some templates write results as JSON
		}
		if !strings.Contains(said[kinds[m.Role]], text) {
			return fmt.Sprintf("%s %q not in %q", m.Role, text, said)
		}
	}
	return ""
}

// outcomes takes every turn of every trajectory, and returns what came of them
// by column.
func (r *rig) outcomes(visit func(name, outcome string)) map[string][]string {
	all := map[string][]string{}
	for _, tr := range trajectories() {
		for at, m := range tr.messages {
			if m.Role != message.Assistant || at == len(tr.messages)-1 {
				continue
			}
			outcome := r.split(tr, at)
			visit(fmt.Sprintf("%s, turn %d", tr.name, at), outcome)
			outcome, _, _ = strings.Cut(outcome, ":")
			if !slices.Contains(all[tr.column], outcome) {
				all[tr.column] = append(all[tr.column], outcome)
			}
		}
	}
	return all
}

func TestExtendEqualsAFreshRenderOrKeepsOrBranches(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		t.Run(c.Name, func(t *testing.T) {
			n := 0
			newRig(t, c, prompt.Keep).outcomes(func(name, outcome string) {
				kind, _, _ := strings.Cut(outcome, ":")
				require.Contains(t, []string{"=", "text", "kept", "branch", "refused", "-"}, kind, "%s: %s", name, outcome)
				n++
			})
			require.GreaterOrEqual(t, n, 43)
		})
	}
}

func TestPolicyVendorGivesTheFreshRenderOrBranches(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		t.Run(c.Name, func(t *testing.T) {
			newRig(t, c, prompt.Vendor).outcomes(func(name, outcome string) {
				if strings.HasPrefix(name, "cut") {
					return // no render ends where a turn was cut
				}
				kind, _, _ := strings.Cut(outcome, ":")
				require.Contains(t, []string{"=", "text", "branch", "refused", "-"}, kind, "%s: %s", name, outcome)
			})
		})
	}
}
