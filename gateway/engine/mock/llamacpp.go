package mock

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

const llamaVersion = "b1-mock"

func (s *Server) llamaRoutes() {
	generate := s.generate(llama{s})
	s.mux.HandleFunc("POST /completion", func(w http.ResponseWriter, r *http.Request) { generate(w, r) })
	s.mux.HandleFunc("GET /props", func(w http.ResponseWriter, r *http.Request) {
		name := s.cfg.Model
		if len(s.cfg.Adapters) > 0 {
			if name = r.FormValue("model"); name == "" {
				writeJSON(w, http.StatusOK, []byte(`{"role":"router","model_alias":"llama-server","model_path":"none"}`))
				return
			}
		}
		b := strconv.AppendInt([]byte(`{"default_generation_settings":{"n_ctx":`), int64(s.cfg.ContextLength), 10)
		b = rawjson.AppendText(append(b, `},"total_slots":1,"model_alias":`...), name)
		b = rawjson.AppendText(append(b, `,"model_path":`...), name+".gguf")
		b = rawjson.AppendText(append(b, `,"eos_token":`...), s.cfg.StopToken)
		writeJSON(w, http.StatusOK, append(rawjson.AppendText(append(b, `,"build_info":`...), llamaVersion), '}'))
	})
}

// llama is the wire of llama.cpp's /completion. As the real one does, it sends
// no event for a token that ends inside a character, and in a whole answer
// leaves out the logprobs of such tokens and as many at the end as a stop string
// has tokens.
type llama struct{ s *Server }

func (f llama) parse(body []byte) (c call, err error) {
	c = call{routed: -1}
	for k, v := range rawjson.Members(body) {
		switch k {
		case "model":
			if c.model = rawjson.Text(v); len(f.s.cfg.Adapters) == 0 {
				c.model = ""
			}
		case "prompt":
			if rawjson.KindOf(v) == rawjson.String {
				c.prompt = f.s.tok.Encode(nil, rawjson.Text(v))
			} else {
				c.prompt, err = wire.IDs(nil, v)
			}
		case "n_predict":
			if n, _ := strconv.Atoi(string(v)); n > 0 {
				c.max = n
			}
		case "n_probs":
			c.likeliest, err = wire.Int(v)
			c.scores = c.likeliest > 0
		case "return_tokens":
			c.showIDs = isTrue(v)
		case "stream":
			c.stream = isTrue(v)
		case "stop":
			c.stop, err = stopStrings(v)
		case "seed":
			c.seed, err = seed(v)
		case "grammar":
			c.grammar = rawjson.Text(v)
		case "logit_bias":
			c.rescore = true
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", k, err)
		}
	}
	if c.model == "" && len(f.s.cfg.Adapters) > 0 {
		return c, errors.New("model name is missing from the request")
	}
	return c, nil
}

// chunk writes one event for each token, but for those that end inside a
// character, and the final one.
func (f llama) chunk(dst []byte, a *answer, from, to int) []byte {
	var text []byte
	for i := range a.ids[:to] {
		if a.ids[i] != f.s.stop {
			text, _ = f.s.tok.AppendBytes(text, a.ids[i])
		}
		if !utf8.Valid(text) {
			continue
		}
		if i >= from {
			dst = append(f.token(append(dst, "data: "...), a, i, string(text)), "\n\n"...)
		}
		text = text[:0]
	}
	if to < len(a.ids) {
		return dst
	}
	dst = append(dst, `data: {"index":0,"content":"","tokens":[]`...)
	return append(f.end(dst, a), "}\n\n"...)
}

func (f llama) token(dst []byte, a *answer, i int, text string) []byte {
	dst = rawjson.AppendText(append(dst, `{"index":0,"content":`...), text)
	if a.fault.Kind != NoIDs {
		dst = a.appendIDs(append(dst, `,"tokens":`...), i, i+1)
	} else {
		dst = append(dst, `,"tokens":[]`...)
	}
	dst = append(dst, `,"stop":false,"id_slot":0`...)
	dst = strconv.AppendInt(append(dst, `,"tokens_predicted":`...), int64(i+1), 10)
	dst = f.evaluated(dst, a)
	if list := a.scored(i, i+1); a.scores && len(list) > 0 {
		dst = append(f.entry(append(dst, `,"completion_probabilities":[`...), a, i), ']')
	}
	return append(dst, '}')
}

