// Package vllm speaks vLLM's /v1/completions with a prompt of token ids and
// return_token_ids: a stream of ids with their logprobs, the prompt echoed on
// its first chunk.
//
// Written against vLLM 0.33.0 (entrypoints/openai/completion/protocol.py and
// serving.py). Routed experts come only with an answer that is not streamed,
// so a request for them is not.
package vllm

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// Config says where the server is.
type Config struct {
	wire.Config
	// Parser has the server parse its answers: render, generate and derender
	// instead of /v1/completions, the answer whole, and Report.Message.
	Parser bool
}

// Engine is one vLLM server.
type Engine struct {
	cfg  Config
	wire *wire.Client
	// model is the name that Check found.
	model atomic.Pointer[string]
	// processed is what Check found out about --logprobs-mode.
	processed atomic.Bool
	// reasons is what Check found out: the server has a reasoning parser.
	reasons atomic.Bool
	// aborts is set where the server has a path for it.
	aborts atomic.Bool
}

var _ engine.Engine = (*Engine)(nil)

// New returns the engine at cfg.URL; it does not connect.
func New(cfg Config) (*Engine, error) {
	c, err := wire.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, wire: c}
	e.model.Store(new(string))
	e.aborts.Store(true)
	return e, nil
}

// abortTimeout bounds the request that ends a generation.
const abortTimeout = 2 * time.Second

// Generate implements engine.Engine.
func (e *Engine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	a := e.newAnswer(&req, emit)
	if err := e.checkGrammar(req.Grammar); err != nil {
		return a.Report, err
	}
	if e.cfg.Parser && len(req.Text) > 0 {
		err := e.parsed(ctx, &req, a)
		return a.Report, err
	}
	resp, err := e.wire.Post(ctx, "/v1/completions", req.Session, e.body(&req, a.prompt))
	if err != nil {
		return a.Report, err
	}
	defer resp.Close()
	resp.Waiting(req.Idle)
	err = a.read(resp)
	told := err != nil && !a.over && e.abort(ctx, req.ID)
	if errors.Is(err, engine.ErrEnough) {
		if told {
			a.rest(resp)
		}
		if a.spans != nil {
			if broken := a.SpansOfMore(a.spans); broken != nil {
				return a.Report, broken
			}
		}
	}
	return a.Report, err
}

// logprobKind follows v1/sample/sampler.py and v1/worker: raw logprobs are those
// of the logits, on which a grammar's mask has been laid already. With another
// temperature these are neither the model's distribution nor the one that was
// sampled from.
func (e *Engine) logprobKind(req *engine.Request) event.LogprobKind {
	switch temperature := req.Sampling.Temperature; {
	case e.processed.Load():
		return event.LogprobKind_LOGPROB_KIND_PROCESSED
	case req.Grammar == nil:
		return event.LogprobKind_LOGPROB_KIND_RAW
	case e.reasons.Load(), temperature != nil && *temperature != 1:
		return event.LogprobKind_LOGPROB_KIND_UNSPECIFIED
	}
	return event.LogprobKind_LOGPROB_KIND_PROCESSED
}

// abort tells the server that nobody waits for the answer, and reports whether
// it was understood: then the server ends the answer as any other, with what it
// says at the end. Closing the connection cancels it, too; the path is there only
// with --enable-scale-out.
func (e *Engine) abort(ctx context.Context, id string) bool {
	if id == "" || !e.aborts.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	o := wire.NewObject(nil)
	// The server puts the name of the API before the id that it was given, and
	// the number of the prompt behind it.
	o.Texts("request_ids", []string{"cmpl-" + id + "-0", "generate-tokens-" + id})
	_, err := e.wire.Call(ctx, http.MethodPost, "/inference/v1/abort_requests", o.End())
	var failed *engine.Error
	if errors.As(err, &failed) && failed.Status == http.StatusNotFound {
		e.aborts.Store(false)
	}
	return err == nil
}

func (e *Engine) body(req *engine.Request, prompt []byte) []byte {
	s := &req.Sampling
	o := wire.NewObject(make([]byte, 0, len(prompt)+512))
	o.Text("model", e.name(req))
	o.Text("request_id", req.ID)
	o.Raw("prompt", prompt)
	wire.MaxTokens(o, "max_tokens", s)
	sampling(o, s)
	o.Bool("skip_special_tokens", false)
	// The sampled token's own logprob, and so many of the likeliest.
	o.Int("logprobs", int64(req.Likeliest))
	o.Bool("return_token_ids", true)
	o.Bool("return_tokens_as_token_ids", true)
	o.Bool("return_weight_versions", true)
	o.Bool("add_special_tokens", false)
	if req.RoutedFrom >= 0 {
		o.Int("routed_experts_prompt_start", int64(req.RoutedFrom))
	} else {
		o.Bool("stream", true)
		o.Object("stream_options", func(o *wire.Object) { o.Bool("include_usage", true) })
	}
	grammar(o, req.Grammar, !e.reasons.Load())
	return o.End()
}

