// Package sglang speaks sglang's /generate: token ids in, a stream of ids with
// their logprobs out.
//
// Written against sglang 0.5.23 (srt/managers/io_struct.py GenerateReqInput,
// srt/managers/tokenizer_manager.py, srt/sampling/sampling_params.py). Two of
// its habits shape this code. Without --incremental-streaming-output every
// chunk repeats all ids and logprobs so far; both forms are told apart by the
// counts. And an echoed prompt comes with every chunk, so that a long prompt
// is streamed in larger steps, or is only counted where Config says so.
package sglang

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
)

// Config says where the server is and what it cannot say of itself.
type Config struct {
	wire.Config
	// CountOnly does without the echo of the prompt: the proof is the number
	// of its tokens, a lower grade, and every token is streamed by itself.
	CountOnly bool
	// Parser has the server parse its answers: the chat wire instead of
	// /generate, the answer whole, and Report.Message.
	Parser bool
	// RoutedLayers and RoutedTopK are the shape of a token's experts, which the
	// server sends flat. Without RoutedTopK they stay so; without RoutedLayers
	// their number follows from what came.
	RoutedLayers, RoutedTopK int
}

// Engine is one sglang server.
type Engine struct {
	cfg  Config
	wire *wire.Client
	// unscaled is what Check found out: logprobs are those before temperature.
	unscaled atomic.Bool
	// model is what Check found out: the model at the server, or an adapter of it.
	model atomic.Pointer[wire.Served]
}

var _ engine.Engine = (*Engine)(nil)

// New returns the engine at cfg.URL; it does not connect.
func New(cfg Config) (*Engine, error) {
	c, err := wire.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, wire: c}
	e.model.Store(&wire.Served{})
	return e, nil
}

// abortTimeout bounds the request that ends a generation.
const abortTimeout = 2 * time.Second

// Generate implements engine.Engine.
func (e *Engine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	a := &answer{cfg: &e.cfg, Tally: wire.NewTally(&req, emit), prompt: wire.AppendIDs(nil, req.Prompt)}
	a.Report.LogprobKind = e.logprobKind(req.Sampling, req.Grammar != nil)
	if err := wire.CheckGrammar(req.Grammar, "json_object", "json_schema", "regex", "ebnf", "tool_choice"); err != nil {
		return a.Report, err
	}
	if e.cfg.Parser && len(req.Text) > 0 {
		err := e.chat(ctx, &req, a)
		return a.Report, err
	}
	resp, err := e.wire.Post(ctx, "/generate", req.Session, e.body(&req, a.prompt))
	if err == nil {
		resp.Waiting(req.Idle)
		err = a.read(resp)
		resp.Close()
	} else {
		// Without a connection there is nothing to abort.
		a.over = ctx.Err() == nil
	}
	if err != nil && !a.over {
		e.abort(ctx, req.ID)
	}
	return a.Report, err
}

// abort tells the server that nobody waits for the answer. That the connection
// is closed says the same, but a router in between may not pass it on.
func (e *Engine) abort(ctx context.Context, id string) {
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	o := wire.NewObject(nil)
	o.Text("rid", id)
	_, _ = e.wire.Call(ctx, http.MethodPost, "/abort_request", o.End())
}

// adapter names the adapter that is to answer, if any: without it the model itself
// would.
func (e *Engine) adapter(o *wire.Object) {
	if m := e.model.Load(); m.Base != "" {
		o.Text("lora_path", m.Name)
	}
}

// stepTokens is how many prompt tokens may be echoed for one token of the
// answer.
const (
	stepTokens = 512
	maxStep    = 64
)

func (e *Engine) body(req *engine.Request, prompt []byte) []byte {
	s := &req.Sampling
	o := wire.NewObject(make([]byte, 0, len(prompt)+512))
	o.Text("rid", req.ID)
	e.adapter(o)
	o.Raw("input_ids", prompt)
	o.Object("sampling_params", func(o *wire.Object) {
		wire.MaxTokens(o, "max_new_tokens", s)
		wire.Sampling(o, s, noTopK)
		if s.Seed != nil {
			o.Int("sampling_seed", *s.Seed)
		}
		// The ids are the answer; nothing is to be trimmed from it.
		o.Bool("no_stop_trim", true)
		o.Bool("skip_special_tokens", false)
		if step := len(req.Prompt) / stepTokens; step > 1 && !e.cfg.CountOnly {
			o.Int("stream_interval", int64(min(step, maxStep)))
		}
		grammar(o, req.Grammar)
	})
	o.Bool("return_logprob", true)
	// Output tokens only: 0 would score the prompt and defeat the prefix cache.
	o.Int("logprob_start_len", -1)
	if req.Likeliest > 0 {
		o.Int("top_logprobs_num", int64(req.Likeliest))
	}
	o.Bool("stream", true)
	if !e.cfg.CountOnly {
		o.Bool("return_prompt_token_ids", true)
	}
	routed(o, req)
	return o.End()
}

