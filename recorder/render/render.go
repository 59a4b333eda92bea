// Package render is fold.Models over the tokenizer module: it renders and
// tokenizes conversations with the files that gateways use, found by the
// fingerprints that turn events carry.
package render

import (
	"fmt"
	"sync/atomic"
	"time"

	"turnlog.dev/recorder/fold"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

// Prompts makes prompts and reads replies: normally a *prompt.Assembler. It is
// safe for concurrent use.
type Prompts interface {
	Root(c message.Conversation, o prompt.Options) (prompt.Prompt, error)
	Parser(p prompt.Prompt, c message.Conversation) parse.Parser
}

// Model is one model's files, opened.
type Model struct {
	// Name is what turn events call the model.
	Name string
	// TokenizerID and TemplateID are the fingerprints in turn events.
	TokenizerID, TemplateID string
	Tokenizer               tokenizer.Tokenizer
	// Prompts is what a turn is made with that names no history policy, Histories
	// by the policies that turns name.
	Prompts   Prompts
	Histories map[string]Prompts
}

// Models finds models. It is safe for concurrent use.
type Models struct{ list atomic.Pointer[[]*model] }

// New returns the given models.
func New(models ...Model) *Models {
	m := &Models{}
	m.list.Store(&[]*model{})
	m.Add(models...)
	return m
}

// Add has models found from now on, before others of the same name.
func (m *Models) Add(models ...Model) {
	var list []*model
	for _, one := range models {
		opened := &model{Model: one, special: map[uint32]bool{}}
		for _, t := range one.Tokenizer.Added() {
			if t.Special {
				opened.special[t.ID] = true
			}
		}
		list = append(list, opened)
	}
	list = append(list, *m.list.Load()...)
	m.list.Store(&list)
}

// Open implements fold.Models. A turn that names fingerprints gets the files
// with those and no others; one without, as of an engine that takes text, those
// of its model's name.
func (m *Models) Open(ref fold.ModelRef) (fold.Model, error) {
	for _, one := range *m.list.Load() {
		if ref.Tokenizer == "" && ref.Template == "" {
			if one.Name == ref.Model {
				return one.under(ref.Policy), nil
			}
			continue
		}
		if one.TokenizerID == ref.Tokenizer && (ref.Template == "" || one.TemplateID == ref.Template) {
			return one.under(ref.Policy), nil
		}
	}
	return nil, fmt.Errorf("render: no files for model %q, tokenizer %q, template %q", ref.Model, ref.Tokenizer, ref.Template)
}

// Only returns models where every turn gets the files of one of them, whatever
// it names: to see what another tokenizer or template would make of it.
func (m *Models) Only(name string) (fold.Models, error) {
	for _, one := range *m.list.Load() {
		if one.Name == name {
			return only{one}, nil
		}
	}
	return nil, fmt.Errorf("render: no files for model %q", name)
}

type only struct{ model *model }

func (o only) Open(ref fold.ModelRef) (fold.Model, error) { return o.model.under(ref.Policy), nil }

type model struct {
	Model
	special map[uint32]bool
}

// under is the model as a turn of a history policy saw it.
func (m *model) under(policy string) *model {
	prompts, ok := m.Histories[policy]
	if !ok {
		return m
	}
	out := *m
	out.Prompts = prompts
	return &out
}

func (m *model) prompt(v fold.View) (prompt.Prompt, error) {
	o := prompt.Options{Kwargs: v.Kwargs}
	if v.Time != 0 {
		o.Time = time.Unix(v.Time, 0).UTC()
	}
	p, err := m.Prompts.Root(v.Conversation, o)
	if err != nil {
		return prompt.Prompt{}, fmt.Errorf("render: model %s: %w", m.Name, err)
	}
	return p, nil
}

// Render implements fold.Model.
func (m *model) Render(v fold.View) ([]fold.Piece, error) {
	p, err := m.prompt(v)
	if err != nil {
		return nil, err
	}
	pieces := make([]fold.Piece, len(p.Segments))
	for i, s := range p.Segments {
		pieces[i] = fold.Piece{Provenance: s.Provenance, IDs: s.IDs}
	}
	return pieces, nil
}

// Encode implements fold.Model. What a model said may spell out control tokens
// that it sampled as such, since only their text came back.
func (m *model) Encode(text string) []uint32 { return m.Tokenizer.Encode(nil, text) }

// Decode implements fold.Model.
func (m *model) Decode(ids []uint32) string { return m.Tokenizer.Decode(ids) }

// Special implements fold.Model.
func (m *model) Special(id uint32) bool { return m.special[id] }

// Reasoning implements fold.Model.
func (m *model) Reasoning(v fold.View, completion []uint32) ([]fold.Range, error) {
	p, err := m.prompt(v)
	if err != nil {
		return nil, err
	}
	return reasoning(completion, func() parse.Parser { return m.Prompts.Parser(p, v.Conversation) }), nil
}
