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
	model, err := e.get(ctx, "/model_info", "/get_model_info")
	if err != nil {
		return info, err
	}
	name, _ := rawjson.Get(model, "served_model_name")
	if info.Model = rawjson.Text(name); info.Model == "" {
		path, _ := rawjson.Get(model, "model_path")
		info.Model = rawjson.Text(path)
	}
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
	info.LogprobKind, err = e.probeLogprobs(ctx, tok)
	return info, err
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
	prompt := tok.Encode(nil, "Once upon a time there was a")
	var at [2]float32
	for i, temperature := range []float64{1, 5} {
		tiny := 1e-6
		req := engine.Request{
			ID: wire.CheckID + strconv.FormatInt(checks.Add(1), 10), Prompt: prompt, RoutedFrom: -1,
			Sampling: engine.Sampling{MaxTokens: 1, Temperature: &temperature, TopP: &tiny},
		}
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
