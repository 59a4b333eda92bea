package gateway

import (
	"turnlog.dev/gateway/engine"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/prompt"
)

// Model is one model that the gateway serves.
type Model struct {
	Name string
	// Aliases are other names that clients may use, with * for any text.
	Aliases []string
	Wire    Wire
	// Tokenizer and Prompts are the model's format; nil where text goes in.
	Tokenizer tokenizer.Tokenizer
	Prompts   *prompt.Assembler
	// Family, TokenizerID and TemplateID are recorded with every turn.
	Family, TokenizerID, TemplateID string
	// ContextLength in tokens; 0 is unknown.
	ContextLength int
	// SamplingDefault and SamplingOverride are JSON objects; see ModelPolicy.
	SamplingDefault, SamplingOverride []byte
	Pool                              Pool
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

// bytes returns what an id stands for.
func (m *Model) bytes(id uint32) []byte {
	if m.Tokenizer == nil {
		return nil
	}
	b, _ := m.Tokenizer.AppendBytes(nil, id)
	return b
}
