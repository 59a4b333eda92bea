package mock

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// The wires are those of these versions.
const (
	sglangVersion = "0.5.23"
	vllmVersion   = "0.33.0"
)

func (s *Server) sglangRoutes() {
	s.mux.HandleFunc("POST /generate", s.generate(sglang{s}))
	s.mux.HandleFunc("POST /abort_request", s.reply(func(body []byte) (int, []byte) {
		rid, _ := rawjson.Get(body, "rid")
		s.abort(rawjson.Text(rid))
		return http.StatusOK, nil
	}))
	s.mux.HandleFunc("POST /update_weight_version", s.reply(func(body []byte) (int, []byte) {
		v, _ := rawjson.Get(body, "new_version")
		s.SetVersion(rawjson.Text(v))
		return http.StatusOK, []byte(`{"success":true}`)
	}))
	info := func([]byte) (int, []byte) {
		b := rawjson.AppendText([]byte(`{"model_path":`), s.cfg.Model)
		b = rawjson.AppendText(append(b, `,"served_model_name":`...), s.cfg.Model)
		b = rawjson.AppendText(append(b, `,"is_generation":true,"weight_version":`...), *s.version.Load())
		return http.StatusOK, append(b, '}')
	}
	server := func([]byte) (int, []byte) {
		b := strconv.AppendInt([]byte(`{"version":"`+sglangVersion+`","context_length":`), int64(s.cfg.ContextLength), 10)
		b = strconv.AppendBool(append(b, `,"incremental_streaming_output":`...), !s.cfg.Cumulative)
		return http.StatusOK, append(b, '}')
	}
	for _, p := range []string{"/model_info", "/get_model_info"} {
		s.mux.HandleFunc("GET "+p, s.reply(info))
	}
	for _, p := range []string{"/server_info", "/get_server_info"} {
		s.mux.HandleFunc("GET "+p, s.reply(server))
	}
}

// sglang is the wire of /generate.
type sglang struct{ s *Server }

func (f sglang) parse(body []byte) (c call, err error) {
	c = call{routed: -1, showIDs: true, max: 128}
	start, routed := 0, false
	for k, v := range rawjson.Members(body) {
		switch k {
		case "rid":
			c.id = rawjson.Text(v)
		case "input_ids":
			if c.prompt, err = wire.IDs(nil, v); err != nil {
				return c, fmt.Errorf("input_ids: %w", err)
			}
		case "text":
			c.prompt = f.s.tok.Encode(nil, rawjson.Text(v))
		case "lora_path":
			c.lora = rawjson.Text(v)
		case "stream":
			c.stream = isTrue(v)
		case "return_logprob":
			c.scores = isTrue(v)
		case "return_prompt_token_ids":
			c.echo = isTrue(v)
		case "top_logprobs_num":
			if c.likeliest, err = wire.Int(v); err != nil {
				return c, fmt.Errorf("top_logprobs_num: %w", err)
			}
		case "return_routed_experts":
			routed = isTrue(v)
		case "routed_experts_start_len":
			if start, err = wire.Int(v); err != nil {
				return c, fmt.Errorf("routed_experts_start_len: %w", err)
			}
		case "sampling_params":
			for k, v := range rawjson.Members(v) {
				switch k {
				case "max_new_tokens":
					c.max, err = maxTokens(v)
				case "stop":
					c.stop, err = stopStrings(v)
				case "stop_token_ids":
					c.stopIDs, err = wire.IDs(nil, v)
				case "stream_interval":
					c.step, err = wire.Int(v)
				case "sampling_seed":
					c.seed, err = seed(v)
				case "temperature":
					c.temperature, err = wire.Logprob(v)
				case "top_k":
					c.topK, err = topK(v)
				case "structural_tag":
					c.tag = rawjson.Text(v)
				case "ebnf":
					c.grammar = rawjson.Text(v)
				case "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty":
					_, err = wire.Logprob(v)
				}
				if err != nil {
					return c, fmt.Errorf("sampling_params.%s: %w", k, err)
				}
			}
		}
	}
	if routed {
		c.routed = start
	}
	return c, nil
}

func (f sglang) chunk(dst []byte, a *answer, from, to int) []byte {
	if f.s.cfg.Cumulative {
		from = 0
	}
	dst = f.object(append(dst, "data: "...), a, from, to, to == len(a.ids))
	return append(dst, "\n\n"...)
}

func (f sglang) whole(dst []byte, a *answer) []byte {
	return f.object(dst, a, 0, len(a.ids), true)
}

func (f sglang) object(dst []byte, a *answer, from, to int, last bool) []byte {
	text := a.text
	if from > 0 || to < len(a.ids) {
		text = f.s.visible(a, from, to)
	}
	dst = rawjson.AppendText(append(dst, `{"text":`...), text)
	if a.fault.Kind != NoIDs {
		dst = a.appendIDs(append(dst, `,"output_ids":`...), from, to)
	}
	dst = f.meta(append(dst, `,"meta_info":`...), a, from, to, last)
	if a.echo && a.fault.Kind != NoPromptEcho {
		dst = wire.AppendIDs(append(dst, `,"prompt_token_ids":`...), a.shown)
	}
	return append(dst, '}')
}

