// Package llamacpp speaks the /completion of llama.cpp's server with a prompt
// of token ids.
//
// Written against the server in llama-cpp-python 0.3.36 (tools/server,
// server-context.cpp and server-task.cpp). A stream there has one event for each
// token, but none for a token that ends inside a character: only the count goes
// up. Which tokens these were follows from the bytes, where one split of them
// into tokens exists; where several do, the rest of the answer is asked for
// again, whole. See stream.go. Their logprobs are asked for when the answer is
// over, one by one, from the state that the server still has cached; see
// rescore.go.
//
// The proof of the prompt is the number of its tokens. Logprobs are the model's
// own, before temperature and truncation.
package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
)

// Config says where the server is.
type Config struct {
	wire.Config
}

// Engine is one llama.cpp server.
type Engine struct {
	wire *wire.Client
	// upstream is which of a router's models answers; empty sends none.
	upstream string
	// eos ends a text at once: what is sampled when only a logprob is asked
	// for. It is known after Check.
	eos   atomic.Uint32
	vocab atomic.Int64
	// pieces are the parts of characters that are tokens; known after Check.
	pieces atomic.Pointer[pieces]
}

var _ engine.Engine = (*Engine)(nil)

// New returns the engine at cfg.URL; it does not connect.
func New(cfg Config) (*Engine, error) {
	c, err := wire.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Engine{wire: c, upstream: cfg.Upstream}, nil
}

// Generate implements engine.Engine.
func (e *Engine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	a := &answer{Tally: wire.NewTally(&req, emit), pieces: e.pieces.Load()}
	a.Report.LogprobKind = event.LogprobKind_LOGPROB_KIND_RAW
	err := wire.CheckGrammar(req.Grammar, "json_object", "json_schema", "gbnf", "tool_choice")
	if err == nil {
		err = e.stream(ctx, &req, a)
	}
	if errors.Is(err, errAmbiguous) {
		err = e.rest(ctx, req, a)
	}
	if err == nil && a.missing && a.Report.FinishReason != "" {
		a.Report.Logprobs, a.Report.Likeliest, err = e.complete(ctx, &req, a)
	}
	if err == nil {
		err = a.Finish()
	}
	return a.Report, err
}

// object begins a body. A server with one model takes no notice of a name.
func (e *Engine) object(size int) *wire.Object {
	o := wire.NewObject(make([]byte, 0, size))
	if e.upstream != "" {
		o.Text("model", e.upstream)
	}
	return o
}

func (e *Engine) body(req *engine.Request, stream bool) ([]byte, error) {
	s := &req.Sampling
	o := e.object(8*len(req.Prompt) + 512)
	o.IDs("prompt", req.Prompt)
	if s.MaxTokens > 0 {
		o.Int("n_predict", int64(s.MaxTokens))
	} else {
		o.Int("n_predict", -1)
	}
	o.Float("temperature", s.Temperature)
	o.Float("top_p", s.TopP)
	if s.TopK != nil {
		o.Int("top_k", int64(max(0, *s.TopK)))
	}
	o.Float("min_p", s.MinP)
	o.Float("frequency_penalty", s.FrequencyPenalty)
	o.Float("presence_penalty", s.PresencePenalty)
	o.Float("repeat_penalty", s.RepetitionPenalty)
	if s.Seed != nil {
		// The server's seed has 32 bits.
		o.Int("seed", int64(uint32(*s.Seed)))
	}
	o.Texts("stop", s.Stop)
	if len(s.LogitBias) > 0 {
		list := []byte{'['}
		for i, b := range s.LogitBias {
			if i > 0 {
				list = append(list, ',')
			}
			list = fmt.Appendf(list, "[%d,%g]", b.ID, b.Value)
		}
		o.Raw("logit_bias", append(list, ']'))
	}
	if err := constrain(o, req.Grammar); err != nil {
		return nil, err
	}
	o.Bool("stream", stream)
	o.Bool("return_tokens", true)
	o.Int("n_probs", int64(max(1, req.Likeliest)))
	o.Bool("cache_prompt", true)
	return o.End(), nil
}

func (a *answer) finish(stop, word string, truncated bool) error {
	r := &a.Report
	switch stop {
	case "eos":
		r.FinishReason = "stop"
	case "word":
		r.FinishReason, r.MatchedStop = "stop", word
	case "limit":
		r.FinishReason = "length"
	default:
		return wire.Broken("stop_type %q", stop)
	}
	if truncated && r.FinishReason != "length" {
		return wire.Broken("the server dropped a part of the prompt: start it without --context-shift")
	}
	return nil
}

// Check implements engine.Engine.
func (e *Engine) Check(ctx context.Context, tok tokenizer.Tokenizer) (engine.Info, error) {
	info := engine.Info{Kind: "llamacpp", LogprobKind: event.LogprobKind_LOGPROB_KIND_RAW}
	path := "/props"
	if e.upstream != "" {
		if _, err := e.wire.Served(ctx); err != nil {
			return info, err
		}
		path += "?model=" + url.QueryEscape(e.upstream)
	}
	props, err := e.wire.Call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return info, err
	}
	var eos string
	for k, v := range rawjson.Members(props) {
		switch k {
		case "build_info":
			info.Version = rawjson.Text(v)
		case "model_alias":
			info.Model = rawjson.Text(v)
		case "eos_token":
			eos = rawjson.Text(v)
		case "default_generation_settings":
			n, _ := rawjson.Get(v, "n_ctx")
			info.ContextLength, _ = wire.Int(n)
		}
	}
	if info.Model == "" {
		path, _ := rawjson.Get(props, "model_path")
		info.Model = rawjson.Text(path)[strings.LastIndexByte(rawjson.Text(path), '/')+1:]
	}
	if role, _ := rawjson.Get(props, "role"); rawjson.Text(role) == "router" {
		return info, &engine.Error{Class: engine.Refused, Message: "the engine is a router of several models; set upstream_model of the model to the name of one"}
	}
	o := e.object(0)
	o.Text("content", wire.ProbeText(tok))
	o.Bool("add_special", false)
	o.Bool("parse_special", true)
	ids, err := e.wire.Call(ctx, http.MethodPost, "/tokenize", o.End())
	if err != nil {
		return info, err
	}
	if err := wire.SameTokenizer(tok, ids, "tokens"); err != nil {
		return info, err
	}
	e.pieces.Store(newPieces(tok))
	if id, ok := tok.TokenID(eos); ok {
		e.eos.Store(id)
		e.vocab.Store(int64(tok.VocabSize()))
	}
	return info, nil
}
