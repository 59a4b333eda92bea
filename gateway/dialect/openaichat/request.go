// Package openaichat speaks OpenAI's chat completions: /v1/chat/completions
// and /v1/models.
package openaichat

import (
	"bytes"
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// Translation is the version of the translation that this package does. It
// changes whenever the same body would become another conversation.
const Translation = 1

// Name is how the dialect is called in the log.
const Name = "openai_chat"

// MaxChoices bounds n, as OpenAI does.
const MaxChoices = 128

// Options are the parts of a request that shape the answer's form only.
type Options struct {
	Stream       bool
	IncludeUsage bool
	Logprobs     bool
	// N is how many answers are asked for; each is a turn of its own.
	N int
	// Model is the name to answer with: the one that was asked for.
	Model string
}

// sampling maps OpenAI's parameters, and the engines' common extensions of
// them, to the gateway's names.
var sampling = map[string]string{
	"max_tokens":            "max_tokens",
	"max_completion_tokens": "max_tokens",
	"temperature":           "temperature",
	"top_p":                 "top_p",
	"top_k":                 "top_k",
	"min_p":                 "min_p",
	"frequency_penalty":     "frequency_penalty",
	"presence_penalty":      "presence_penalty",
	"repetition_penalty":    "repetition_penalty",
	"seed":                  "seed",
	"stop":                  "stop",
	"stop_token_ids":        "stop_token_ids",
}

// request is a body while it is read.
type request struct {
	req      gateway.Request
	opt      Options
	messages []message.Message
	tools    []message.Definition
	choice   string
	params   dialect.Params
}

// Decode reads a request body. The error is a *gateway.Error of kind Invalid
// that names the parameter. Fields that are not known are ignored.
func Decode(body []byte) (gateway.Request, Options, error) {
	r := request{choice: "auto", opt: Options{N: 1}}
	err := dialect.Object(body)
	if err != nil {
		return r.req, r.opt, err
	}
	hash := dialect.NewBodyHash()
	for k, v := range rawjson.Members(body) {
		hash.Add(k, v)
		if name, ok := sampling[k]; ok {
			r.params.Set(name, v)
		} else if err = r.member(k, v); err != nil {
			return r.req, r.opt, err
		}
	}
	r.req.Dialect, r.req.Translation = Name, Translation
	r.req.BodyHash = hash.Sum()
	return r.req, r.opt, r.finish()
}

func (r *request) member(k string, v []byte) (err error) {
	switch k {
	case "model":
		r.req.Model, err = dialect.Text(k, v)
		r.opt.Model = r.req.Model
	case "messages":
		r.messages, err = decodeMessages(v)
	case "tools":
		r.tools, err = decodeTools(v)
	case "prompt_cache_key":
		// Where no header says better it names the conversation.
		r.req.Thread = rawjson.Text(v)
	case "tool_choice":
		r.choice, err = decodeChoice(v)
	case "functions", "function_call":
		if !dialect.IsNull(v) {
			err = gateway.Invalidf(k, "%s is not supported; use tools", k)
		}
	case "stream":
		r.req.Stream, err = dialect.Bool(k, v)
		r.opt.Stream = r.req.Stream
	case "stream_options":
		if usage, ok := rawjson.Get(v, "include_usage"); ok {
			r.opt.IncludeUsage, err = dialect.Bool("stream_options.include_usage", usage)
		}
	case "logprobs":
		r.opt.Logprobs, err = dialect.Bool(k, v)
	case "top_logprobs":
		if !dialect.IsNull(v) && string(bytes.TrimSpace(v)) != "0" {
			err = gateway.Invalidf(k, "top_logprobs above 0 is not supported; logprobs gives the sampled token's")
		}
	case "n":
		r.opt.N, err = decodeN(v)
	case "response_format":
		r.req.Grammar, err = decodeFormat(v)
	case "reasoning_effort":
		var effort string
		effort, err = dialect.Text(k, v)
		r.req.Thinking = dialect.Effort(effort)
	case "chat_template_kwargs":
		if kind := rawjson.KindOf(v); kind == rawjson.Object {
			r.req.Kwargs = v
		} else if kind != rawjson.Null {
			err = gateway.Invalidf(k, "%s is %s; it must be an object", k, kind)
		}
	}
	return err
}

func (r *request) finish() error {
	if len(r.messages) == 0 {
		return gateway.Invalidf("messages", "messages must be an array of at least one message")
	}
	switch {
	case r.choice == "none":
		r.tools = nil
	case r.choice != "auto" && len(r.tools) > 0:
		return gateway.Invalidf("tool_choice",
			"tool_choice %q is not supported: no engine grammar forces a call in the model's own format; use auto or none", r.choice)
	}
	r.req.Sampling = r.params.Object()
	if _, err := gateway.ParseSampling(r.req.Sampling); err != nil {
		return err
	}
	r.req.Class = dialect.Class(r.params, len(r.messages))
	r.req.Conversation = message.Split(r.messages, r.tools)
	return nil
}

func decodeN(raw []byte) (int, error) {
	if dialect.IsNull(raw) {
		return 1, nil
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(raw)))
	if err != nil || n < 1 || n > MaxChoices {
		return 0, gateway.Invalidf("n", "n must be an integer from 1 to %d", MaxChoices)
	}
	return n, nil
}

// decodeChoice returns auto, none, required, or the kind of a forced choice.
func decodeChoice(raw []byte) (string, error) {
	switch rawjson.KindOf(raw) {
	case rawjson.Null:
		return "auto", nil
	case rawjson.String:
		switch c := rawjson.Text(raw); c {
		case "auto", "none", "required":
			return c, nil
		}
	case rawjson.Object:
		typ, _ := rawjson.Get(raw, "type")
		if t := rawjson.Text(typ); t != "" {
			return t, nil
		}
	}
	return "", gateway.Invalidf("tool_choice", "tool_choice must be auto, none, required, or an object with a type")
}

func decodeFormat(raw []byte) (*engine.Grammar, error) {
	if dialect.IsNull(raw) {
		return nil, nil
	}
	typ, _ := rawjson.Get(raw, "type")
	switch rawjson.Text(typ) {
	case "text":
		return nil, nil
	case "json_object":
		return &engine.Grammar{Kind: "json_object"}, nil
	case "json_schema":
		format, _ := rawjson.Get(raw, "json_schema")
		schema, _ := rawjson.Get(format, "schema")
		return dialect.Schema("response_format.json_schema.schema", schema)
	}
	return nil, gateway.Invalidf("response_format", "response_format.type must be text, json_object or json_schema")
}
