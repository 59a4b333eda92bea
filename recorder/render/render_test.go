package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/render"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/prompt"
)

// files are the demo model's.
func files(t *testing.T) (render.Model, *prompt.Assembler) {
	t.Helper()
	tok := demo.Tokenizer()
	template, err := chat.New(demo.Template(), nil)
	require.NoError(t, err)
	fam := family.Detect(family.Evidence{Template: demo.Template(), Added: tok.Added()})
	prompts, err := prompt.New(prompt.Model{Renderer: template, Tokenizer: tok, Family: fam})
	require.NoError(t, err)
	return render.Model{
		Name: "demo", TokenizerID: tok.Fingerprint(), TemplateID: template.Fingerprint(), Tokenizer: tok, Prompts: prompts,
	}, prompts
}

func say(role message.Role, text string) message.Message {
	return message.Message{Role: role, Content: message.TextContent(text)}
}

func TestModelsAreFoundByFingerprintAndByNameWithout(t *testing.T) {
	m, _ := files(t)
	models := render.New(m)
	for _, ref := range []fold.ModelRef{
		{Tokenizer: m.TokenizerID, Template: m.TemplateID, Model: "renamed"},
		{Tokenizer: m.TokenizerID},
		{Model: "demo"},
	} {
		_, err := models.Open(ref)
		require.NoError(t, err)
	}
	for _, ref := range []fold.ModelRef{{Model: "other"}, {Model: "demo", Tokenizer: "other"}, {Tokenizer: m.TokenizerID, Template: "other"}} {
		_, err := models.Open(ref)
		require.Error(t, err)
	}
}

// named is an assembler that can be told from others.
type named struct {
	render.Prompts
	text string
	tok  interface {
		Encode([]uint32, string) []uint32
	}
}

func (n named) Root(message.Conversation, prompt.Options) (prompt.Prompt, error) {
	return prompt.Prompt{Segments: []prompt.Segment{{IDs: n.tok.Encode(nil, n.text)}}}, nil
}

func TestATurnIsRenderedUnderItsHistoryPolicy(t *testing.T) {
	m, _ := files(t)
	m.Prompts = named{text: "own", tok: m.Tokenizer}
	m.Histories = map[string]render.Prompts{"keep": named{text: "keep", tok: m.Tokenizer}, "vendor": named{text: "vendor", tok: m.Tokenizer}}
	models := render.New(m)
	other, err := models.Only("demo")
	require.NoError(t, err)
	for policy, want := range map[string]string{"": "own", "keep": "keep", "vendor": "vendor"} {
		for _, all := range []fold.Models{models, other} {
			for _, ref := range []fold.ModelRef{{Tokenizer: m.TokenizerID, Policy: policy}, {Model: "demo", Policy: policy}} {
				opened, err := all.Open(ref)
				require.NoError(t, err)
				pieces, err := opened.Render(fold.View{})
				require.NoError(t, err)
				require.Equal(t, want, opened.Decode(pieces[0].IDs))
			}
		}
	}
}

// dialogue writes the turns of a real assembler: what a gateway would log.
func dialogue(t *testing.T, m render.Model, prompts *prompt.Assembler, answers ...string) *sessiontest.Session {
	t.Helper()
	var ids [][]uint32
	for _, text := range answers {
		ids = append(ids, m.Tokenizer.Encode(nil, text+"<|im_end|>"))
	}
	return sampled(t, m, prompts, ids...)
}

// sampled is a dialogue in which the model sampled these ids.
func sampled(t *testing.T, m render.Model, prompts *prompt.Assembler, answers ...[]uint32) *sessiontest.Session {
	t.Helper()
	s := sessiontest.New("s1")
	c := message.Conversation{Head: message.Head{System: []message.Message{say(message.System, "Be brief.")}}}
	system := message.AppendList(nil, c.Head.System)
	hash := event.Sum(system)
	var parent *sessiontest.Turn
	var last message.Message
	for i, out := range answers {
		question := say(message.User, "What is "+strings.Repeat("next? ", i+1))
		c.Messages = append(c.Messages, question)
		var p prompt.Prompt
		var err error
		if parent == nil {
			p, err = prompts.Root(c, prompt.Options{})
		} else {
			ids := parent.IDs()
			p, err = prompts.Extend(prompt.Parent{Len: len(ids), Tail: ids, Answer: last, Head: c.Head}, c, []message.Message{question}, prompt.Options{})
		}
		require.NoError(t, err)
		step := sessiontest.Step{ID: string(rune('a' + i)), Out: out}
		for _, seg := range p.Segments {
			step.New = append(step.New, seg.IDs...)
		}
		if parent != nil {
			step.Parent, step.Cut = parent.ID, len(parent.IDs())-p.Keep
		}
		parser := prompts.Parser(p, c)
		parser.Push(step.Out)
		reply, _ := parser.Finish("stop")
		last = message.Message{Role: message.Assistant, Content: message.TextContent(reply.Content), Reasoning: reply.Reasoning}
		step.Edit = func(ev *event.TurnCommitted) {
			ev.Segments = nil
			for _, seg := range p.Segments {
				ev.Segments = append(ev.Segments, &event.Segment{Provenance: seg.Provenance, Ids: event.AppendIDs(nil, seg.IDs)})
			}
			ev.Generation.Tokenizer, ev.Generation.Template = m.TokenizerID, m.TemplateID
			ev.Conversation.System = hash[:]
			if parent == nil {
				ev.Conversation.Definitions = []*event.Definition{{Hash: hash[:], Content: system}}
			}
			ev.Conversation.Messages = [][]byte{question.AppendJSON(nil)}
			ev.Conversation.Answer = last.AppendJSON(nil)
		}
		parent = s.Commit(step)
		c.Messages = append(c.Messages, last)
	}
	return s
}

