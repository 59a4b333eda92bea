package gateway

import (
	"turnlog.dev/gateway/engine"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

// Model is one model that the gateway serves.
type Model struct {
	Name string
	// Aliases are other names that clients may use, with * for any text.
	Aliases []string
	// Tokenizer, Prompts and Parser are the model's format; all are nil for a
	// model whose engine takes text.
	Tokenizer tokenizer.Tokenizer
	Prompts   *prompt.Assembler
	Parser    func(kwargs []byte) parse.Parser
	// StopTokens end an answer.
	StopTokens []uint32
	// Family, TokenizerID and TemplateID are recorded with every turn.
	Family, TokenizerID, TemplateID string
	// ContextLength in tokens; 0 is unknown.
	ContextLength int
	// SamplingDefault and SamplingOverride are JSON objects; see ModelPolicy.
	SamplingDefault, SamplingOverride []byte
	// LogprobKind is what the pool's engines say about their logprobs.
	Pool Pool
	// Created is shown in lists of models, seconds since 1970.
	Created int64
}

// request returns what the engine is asked for.
func (m *Model) request(id, session string, prompt []uint32, s engine.Sampling, g *engine.Grammar) engine.Request {
	return engine.Request{
		ID: id, Session: session, Model: m.Name, Prompt: prompt,
		Sampling: s, Grammar: g, RoutedFrom: -1,
	}
}