// name is what the server calls the model.
func (e *Engine) name(req *engine.Request) string {
	if known := *e.model.Load(); known != "" {
		return known
	}
	return req.Model
}

func sampling(o *wire.Object, s *engine.Sampling) {
	wire.Sampling(o, s, 0)
	if s.Seed != nil {
		o.Int("seed", *s.Seed)
	}
}

// checkGrammar refuses what the server would not enforce.
func (e *Engine) checkGrammar(g *engine.Grammar) error {
	err := wire.CheckGrammar(g, "json_object", "json_schema", "regex", "ebnf", "tool_choice")
	if err == nil && g != nil && g.Before != nil && g.Before.Kind == parse.Optional && e.reasons.Load() {
		err = &engine.Error{Class: engine.Refused, Message: "vLLM with --reasoning-parser enforces a constraint only once the model has thought, " +
			"which this prompt leaves open; turn thinking on or off in the request, or start vLLM without --reasoning-parser"}
	}
	return err
}

// grammar writes a constraint. A server with a reasoning parser lets the model
// think before it enforces one; any other has to be told of the thinking.
func grammar(o *wire.Object, g *engine.Grammar, thinking bool) {
	if g == nil {
		return
	}
	o.Object("structured_outputs", func(o *wire.Object) {
		switch {
		case g.Pattern != nil, thinking && g.Before != nil:
			o.Text("structural_tag", wire.StructuralTag(g, thinking))
		case g.Kind == "json_object":
			o.Bool("json_object", true)
		case g.Kind == "json_schema":
			o.Raw("json", []byte(g.Value))
		case g.Kind == "regex":
			o.Text("regex", g.Value)
		case g.Kind == "ebnf":
			o.Text("grammar", g.Value)
		}
	})
}

// clamped is what the server writes for a logprob of minus infinity.
const clamped = -9999

// answer is one answer while it is read.
type answer struct {
	*wire.Tally
	prompt []byte // as it was sent
	// over is set when the server ended the answer itself.
	over bool
	// spans and usage are looked at when all tokens are here.
	spans, usage []byte
}

func (e *Engine) newAnswer(req *engine.Request, emit func(engine.Chunk) error) *answer {
	a := &answer{Tally: wire.NewTally(req, emit), prompt: wire.AppendIDs(nil, req.Prompt)}
	a.Report.LogprobKind = e.logprobKind(req)
	return a
}

func (a *answer) read(resp *wire.Response) error {
	if err := resp.Each(a.event); err != nil {
		return err
	}
	a.over = true
	return a.end()
}

// errEnded ends the reading of what follows an abort.
var errEnded = errors.New("vllm: the answer has ended")

// rest reads what is left of an answer that was aborted because enough of it was
// here, for the weight versions at its end. Tokens that still come are not taken.
func (a *answer) rest(resp *wire.Response) {
	late := time.AfterFunc(abortTimeout, resp.Close)
	defer late.Stop()
	_ = resp.Each(func(data []byte) error {
		if err := wire.Valid(data); err != nil {
			return err
		}
		choices, _ := rawjson.Get(data, "choices")
		for c := range rawjson.Elements(choices) {
			if v, ok := rawjson.Get(c, "weight_versions"); ok && rawjson.KindOf(v) == rawjson.Array {
				a.spans = append(a.spans[:0], v...)
			}
			if finish, _ := rawjson.Get(c, "finish_reason"); rawjson.KindOf(finish) == rawjson.String {
				return errEnded
			}
		}
		return nil
	})
}

func (a *answer) event(data []byte) error {
	data, echoed := wire.Elide(data, "prompt_token_ids", a.prompt)
	if err := wire.Valid(data); err != nil {
		return err
	}
	if echoed {
		a.Echoed()
	}
	for k, v := range rawjson.Members(data) {
		switch k {
		case "choices":
			for c := range rawjson.Elements(v) {
				if err := a.choice(c); err != nil {
					return err
				}
			}
		case "usage":
			if rawjson.KindOf(v) == rawjson.Object {
				a.usage = append(a.usage[:0], v...)
			}
		case "error":
			a.over = true
			return wire.EventError(v)
		}
	}
	return nil
}

func (a *answer) choice(raw []byte) error {
	var ids, logprobs, finish, stop, routed []byte
	for k, v := range rawjson.Members(raw) {
		if rawjson.KindOf(v) == rawjson.Null {
			continue
		}
		switch k {
		case "token_ids":
			ids = v
		case "logprobs":
			logprobs = v
		case "finish_reason":
			finish = v
		case "stop_reason":
			stop = v
		case "weight_versions":
			a.spans = append(a.spans[:0], v...)
		case "routed_experts":
			routed = v
		case "prompt_token_ids":
			if err := a.Echo(v); err != nil {
				return err
			}
		}
	}
	if ids == nil {
		return wire.Broken("a choice without token_ids: the server is older than 0.10.2, or does not return ids")
	}
	var c engine.Chunk
	var err error
	if c.IDs, err = wire.IDs(nil, ids); err != nil {
		return wire.Broken("token_ids: %v", err)
	}
	if c.Logprobs, err = a.logprobs(logprobs, c.IDs); err != nil {
		return err
	}
	if a.Request().Likeliest > 0 {
		list, _ := rawjson.Get(logprobs, "top_logprobs")
		if c.Likeliest, err = a.likeliest(list); err != nil {
			return err
		}
	}
	err = a.Emit(c)
	if finish == nil || err != nil && !errors.Is(err, engine.ErrEnough) {
		return err
	}
	// What comes with the last tokens is taken even if fewer had been enough.
	if broken := a.finish(rawjson.Text(finish), stop, routed); broken != nil {
		return broken
	}
	return err
}