func (llama) evaluated(dst []byte, a *answer) []byte {
	if a.fault.Kind == NoPromptEcho {
		return dst
	}
	return strconv.AppendInt(append(dst, `,"tokens_evaluated":`...), int64(a.promptCount()), 10)
}

func (f llama) whole(dst []byte, a *answer) []byte {
	dst = rawjson.AppendText(append(dst, `{"index":0,"content":`...), a.text)
	if a.showIDs && a.fault.Kind != NoIDs {
		dst = a.appendIDs(append(dst, `,"tokens":`...), 0, len(a.ids))
	} else {
		dst = append(dst, `,"tokens":[]`...)
	}
	dst = f.end(dst, a)
	if a.scores && a.fault.Kind != NoLogprobs {
		dst = append(dst, `,"completion_probabilities":[`...)
		for n, i := range f.scored(a) {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = f.entry(dst, a, i)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// end writes what the last event and a whole answer say at the end.
func (f llama) end(dst []byte, a *answer) []byte {
	dst = rawjson.AppendText(append(dst, `,"id_slot":0,"stop":true,"model":`...), f.s.cfg.Model)
	dst = strconv.AppendInt(append(dst, `,"tokens_predicted":`...), int64(a.count(len(a.ids))), 10)
	dst = f.evaluated(dst, a)
	stop := "limit"
	switch {
	case a.matched != "":
		stop = "word"
	case a.byToken:
		stop = "eos"
	}
	dst = rawjson.AppendText(append(dst, `,"truncated":false,"stop_type":`...), stop)
	dst = rawjson.AppendText(append(dst, `,"stopping_word":`...), a.matched)
	dst = strconv.AppendInt(append(dst, `,"timings":{"cache_n":`...), int64(a.cached), 10)
	return append(dst, '}')
}

func (f llama) entry(dst []byte, a *answer, i int) []byte {
	dst = strconv.AppendUint(append(dst, `{"id":`...), uint64(a.ids[i]), 10)
	dst = a.appendLogprob(append(dst, `,"logprob":`...), i)
	dst = append(dst, `,"top_logprobs":[`...)
	list := f.s.Likeliest(a.ids[i], a.logprobs[i], a.likeliest)
	if a.rescore {
		// What the bias forces is not what is listed.
		list = nil
		if id, logprob, ok := f.s.sampledAfter(a.prompt); ok {
			list = f.s.Likeliest(id, logprob, min(a.likeliest, 100))
		}
	}
	for k, c := range list {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(append(dst, `{"id":`...), uint64(c.ID), 10)
		dst = append(wire.AppendLogprob(append(dst, `,"logprob":`...), c.Logprob), '}')
	}
	return append(dst, `]}`...)
}

// scored are the tokens whose logprob the server reports.
func (f llama) scored(a *answer) []int {
	var out []int
	var text []byte
	for _, i := range a.scored(0, len(a.ids)) {
		text, _ = f.s.tok.AppendBytes(text, a.ids[i])
		if utf8.Valid(text) {
			out, text = append(out, i), text[:0]
		}
	}
	if a.matched != "" {
		out = out[:max(0, len(out)-len(f.s.tok.Encode(nil, a.matched)))]
	}
	return out
}

// sampledAfter finds what an earlier answer had after this prefix.
func (s *Server) sampledAfter(prefix []uint32) (uint32, float32, bool) {
	for _, e := range s.journal.All() {
		n := len(prefix) - len(e.Prompt)
		if n < 0 || n >= len(e.Completion) {
			continue
		}
		all := append(append([]uint32(nil), e.Prompt...), e.Completion[:n]...)
		if string(wire.AppendIDs(nil, all)) == string(wire.AppendIDs(nil, prefix)) {
			return e.Completion[n], e.Logprobs[n], true
		}
	}
	return 0, 0, false
}

func (llama) fail(dst []byte, status int, message string) []byte {
	dst = strconv.AppendInt(append(dst, `{"error":{"code":`...), int64(status), 10)
	return append(rawjson.AppendText(append(dst, `,"message":`...), message), `,"type":"invalid_request_error"}}`...)
}
