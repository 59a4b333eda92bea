package mock

import (
	"fmt"
	"net/http"
	"strconv"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

func (s *Server) vllmRoutes() {
	s.mux.HandleFunc("POST /v1/completions", s.generate(completions{s}))
}

// completions is vLLM's wire of /v1/completions.
type completions struct{ s *Server }

func (f completions) parse(body []byte) (c call, err error) {
	c = call{max: 16}
	for k, v := range rawjson.Members(body) {
		switch k {
		case "request_id":
			c.id = rawjson.Text(v)
		case "model":
			c.model = rawjson.Text(v)
		case "prompt":
			if rawjson.KindOf(v) == rawjson.String {
				c.prompt = f.s.tok.Encode(nil, rawjson.Text(v))
			} else {
				c.prompt, err = wire.IDs(nil, v)
			}
		case "stream":
			c.stream = isTrue(v)
		case "stream_options":
			u, _ := rawjson.Get(v, "include_usage")
			c.usage = isTrue(u)
		case "logprobs":
			if c.scores = rawjson.KindOf(v) == rawjson.Number; c.scores {
				c.likeliest, err = wire.Int(v)
			}
		case "return_token_ids":
			c.showIDs = isTrue(v)
			c.echo = c.showIDs
		case "max_tokens":
			c.max, err = maxTokens(v)
		case "stop":
			c.stop, err = stopStrings(v)
		case "stop_token_ids":
			c.stopIDs, err = wire.IDs(nil, v)
		case "seed":
			c.seed, err = seed(v)
		case "temperature":
			c.temperature, err = wire.Logprob(v)
		case "top_k":
			c.topK, err = topK(v)
		case "structured_outputs":
			tag, _ := rawjson.Get(v, "structural_tag")
			grammar, _ := rawjson.Get(v, "grammar")
			c.tag, c.grammar = rawjson.Text(tag), rawjson.Text(grammar)
		case "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty":
			_, err = wire.Logprob(v)
		case "return_weight_versions":
			c.spans = isTrue(v)
		case "routed_experts_prompt_start":
			c.routed, err = wire.Int(v)
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", k, err)
		}
	}
	return c, nil
}

func (f completions) chunk(dst []byte, a *answer, from, to int) []byte {
	dst = f.head(append(dst, "data: "...), a)
	dst = f.choice(dst, a, from, to, from == 0)
	dst = append(dst, "]}\n\n"...)
	if to == len(a.ids) && a.usage {
		dst = f.usage(append(f.head(append(dst, "data: "...), a), ']'), a)
		dst = append(dst, "}\n\n"...)
	}
	return dst
}

func (f completions) whole(dst []byte, a *answer) []byte {
	dst = f.choice(f.head(dst, a), a, 0, len(a.ids), true)
	return append(f.usage(append(dst, ']'), a), '}')
}

func (f completions) head(dst []byte, a *answer) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), "cmpl-"+a.id)
	dst = rawjson.AppendText(append(dst, `,"object":"text_completion","created":1700000000,"model":`...), f.s.cfg.Model)
	return append(dst, `,"choices":[`...)
}

func (f completions) choice(dst []byte, a *answer, from, to int, first bool) []byte {
	last := to == len(a.ids)
	text := a.text
	if from > 0 || !last {
		text = f.s.visible(a, from, to)
	}
	dst = rawjson.AppendText(append(dst, `{"index":0,"text":`...), text)
	dst = append(dst, `,"logprobs":`...)
	if a.scores && a.fault.Kind != NoLogprobs {
		dst = f.logprobs(dst, a, from, to)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"finish_reason":`...)
	if last {
		dst = rawjson.AppendText(dst, a.finish)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"stop_reason":`...)
	switch {
	case last && a.matched != "":
		dst = rawjson.AppendText(dst, a.matched)
	case last && a.byToken && a.matchedID != f.s.stop:
		dst = strconv.AppendUint(dst, uint64(a.matchedID), 10)
	default: // null on the end token, too
		dst = append(dst, "null"...)
	}
	if a.echo && first && a.fault.Kind != NoPromptEcho {
		dst = wire.AppendIDs(append(dst, `,"prompt_token_ids":`...), a.shown)
	}
	if a.showIDs && a.fault.Kind != NoIDs {
		dst = a.appendIDs(append(dst, `,"token_ids":`...), from, to)
	}
	if a.spans && last {
		dst = a.appendRuns(append(dst, `,"weight_versions":`...))
	}
	if !a.stream {
		dst = a.appendFile(dst, f.s.cfg.Experts)
	}
	return append(dst, '}')
}

