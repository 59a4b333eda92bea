package fold_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// toy writes a message as <, its role's first letter, its bytes and >; the two
// marks are control tokens. The token 256 is the two letters "ab" in one.
type toy struct{}

const begin, end, ab = 1000, 1001, 256

func (toy) Open(ref fold.ModelRef) (fold.Model, error) {
	if ref.Model != "model" {
		return nil, errors.New("unknown model")
	}
	return toy{}, nil
}

func (m toy) Render(v fold.View) ([]fold.Piece, error) {
	var pieces []fold.Piece
	for _, msg := range v.Conversation.All() {
		ids := append([]uint32{begin, uint32(msg.Role[0])}, m.Encode(msg.Content.String())...)
		from := map[message.Role]event.Provenance{
			message.System: event.Provenance_PROVENANCE_SYSTEM, message.User: event.Provenance_PROVENANCE_USER,
			message.Assistant: event.Provenance_PROVENANCE_ASSISTANT_RERENDERED,
		}[msg.Role]
		pieces = append(pieces, fold.Piece{Provenance: from, IDs: append(ids, end)})
	}
	return append(pieces, fold.Piece{Provenance: event.Provenance_PROVENANCE_GENERATION_PROMPT, IDs: []uint32{begin, 'a'}}), nil
}

func (toy) Encode(text string) []uint32 {
	var ids []uint32
	for i := 0; i < len(text); i++ {
		if text[i] == 'a' && i+1 < len(text) && text[i+1] == 'b' {
			ids = append(ids, ab)
			i++
			continue
		}
		ids = append(ids, uint32(text[i]))
	}
	return ids
}

func (toy) Decode(ids []uint32) string {
	var b []byte
	for _, id := range ids {
		switch id {
		case begin:
			b = append(b, '<')
		case end:
			b = append(b, '>')
		case ab:
			b = append(b, "ab"...)
		default:
			b = append(b, byte(id))
		}
	}
	return string(b)
}

func (toy) Special(id uint32) bool { return id == begin || id == end }

// Reasoning is what stands before the first full stop.
func (toy) Reasoning(_ fold.View, ids []uint32) ([]fold.Range, error) {
	for i, id := range ids {
		if id == '.' {
			return []fold.Range{{Start: 0, End: i + 1}}, nil
		}
	}
	return nil, nil
}

func user(text string) []byte {
	return message.Message{Role: message.User, Content: message.TextContent(text)}.AppendJSON(nil)
}

func answer(text string) []byte {
	return message.Message{Role: message.Assistant, Content: message.TextContent(text)}.AppendJSON(nil)
}

// system puts a head into the turn that uses it first.
func system(c *event.TurnCommitted, text string) {
	content := message.AppendList(nil, []message.Message{{Role: message.System, Content: message.TextContent(text)}})
	hash := event.Sum(content)
	c.Conversation.System = hash[:]
	c.Conversation.Definitions = []*event.Definition{{Hash: hash[:], Content: content}}
}

func TestTextTurnsAreTokenizedAndNeverTrained(t *testing.T) {
	s := sessiontest.New("s1")
	text := func(in, out string) func(*event.TurnCommitted) {
		return func(c *event.TurnCommitted) {
			c.Segments, c.Completion = nil, &event.Completion{Text: out, FinishReason: "stop"}
			c.Base, c.ParentKeep = nil, 0
			c.Generation.Proof, c.Generation.PromptTokens = event.PromptProof_PROMPT_PROOF_NONE, 0
			c.Conversation.Messages, c.Conversation.Answer = [][]byte{user(in)}, answer(out)
		}
	}
	s.Commit(sessiontest.Step{ID: "a", Edit: func(c *event.TurnCommitted) {
		text("hi", "yes")(c)
		system(c, "S")
	}})
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", Edit: func(c *event.TurnCommitted) {
		text("go", "ok")(c)
		c.Completion.Text = "" // it is what the answer says
		c.Conversation.System = s.Turn("a").Event.GetTurnCommitted().GetConversation().GetSystem()
	}})
	s.Close("completed")

	v := viewOf(runWith(t, fold.DefaultPolicy(), fold.Aids{Models: toy{}}, s))
	require.Equal(t, "<sS><uhi><ayes", toy{}.Decode(v.ids("a")))
	require.Equal(t, "<sS><uhi><ayes><ugo><aok", toy{}.Decode(v.ids("b")))
	require.Equal(t, uint32(len("<sS><uhi><ayes")), v.spans["b"].GetKeep(), "what is common is kept once")
	for _, id := range []string{"a", "b"} {
		require.Equal(t, event.Grade_GRADE_D, v.spans[id].GetGrade())
		require.Equal(t, []string{"text_in", "text_out"}, v.spans[id].GetGradeReasons())
		require.NotContains(t, v.spans[id].AppendMask(nil), int8(1))
	}
	require.Equal(t, uint32(len("<sS><uhi><ayes><ugo><aok")), v.branches[0].GetTokens())
	var from []event.Provenance
	for _, span := range v.spans["b"].GetSpans() {
		from = append(from, span.GetProvenance())
	}
	require.Equal(t, []event.Provenance{
		event.Provenance_PROVENANCE_ASSISTANT_RERENDERED, // the end of what a said
		event.Provenance_PROVENANCE_USER, event.Provenance_PROVENANCE_GENERATION_PROMPT,
		event.Provenance_PROVENANCE_ASSISTANT_RERENDERED,
	}, from)

	// Without models the turns are there, but their ids are not.
	v = viewOf(runWith(t, fold.DefaultPolicy(), fold.Aids{}, s))
	require.Empty(t, v.ids("b"))
	require.Contains(t, v.spans["b"].GetGradeReasons(), "tokenizer_unavailable")
}

