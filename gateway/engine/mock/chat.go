package mock

import (
	"errors"
	"fmt"
	"strconv"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

func (s *Server) chatRoutes() {
	s.mux.HandleFunc("POST /v1/chat/completions", s.generate(chat{s}))
}

// chat is OpenAI's wire, streamed or not, with what sglang and vLLM add to it:
// input_ids, meta_info and the ids of prompt and answer.
type chat struct{ s *Server }

func (f chat) parse(body []byte) (c call, err error) {
	c = call{routed: -1}
	start, messages, routed := 0, false, false
	for k, v := range rawjson.Members(body) {
		switch k {
		case "rid":
			c.id = rawjson.Text(v)
		case "model":
			c.model = rawjson.Text(v)
		case "lora_path":
			c.lora = rawjson.Text(v)
		case "messages":
			messages = rawjson.KindOf(v) == rawjson.Array
		case "input_ids":
			c.prompt, err = wire.IDs(nil, v)
		case "stream":
			c.stream = isTrue(v)
		case "stream_options":
			u, _ := rawjson.Get(v, "include_usage")
			c.usage = isTrue(u)
		case "logprobs":
			c.scores = isTrue(v)
		case "return_token_ids":
			if c.showIDs = isTrue(v); c.showIDs && f.s.cfg.Strict {
				err = errors.New("unknown parameter")
			}
		case "return_prompt_token_ids":
			c.echo = isTrue(v)
		case "return_meta_info":
			c.meta = isTrue(v)
		case "return_routed_experts":
			routed = isTrue(v)
		case "routed_experts_start_len":
			start, err = wire.Int(v)
		case "max_tokens", "max_completion_tokens":
			c.max, err = maxTokens(v)
		case "stop":
			c.stop, err = stopStrings(v)
		case "stop_token_ids":
			c.stopIDs, err = wire.IDs(nil, v)
		case "seed":
			c.seed, err = seed(v)
		case "temperature":
			c.temperature, err = wire.Logprob(v)
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", k, err)
		}
	}
	if !messages {
		return c, errors.New("messages: an array is needed")
	}
	if c.stream && c.meta {
		return c, errors.New("return_meta_info is not supported with streaming")
	}
	if c.prompt == nil {
		c.prompt = f.s.tok.Encode(nil, render(body))
	}
	if routed {
		c.routed = start
	}
	return c, nil
}

func (f chat) chunk(dst []byte, a *answer, from, to int) []byte {
	last := to == len(a.ids)
	before, now := "", a.text
	if from > 0 {
		before = sayable(f.s.tok.Decode(a.ids[:from]))
	}
	var p parsed
	if last {
		p = parse(now)
		now = p.content
	} else {
		now = sayable(f.s.tok.Decode(a.ids[:to]))
	}
	dst = f.head(append(dst, "data: "...), "chat.completion.chunk")
	o := wire.NewObject(append(dst, `{"index":0,"delta":`...))
	if from == 0 {
		o.Text("role", "assistant")
	}
	if len(now) > len(before) {
		o.Text("content", now[len(before):])
	}
	if last {
		f.rest(o, p)
	}
	dst = f.finish(o.End(), a, p, last)
	if a.scores && a.fault.Kind != NoLogprobs {
		dst = f.logprobs(append(dst, `,"logprobs":`...), a, from, to)
	}
	if a.showIDs && a.fault.Kind != NoIDs {
		dst = a.appendIDs(append(dst, `,"token_ids":`...), from, to)
	}
	dst = append(dst, "}]}\n\n"...)
	if last && a.usage {
		dst = completions(f).usage(append(f.head(append(dst, "data: "...), "chat.completion.chunk"), ']'), a)
		dst = append(dst, "}\n\n"...)
	}
	return dst
}

func (f chat) whole(dst []byte, a *answer) []byte {
	p := parse(a.text)
	o := wire.NewObject(append(f.head(dst, "chat.completion"), `{"index":0,"message":`...))
	o.Text("role", "assistant")
	o.Raw("content", rawjson.AppendText(nil, p.content))
	f.rest(o, p)
	dst = f.finish(o.End(), a, p, true)
	if a.scores && a.fault.Kind != NoLogprobs {
		dst = f.logprobs(append(dst, `,"logprobs":`...), a, 0, len(a.ids))
	}
	if a.echo && a.fault.Kind != NoPromptEcho {
		dst = wire.AppendIDs(append(dst, `,"prompt_token_ids":`...), a.shown)
	}
	if a.showIDs && a.fault.Kind != NoIDs {
		dst = a.appendIDs(append(dst, `,"response_token_ids":`...), 0, len(a.ids))
	}
	if a.meta {
		dst = sglang(f).meta(append(dst, `,"meta_info":`...), a, 0, len(a.ids), true)
	}
	return append(completions(f).usage(append(dst, "}]"...), a), '}')
}

// rest are reasoning and calls.
func (chat) rest(o *wire.Object, p parsed) {
	o.Text("reasoning_content", p.reasoning)
	if len(p.calls) == 0 {
		return
	}
	list := []byte{'['}
	for i, c := range p.calls {
		if i > 0 {
			list = append(list, ',')
		}
		one := wire.NewObject(list)
		one.Int("index", int64(i))
		one.Text("id", "call_"+strconv.Itoa(i))
		one.Text("type", "function")
		one.Object("function", func(o *wire.Object) {
			o.Text("name", c.name)
			o.Raw("arguments", rawjson.AppendText(nil, string(c.arguments)))
		})
		list = one.End()
	}
	o.Raw("tool_calls", append(list, ']'))
}

func (f chat) head(dst []byte, object string) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":"chatcmpl-1","object":`...), object)
	dst = rawjson.AppendText(append(dst, `,"created":1700000000,"model":`...), f.s.cfg.Model)
	return append(dst, `,"choices":[`...)
}

func (chat) finish(dst []byte, a *answer, p parsed, last bool) []byte {
	dst = append(dst, `,"finish_reason":`...)
	switch {
	case !last:
		return append(dst, "null"...)
	case len(p.calls) > 0 && a.finish == "stop":
		return append(dst, `"tool_calls"`...)
	}
	return rawjson.AppendText(dst, a.finish)
}

func (f chat) logprobs(dst []byte, a *answer, from, to int) []byte {
	dst = append(dst, `{"content":[`...)
	for n, i := range a.scored(from, to) {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(append(dst, `{"token":`...), f.s.tok.Decode(a.ids[i:i+1]))
		dst = a.appendLogprob(append(dst, `,"logprob":`...), i)
		text, _ := f.s.tok.AppendBytes(nil, a.ids[i])
		dst = append(appendBytes(append(dst, `,"bytes":`...), text), `,"top_logprobs":[]}`...)
	}
	return append(dst, "]}"...)
}

// appendBytes writes the bytes of a token as numbers.
func appendBytes(dst, text []byte) []byte {
	list := make([]uint32, len(text))
	for i, c := range text {
		list[i] = uint32(c)
	}
	return wire.AppendIDs(dst, list)
}

func (chat) fail(dst []byte, status int, message string) []byte {
	return completions{}.fail(dst, status, message)
}