func (f sglang) meta(dst []byte, a *answer, from, to int, last bool) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), a.id)
	dst = append(dst, `,"finish_reason":`...)
	switch {
	case !last:
		dst = append(dst, "null"...)
	case a.byToken:
		dst = append(strconv.AppendUint(append(dst, `{"type":"stop","matched":`...), uint64(a.matchedID), 10), '}')
	case a.finish == "stop":
		dst = append(rawjson.AppendText(append(dst, `{"type":"stop","matched":`...), a.matched), '}')
	case a.finish == "length":
		dst = append(strconv.AppendInt(append(dst, `{"type":"length","length":`...), int64(len(a.ids)), 10), '}')
	default:
		dst = append(dst, `{"type":"abort","message":"Aborted by the client"}`...)
	}
	if a.fault.Kind != NoPromptEcho {
		dst = strconv.AppendInt(append(dst, `,"prompt_tokens":`...), int64(a.promptCount()), 10)
	}
	version := *f.s.version.Load()
	if to > 0 {
		version = a.versions[to-1]
	}
	dst = rawjson.AppendText(append(dst, `,"weight_version":`...), version)
	if last && len(a.runs()) > 1 {
		dst = a.appendRuns(append(dst, `,"weight_versions":`...))
	}
	dst = append(dst, `,"num_retractions":0`...)
	if last {
		dst = a.appendFlat(dst, f.s.cfg.Experts)
	}
	if a.scores {
		dst = append(dst, `,"output_token_logprobs":[`...)
		for n, i := range a.scored(from, to) {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = a.appendLogprob(append(dst, '['), i)
			dst = a.appendID(append(dst, ','), i)
			dst = append(dst, `,null]`...)
		}
		dst = append(dst, ']')
	}
	if a.scores && a.likeliest > 0 {
		dst = append(dst, `,"output_top_logprobs":[`...)
		for i := from; i < to; i++ {
			if i > from {
				dst = append(dst, ',')
			}
			dst = append(dst, '[')
			for k, c := range f.s.Likeliest(a.ids[i], a.logprobs[i], a.likeliest) {
				if k > 0 {
					dst = append(dst, ',')
				}
				dst = wire.AppendLogprob(append(dst, '['), c.Logprob)
				dst = append(strconv.AppendUint(append(dst, ','), uint64(c.ID), 10), `,null]`...)
			}
			dst = append(dst, ']')
		}
		dst = append(dst, ']')
	}
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(a.count(to)), 10)
	dst = strconv.AppendInt(append(dst, `,"cached_tokens":`...), int64(a.cached), 10)
	return append(dst, `,"e2e_latency":0.01}`...)
}

func (sglang) fail(dst []byte, status int, message string) []byte {
	dst = rawjson.AppendText(append(dst, `{"error":{"message":`...), message)
	return append(strconv.AppendInt(append(dst, `,"type":"invalid_request_error","code":`...), int64(status), 10), `}}`...)
}

// visible is the text of some tokens without the stop token.
func (s *Server) visible(a *answer, from, to int) string {
	if to == len(a.ids) && a.byToken {
		to--
	}
	return s.tok.Decode(a.ids[min(from, to):to])
}

func isTrue(raw []byte) bool { return string(raw) == "true" }

// maxTokens reads a budget; null is up to the context's end.
func maxTokens(raw []byte) (int, error) {
	if rawjson.KindOf(raw) == rawjson.Null {
		return 0, nil
	}
	n, err := wire.Int(raw)
	if err == nil && n == 0 {
		return 0, errors.New("must be at least 1")
	}
	return n, err
}

func topK(raw []byte) (int, error) { return strconv.Atoi(string(raw)) }

func seed(raw []byte) (*int64, error) {
	if rawjson.KindOf(raw) == rawjson.Null {
		return nil, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return &n, err
}

// stopStrings reads a string or an array of strings.
func stopStrings(raw []byte) ([]string, error) {
	switch rawjson.KindOf(raw) {
	case rawjson.Null:
		return nil, nil
	case rawjson.String:
		return []string{rawjson.Text(raw)}, nil
	case rawjson.Array:
		var out []string
		for e := range rawjson.Elements(raw) {
			if rawjson.KindOf(e) != rawjson.String {
				return nil, fmt.Errorf("expected strings, got %s", rawjson.KindOf(e))
			}
			out = append(out, rawjson.Text(e))
		}
		return out, nil
	}
	return nil, fmt.Errorf("expected a string or an array, got %s", rawjson.KindOf(raw))
}
