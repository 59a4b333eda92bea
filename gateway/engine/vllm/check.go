package vllm

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
)

// Check implements engine.Engine.
func (e *Engine) Check(ctx context.Context, tok tokenizer.Tokenizer) (engine.Info, error) {
	info := engine.Info{Kind: "vllm"}
	model, err := e.wire.Served(ctx)
	if err != nil {
		return info, err
	}
	e.model.Store(&model.Name)
	info.Model, info.ContextLength = model.Name, model.ContextLength
	if b, err := e.wire.Call(ctx, http.MethodGet, "/version", nil); err == nil {
		version, _ := rawjson.Get(b, "version")
		info.Version = rawjson.Text(version)
	}

	o := wire.NewObject(nil)
	o.Text("model", info.Model)
	o.Text("prompt", wire.ProbeText(tok))
	o.Bool("add_special_tokens", false)
	ids, err := e.wire.Call(ctx, http.MethodPost, "/tokenize", o.End())
	if err != nil {
		return info, err
	}
	if err := wire.SameTokenizer(tok, ids, "tokens"); err != nil {
		return info, err
	}
	if info.LogprobKind, err = e.probeLogprobs(ctx, tok); err != nil {
		return info, err
	}
	if err := e.probeReasoning(ctx, tok); err != nil || !e.cfg.Parser {
		return info, err
	}
	return info, e.probeParser(ctx, tok, info.Version)
}

// probeParser asks for a token on the paths of the engine's parser: they are there
// with a flag only, and older servers prove nothing there.
func (e *Engine) probeParser(ctx context.Context, tok tokenizer.Tokenizer, version string) error {
	req := probe(tok)
	req.Text = []byte(`{"messages":[{"role":"user","content":"Hello"}]}`)
	_, err := e.tokens(ctx, &req, e.newAnswer(&req, func(engine.Chunk) error { return nil }), e.chatRequest(&req))
	if engine.ClassOf(err) == engine.Broken {
		err = &engine.Error{Class: engine.Refused, Err: err, Message: "vLLM " + version +
			" does not show what its parser's answers were sampled from; 0.29 does: use that or a newer one, or leave parser out of the model"}
	}
	return err
}

// probe is a request for one token.
func probe(tok tokenizer.Tokenizer) engine.Request {
	return engine.Request{
		ID:     wire.CheckID + strconv.FormatInt(checks.Add(1), 10),
		Prompt: tok.Encode(nil, "Once upon a time there was a"), RoutedFrom: -1, Sampling: engine.Sampling{MaxTokens: 1},
	}
}

var checks atomic.Int64

// probeLogprobs finds out --logprobs-mode: where only one token can be sampled,
// its processed logprob is 0 and its raw one is not.
func (e *Engine) probeLogprobs(ctx context.Context, tok tokenizer.Tokenizer) (event.LogprobKind, error) {
	got, err := e.one(ctx, tok, nil)
	if err != nil {
		return 0, err
	}
	e.processed.Store(got.Logprobs[0] == 0)
	if got.Logprobs[0] == 0 {
		return event.LogprobKind_LOGPROB_KIND_PROCESSED, nil
	}
	return event.LogprobKind_LOGPROB_KIND_RAW, nil
}

// probeReasoning finds out whether the server has a reasoning parser: then it
// enforces no constraint before the end of the thinking, which this prompt never
// reaches. A server that refuses the constraint enforces none.
func (e *Engine) probeReasoning(ctx context.Context, tok tokenizer.Tokenizer) error {
	const forced = "@"
	got, err := e.one(ctx, tok, &engine.Grammar{Kind: "ebnf", Value: `root ::= "` + forced + `"`})
	if engine.ClassOf(err) == engine.Refused {
		return nil
	}
	if err == nil {
		e.reasons.Store(tok.Decode(got.IDs) != forced)
	}
	return err
}

// one samples the most likely token after a prompt.
func (e *Engine) one(ctx context.Context, tok tokenizer.Tokenizer, g *engine.Grammar) (got engine.Chunk, err error) {
	one, heat := 1, 1.0
	req := probe(tok)
	req.Grammar, req.Sampling.Temperature, req.Sampling.TopK = g, &heat, &one
	_, err = e.Generate(ctx, req, func(c engine.Chunk) error { got = c; return nil })
	return got, err
}
