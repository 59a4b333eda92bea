// Package openai speaks OpenAI's chat completions: text in, and what comes
// back out. It serves engines and providers that take no token ids; their turns
// are of the lowest grade. Ids and logprobs are kept where the server returns
// both, complete.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
)

// Config says where the server is. URL is the root that /v1 stands under.
type Config struct {
	wire.Config
	// MaxTokensKey is how the server names the budget: max_completion_tokens,
	// the default, or max_tokens for older servers.
	MaxTokensKey string
}

// Engine is one server.
type Engine struct {
	cfg  Config
	wire *wire.Client
	// extras is how much of what not every server knows is asked for; see
	// Check.
	extras atomic.Int32
}

var _ engine.Engine = (*Engine)(nil)

// The extras: nothing, logprobs, logprobs and token ids.
const (
	none int32 = iota
	withLogprobs
	withIDs
)

// New returns the engine at cfg.URL; it does not connect.
func New(cfg Config) (*Engine, error) {
	c, err := wire.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	if cfg.MaxTokensKey == "" {
		cfg.MaxTokensKey = "max_completion_tokens"
	}
	return &Engine{cfg: cfg, wire: c}, nil
}

// Generate implements engine.Engine.
func (e *Engine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	return e.generate(ctx, req, e.extras.Load(), emit)
}

func (e *Engine) generate(ctx context.Context, req engine.Request, extras int32, emit func(engine.Chunk) error) (engine.Report, error) {
	a := &answer{Tally: wire.NewTally(&req, emit)}
	a.Report.Proof = event.PromptProof_PROMPT_PROOF_NONE
	if err := wire.CheckGrammar(req.Grammar, "json_object", "json_schema"); err != nil {
		return a.Report, err
	}
	if rawjson.KindOf(req.Text) != rawjson.Object {
		return a.Report, &engine.Error{Class: engine.Refused, Message: "this engine takes text, and the request has none"}
	}
	resp, err := e.wire.Post(ctx, "/v1/chat/completions", req.Session, e.body(&req, extras)...)
	if err != nil {
		return a.Report, err
	}
	defer resp.Close()
	resp.Waiting(req.Idle)
	return a.Report, a.read(resp)
}

// body is the client's request with the members replaced that are ours, in parts.
func (e *Engine) body(req *engine.Request, extras int32) [][]byte {
	s := &req.Sampling
	o := wire.NewObject(nil)
	o.Text("model", cmp.Or(e.cfg.Upstream, e.cfg.Model, req.Model))
	o.Bool("stream", true)
	o.Object("stream_options", func(o *wire.Object) { o.Bool("include_usage", true) })
	if s.MaxTokens > 0 {
		o.Int(e.cfg.MaxTokensKey, int64(s.MaxTokens))
	}
	o.Float("temperature", s.Temperature)
	o.Float("top_p", s.TopP)
	if s.TopK != nil {
		o.Int("top_k", int64(*s.TopK))
	}
	o.Float("min_p", s.MinP)
	o.Float("frequency_penalty", s.FrequencyPenalty)
	o.Float("presence_penalty", s.PresencePenalty)
	o.Float("repetition_penalty", s.RepetitionPenalty)
	if s.Seed != nil {
		o.Int("seed", *s.Seed)
	}
	o.Texts("stop", s.Stop)
	if extras >= withLogprobs {
		o.Bool("logprobs", true)
	}
	if extras >= withIDs {
		o.Bool("return_token_ids", true)
	}
	if req.Grammar != nil {
		wire.ResponseFormat(o, req.Grammar)
	}
	wire.LogitBias(o, s.LogitBias)
	set := o.End()
	if rest, ok := without(req.Text, set); ok {
		return [][]byte{append(set[:len(set)-1], ','), rest}
	}
	return [][]byte{Replace(req.Text, set)}
}

// without returns the members of a chat request and the closing brace, where none
// of them is the engine's side to decide: nothing of a long text is copied then.
func without(body, set []byte) (rest []byte, ok bool) {
	n := 0
	for k := range rawjson.Members(body) {
		if _, also := rawjson.Get(set, k); also || slices.Contains(ours, k) {
			return nil, false
		}
		n++
	}
	return body[bytes.IndexByte(body, '{')+1:], n > 0
}

// ours are the members of a chat request that the engine's side decides.
var ours = []string{
	"max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
	"repetition_penalty", "seed", "stop", "stop_token_ids", "n", "logprobs", "top_logprobs", "stream", "stream_options",
	"return_token_ids", "user", "store", "metadata", "service_tier",
}

// Replace returns a chat request without the members that the engine's side
// decides, and with those of set.
func Replace(body, set []byte) []byte {
	sets := make([]rawjson.Set, 0, len(ours)+8)
	for _, key := range ours {
		sets = append(sets, rawjson.Set{Key: key})
	}
	for k, v := range rawjson.Members(set) {
		sets = append(sets, rawjson.Set{Key: k, Value: v})
	}
	return rawjson.Splice(make([]byte, 0, len(body)+len(set)+64), body, sets...)
}

// answer is one answer while it is read.
type answer struct {
	*wire.Tally
	message  assembly
	ids      []uint32
	logprobs []float32
	usage    []byte
}

