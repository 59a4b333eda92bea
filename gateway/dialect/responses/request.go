// Package responses speaks OpenAI's Responses API as Codex, opencode and pi use
// it: /v1/responses, without anything stored between two calls.
package responses

import (
	"bytes"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/gateway/dialect/openaichat"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// Translation is the version of the translation that this package does. It
// changes whenever the same body would become another conversation.
//
// Version 1:
//   - instructions are a system message before the input.
//   - assistant messages, reasoning and calls between two items of others are
//     one assistant message.
//   - the texts of a user item become one text, a line break between them;
//     those of an assistant become one without anything between.
//   - the functions of a namespace are functions like others; one that shares
//     its name with another gets the namespace before it.
//   - a custom tool is a function of one text, input; the grammar of its input
//     stands in its description.
//   - a shell's call, or any other of a kind of its own that the client ran, is
//     a call of that name; a call that somebody else ran is left out, but for
//     one over MCP, which brings its result.
const Translation = 1

// Name is how the dialect is called in the log.
const Name = "openai_responses"

// Options are the parts of a request that shape the answer's form only.
type Options struct {
	Stream bool
	// Model is the name to answer with: the one that was asked for.
	Model string
	// Created is when the answer was asked for, seconds since 1970.
	Created int64

	tools toolset
	// echo are the members that a response repeats.
	echo map[string][]byte
}

// echoed are the members that a response repeats, and what stands for one that
// the client did not send.
var echoed = []struct{ key, missing string }{
	{"metadata", "{}"},
	{"parallel_tool_calls", "true"},
	{"tool_choice", `"auto"`},
	{"temperature", "null"},
	{"top_p", "null"},
	{"max_output_tokens", "null"},
}

var protocol = dialect.Protocol{
	Name:        Name,
	Translation: Translation,
	Sampling: map[string]string{
		"max_output_tokens": "max_tokens",
		"temperature":       "temperature",
		"top_p":             "top_p",
		"top_k":             "top_k",
		"stop":              "stop",
	},
	Recorded: []string{"instructions", "input", "tools", "prompt_cache_key"},
}

// request is a body while it is read.
type request struct {
	dialect.Body
	opt    Options
	system []message.Message
	// input waits until the tools are known, whose names it uses.
	input []byte
	// turn returns the answer that a turn of the session gave.
	turn func(id string) (message.Message, bool)
}

// Decode reads a request body. The error is a *gateway.Error of kind Invalid
// that names the parameter. Fields that are not known are recorded and ignored.
// turn returns the answer that a turn of the session gave, for items that are
// only referred to; nil knows none.
func Decode(body []byte, turn func(id string) (message.Message, bool)) (gateway.Request, Options, error) {
	r := request{turn: turn}
	err := r.Read(&protocol, body, r.member)
	if err == nil {
		err = r.finish()
	}
	r.opt.Stream, r.opt.Model = r.Req.Stream, r.Req.Model
	for _, key := range []string{"temperature", "top_p", "max_output_tokens"} {
		value, _ := rawjson.Get(r.Req.Sampling, protocol.Sampling[key])
		r.repeat(key, value)
	}
	return r.Req, r.opt, err
}

// repeat has the response say a member again, on one line: in JSON line breaks
// stand between values only.
func (r *request) repeat(key string, value []byte) {
	if value == nil || dialect.IsNull(value) {
		return
	}
	if r.opt.echo == nil {
		r.opt.echo = map[string][]byte{}
	}
	r.opt.echo[key] = bytes.ReplaceAll(bytes.ReplaceAll(value, []byte("\n"), nil), []byte("\r"), nil)
}

func (r *request) member(k string, v []byte) (err error) {
	switch k {
	case "metadata", "tool_choice", "parallel_tool_calls":
		r.repeat(k, v)
	}
	switch k {
	case "instructions":
		var text string
		if text, err = dialect.Text(k, v); text != "" {
			r.system = []message.Message{{Role: message.System, Content: message.TextContent(text)}}
		}
	case "input":
		r.input = v
	case "tools":
		r.opt.tools, err = decodeTools(v)
	case "prompt_cache_key":
		// Where no header says better it names the conversation.
		r.Req.Thread = rawjson.Text(v)
	case "tool_choice":
		err = openaichat.DecodeChoice(v, &r.Choice)
	case "parallel_tool_calls":
		err = openaichat.Parallel(k, v, &r.Choice)
	case "reasoning":
		effort, _ := rawjson.Get(v, "effort")
		r.Req.Thinking = dialect.Effort(rawjson.Text(effort))
	case "text":
		if format, ok := rawjson.Get(v, "format"); ok {
			r.Req.Grammar, err = decodeFormat(format)
		}
	case "top_logprobs":
		if !dialect.IsNull(v) && string(bytes.TrimSpace(v)) != "0" {
			err = gateway.Invalidf(k, "%s is not supported here; use chat completions, which have it", k)
		}
	case "include":
		for e := range rawjson.Elements(v) {
			if rawjson.Text(e) == "message.output_text.logprobs" {
				err = gateway.Invalidf(k, "include of %s is not supported; use logprobs of chat completions", e)
			}
		}
	case "previous_response_id", "conversation", "prompt":
		if !dialect.IsNull(v) {
			err = gateway.Invalidf(k, "%s is not supported: nothing is stored between calls; send the whole input", k)
		}
	case "background":
		var background bool
		if background, err = dialect.Bool(k, v); background {
			err = gateway.Invalidf(k, "background is not supported")
		}
	}
	return err
}

func (r *request) finish() error {
	r.Tools = r.opt.tools.definitions
	list, err := r.decodeInput()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return gateway.Invalidf("input", "input must be a text or an array of at least one item")
	}
	return r.Finish(append(r.system, list...))
}

func decodeFormat(raw []byte) (*engine.Grammar, error) {
	typ, _ := rawjson.Get(raw, "type")
	switch rawjson.Text(typ) {
	case "", "text":
		return nil, nil
	case "json_object":
		return &engine.Grammar{Kind: "json_object"}, nil
	case "json_schema":
		schema, _ := rawjson.Get(raw, "schema")
		return dialect.Schema("text.format.schema", schema)
	}
	return nil, gateway.Invalidf("text.format", "text.format.type must be text, json_object or json_schema")
}
