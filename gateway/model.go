package gateway

import (
	"context"

	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

// Model is one model that the gateway serves.
type Model struct {
	Name string
	// Aliases are other names that clients may use, with * for any text.
	Aliases []string
	Wire    Wire
	// Tokenizer and Prompts are the model's format, under its own history policy;
	// nil where text goes in. Histories are the format under each policy that
	// sessions may ask for.
	Tokenizer tokenizer.Tokenizer
	Prompts   *prompt.Assembler
	Histories map[prompt.Policy]*prompt.Assembler
	// Counter is that of a model whose engines take text, for counting only; nil
	// where its files are not known.
	Counter *Counter
	// Family, TokenizerID and TemplateID are recorded with every turn.
	Family, TokenizerID, TemplateID string
	// RoutedExperts has engines say which experts a mixture model chose; see
	// Deps.Blobs.
	RoutedExperts bool
	// ContextLength in tokens; 0 is unknown.
	ContextLength int
	// SamplingDefault and SamplingOverride are JSON objects; see ModelPolicy.
	SamplingDefault, SamplingOverride []byte
	Pool                              Pool
	// Backends changes the pool while it serves; nil where it cannot be changed.
	Backends Backends
	// Created is shown in lists of models, seconds since 1970.
	Created int64
}

// Backends are the replicas of a model, for operators. All methods are safe for
// concurrent use. Replicas are named by their host and port.
type Backends interface {
	Stats() pool.Stats
	// Open adds the engine at a URL.
	Open(url string) error
	// Drain returns when what the replica works on is done; it gets nothing more.
	Drain(ctx context.Context, name string) error
	Resume(name string) error
	// Remove drops a replica; what it works on goes on.
	Remove(name string) error
}

// Counter counts the tokens of a model whose engines take text and say nothing
// of them.
type Counter struct {
	Tokenizer tokenizer.Tokenizer
	Prompts   *prompt.Assembler
}

// prompt is how many tokens a conversation has; 0 is unknown.
func (c *Counter) prompt(conv message.Conversation, o prompt.Options) (n int) {
	if c == nil {
		return 0
	}
	p, err := c.Prompts.Root(conv, o)
	if err != nil {
		return 0
	}
	for _, s := range p.Segments {
		n += len(s.IDs)
	}
	return n
}

// reply is how many tokens a reply has, without what a format writes around its
// parts; 0 is unknown.
func (c *Counter) reply(r parse.Reply) (n int) {
	if c == nil {
		return 0
	}
	texts := []string{r.Reasoning, r.Content}
	for _, call := range r.Calls {
		texts = append(texts, call.Name, call.Arguments)
	}
	for _, text := range texts {
		n += len(c.Tokenizer.Encode(nil, text))
	}
	return n
}

// under returns the model's format under a history policy; empty is its own. An
// engine that takes text renders the history itself.
func (m *Model) under(p prompt.Policy) (*prompt.Assembler, error) {
	switch {
	case p == "" || m.Prompts != nil && p == m.Prompts.Policy():
		return m.Prompts, nil
	case m.Histories[p] != nil:
		return m.Histories[p], nil
	case m.Wire == Text:
		return nil, Invalidf("history", "the engine of model %q renders the history itself: no history policy can be asked for", m.Name)
	}
	return nil, Invalidf("history", "model %q, of family %s, has no history policy %q", m.Name, m.Family, p)
}

// bytes returns what an id stands for.
func (m *Model) bytes(id uint32) []byte {
	if m.Tokenizer == nil {
		return nil
	}
	b, _ := m.Tokenizer.AppendBytes(nil, id)
	return b
}