func routed(o *wire.Object, req *engine.Request) {
	if req.RoutedFrom >= 0 {
		o.Bool("return_routed_experts", true)
		o.Int("routed_experts_start_len", int64(req.RoutedFrom))
	}
}

// noTopK is top_k for all of the vocabulary.
const noTopK = -1

func grammar(o *wire.Object, g *engine.Grammar) {
	if g == nil {
		return
	}
	switch {
	case g.Pattern != nil, g.Before != nil:
		o.Text("structural_tag", wire.StructuralTag(g, true))
	case g.Kind == "json_object":
		o.Text("json_schema", `{"type":"object"}`)
	default:
		o.Text(g.Kind, g.Value)
	}
}

// logprobKind follows srt/layers/sampler.py: logprobs are taken after penalties
// and temperature and before truncation, unless SGLANG_RETURN_ORIGINAL_LOGPROB
// takes them before temperature.
// A grammar's mask and biases are laid on the logits as penalties are.
func (e *Engine) logprobKind(s engine.Sampling, constrained bool) event.LogprobKind {
	penalised := constrained || len(s.LogitBias) > 0 || set(s.FrequencyPenalty, 0) || set(s.PresencePenalty, 0) || set(s.RepetitionPenalty, 1)
	truncated := set(s.TopP, 1) || set(s.MinP, 0) || s.TopK != nil && *s.TopK > 0
	// Temperature 0 is greedy, which is not scaled.
	scaled := set(s.Temperature, 1) && *s.Temperature > 0 && !e.unscaled.Load()
	switch {
	case !penalised && !scaled:
		return event.LogprobKind_LOGPROB_KIND_RAW
	case truncated:
		// Neither the model's distribution nor the one that was sampled from.
		// (With top_k 1 it depends on the other requests of the batch.)
		return event.LogprobKind_LOGPROB_KIND_UNSPECIFIED
	}
	return event.LogprobKind_LOGPROB_KIND_PROCESSED
}

func set(f *float64, neutral float64) bool { return f != nil && *f != neutral }

// answer is one answer while it is read.
type answer struct {
	*wire.Tally
	cfg    *Config
	prompt []byte // as it was sent
	// over is set when the server ended the answer itself.
	over bool
	// label is the weight version of the chunks; mixed says that it changed
	// and no spans told where.
	label string
	mixed bool
}

func (a *answer) read(resp *wire.Response) error {
	if err := resp.Each(a.event); err != nil {
		return err
	}
	a.over = true
	return a.Finish()
}

// event reads one chunk.
func (a *answer) event(data []byte) error {
	data, echoed := wire.Elide(data, "prompt_token_ids", a.prompt)
	if err := wire.Valid(data); err != nil {
		return err
	}
	var ids, meta []byte
	for k, v := range rawjson.Members(data) {
		switch k {
		case "output_ids":
			ids = v
		case "meta_info":
			meta = v
		case "error":
			a.over = true
			return wire.EventError(v)
		case "prompt_token_ids":
			if !echoed {
				if err := a.Echo(v); err != nil {
					return err
				}
			}
		}
	}
	if echoed {
		a.Echoed()
	}
	if meta == nil {
		return wire.Broken("a chunk without meta_info: is this sglang's /generate?")
	}
	return a.meta(ids, meta)
}

func (a *answer) meta(ids, meta []byte) error {
	var logprobs, likeliest, prompt, count, finish, spans, routed []byte
	var label string
	var err error
	for k, v := range rawjson.Members(meta) {
		switch k {
		case "output_token_logprobs":
			logprobs = v
		case "output_top_logprobs":
			likeliest = v
		case "completion_tokens":
			count = v
		case "prompt_tokens":
			prompt = v
		case "cached_tokens":
			if a.Report.CachedTokens, err = wire.Int(v); err != nil {
				return wire.Broken("cached_tokens: %v", err)
			}
		case "finish_reason":
			finish = v
		case "weight_version":
			label = wire.Label(v)
		case "weight_versions":
			spans = v
		case "routed_experts":
			routed = v
		}
	}
	if prompt != nil {
		if err := a.CountPrompt(prompt); err != nil {
			return err
		}
	}
	a.mixed = a.mixed || a.label != "" && a.label != label
	a.label = label
	err = a.tokens(ids, logprobs, likeliest, count)
	if errors.Is(err, engine.ErrEnough) {
		// There may be no chunk that finishes the answer.
		switch {
		case spans != nil:
			if broken := a.SpansOfMore(spans); broken != nil {
				return broken
			}
		case !a.mixed:
			a.OneVersion(a.label)
		}
	}
	if err != nil {
		return err
	}
	if rawjson.KindOf(finish) != rawjson.Object {
		return nil
	}
	return a.finish(finish, spans, routed)
}

