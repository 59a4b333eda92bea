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
	// tools are offered with every call.
	tools []message.Definition
}

func newRig(t testing.TB, c familytest.Checkpoint, policy prompt.Policy) *rig {
	m := c.Model()
	m.Policy = policy
	a, err := prompt.New(m)
	require.NoError(t, err, c.Name)
	r := &rig{Checkpoint: c, model: m, tok: m.Tokenizer, a: a, o: prompt.Options{Time: now}, tools: tools}
	if c.Kwargs != "" {
		r.o.Kwargs = []byte(c.Kwargs)
	}
	return r
}

func (r *rig) root(messages []message.Message, deferred []message.Definition) (prompt.Prompt, error) {
	return r.a.Root(message.Split(messages, slices.Concat(r.tools, deferred)), r.o)
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
	c := message.Split(messages, slices.Concat(r.tools, deferred))
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
		if len(m.Calls) > 0 && !r.Calls {
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
	if len(answer.Calls) > 1 && !r.Parallel {
		// No template writes it, but a reply may say it.
		return r.several(tr, at, end, len(ids))
	}
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
	parser := r.a.Parser(root, message.Split(history, slices.Concat(r.tools, tr.deferred)))
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
		Head: message.Split(history, r.tools).Head, Options: r.o,
		Thought: slices.ContainsFunc(tr.messages[:at+1], func(m message.Message) bool { return m.Reasoning != "" }),
	}
	c, o := message.Split(tr.messages[:end], slices.Concat(r.tools, tr.deferred)), r.o
	if tr.then != nil {
		tr.then(&c, &o)
	}
	next, err := r.a.Extend(parent, c, added, o)
	var rewrites *prompt.NotAppendOnlyError
	if errors.As(err, &rewrites) {
		return "branch: " + string(rewrites.Reason)
	}
	if err != nil {
		return "refused: " + err.Error()
	}
	if fault := r.provenance(next, added); fault != "" && !tr.hostile {
		return "WRONG provenance: " + fault
	}
	got := next.Append(nil, append(ids, completion...))
	if fault := r.joined(next, len(ids), completion, tr, at, end); fault != "" {
		return "WRONG " + fault
	}
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
	return "kept"
}

// several continues an answer of several calls where the format knows one.
func (r *rig) several(tr trajectory, at, end, prompted int) string {
	c := message.Split(tr.messages[:end], slices.Concat(r.tools, tr.deferred))
	parent := prompt.Parent{Len: prompted + 1, Tail: r.a.StopTokens()[:1], Answer: tr.messages[at], Head: c.Head, Options: r.o}
	_, err := r.a.Extend(parent, c, tr.messages[at+1:end], r.o)
	var unfit *prompt.NotAppendOnlyError
	if !errors.As(err, &unfit) {
		return fmt.Sprintf("WRONG several calls continued, %v", err)
	}
	if _, err := r.root(tr.messages[:end], tr.deferred); err != nil {
		return "WRONG the root is refused: " + err.Error()
	}
	return "branch: " + string(unfit.Reason)
}

// joined checks that the sampled ids stand where they stood, and that what is
// new is, from the end of the turn on, what a render of the whole has there.
func (r *rig) joined(next prompt.Prompt, prompted int, completion []uint32, tr trajectory, at, end int) string {
	var new []uint32
	for _, s := range next.Segments {
		new = append(new, s.IDs...)
	}
	want, err := r.behind(tr.messages[:at], tr.messages[at], tr.messages[at+1:end], tr.deferred)
	if err != nil {
		return err.Error()
	}
	last := completion[len(completion)-1]
	ended, _ := r.tok.Token(last)
	f := r.real()
	switch dropped := prompted + len(completion) - next.Keep; {
	case dropped == 0 && (last == want[0] || slices.Contains(f.Ends, ended)):
		want = want[1:] // the turn ended as it should
	case dropped == 0:
		// The turn was cut, or its end is only the opener of what follows.
	case dropped == 1 && slices.Contains(f.Trim, ended), dropped == 1 && f.Name == family.Generic.Name:
	default:
		return fmt.Sprintf("%d ids dropped behind %s", dropped, ended)
	}
	if !slices.Equal(new, want) {
		return "joint\n got " + quote(r.tok.Decode(new)) + "\nwant " + quote(r.tok.Decode(want))
	}
	return ""
}

// behind is what a render of the whole conversation has behind the answer, from
// the token on that ends the turn or, where turns have no end, that opens the
// next message. The real history is in it; the answer is marked to find its end.
func (r *rig) behind(history []message.Message, answer message.Message, added []message.Message, deferred []message.Definition) ([]uint32, error) {
	const mark = "turnlog-test-mark"
	if n := len(answer.Calls); n > 0 {
		answer.Calls = slices.Clone(answer.Calls)
		answer.Calls[n-1].Arguments = `{"k": "` + mark + `"}`
	} else {
		answer.Content = message.TextContent(mark)
	}
	c := message.Split(slices.Concat(history, []message.Message{answer}, added), slices.Concat(r.tools, deferred))
	text, err := r.a.Text(c, true, r.o)
	if err != nil {
		return nil, err
	}
	if strings.Count(text, mark) != 1 {
		return nil, fmt.Errorf("%d marks in %s", strings.Count(text, mark), quote(text))
	}
	_, after, _ := strings.Cut(text, mark)
	ids := r.tok.Encode(nil, after)
	ends := r.ends()
	at := slices.IndexFunc(ids, func(id uint32) bool {
		s, _ := r.tok.Token(id)
		return slices.Contains(ends, s)
	})
	if at < 0 {
		return nil, errors.New("no end behind the answer in " + quote(after))
	}
	return ids[at:], nil
}

// real is the checkpoint's family, also where a test makes nothing known of it.
func (r *rig) real() family.Family {
	for _, c := range familytest.Checkpoints() {
		if c.Name == r.Name {
			return c.Family
		}
	}
	return r.Family
}

// ends are the tokens that the tests know turns to end with, written down here
// and not taken from what is tested. Where turns have no end, they are what may
// come next.
func (r *rig) ends() []string {
	f := r.real()
	switch f.Name {
	case family.GLM.Name:
		return []string{"<|user|>", "<|observation|>", "<|system|>", "<|assistant|>"}
	case family.GPTOSS.Name:
		return []string{"<|end|>", "<|call|>", "<|return|>"}
	}
	if len(f.Stops) > 0 {
		return f.Stops
	}
	var out []string
	for _, id := range r.a.StopTokens() {
		s, _ := r.tok.Token(id)
		out = append(out, s)
	}
	return out
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
			if m.Role != message.Assistant || at == len(tr.messages)-1 || tr.only > 0 && at != tr.only {
				continue
			}
			outcome := r.split(tr, at)
			visit(fmt.Sprintf("%s, turn %d", tr.name, at), outcome)
			if kind, _, _ := strings.Cut(outcome, ":"); kind != "branch" {
				outcome = kind
			}
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
			n := map[string]int{}
			newRig(t, c, prompt.Keep).outcomes(func(name, outcome string) {
				kind, _, _ := strings.Cut(outcome, ":")
				require.Contains(t, []string{"=", "text", "kept", "branch", "refused", "-"}, kind, "%s: %s", name, outcome)
				n[kind]++
			})
			compared := n["="] + n["text"] + n["kept"]
			if c.Name == "mistral-7b-v0.3" {
				// Its template moves the tools, so that most turns branch.
				compared += n["branch"]
			}
			require.GreaterOrEqual(t, compared, 43, "compared with a fresh render: %v", n)
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
