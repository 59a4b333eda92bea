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
	models, err := e.wire.Call(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return info, err
	}
	if err := e.choose(models, &info); err != nil {
		return info, err
	}
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
	// The paths of the engine's parser are there with a flag only.
	ask := wire.NewObject(nil)
	ask.Text("model", info.Model)
	ask.Raw("messages", []byte(`[{"role":"user","content":"Hello"}]`))
	_, err = e.call(ctx, "/v1/chat/completions/render", ask.End())
	return info, err
}

// choose finds the model among the served ones.
func (e *Engine) choose(models []byte, info *engine.Info) error {
	list, _ := rawjson.Get(models, "data")
	for m := range rawjson.Elements(list) {
		id, _ := rawjson.Get(m, "id")
		if name := rawjson.Text(id); info.Model == "" || name == e.cfg.Model {
			info.Model = name
			length, _ := rawjson.Get(m, "max_model_len")
			info.ContextLength, _ = wire.Int(length)
		}
	}
	if info.Model == "" {
		return &engine.Error{Class: engine.Refused, Message: "the engine lists no model at /v1/models; is it vLLM, and has it loaded one?"}
	}
	e.model.Store(&info.Model)
	return nil
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
	req := engine.Request{
		ID:     wire.CheckID + strconv.FormatInt(checks.Add(1), 10),
		Prompt: tok.Encode(nil, "Once upon a time there was a"), RoutedFrom: -1, Grammar: g,
		Sampling: engine.Sampling{MaxTokens: 1, Temperature: &heat, TopK: &one},
	}
	_, err = e.Generate(ctx, req, func(c engine.Chunk) error { got = c; return nil })
	return got, err
}