// tokens takes what is new in a chunk.
func (a *answer) tokens(ids, logprobs, likeliest, count []byte) error {
	if ids == nil {
		return wire.Broken("a chunk without output_ids: the server is older than 0.5, or does not return ids")
	}
	total, err := wire.Int(count)
	if err != nil {
		return wire.Broken("completion_tokens: %v", err)
	}
	all, err := wire.IDs(nil, ids)
	if err != nil {
		return wire.Broken("output_ids: %v", err)
	}
	// Cumulative chunks hold all tokens, incremental ones the new tokens.
	skip := 0
	switch {
	case len(all) == total:
		skip = a.Tokens
	case a.Tokens+len(all) != total:
		return wire.Broken("completion_tokens is %d after %d tokens and a chunk of %d", total, a.Tokens, len(all))
	}
	if skip > len(all) {
		return wire.Broken("a chunk has %d tokens where %d were sent before", len(all), skip)
	}
	c := engine.Chunk{IDs: all[skip:]}
	n := 0
	for entry := range rawjson.Elements(logprobs) {
		if n++; n <= skip {
			continue
		}
		i := 0
		for v := range rawjson.Elements(entry) {
			switch i {
			case 0:
				f, err := wire.Logprob(v)
				if err != nil {
					return wire.Broken("the logprob of token %d: %v", a.Tokens+len(c.Logprobs), err)
				}
				c.Logprobs = append(c.Logprobs, f)
			case 1:
				id, err := wire.ID(v)
				if at := len(c.Logprobs) - 1; err != nil || at >= len(c.IDs) || c.IDs[at] != id {
					return wire.Broken("output_token_logprobs[%d] is of another token than output_ids", n-1)
				}
			}
			i++
		}
	}
	if a.Request().Likeliest > 0 {
		if c.Likeliest, err = a.likeliest(likeliest, skip); err != nil {
			return err
		}
	}
	return a.Emit(c)
}

// likeliest reads lists of [logprob, id, text] after the first skip; a place
// without any has null.
func (a *answer) likeliest(raw []byte, skip int) (out [][]engine.Candidate, err error) {
	n := 0
	for place := range rawjson.Elements(raw) {
		if n++; n <= skip {
			continue
		}
		var list []engine.Candidate
		for entry := range rawjson.Elements(place) {
			var c engine.Candidate
			i, finite := 0, true
			for v := range rawjson.Elements(entry) {
				switch i {
				case 0:
					var notFinite error
					c.Logprob, notFinite = wire.Logprob(v)
					finite = notFinite == nil
				case 1:
					if c.ID, err = wire.ID(v); err != nil {
						return nil, wire.Broken("output_top_logprobs[%d]: %v", n-1, err)
					}
				}
				i++
			}
			if finite {
				list = append(list, c)
			}
		}
		out = append(out, wire.Likeliest(list, a.Request().Likeliest))
	}
	return out, nil
}

// finish reads the last chunk.
func (a *answer) finish(finish, spans, routed []byte) error {
	a.over = true
	kind, _ := rawjson.Get(finish, "type")
	switch r := &a.Report; rawjson.Text(kind) {
	case "stop":
		matched, _ := rawjson.Get(finish, "matched")
		a.Stopped(matched)
	case "length":
		r.FinishReason = "length"
	case "abort":
		r.FinishReason = "abort"
		return aborted(finish)
	default:
		return wire.Broken("finish_reason %.100s", finish)
	}
	switch {
	case spans != nil:
		if err := a.Spans(spans); err != nil {
			return err
		}
	case !a.mixed:
		a.OneVersion(a.label)
	}
	return a.routed(routed)
}

// aborted is an answer that the server gave up.
func aborted(finish []byte) error {
	code, _ := rawjson.Get(finish, "status_code")
	if status, err := wire.Int(code); err == nil && status >= 400 {
		return wire.StatusError(status, "", finish)
	}
	return &engine.Error{Class: engine.Failed, Message: "the engine aborted the request: " + wire.Message(finish)}
}

// routed decodes flat int32 rows [start, sequence-1) x layers x topk.
func (a *answer) routed(raw []byte) error {
	if rawjson.KindOf(raw) != rawjson.String || a.Request().RoutedFrom < 0 {
		return nil // absent, or not asked for
	}
	data, err := base64.StdEncoding.DecodeString(rawjson.Text(raw))
	if err != nil || len(data)%4 != 0 {
		return wire.Broken("routed_experts: %d bytes are not int32 numbers in base64", len(data))
	}
	rows := a.RoutedRows()
	if rows <= 0 || len(data)%(4*rows) != 0 {
		return wire.Broken("routed_experts: %d numbers do not make %d rows", len(data)/4, rows)
	}
	shape := []int64{int64(rows), int64(len(data) / 4 / rows)}
	if topK := int64(a.cfg.RoutedTopK); topK > 0 {
		layers := shape[1] / topK
		if layers*topK != shape[1] || a.cfg.RoutedLayers > 0 && layers != int64(a.cfg.RoutedLayers) {
			return wire.Broken("routed_experts: %d numbers a token where %d layers and %d experts were expected: are routed_layers and routed_top_k right?",
				shape[1], a.cfg.RoutedLayers, topK)
		}
		shape = []int64{shape[0], layers, topK}
	}
	a.Report.Routed = &engine.Routed{Data: data, DType: "int32", Start: a.Request().RoutedFrom, Shape: shape}
	return nil
}
