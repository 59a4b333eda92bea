package sglang

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/openai"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// chat asks for an answer that the server parses itself: its chat wire with our
// ids in place of its template. It streams no ids, so the answer comes whole.
//
// Fields of srt/entrypoints/openai/protocol.py: input_ids, return_meta_info,
// return_prompt_token_ids; choices[].{message, meta_info, prompt_token_ids}.
func (e *Engine) chat(ctx context.Context, req *engine.Request, a *answer) error {
	if rawjson.KindOf(req.Text) != rawjson.Object {
		return &engine.Error{Class: engine.Refused, Message: "the engine's own parser needs the chat request, and there is none"}
	}
	data, err := e.wire.Call(ctx, http.MethodPost, "/v1/chat/completions", openai.Replace(req.Text, e.chatBody(req, a.prompt)))
	if err != nil {
		if ctx.Err() != nil {
			e.abort(ctx, req.ID)
		}
		return err
	}
	a.over = true
	choices, _ := rawjson.Get(data, "choices")
	for choice := range rawjson.Elements(choices) {
		if err := a.choice(choice); err != nil {
			return err
		}
		return a.Finish()
	}
	return wire.Broken("an answer without a choice")
}

func (e *Engine) chatBody(req *engine.Request, prompt []byte) []byte {
	s := &req.Sampling
	o := wire.NewObject(nil)
	// What the gateway calls it could be read as a model and its adapter.
	m := e.model.Load()
	o.Text("model", cmp.Or(m.Base, m.Name, req.Model))
	o.Text("rid", req.ID)
	e.adapter(o)
	o.Raw("input_ids", prompt)
	o.Bool("stream", false)
	if s.MaxTokens > 0 {
		o.Int("max_completion_tokens", int64(s.MaxTokens))
	}
	wire.Sampling(o, s, noTopK)
	if s.Seed != nil {
		o.Int("seed", *s.Seed)
	}
	o.Bool("logprobs", true)
	o.Bool("return_meta_info", true)
	o.Bool("return_prompt_token_ids", true)
	routed(o, req)
	if g := req.Grammar; g != nil {
		switch g.Kind {
		case "json_object", "json_schema":
			wire.ResponseFormat(o, g)
		default:
			o.Text(g.Kind, g.Value)
		}
	}
	return o.End()
}

func (a *answer) choice(choice []byte) error {
	var message, meta []byte
	for k, v := range rawjson.Members(choice) {
		switch k {
		case "message":
			message = v
		case "meta_info":
			meta = v
		case "prompt_token_ids":
			if rawjson.KindOf(v) == rawjson.Null {
				continue
			}
			if err := a.Echo(v); err != nil {
				return err
			}
		}
	}
	if rawjson.KindOf(message) != rawjson.Object {
		return wire.Broken("a choice without a message")
	}
	if rawjson.KindOf(meta) != rawjson.Object {
		return wire.Broken("a choice without meta_info: the server is older than 0.5.13, or not sglang")
	}
	scored, _ := rawjson.Get(meta, "output_token_logprobs")
	if err := a.meta(sampledIDs(scored), meta); err != nil {
		return err
	}
	if err := spoken(message); err != nil {
		return err
	}
	a.Report.Message = append([]byte(nil), message...)
	return nil
}

// errSilent is a message that says nothing.
var errSilent = errors.New("a message with neither content nor calls")

// spoken refuses a message that says nothing.
func spoken(message []byte) error {
	content, _ := rawjson.Get(message, "content")
	calls, _ := rawjson.Get(message, "tool_calls")
	if rawjson.KindOf(content) != rawjson.String && rawjson.KindOf(calls) != rawjson.Array {
		return &engine.Error{Class: engine.Broken, Err: errSilent}
	}
	return nil
}

// sampledIDs lists the ids of the logprobs' entries, the only place where the
// chat wire has them.
func sampledIDs(scored []byte) []byte {
	ids := []byte{'['}
	for entry := range rawjson.Elements(scored) {
		i := 0
		for v := range rawjson.Elements(entry) {
			if i == 1 {
				if len(ids) > 1 {
					ids = append(ids, ',')
				}
				ids = append(ids, v...)
			}
			i++
		}
	}
	return append(ids, ']')
}
