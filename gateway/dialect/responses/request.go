// Package responses speaks OpenAI's Responses API as Codex, opencode and pi use
// it: /v1/responses, without anything stored between two calls.
package responses

import (
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
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
}

var sampling = map[string]string{
	"max_output_tokens": "max_tokens",
	"temperature":       "temperature",
	"top_p":             "top_p",
	"top_k":             "top_k",
	"stop":              "stop",
}

// request is a body while it is read.
type request struct {
	req    gateway.Request
	opt    Options
	params dialect.Params
	system []message.Message
	// input waits until the tools are known, whose names it uses.
	input  []byte
	choice string
}

// Decode reads a request body. The error is a *gateway.Error of kind Invalid
// that names the parameter. Fields that are not known are ignored.
func Decode(body []byte) (gateway.Request, Options, error) {
	r := request{choice: "auto"}
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
		r.req.Thread = rawjson.Text(v)
	case "tool_choice":
		r.choice, err = decodeChoice(v)
	case "stream":
		r.req.Stream, err = dialect.Bool(k, v)
		r.opt.Stream = r.req.Stream
	case "reasoning":
		effort, _ := rawjson.Get(v, "effort")
		r.req.Thinking = dialect.Effort(rawjson.Text(effort))
	case "text":
		if format, ok := rawjson.Get(v, "format"); ok {
			r.req.Grammar, err = decodeFormat(format)
		}
	case "previous_response_id", "conversation":
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
	tools := r.opt.tools.definitions
	switch {
	case r.choice == "none":
		tools = nil
	case r.choice != "auto" && len(tools) > 0:
		return gateway.Invalidf("tool_choice",
			"tool_choice %q is not supported: no engine grammar forces a call in the model's own format; use auto or none", r.choice)
	}
	r.req.Sampling = r.params.Object()
	if _, err := gateway.ParseSampling(r.req.Sampling); err != nil {
		return err
	}
	list, err := decodeInput(r.input, &r.opt.tools)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return gateway.Invalidf("input", "input must be a text or an array of at least one item")
	}
	r.req.Class = dialect.Class(r.params, len(list))
	r.req.Conversation = message.Split(append(r.system, list...), tools)
	return nil
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
		if typ, _ := rawjson.Get(raw, "type"); rawjson.Text(typ) != "" {
			return rawjson.Text(typ), nil
		}
	}
	return "", gateway.Invalidf("tool_choice", "tool_choice must be auto, none, required, or an object with a type")
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