func (a *answer) read(resp *wire.Response) error {
	for resp.Streamed() {
		data, err := resp.Next()
		if errors.Is(err, io.EOF) || string(data) == "[DONE]" {
			return a.end()
		}
		if err == nil {
			err = a.event(data, "delta")
		}
		if err != nil {
			return err
		}
	}
	data, err := resp.All()
	if err == nil {
		err = a.event(data, "message")
	}
	if err != nil {
		return err
	}
	return a.end()
}

func (a *answer) event(data []byte, part string) error {
	if err := wire.Valid(data); err != nil {
		return err
	}
	for k, v := range rawjson.Members(data) {
		switch k {
		case "choices":
			for c := range rawjson.Elements(v) {
				if err := a.choice(c, part); err != nil {
					return err
				}
			}
		case "usage":
			if rawjson.KindOf(v) == rawjson.Object {
				a.usage = append(a.usage[:0], v...)
			}
		case "error":
			if rawjson.KindOf(v) != rawjson.Null {
				return wire.EventError(v)
			}
		}
	}
	return nil
}

func (a *answer) choice(raw []byte, part string) error {
	if index, ok := rawjson.Get(raw, "index"); ok && string(index) != "0" {
		return wire.Broken("a second choice came where one was asked for")
	}
	var finish string
	var c engine.Chunk
	for k, v := range rawjson.Members(raw) {
		switch k {
		case part:
			var err error
			if c, err = a.message.add(v); err != nil {
				return wire.Broken("%s: %v", part, err)
			}
		case "finish_reason":
			finish = rawjson.Text(v)
		case "token_ids":
			if ids, err := wire.IDs(a.ids, v); err == nil {
				a.ids = ids
			}
		case "logprobs":
			list, _ := rawjson.Get(v, "content")
			for t := range rawjson.Elements(list) {
				l, _ := rawjson.Get(t, "logprob")
				if f, err := wire.Logprob(l); err == nil {
					a.logprobs = append(a.logprobs, f)
				}
			}
		}
	}
	if err := a.EmitUnscored(c); err != nil {
		return err
	}
	switch finish {
	case "":
	case "stop", "length", "content_filter":
		a.Report.FinishReason = finish
	case "tool_calls", "function_call":
		a.Report.FinishReason = "stop"
	case "abort":
		a.Report.FinishReason = finish
		return &engine.Error{Class: engine.Failed, Message: "the engine aborted the request"}
	default:
		return wire.Broken("finish_reason %q", finish)
	}
	return nil
}

// end takes the ids where they are all there, and the calls.
func (a *answer) end() error {
	completion := -1
	for k, v := range rawjson.Members(a.usage) {
		n, err := wire.Int(v)
		switch {
		case k == "prompt_tokens" && err == nil:
			a.Report.PromptTokens = n
		case k == "completion_tokens" && err == nil:
			completion, a.Report.CompletionTokens = n, n
		case k == "prompt_tokens_details":
			cached, _ := rawjson.Get(v, "cached_tokens")
			a.Report.CachedTokens, _ = wire.Int(cached)
		}
	}
	if a.Report.FinishReason == "" {
		return &engine.Error{Class: engine.Unreachable, Message: "the stream ended before the answer did"}
	}
	if a.message.empty() && a.Report.FinishReason == "stop" {
		return wire.Broken("the answer has neither text nor a call")
	}
	if len(a.ids) > 0 && len(a.ids) == completion {
		c := engine.Chunk{IDs: a.ids}
		if len(a.logprobs) == len(a.ids) {
			c.Logprobs = a.logprobs
		}
		if err := a.EmitUnscored(c); err != nil {
			return err
		}
	}
	a.Report.Calls = a.message.whole()
	return nil
}

// Check implements engine.Engine. The tokenizer is not compared: the server
// does not show its own.
func (e *Engine) Check(ctx context.Context, _ tokenizer.Tokenizer) (engine.Info, error) {
	info := engine.Info{Kind: "openai", TextOnly: true, Model: cmp.Or(e.cfg.Upstream, e.cfg.Model)}
	all, err := e.wire.Models(ctx)
	if err != nil {
		return info, err
	}
	listed := false
	for i, m := range all {
		info.Model = cmp.Or(info.Model, m.Name)
		// One that takes any name means its first.
		if i == 0 || info.Model == m.Name {
			info.ContextLength = m.ContextLength
		}
		listed = listed || info.Model == m.Name
	}
	err = e.probe(ctx, info.Model)
	// Many servers take any name, whatever they list.
	if engine.ClassOf(err) == engine.Refused && len(all) > 0 && !listed {
		refused := wire.NotServed(info.Model, all)
		refused.Err = err
		return info, refused
	}
	return info, err
}

// probe finds the most that the server lets itself be asked for, with an answer of
// one token. Some refuse so short a one: a model that always thinks, for instance.
func (e *Engine) probe(ctx context.Context, model string) (err error) {
	req := engine.Request{
		ID: wire.CheckID + "0", Model: model, RoutedFrom: -1,
		Text: []byte(`{"messages":[{"role":"user","content":"Say yes."}]}`),
	}
	for _, req.Sampling.MaxTokens = range []int{1, 16} {
		for extras := withIDs; extras >= none; extras-- {
			_, err = e.generate(ctx, req, extras, func(engine.Chunk) error { return nil })
			if engine.ClassOf(err) == engine.Refused {
				continue
			}
			e.extras.Store(extras)
			if engine.ClassOf(err) == engine.Broken {
				return nil // an empty answer to a probe is no fault
			}
			return err
		}
	}
	return err
}