func runWith(t *testing.T, p fold.Policy, aids fold.Aids, s *sessiontest.Session) []*event.TrajectoryUpdate {
	t.Helper()
	st := fold.New(s.ID, p, aids)
	var out []*event.TrajectoryUpdate
	for _, e := range sessiontest.Entries(s.Events) {
		u, err := st.Apply(e)
		require.NoError(t, err)
		out = append(out, u)
	}
	return out
}

func TestSampledIDsOfATextPromptStayWhatTheyAre(t *testing.T) {
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", Out: []uint32{'a', 'b'}, Edit: func(c *event.TurnCommitted) {
		c.Segments = nil
		c.Generation.Proof, c.Generation.PromptTokens = event.PromptProof_PROMPT_PROOF_NONE, 0
		c.Conversation.Messages = [][]byte{user("hi")}
	}})
	s.Close("completed")
	v := viewOf(runWith(t, fold.DefaultPolicy(), fold.Aids{Models: toy{}}, s))
	require.Equal(t, append(toy{}.Encode("?"), 'a', 'b')[1:], v.ids("a")[len(v.ids("a"))-2:])
	require.Equal(t, "<uhi><aab", toy{}.Decode(v.ids("a")))
	require.Equal(t, 2, count(v.spans["a"].AppendMask(nil)))
	require.Equal(t, event.Grade_GRADE_D, v.spans["a"].GetGrade())
	require.Equal(t, uint32(2), v.branches[0].GetTrainable())
}

func TestATokenTurnCannotKeepIDsOfATextTurn(t *testing.T) {
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", Out: []uint32{'a', 'b'}, Edit: func(c *event.TurnCommitted) {
		c.Segments = nil
		c.Generation.Proof, c.Generation.PromptTokens = event.PromptProof_PROMPT_PROOF_NONE, 0
		c.Conversation.Messages = [][]byte{user("hi")}
	}})
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: []uint32{8, 9}, Out: []uint32{10}})
	s.Commit(sessiontest.Step{ID: "c", Parent: "a", Cut: 2, New: []uint32{'a', 'b', 9}, Out: []uint32{10}})
	v := viewOf(runWith(t, fold.DefaultPolicy(), fold.Aids{Models: toy{}}, s))
	require.Contains(t, v.spans["b"].GetGradeReasons(), "parent_ids_mismatch")
	require.Equal(t, event.Grade_GRADE_X, v.spans["b"].GetGrade())
	require.Equal(t, []uint32{'a', 'b', 8, 9, 10}, v.ids("b"), "what was recorded can be read")
	require.Equal(t, event.Grade_GRADE_A, v.spans["c"].GetGrade(), "it stands for itself")
	require.Equal(t, []uint32{'a', 'b', 9, 10}, v.ids("c"))
}

func TestReasoningCanBeMasked(t *testing.T) {
	s := first(func(c *event.TurnCommitted) {
		c.Completion.Ids = event.AppendIDs(nil, []uint32{'h', '.', 'y'})
	})
	p := fold.DefaultPolicy()
	p.Reasoning = fold.Mask
	spans := spansOf(t, p, fold.Aids{Models: toy{}}, s)["a"]
	require.Equal(t, []int8{0, 0, 1}, spans.AppendMask(nil)[4:])
	require.Equal(t, map[string]uint32{"reasoning": 2}, spans.GetMasked())

	spans = spansOf(t, p, fold.Aids{}, s)["a"]
	require.Equal(t, map[string]uint32{"reasoning": 3}, spans.GetMasked(), "what cannot be told apart is masked")
}

