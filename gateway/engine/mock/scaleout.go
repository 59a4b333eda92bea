package mock

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// scaleOut are vLLM's paths for tokens in and out, and back to a message.
func (s *Server) scaleOutRoutes() {
	if s.cfg.NoScaleOut {
		return
	}
	s.mux.HandleFunc("POST /inference/v1/generate", s.generate(generation{s}))
	s.mux.HandleFunc("POST /inference/v1/abort_requests", s.reply(func(body []byte) (int, []byte) {
		list, _ := rawjson.Get(body, "request_ids")
		for id := range rawjson.Elements(list) {
			for _, api := range []string{"cmpl-", "generate-tokens-"} {
				if own, ok := strings.CutPrefix(rawjson.Text(id), api); ok {
					s.abort(strings.TrimSuffix(own, "-0"))
				}
			}
		}
		return http.StatusOK, nil
	}))
	s.mux.HandleFunc("POST /v1/chat/completions/render", s.reply(s.render))
	s.mux.HandleFunc("POST /v1/chat/completions/derender", s.reply(s.derender))
}

// render is messages to a request for generate.
func (s *Server) render(body []byte) (int, []byte) {
	if rawjson.Valid(body) != nil {
		return http.StatusBadRequest, completions{}.fail(nil, http.StatusBadRequest, "the body is not JSON")
	}
	o := wire.NewObject(nil)
	o.Text("request_id", "rendered")
	o.IDs("token_ids", s.tok.Encode(nil, render(body)))
	o.Object("sampling_params", func(o *wire.Object) {
		for k, v := range rawjson.Members(body) {
			switch k {
			case "temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens", "routed_experts_prompt_start":
				o.Raw(k, v)
			}
		}
		o.Int("logprobs", 0)
	})
	model, _ := rawjson.Get(body, "model")
	o.Text("model", cmp.Or(rawjson.Text(model), s.cfg.Model))
	// A renderer may pass this on; whoever generates decides anew.
	o.Bool("stream", true)
	return http.StatusOK, o.End()
}

// derender is an answer's ids to a message.
func (s *Server) derender(body []byte) (int, []byte) {
	answer, _ := rawjson.Get(body, "generate_response")
	choices, _ := rawjson.Get(answer, "choices")
	if _, ok := rawjson.Get(body, "chat_request"); !ok {
		return http.StatusBadRequest, completions{}.fail(nil, http.StatusBadRequest, "chat_request is required when a tool or reasoning parser is configured")
	}
	for c := range rawjson.Elements(choices) {
		raw, _ := rawjson.Get(c, "token_ids")
		finish, _ := rawjson.Get(c, "finish_reason")
		ids, err := wire.IDs(nil, raw)
		if err != nil || len(ids) == 0 {
			break
		}
		if ids[len(ids)-1] == s.stop {
			ids = ids[:len(ids)-1]
		}
		p := parse(s.tok.Decode(ids))
		o := wire.NewObject(append(chat{s}.head(nil, "chat.completion"), `{"index":0,"message":`...))
		o.Text("role", "assistant")
		o.Raw("content", rawjson.AppendText(nil, p.content))
		o.Text("reasoning", p.reasoning)
		chat{s}.rest(o, parsed{calls: p.calls})
		b := append(rawjson.AppendText(append(o.End(), `,"finish_reason":`...), rawjson.Text(finish)), "}]"...)
		return http.StatusOK, append(b, '}')
	}
	return http.StatusBadRequest, completions{}.fail(nil, http.StatusBadRequest, "generate_response has no token_ids")
}

// generation is vLLM's wire of /inference/v1/generate, not streamed.
type generation struct{ s *Server }

func (f generation) parse(body []byte) (c call, err error) {
	c = call{showIDs: true}
	for k, v := range rawjson.Members(body) {
		switch k {
		case "request_id":
			c.id = rawjson.Text(v)
		case "model":
			c.model = rawjson.Text(v)
		case "token_ids":
			c.prompt, err = wire.IDs(nil, v)
		case "return_token_ids":
			c.echo = isTrue(v)
		case "stream":
			if isTrue(v) {
				err = errors.New("this double does not stream here")
			}
		case "sampling_params":
			for k, v := range rawjson.Members(v) {
				switch k {
				case "max_tokens":
					c.max, err = maxTokens(v)
				case "stop":
					c.stop, err = stopStrings(v)
				case "stop_token_ids":
					c.stopIDs, err = wire.IDs(nil, v)
				case "logprobs":
					c.scores = rawjson.KindOf(v) == rawjson.Number
				case "seed":
					c.seed, err = seed(v)
				case "top_k":
					c.topK, err = topK(v)
				case "routed_experts_prompt_start":
					c.routed, err = wire.Int(v)
				}
				if err != nil {
					return c, fmt.Errorf("sampling_params.%s: %w", k, err)
				}
			}
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", k, err)
		}
	}
	return c, nil
}

func (f generation) chunk(dst []byte, a *answer, _, _ int) []byte { return f.whole(dst, a) }

func (f generation) whole(dst []byte, a *answer) []byte {
	dst = rawjson.AppendText(append(dst, `{"request_id":`...), a.id)
	dst = append(dst, `,"output_mode":"tokens","choices":[{"index":0,"finish_reason":`...)
	dst = rawjson.AppendText(dst, a.finish)
	dst = append(dst, `,"stop_reason":`...)
	if a.matched != "" {
		dst = rawjson.AppendText(dst, a.matched)
	} else {
		dst = append(dst, "null"...)
	}
	if a.fault.Kind != NoIDs {
		dst = a.appendIDs(append(dst, `,"token_ids":`...), 0, len(a.ids))
	}
	if a.scores && a.fault.Kind != NoLogprobs {
		dst = append(dst, `,"logprobs":{"content":[`...)
		for n, i := range a.scored(0, len(a.ids)) {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = a.appendID(append(dst, `{"token_id":`...), i)
			dst = append(a.appendLogprob(append(dst, `,"logprob":`...), i), `,"rank":1,"top_logprobs":[]}`...)
		}
		dst = append(dst, `]}`...)
	}
	dst = a.appendRuns(append(dst, `,"weight_versions":`...))
	dst = a.appendFile(dst, f.s.cfg.Experts)
	dst = append(dst, `}]`...)
	if a.echo && a.fault.Kind != NoPromptEcho {
		dst = wire.AppendIDs(append(dst, `,"prompt_token_ids":`...), a.shown)
	}
	return append(completions(f).usage(dst, a), '}')
}

func (generation) fail(dst []byte, status int, message string) []byte {
	return completions{}.fail(dst, status, message)
}
