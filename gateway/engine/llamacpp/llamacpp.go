// Package llamacpp speaks the /completion of llama.cpp's server with a prompt
// of token ids.
//
// Written against the server in llama-cpp-python 0.3.36 (tools/server). Its
// streams lose ids: of the tokens that make up one character only the last one
// is sent. So the answer is taken whole. There, too, the tokens inside a
// character, and those of a stop string, come without logprobs; these are asked
// for afterwards, one by one, from the state that the server still has cached.
//
// The proof of the prompt is the number of its tokens. Logprobs are the model's
// own, before temperature and truncation.
package llamacpp

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
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
	// eos ends a text at once: what is sampled when only a logprob is asked
	// for. It is known after Check.
	eos   atomic.Uint32
	vocab atomic.Int64
}

var _ engine.Engine = (*Engine)(nil)

// New returns the engine at cfg.URL; it does not connect.
func New(cfg Config) (*Engine, error) {
	c, err := wire.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Engine{wire: c}, nil
}

// Generate implements engine.Engine. The answer is emitted as one chunk.
func (e *Engine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	a := &answer{Tally: wire.NewTally(&req, emit)}
	a.Report.LogprobKind = event.LogprobKind_LOGPROB_KIND_RAW
	if err := wire.CheckGrammar(req.Grammar, "json_object", "json_schema", "gbnf"); err != nil {
		return a.Report, err
	}
	data, err := e.wire.Call(ctx, http.MethodPost, "/completion", body(&req))
	if err != nil {
		return a.Report, err
	}
	if err := a.read(data); err != nil {
		return a.Report, err
	}
	logprobs, err := e.complete(ctx, &req, a)
	if err != nil {
		return a.Report, err
	}
	if err := a.EmitUnscored(engine.Chunk{IDs: a.ids, Logprobs: logprobs}); err != nil {
		return a.Report, err
	}
	return a.Report, a.Finish()
}

func body(req *engine.Request) []byte {
	s := &req.Sampling
	o := wire.NewObject(make([]byte, 0, 8*len(req.Prompt)+512))
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
	if g := req.Grammar; g != nil {
		switch g.Kind {
		case "json_object":
			o.Raw("json_schema", []byte(`{"type":"object"}`))
		case "json_schema":
			o.Raw("json_schema", []byte(g.Value))
		case "gbnf":
			o.Text("grammar", g.Value)
		}
	}
	o.Bool("return_tokens", true)
	o.Int("n_probs", 1)
	o.Bool("cache_prompt", true)
	return o.End()
}

// answer is one answer while it is read.
type answer struct {
	*wire.Tally
	ids []uint32
	// scored are the logprobs that came, with the token that each is of.
	scored []score
}

type score struct {
	id      uint32
	logprob float32
}

func (a *answer) read(data []byte) error {
	var predicted, stop, word, truncated []byte
	var err error
	for k, v := range rawjson.Members(data) {
		switch k {
		case "tokens":
			a.ids, err = wire.IDs(nil, v)
		case "completion_probabilities":
			err = a.scores(v)
		case "tokens_predicted":
			predicted = v
		case "tokens_evaluated":
			if err := a.CountPrompt(v); err != nil {
				return err
			}
		case "timings":
			if n, ok := rawjson.Get(v, "cache_n"); ok {
				a.Report.CachedTokens, err = wire.Int(n)
			}
		case "stop_type":
			stop = v
		case "stopping_word":
			word = v
		case "truncated":
			truncated = v
		case "error":
			return wire.EventError(v)
		}
		if err != nil {
			return wire.Broken("%s: %v", k, err)
		}
	}
	if len(a.ids) == 0 {
		return wire.Broken("the answer has no tokens: the server is older than return_tokens, or this is not llama.cpp's /completion")
	}
	if n, err := wire.Int(predicted); err != nil || n != len(a.ids) {
		return wire.Broken("tokens_predicted is %s but there are %d tokens", predicted, len(a.ids))
	}
	return a.finish(rawjson.Text(stop), rawjson.Text(word), string(truncated) == "true")
}

func (a *answer) scores(raw []byte) error {
	for entry := range rawjson.Elements(raw) {
		var s score
		var err error
		seen := false
		for k, v := range rawjson.Members(entry) {
			switch k {
			case "id":
				s.id, err = wire.ID(v)
			case "logprob":
				s.logprob, err = wire.Logprob(v)
				// The server writes the lowest float for a probability of 0.
				if err == nil && s.logprob == -math.MaxFloat32 {
					err = wire.ErrNotFinite
				}
				seen = true
			}
			if err != nil {
				return fmt.Errorf("entry %d: %w", len(a.scored), err)
			}
		}
		if !seen {
			return fmt.Errorf("entry %d has no logprob", len(a.scored))
		}
		a.scored = append(a.scored, s)
	}
	return nil
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
	// Stop tokens cannot be named on this wire; the model's own end the answer.
	// What came after another one was not asked for.
	for i, id := range a.ids[:len(a.ids)-1] {
		if slices.Contains(a.Request().Sampling.StopTokens, id) {
			a.ids = a.ids[:i+1]
			r.FinishReason, r.MatchedStop = "stop", fmt.Sprint(id)
			break
		}
	}
	return nil
}

// Check implements engine.Engine.
func (e *Engine) Check(ctx context.Context, tok tokenizer.Tokenizer) (engine.Info, error) {
	info := engine.Info{Kind: "llamacpp", LogprobKind: event.LogprobKind_LOGPROB_KIND_RAW}
	props, err := e.wire.Call(ctx, http.MethodGet, "/props", nil)
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
	o := wire.NewObject(nil)
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
	if id, ok := tok.TokenID(eos); ok {
		e.eos.Store(id)
		e.vocab.Store(int64(tok.VocabSize()))
	}
	return info, nil
}