func (a *answer) logprobs(raw []byte, ids []uint32) ([]float32, error) {
	if list, ok := rawjson.Get(raw, "content"); ok {
		return content(list, ids, a.Tokens)
	}
	var out []float32
	list, _ := rawjson.Get(raw, "token_logprobs")
	for v := range rawjson.Elements(list) {
		f, err := wire.Logprob(v)
		if err == nil && f <= clamped {
			err = wire.ErrNotFinite
		}
		if err != nil {
			return nil, wire.Broken("the logprob of token %d: %v", a.Tokens+len(out), err)
		}
		out = append(out, f)
	}
	// The tokens are named by their ids: a second witness of what was sampled.
	names, _ := rawjson.Get(raw, "tokens")
	i := 0
	for v := range rawjson.Elements(names) {
		if name, ok := bytes.CutPrefix(v, []byte(`"token_id:`)); ok {
			id, err := wire.ID(bytes.TrimSuffix(name, []byte(`"`)))
			if err != nil || i >= len(ids) || ids[i] != id {
				return nil, wire.Broken("logprobs.tokens[%d] is %s, another token than token_ids", i, v)
			}
		}
		i++
	}
	return out, nil
}

// likeliest reads objects of logprobs by "token_id:" and an id, the sampled token
// first; a place without any has null.
func (a *answer) likeliest(raw []byte) (out [][]engine.Candidate, err error) {
	for place := range rawjson.Elements(raw) {
		var list []engine.Candidate
		for name, v := range rawjson.Members(place) {
			digits, _ := strings.CutPrefix(name, "token_id:")
			id, err := wire.ID([]byte(digits))
			if err != nil {
				return nil, wire.Broken("logprobs.top_logprobs[%d]: %v", len(out), err)
			}
			if f, err := wire.Logprob(v); err == nil && f > clamped {
				list = append(list, engine.Candidate{ID: id, Logprob: f})
			}
		}
		out = append(out, wire.Likeliest(list, a.Request().Likeliest))
	}
	return out, nil
}

func (a *answer) finish(reason string, stop, routed []byte) error {
	a.over = true
	r := &a.Report
	switch reason {
	case "stop":
		a.Stopped(stop)
	case "length":
		r.FinishReason = "length"
	case "abort":
		r.FinishReason = "abort"
		return &engine.Error{Class: engine.Failed, Message: "the engine aborted the request"}
	case "error":
		return &engine.Error{Class: engine.Failed, Message: "the engine failed in the middle of the answer"}
	default:
		return wire.Broken("finish_reason %q", reason)
	}
	if routed == nil || a.Request().RoutedFrom < 0 {
		return nil // not asked for
	}
	data, err := base64.StdEncoding.DecodeString(rawjson.Text(routed))
	if err != nil {
		return wire.Broken("routed_experts: %v", err)
	}
	r.Routed, err = npy(data)
	if err != nil {
		return wire.Broken("routed_experts: %v", err)
	}
	rows := a.RoutedRows()
	if from := a.Request().RoutedFrom; len(r.Routed.Shape) > 0 && r.Routed.Shape[0] == int64(rows+from) {
		// 0.24 and older send those of the whole prompt, whatever was asked for.
		r.Routed.Data = r.Routed.Data[len(r.Routed.Data)/(rows+from)*from:]
		r.Routed.Shape[0] = int64(rows)
	}
	if len(r.Routed.Shape) == 0 || r.Routed.Shape[0] != int64(rows) {
		shape := r.Routed.Shape
		r.Routed = nil
		return wire.Broken("routed_experts: an array of %v where %d rows were asked for", shape, rows)
	}
	r.Routed.Start = a.Request().RoutedFrom
	return nil
}

// end checks the answer as a whole.
func (a *answer) end() error {
	for k, v := range rawjson.Members(a.usage) {
		var err error
		switch k {
		case "prompt_tokens":
			err = a.CountPrompt(v)
		case "completion_tokens":
			err = a.CountTokens(v)
		case "prompt_tokens_details":
			if n, ok := rawjson.Get(v, "cached_tokens"); ok {
				a.Report.CachedTokens, _ = wire.Int(n)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := a.Finish(); err != nil {
		return err
	}
	if a.spans == nil {
		return nil
	}
	return a.Spans(a.spans)
}
