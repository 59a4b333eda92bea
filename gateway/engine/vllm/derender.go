package vllm

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/openai"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// tokens makes the first two of the three calls for an answer that the server
// parses itself: render, for the sampling parameters that the server makes of the
// request, and generate, with our ids in place of the rendered ones.
//
// Shapes of entrypoints/scale_out/token_in_token_out/protocol.py:
// GenerateRequest, GenerateTokensResponse, DerenderChatRequest. The paths are
// there with --enable-scale-out.
func (e *Engine) tokens(ctx context.Context, req *engine.Request, a *answer, asked []byte) (generated []byte, err error) {
	if rawjson.KindOf(req.Text) != rawjson.Object {
		return nil, &engine.Error{Class: engine.Refused, Message: "the engine's own parser needs the chat request, and there is none"}
	}
	rendered, err := e.call(ctx, "/v1/chat/completions/render", asked)
	if err != nil {
		return nil, err
	}
	set := wire.NewObject(nil)
	set.Text("request_id", req.ID)
	set.Raw("token_ids", a.prompt)
	set.Bool("stream", false)
	set.Bool("return_token_ids", true)
	set.Text("output_mode", "tokens")
	generated, err = e.call(ctx, "/inference/v1/generate", replace(rendered, set.End(), "stream_options", "token_offsets"))
	if err != nil {
		if ctx.Err() != nil {
			e.abort(ctx, req.ID)
		}
		return nil, err
	}
	a.over = true
	return generated, a.generated(generated)
}

// parsed makes all three: derender gives the message. No call is made after one
// that failed.
func (e *Engine) parsed(ctx context.Context, req *engine.Request, a *answer) error {
	asked := e.chatRequest(req)
	generated, err := e.tokens(ctx, req, a, asked)
	if err != nil {
		return err
	}
	o := wire.NewObject(nil)
	o.Text("model", e.name(req))
	o.Raw("generate_response", generated)
	o.Int("prompt_tokens", int64(len(req.Prompt)))
	o.Raw("prompt_token_ids", a.prompt)
	o.Raw("chat_request", asked)
	message, err := e.call(ctx, "/v1/chat/completions/derender", o.End())
	if err != nil {
		return err
	}
	return a.message(message)
}

// call is one of the three calls.
func (e *Engine) call(ctx context.Context, path string, body []byte) ([]byte, error) {
	b, err := e.wire.Call(ctx, http.MethodPost, path, body)
	var failed *engine.Error
	if errors.As(err, &failed) && failed.Status == http.StatusNotFound {
		failed.Message = path + " is not there; start vLLM with --enable-scale-out: " + failed.Message
	}
	if err == nil && rawjson.KindOf(b) != rawjson.Object {
		err = wire.Broken("%s: the answer is %s, not an object", path, rawjson.KindOf(b))
	}
	return b, err
}

func (e *Engine) chatRequest(req *engine.Request) []byte {
	o := wire.NewObject(nil)
	o.Text("model", e.name(req))
	o.Bool("stream", false)
	if req.Sampling.MaxTokens > 0 {
		o.Int("max_tokens", int64(req.Sampling.MaxTokens))
	}
	sampling(o, &req.Sampling)
	o.Bool("logprobs", true)
	o.Int("top_logprobs", 0)
	if req.RoutedFrom >= 0 {
		o.Int("routed_experts_prompt_start", int64(req.RoutedFrom))
	}
	grammar(o, req.Grammar, false)
	return openai.Replace(req.Text, o.End())
}

// replace sets the members of set in raw and drops others.
func replace(raw, set []byte, drop ...string) []byte {
	var sets []rawjson.Set
	for k, v := range rawjson.Members(set) {
		sets = append(sets, rawjson.Set{Key: k, Value: v})
	}
	for _, k := range drop {
		sets = append(sets, rawjson.Set{Key: k})
	}
	return rawjson.Splice(nil, raw, sets...)
}

// generated reads the answer's ids.
func (a *answer) generated(data []byte) error {
	if ids, ok := rawjson.Get(data, "prompt_token_ids"); ok && rawjson.KindOf(ids) != rawjson.Null {
		if err := a.Echo(ids); err != nil {
			return err
		}
	}
	if usage, ok := rawjson.Get(data, "usage"); ok {
		a.usage = usage
	}
	choices, _ := rawjson.Get(data, "choices")
	for c := range rawjson.Elements(choices) {
		if err := a.choice(c); err != nil {
			return err
		}
		return a.end()
	}
	return wire.Broken("an answer without a choice")
}

// content reads logprobs as generate writes them: with the id of each token, up to
// 0.31 as "token_id:" and the id in place of its text.
func content(list []byte, ids []uint32, at int) ([]float32, error) {
	var out []float32
	for entry := range rawjson.Elements(list) {
		id, ok := rawjson.Get(entry, "token_id")
		if !ok {
			token, _ := rawjson.Get(entry, "token")
			id = []byte(strings.TrimPrefix(rawjson.Text(token), "token_id:"))
		}
		f, _ := rawjson.Get(entry, "logprob")
		got, err := wire.ID(id)
		if err != nil || len(out) >= len(ids) || ids[len(out)] != got {
			return nil, wire.Broken("logprobs.content[%d] is of another token than token_ids", len(out))
		}
		logprob, err := wire.Logprob(f)
		if err == nil && logprob <= clamped {
			err = wire.ErrNotFinite
		}
		if err != nil {
			return nil, wire.Broken("the logprob of token %d: %v", at+len(out), err)
		}
		out = append(out, logprob)
	}
	return out, nil
}

// message takes the message of a derendered answer. vLLM says reasoning where
// everybody else says reasoning_content.
func (a *answer) message(data []byte) error {
	choices, _ := rawjson.Get(data, "choices")
	for c := range rawjson.Elements(choices) {
		m, _ := rawjson.Get(c, "message")
		content, _ := rawjson.Get(m, "content")
		calls, _ := rawjson.Get(m, "tool_calls")
		hasCalls := rawjson.KindOf(calls) == rawjson.Array && !bytes.Equal(calls, []byte("[]"))
		if rawjson.KindOf(content) != rawjson.String && !hasCalls {
			return wire.Broken("a message with neither content nor calls")
		}
		if reasoning, ok := rawjson.Get(m, "reasoning"); ok {
			m = rawjson.Splice(nil, m, rawjson.Set{Key: "reasoning"}, rawjson.Set{Key: "reasoning_content", Value: reasoning})
		}
		a.Report.Message = append([]byte(nil), m...)
		return nil
	}
	return wire.Broken("derender: an answer without a choice")
}
