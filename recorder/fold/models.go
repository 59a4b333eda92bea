package fold

import (
	"fmt"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
)

// Models finds what renders and tokenizes the conversations of a model. It is
// safe for concurrent use.
type Models interface {
	// Open returns the model that a turn was made with. The error says that
	// there is none; it must be the same at every try.
	Open(ref ModelRef) (Model, error)
}

// ModelRef names a model as turn events do. Fields that the event leaves open
// are empty.
type ModelRef struct {
	Model, Tokenizer, Template, Family string
	// Policy is the history policy that the prompt was made under.
	Policy string
}

// Model renders and tokenizes. It is immutable and safe for concurrent use.
type Model interface {
	// Render returns the ids of a conversation, rendered from scratch, up to
	// where the model begins to answer, and where they come from.
	Render(View) ([]Piece, error)
	// Encode returns the ids of an answer's text.
	Encode(text string) []uint32
	// Decode returns the text of ids, special tokens included.
	Decode(ids []uint32) string
	// Special reports whether id is a control token.
	Special(id uint32) bool
	// Reasoning finds the thinking in the completion that answers a view, its
	// marks included.
	Reasoning(v View, completion []uint32) ([]Range, error)
}

// Piece is a run of ids of one provenance.
type Piece struct {
	Provenance event.Provenance
	IDs        []uint32
}

// View is what a template sees.
type View struct {
	Conversation message.Conversation
	// Kwargs is a JSON object, or empty; Time is in seconds since 1970.
	Kwargs []byte
	Time   int64
}

// Range is a half-open range of tokens.
type Range struct{ Start, End int }

func (s *State) model(c *event.TurnCommitted) (Model, error) {
	if s.aids.Models == nil {
		return nil, fmt.Errorf("fold: no models")
	}
	g := c.GetGeneration()
	return s.aids.Models.Open(ModelRef{
		Model:     c.GetRequest().GetModel(),
		Tokenizer: g.GetTokenizer(),
		Template:  g.GetTemplate(),
		Family:    g.GetFamily(),
		Policy:    g.GetPolicy(),
	})
}

// render renders the turn's prompt from its conversation.
func (s *State) render(n *tree.Turn, m Model) ([]Piece, error) {
	view, err := s.view(n)
	if err != nil {
		return nil, err
	}
	return m.Render(view)
}

// view puts together what the template saw.
func (s *State) view(n *tree.Turn) (View, error) {
	conv := n.Committed.GetConversation()
	v := View{Kwargs: conv.GetTemplateKwargs(), Time: conv.GetTemplateTime()}
	messages, err := n.Messages()
	if err != nil {
		return v, err
	}
	v.Conversation.Messages = messages[:len(messages)-1]
	if hash := conv.GetSystem(); len(hash) > 0 {
		raw, ok := s.tree.Definition(hash)
		if !ok {
			return v, fmt.Errorf("fold: turn %s: its system text is not in the log", n.ID)
		}
		if v.Conversation.Head.System, err = message.ParseList(raw); err != nil {
			return v, fmt.Errorf("fold: turn %s: system: %w", n.ID, err)
		}
	}
	if hash := conv.GetTools(); len(hash) > 0 {
		raw, ok := s.tree.Definition(hash)
		if !ok {
			return v, fmt.Errorf("fold: turn %s: its tools are not in the log", n.ID)
		}
		tools, err := message.ParseTools(raw)
		if err != nil {
			return v, fmt.Errorf("fold: turn %s: tools: %w", n.ID, err)
		}
		all := message.Split(nil, tools)
		v.Conversation.Head.Tools, v.Conversation.Deferred = all.Head.Tools, all.Deferred
	}
	return v, nil
}

// reasoning finds the thinking of an answer. What cannot be told apart counts
// as thinking: to train it against the policy would be the worse mistake.
func (s *State) reasoning(n *tree.Turn) []Range {
	ids := event.IDs(nil, n.Committed.GetCompletion().GetIds())
	all := []Range{{0, len(ids)}}
	m, err := s.model(n.Committed)
	if err != nil {
		return all
	}
	view, err := s.view(n)
	if err != nil {
		return all
	}
	found, err := m.Reasoning(view, ids)
	if err != nil {
		return all
	}
	return found
}

// textIDs tokenizes a turn that the engine was given as text. Its ids are our
// reading of the text, not what the model saw: they are context, and of grade
// D. Sampled ids that the engine returned stay what they are.
func (s *State) textIDs(n *tree.Turn, g *grading) owned {
	c := n.Committed
	sampled := c.GetCompletion().GetIds()
	var o owned
	m, err := s.model(c)
	var prompt []Piece
	if err == nil {
		prompt, err = s.render(n, m)
	}
	if err != nil {
		g.d(ReasonNoTokenizer)
		o.add(event.Provenance_PROVENANCE_SAMPLED, sampled)
		return o
	}
	if n.Parent != nil {
		before := s.turns[n.Parent.ID]
		o.keep = common(s.prefix(n.Parent, before.end), event.AppendIDs(nil, flat(prompt)))
	}
	at := 0
	for _, p := range prompt {
		cut := min(max(o.keep-at, 0), len(p.IDs))
		o.add(context(p.Provenance), event.AppendIDs(nil, p.IDs[cut:]))
		at += len(p.IDs)
	}
	if len(sampled) > 0 {
		o.add(event.Provenance_PROVENANCE_SAMPLED, sampled)
		return o
	}
	text, err := n.Written()
	if err != nil {
		g.d(ReasonNoTokenizer)
		return owned{}
	}
	o.add(event.Provenance_PROVENANCE_ASSISTANT_RERENDERED, event.AppendIDs(nil, m.Encode(text)))
	return o
}

func flat(pieces []Piece) []uint32 {
	var ids []uint32
	for _, p := range pieces {
		ids = append(ids, p.IDs...)
	}
	return ids
}