// audited is the audit of a second turn whose prompt is the given text, as the
// engine got it, after a first one.
func audited(t *testing.T, sampled []uint32, answered string, boundary, rest []uint32) (fold.Drift, event.Tokens) {
	t.Helper()
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{begin, 'u', 'h', 'i', end, begin, 'a'}, Out: sampled, Edit: func(c *event.TurnCommitted) {
		c.Conversation.Messages, c.Conversation.Answer = [][]byte{user("hi")}, answer(answered)
	}})
	s.Commit(sessiontest.Step{ID: "b", Parent: "a", New: append(append([]uint32{}, boundary...), rest...), Out: []uint32{'o'}, Edit: func(c *event.TurnCommitted) {
		c.Segments = []*event.Segment{
			{Provenance: event.Provenance_PROVENANCE_BOUNDARY, Ids: event.AppendIDs(nil, boundary)},
			{Provenance: event.Provenance_PROVENANCE_USER, Ids: event.AppendIDs(nil, rest)},
		}
		c.Conversation.Messages, c.Conversation.Answer = [][]byte{user("go")}, answer("o")
	}})
	p := fold.DefaultPolicy()
	p.Audit = 1
	st := fold.New("s1", p, fold.Aids{Models: toy{}})
	var out []*event.TrajectoryUpdate
	for _, e := range sessiontest.Entries(s.Events) {
		u, err := st.Apply(e)
		require.NoError(t, err)
		out = append(out, u)
	}
	drift, err := st.Audit(st.Tree().Turn("b"))
	require.NoError(t, err)
	return drift, viewOf(out).spans["b"]
}

func TestAuditsNameTheFirstDifferenceThatIsNoSplitAndHealNothing(t *testing.T) {
	rest := []uint32{begin, 'u', 'g', 'o', end, begin, 'a'}
	cases := []struct {
		name           string
		sampled        []uint32
		answered       string
		boundary, rest []uint32
		drift          fold.Drift
		grade          event.Grade
	}{
		{"none", []uint32{ab, end}, "ab", nil, rest, fold.DriftNone, event.Grade_GRADE_A},
		{"the model split its text otherwise", []uint32{'a', 'b', end}, "ab", nil, rest, fold.DriftSplit, event.Grade_GRADE_A},
		{"the model's spelling is not the template's", []uint32{ab, ' ', end}, "ab", nil, rest, fold.DriftRespelled, event.Grade_GRADE_C},
		{"an end token more", []uint32{ab, end}, "ab", []uint32{end}, rest, fold.DriftSpecial, event.Grade_GRADE_B},
		{"a boundary that the template does not write", []uint32{ab, end}, "ab", []uint32{'\n'}, rest, fold.DriftBoundary, event.Grade_GRADE_B},
		{"another control token than the template's", []uint32{ab, begin}, "ab", nil, rest, fold.DriftRespelled, event.Grade_GRADE_C},
		{"no end of the answer", []uint32{ab}, "ab", nil, rest, fold.DriftSpecial, event.Grade_GRADE_B},
		{"other context behind a split answer", []uint32{'a', 'b', end}, "ab", nil, []uint32{begin, 'u', 'g', 'g', end, begin, 'a'}, fold.DriftContext, event.Grade_GRADE_B},
		{"a boundary behind a split answer", []uint32{'a', 'b', end}, "ab", []uint32{'\n'}, rest, fold.DriftBoundary, event.Grade_GRADE_B},
		{"a prompt that goes on behind a split answer", []uint32{'a', 'b', end}, "ab", nil, append(slices.Clone(rest), 'x'), fold.DriftSpecial, event.Grade_GRADE_B},
		{"a split that reaches into the context", []uint32{'a'}, "ab", []uint32{'b', end}, rest, fold.DriftContextSplit, event.Grade_GRADE_B},
		{"split in two places", []uint32{'a', 'b', 'a', 'b', end}, "abab", nil, rest, fold.DriftSplit, event.Grade_GRADE_A},
		{"other context", []uint32{ab, end}, "ab", nil, []uint32{begin, 'u', 'g', 'g', end, begin, 'a'}, fold.DriftContext, event.Grade_GRADE_B},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			drift, spans := audited(t, c.sampled, c.answered, c.boundary, c.rest)
			require.Equal(t, c.drift, drift)
			require.Equal(t, c.grade, spans.GetGrade(), "%v", spans.GetGradeReasons())
			require.Equal(t, slices.Concat(c.boundary, c.rest, []uint32{'o'}), spans.AppendIDs(nil))
		})
	}
}

func TestTheAuditedShareIsTheSameAtEveryFold(t *testing.T) {
	p := fold.DefaultPolicy()
	p.Audit = 0.3
	audited := func() (turns []string) {
		s := sessiontest.Long("s1", 200, 3, 2) // no conversation renders to these ids
		for id, spans := range spansOf(t, p, fold.Aids{Models: toy{}}, s) {
			if spans.GetGrade() != event.Grade_GRADE_A {
				turns = append(turns, id)
			}
		}
		return turns
	}
	first := audited()
	require.ElementsMatch(t, first, audited())
	require.InDelta(t, 60, len(first), 30)
}