func (f completions) logprobs(dst []byte, a *answer, from, to int) []byte {
	scored := a.scored(from, to)
	list := func(key string, item func(i int)) {
		dst = append(dst, key...)
		for n, i := range scored {
			if n > 0 {
				dst = append(dst, ',')
			}
			item(i)
		}
		dst = append(dst, ']')
	}
	list(`{"text_offset":[`, func(i int) { dst = strconv.AppendInt(dst, int64(i), 10) })
	list(`,"token_logprobs":[`, func(i int) { dst = a.appendLogprob(dst, i) })
	list(`,"tokens":[`, func(i int) {
		dst = rawjson.AppendText(dst, "token_id:"+strconv.FormatUint(uint64(a.ids[i]), 10))
	})
	list(`,"top_logprobs":[`, func(i int) {
		dst = append(dst, '{')
		for k, c := range f.s.listed(a, i) {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(append(dst, `"token_id:`...), uint64(c.ID), 10)
			dst = wire.AppendLogprob(append(dst, `":`...), c.Logprob)
		}
		dst = append(dst, '}')
	})
	return append(dst, '}')
}

func (f completions) usage(dst []byte, a *answer) []byte {
	if a.fault.Kind == NoPromptEcho {
		return dst
	}
	in, out := a.promptCount(), a.count(len(a.ids))
	dst = strconv.AppendInt(append(dst, `,"usage":{"prompt_tokens":`...), int64(in), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(in+out), 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(out), 10)
	dst = strconv.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), int64(a.cached), 10)
	return append(dst, `}}`...)
}

func (completions) fail(dst []byte, status int, message string) []byte {
	dst = rawjson.AppendText(append(dst, `{"error":{"message":`...), message)
	dst = rawjson.AppendText(append(dst, `,"type":`...), http.StatusText(status))
	return append(strconv.AppendInt(append(dst, `,"param":null,"code":`...), int64(status), 10), `}}`...)
}

func (s *Server) models([]byte) (int, []byte) {
	b := rawjson.AppendText([]byte(`{"object":"list","data":[{"id":`), s.cfg.Model)
	b = append(b, `,"object":"model","created":1700000000,"owned_by":"mock","max_model_len":`...)
	b = append(strconv.AppendInt(b, int64(s.cfg.ContextLength), 10), '}')
	for _, name := range s.cfg.Adapters {
		b = rawjson.AppendText(append(b, `,{"id":`...), name)
		b = rawjson.AppendText(append(b, `,"object":"model","created":1700000000,"owned_by":"mock","parent":`...), s.cfg.Model)
		b = append(b, `,"max_model_len":null}`...)
	}
	return http.StatusOK, append(b, `]}`...)
}

// tokenize serves sglang, vLLM (prompt, tokens) and llama.cpp (content).
func (s *Server) tokenize(body []byte) (int, []byte) {
	if rawjson.Valid(body) != nil {
		return http.StatusBadRequest, completions{}.fail(nil, http.StatusBadRequest, "the body is not JSON")
	}
	text, ok := rawjson.Get(body, "prompt")
	if !ok {
		text, _ = rawjson.Get(body, "content")
	}
	ids := s.tok.Encode(nil, rawjson.Text(text))
	b := strconv.AppendInt([]byte(`{"count":`), int64(len(ids)), 10)
	b = strconv.AppendInt(append(b, `,"max_model_len":`...), int64(s.cfg.ContextLength), 10)
	return http.StatusOK, append(wire.AppendIDs(append(b, `,"tokens":`...), ids), '}')
}

// detokenize is the inverse of tokenize.
func (s *Server) detokenize(body []byte) (int, []byte) {
	tokens, _ := rawjson.Get(body, "tokens")
	ids, err := wire.IDs(nil, tokens)
	if rawjson.Valid(body) != nil || err != nil {
		return http.StatusBadRequest, completions{}.fail(nil, http.StatusBadRequest, "tokens: not an array of ids")
	}
	b := rawjson.AppendText([]byte(`{"prompt":`), s.tok.Decode(ids))
	return http.StatusOK, append(rawjson.AppendText(append(b, `,"content":`...), s.tok.Decode(ids)), '}')
}
