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

// MaxTop bounds top_logprobs, as OpenAI does.
const MaxTop = 20

// Options are the parts of a request that shape the answer's form only.
type Options struct {
	Stream       bool
	IncludeUsage bool
	Logprobs     bool
	// N is how many answers are asked for; each is a turn of its own.
	N int
	// Model is the name to answer with: the one that was asked for.
	Model string

	// custom are the names of the tools that get a text instead of arguments.
	custom map[string]bool
}

// protocol's sampling parameters are OpenAI's, and the engines' common
// extensions of them.
var protocol = dialect.Protocol{
	Name:        Name,
	Translation: Translation,
	Sampling: map[string]string{
		"max_tokens":            "max_tokens",
		"max_completion_tokens": "max_tokens",
		"temperature":           "temperature",
		"top_p":                 "top_p",
		"top_k":                 "top_k",
		"min_p":                 "min_p",
		"frequency_penalty":     "frequency_penalty",
		"presence_penalty":      "presence_penalty",
		"repetition_penalty":    "repetition_penalty",
		"logit_bias":            "logit_bias",
		"seed":                  "seed",
		"stop":                  "stop",
		"stop_token_ids":        "stop_token_ids",
	},
	Recorded: []string{"messages", "tools", "stream_options", "prompt_cache_key"},
}

// request is a body while it is read.
type request struct {
	dialect.Body
	opt      Options
	messages []message.Message
}

// Decode reads a request body. The error is a *gateway.Error of kind Invalid
// that names the parameter. Fields that are not known are recorded and ignored.
func Decode(body []byte) (gateway.Request, Options, error) {
	r := request{opt: Options{N: 1}}
	err := r.Read(&protocol, body, r.member)
	if err == nil {
		err = r.finish()
	}
	r.opt.Stream, r.opt.Model = r.Req.Stream, r.Req.Model
	return r.Req, r.opt, err
}

func (r *request) member(k string, v []byte) (err error) {
	switch k {
	case "messages":
		r.messages, err = decodeMessages(v)
	case "tools":
		r.Tools, r.opt.custom, err = decodeTools(v)
	case "prompt_cache_key":
		// Where no header says better it names the conversation.
		r.Req.Thread = rawjson.Text(v)
	case "tool_choice":
		err = DecodeChoice(v, &r.Choice)
	case "parallel_tool_calls":
		err = Parallel(k, v, &r.Choice)
	case "functions", "function_call":
		if !dialect.IsNull(v) {
			err = gateway.Invalidf(k, "%s is not supported; use tools", k)
		}
	case "stream_options":
		if usage, ok := rawjson.Get(v, "include_usage"); ok {
			r.opt.IncludeUsage, err = dialect.Bool("stream_options.include_usage", usage)
		}
	case "logprobs":
		r.opt.Logprobs, err = dialect.Bool(k, v)
	case "top_logprobs":
		r.Req.Likeliest, err = decodeTop(v)
	case "n":
		r.opt.N, err = decodeN(v)
	case "modalities":
		for e := range rawjson.Elements(v) {
			if kind := rawjson.Text(e); kind != "text" {
				return gateway.Invalidf(k, "modalities asks for %q; models here answer in text only", kind)
			}
		}
	case "response_format":
		r.Req.Grammar, err = decodeFormat(v)
	case "reasoning_effort":
		var effort string
		effort, err = dialect.Text(k, v)
		r.Req.Thinking = dialect.Effort(effort)
	case "chat_template_kwargs":
		if kind := rawjson.KindOf(v); kind == rawjson.Object {
			r.Req.Kwargs = v
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
	if r.Req.Likeliest > 0 && !r.opt.Logprobs {
		return gateway.Invalidf("top_logprobs", "top_logprobs is for an answer with logprobs; set logprobs to true")
	}
	return r.Finish(r.messages)
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

// DecodeChoice reads a tool_choice, in the form of chat completions or of
// Responses.
func DecodeChoice(raw []byte, c *dialect.Choice) error {
	mode := raw
	if rawjson.KindOf(raw) == rawjson.Object {
		v := dialect.Pick(raw, "type", "allowed_tools", "mode", "tools")
		switch t := rawjson.Text(v[0]); t {
		case "function", "custom":
			if c.Required, c.Name = true, toolName(raw); c.Name == "" {
				return gateway.Invalidf("tool_choice", "tool_choice of type %s needs the name of a tool", t)
			}
			return nil
		case "allowed_tools":
			if v[1] != nil {
				v = dialect.Pick(v[1], "", "", "mode", "tools")
			}
			c.Allowed = []string{}
			for e := range rawjson.Elements(v[3]) {
				c.Allowed = append(c.Allowed, toolName(e))
			}
			mode = v[2]
		case "":
			return gateway.Invalidf("tool_choice", "tool_choice must be auto, none, required, or an object with a type")
		default:
			return gateway.Invalidf("tool_choice", "tool_choice cannot force a tool of type %q: the gateway runs no tools; use auto", t)
		}
	}
	switch rawjson.KindOf(mode) {
	case rawjson.Invalid, rawjson.Null:
		return nil
	case rawjson.String:
		switch rawjson.Text(mode) {
		case "auto":
			return nil
		case "none":
			c.None = true
			return nil
		case "required":
			c.Required = true
			return nil
		}
	}
	return gateway.Invalidf("tool_choice", "tool_choice must be auto, none, required, or an object with a type")
}

// Parallel reads parallel_tool_calls.
func Parallel(param string, raw []byte, c *dialect.Choice) error {
	parallel, err := dialect.Bool(param, raw)
	c.Single = err == nil && !parallel && !dialect.IsNull(raw)
	return err
}

func decodeTop(raw []byte) (int, error) {
	if dialect.IsNull(raw) {
		return 0, nil
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(raw)))
	if err != nil || n < 0 || n > MaxTop {
		return 0, gateway.Invalidf("top_logprobs", "top_logprobs must be an integer from 0 to %d", MaxTop)
	}
	return n, nil
}

// toolName is the name in a tool or a choice: beside its type, or in the member
// that is called so.
func toolName(raw []byte) string {
	v := dialect.Pick(raw, "type", "name", "function", "custom")
	switch {
	case v[1] != nil:
		return rawjson.Text(v[1])
	case rawjson.Text(v[0]) == "custom":
		v[2] = v[3]
	}
	name, _ := rawjson.Get(v[2], "name")
	return rawjson.Text(name)
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
