package sglang

import (
	"context"
	"errors"
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
	info := engine.Info{Kind: "sglang"}
	model, err := e.wire.Served(ctx)
	if err != nil {
		return info, err
	}
	e.model.Store(&model)
	info.Model = model.Name
	server, err := e.get(ctx, "/server_info", "/get_server_info")
	if err != nil {
		return info, err
	}
	version, _ := rawjson.Get(server, "version")
	info.Version = rawjson.Text(version)
	if length, ok := rawjson.Get(server, "context_length"); ok {
		info.ContextLength, _ = wire.Int(length)
	}

	o := wire.NewObject(nil)
	o.Text("prompt", wire.ProbeText(tok))
	o.Bool("add_special_tokens", false)
	ids, err := e.wire.Call(ctx, http.MethodPost, "/tokenize", o.End())
	if err != nil {
		return info, err
	}
	if err := wire.SameTokenizer(tok, ids, "tokens"); err != nil {
		return info, err
	}
	if info.LogprobKind, err = e.probeLogprobs(ctx, tok); err != nil || !e.cfg.Parser {
		return info, err
	}
	return info, e.probeChat(ctx, tok, info.Version)
}

// probeChat finds out whether the server takes ids in its chat, and says so: older
// ones take no notice of them and answer to what they render themselves.
func (e *Engine) probeChat(ctx context.Context, tok tokenizer.Tokenizer, version string) error {
	req := probe(tok)
	req.Text = []byte(`{"messages":[{"role":"user","content":"Hello"}]}`)
	_, err := e.Generate(ctx, req, func(engine.Chunk) error { return nil })
	if errors.Is(err, errSilent) {
		return nil // one token may be half a thought
	}
	if engine.ClassOf(err) == engine.Broken {
		err = &engine.Error{Class: engine.Refused, Err: err, Message: "sglang " + version +
			" does not take ids in its chat; 0.5.13 does: use that or a newer one, or leave parser out of the model"}
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

// get asks for a path under its present or its former name.
func (e *Engine) get(ctx context.Context, path, former string) ([]byte, error) {
	b, err := e.wire.Call(ctx, http.MethodGet, path, nil)
	var failed *engine.Error
	if errors.As(err, &failed) && failed.Status == http.StatusNotFound {
		return e.wire.Call(ctx, http.MethodGet, former, nil)
	}
	return b, err
}

var checks atomic.Int64

// probeLogprobs finds out whether logprobs are taken before temperature: then
// the most likely token has the same one at temperature 1 and at 5. A tiny
// top_p leaves only that token; top_k 1 would take the greedy path, which never
// scales.
func (e *Engine) probeLogprobs(ctx context.Context, tok tokenizer.Tokenizer) (event.LogprobKind, error) {
	var at [2]float32
	for i, temperature := range []float64{1, 5} {
		tiny := 1e-6
		req := probe(tok)
		req.Sampling.Temperature, req.Sampling.TopP = &temperature, &tiny
		_, err := e.Generate(ctx, req, func(c engine.Chunk) error { at[i] = c.Logprobs[0]; return nil })
		if err != nil {
			return 0, err
		}
	}
	e.unscaled.Store(at[0] == at[1])
	if at[0] == at[1] {
		return event.LogprobKind_LOGPROB_KIND_RAW, nil
	}
	return event.LogprobKind_LOGPROB_KIND_PROCESSED, nil
}