func folded(t *testing.T, p fold.Policy, models fold.Models, s *sessiontest.Session) (*fold.State, map[string]event.Tokens) {
	t.Helper()
	st := fold.New(s.ID, p, fold.Aids{Models: models})
	spans := map[string]event.Tokens{}
	for _, e := range sessiontest.Entries(s.Events) {
		u, err := st.Apply(e)
		require.NoError(t, err)
		for _, o := range u.GetOutputs() {
			if o.GetTurnSpans() != nil {
				tokens, err := o.GetTurnSpans().Tokens()
				require.NoError(t, err)
				spans[tokens.GetTurn()] = tokens
			}
		}
	}
	return st, spans
}

func TestWhatTheGatewaysAssemblerMadePassesTheAudit(t *testing.T) {
	m, prompts := files(t)
	p := fold.DefaultPolicy()
	p.Audit = 1
	s := dialogue(t, m, prompts, "Four.", "<think>\nHm, five.\n</think>\n\nFive.", "Six.")
	st, spans := folded(t, p, render.New(m), s)
	for id, one := range spans {
		drift, err := st.Audit(st.Tree().Turn(id))
		require.NoError(t, err)
		require.Equal(t, fold.DriftNone, drift, id)
		require.Equal(t, event.Grade_GRADE_A, one.GetGrade(), "%v", one.GetGradeReasons())
	}
}

func TestAnAuditSeesWhatTheModelSpelledOtherwise(t *testing.T) {
	m, prompts := files(t)
	p := fold.DefaultPolicy()
	p.Audit = 1
	_, spans := folded(t, p, render.New(m), dialogue(t, m, prompts, "<think>Hm.</think>Four.", "Five."))
	require.Equal(t, []string{"audit_sampled:respelled"}, spans["b"].GetGradeReasons())
}

func TestAnAuditDoesNotTakeHalfACharacterForTheSignThatReplacesIt(t *testing.T) {
	m, prompts := files(t)
	end := m.Tokenizer.Encode(nil, "<|im_end|>")
	half := m.Tokenizer.Encode(nil, "🍎")[:1]
	require.Equal(t, "\uFFFD", m.Tokenizer.Decode(half))
	p := fold.DefaultPolicy()
	p.Audit = 1
	_, spans := folded(t, p, render.New(m), sampled(t, m, prompts, slices.Concat(half, end), end))
	require.Equal(t, []string{"audit_sampled:respelled"}, spans["b"].GetGradeReasons())
}

func TestThinkingIsMaskedWithItsMarks(t *testing.T) {
	m, prompts := files(t)
	p := fold.DefaultPolicy()
	p.Reasoning = fold.Mask
	for answer, trained := range map[string]string{
		"<think>\nHm, five.\n</think>\n\nFive.": "Five.<|im_end|>",
		"Five.":                                 "Five.<|im_end|>",
		"<think>\nHm, fi":                       "",
		"<think>\nIch überlege.\n</think>\n\nÄpfel 🍎":                                                      "Äpfel 🍎<|im_end|>",
		"<think>\nI call it.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>": "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>",
	} {
		t.Run(answer, func(t *testing.T) {
			_, spans := folded(t, p, render.New(m), dialogue(t, m, prompts, answer))
			var ids []uint32
			for i, id := range spans["a"].AppendIDs(nil) {
				if spans["a"].AppendMask(nil)[i] == 1 {
					ids = append(ids, id)
				}
			}
			require.Equal(t, trained, strings.TrimLeft(m.Tokenizer.Decode(ids), "\n"))
		})
	}
}

func TestATextTurnIsTokenizedAsTheGatewayWouldHave(t *testing.T) {
	m, prompts := files(t)
	s := dialogue(t, m, prompts, "Four.")
	c := s.Turns[0].Event.GetTurnCommitted()
	want := s.Turns[0].IDs()
	c.Segments, c.Base = nil, nil
	c.Completion = &event.Completion{Text: "Four.<|im_end|>"}
	c.Generation.Proof, c.Generation.Tokenizer, c.Generation.Template = event.PromptProof_PROMPT_PROOF_NONE, "", ""
	c.Request.Model = "demo"
	_, spans := folded(t, fold.DefaultPolicy(), render.New(m), s)
	require.Equal(t, want, spans["a"].AppendIDs(nil))
	require.Equal(t, event.Provenance_PROVENANCE_SYSTEM, spans["a"].GetSpans()[0].GetProvenance())
	require.Equal(t, event.Grade_GRADE_D, spans["a"].GetGrade())
}
