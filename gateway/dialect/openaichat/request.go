// Package openaichat speaks OpenAI's chat completions: /v1/chat/completions
// and /v1/models.
package openaichat

import (
	"fmt"

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

// Options are the parts of a request that shape the answer's form only.
type Options struct {
	Stream       bool
	IncludeUsage bool
	Logprobs     bool
	// Model is the name to answer with: the one that was asked for.
	Model string
}

// sampling maps OpenAI's parameters, and the engines' common extensions of
// them, to the gateway's names. A later entry of the same name wins.
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

// Decode reads a request body. The error is a *gateway.Error of kind Invalid
// that names the parameter.
func Decode(body []byte) (req gateway.Request, opt Options, err error) {
	if err := dialect.Object(body); err != nil {
		return req, opt, err
	}
	req.Dialect, req.Translation = Name, Translation
	req.BodyHash = dialect.BodyHash(body)
	var messages []message.Message
	var tools []message.Definition
	choice := "auto"
	seen := false
	var params []rawjson.Set
	for k, v := range rawjson.Members(body) {
		if name, ok := sampling[k]; ok {
			if !dialect.IsNull(v) {
				params = append(params, rawjson.Set{Key: name, Value: v})
			}
			continue
		}
		switch k {
		case "model":
			req.Model, err = dialect.Text(k, v)
			opt.Model = req.Model
		case "messages":
			seen = true
			messages, err = decodeMessages(v)
		case "tools":
			tools, err = decodeTools(v)
		case "tool_choice":
			choice, err = decodeChoice(v)
		case "stream":
			opt.Stream, err = dialect.Bool(k, v)
			req.Stream = opt.Stream
		case "stream_options":
			if usage, ok := rawjson.Get(v, "include_usage"); ok {
				opt.IncludeUsage, err = dialect.Bool("stream_options.include_usage", usage)
			}
		case "logprobs":
			opt.Logprobs, err = dialect.Bool(k, v)
		case "top_logprobs":
			if !dialect.IsNull(v) && string(v) != "0" {
				err = gateway.Invalidf(k, "top_logprobs above 0 is not supported; logprobs gives the sampled token's")
			}
		case "n":
			if !dialect.IsNull(v) && string(v) != "1" {
				err = gateway.Invalidf(k, "n must be 1; send the request again for another sample")
			}
		case "response_format":
			req.Grammar, err = decodeFormat(v)
		case "chat_template_kwargs":
			if !dialect.IsNull(v) {
				if rawjson.KindOf(v) != rawjson.Object {
					err = gateway.Invalidf(k, "%s must be an object", k)
				}
				req.Kwargs = v
			}
		}
		if err != nil {
			return req, opt, err
		}
	}
	if !seen || len(messages) == 0 {
		return req, opt, gateway.Invalidf("messages", "messages must be an array of at least one message")
	}
	switch {
	case choice == "none":
		tools = nil
	case choice != "auto" && len(tools) > 0:
		return req, opt, gateway.Invalidf("tool_choice", "tool_choice %q is not supported: only auto and none are", choice)
	}
	req.Sampling = rawjson.Splice(nil, []byte("{}"), params...)
	if _, err := gateway.ParseSampling(req.Sampling); err != nil {
		return req, opt, err
	}
	req.Conversation = message.Split(messages, tools)
	return req, opt, nil
}

func decodeMessages(raw []byte) (list []message.Message, err error) {
	if rawjson.KindOf(raw) != rawjson.Array {
		return nil, gateway.Invalidf("messages", "messages is %s; it must be an array", rawjson.KindOf(raw))
	}
	for e := range rawjson.Elements(raw) {
		m, err := decodeMessage(fmt.Sprintf("messages[%d]", len(list)), e)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func decodeMessage(at string, raw []byte) (m message.Message, err error) {
	if kind := rawjson.KindOf(raw); kind != rawjson.Object {
		return m, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
	}
	hasContent := false
	for k, v := range rawjson.Members(raw) {
		switch k {
		case "role":
			var role string
			role, err = dialect.Text(at+".role", v)
			m.Role = message.Role(role)
		case "content":
			hasContent = true
			m.Content, err = message.ParseContent(v)
			if err != nil {
				err = gateway.Invalidf(at+".content", "%s.content: %s", at, err)
			}
		case "reasoning_content", "reasoning":
			var text string
			if rawjson.KindOf(v) == rawjson.String {
				text, err = dialect.Text(at+"."+k, v)
			}
			if m.Reasoning == "" {
				m.Reasoning = text
			}
		case "tool_calls":
			m.Calls, err = decodeCalls(at+".tool_calls", v)
		case "tool_call_id":
			m.CallID, err = dialect.Text(at+".tool_call_id", v)
		case "name":
			m.Name, err = dialect.Text(at+".name", v)
		}
		if err != nil {
			return m, err
		}
	}
	switch m.Role {
	case message.System, message.Developer, message.User, message.Assistant:
	case message.Tool:
		if m.CallID == "" {
			return m, gateway.Invalidf(at+".tool_call_id", "%s: a tool message needs the tool_call_id that it answers", at)
		}
	case "":
		return m, gateway.Invalidf(at+".role", "%s has no role", at)
	default:
		return m, gateway.Invalidf(at+".role", "%s.role is %q; it must be system, developer, user, assistant or tool", at, m.Role)
	}
	if m.Role != message.Assistant && (!hasContent || m.Content.Form == message.Null) {
		return m, gateway.Invalidf(at+".content", "%s: a %s message needs content", at, m.Role)
	}
	return m, nil
}

func decodeCalls(at string, raw []byte) (calls []message.Call, err error) {
	if err := dialect.Array(at, raw); err != nil {
		return nil, err
	}
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("%s[%d]", at, len(calls))
		var c message.Call
		id, _ := rawjson.Get(e, "id")
		fn, ok := rawjson.Get(e, "function")
		if !ok || rawjson.KindOf(fn) != rawjson.Object {
			return nil, gateway.Invalidf(at, "%s needs a function object", at)
		}
		name, _ := rawjson.Get(fn, "name")
		arguments, _ := rawjson.Get(fn, "arguments")
		c.ID, c.Name = rawjson.Text(id), rawjson.Text(name)
		// Some clients send the arguments as the object itself.
		if c.Arguments = rawjson.Text(arguments); rawjson.KindOf(arguments) == rawjson.Object {
			c.Arguments = string(arguments)
		}
		if c.ID == "" || c.Name == "" {
			return nil, gateway.Invalidf(at, "%s needs an id and function.name", at)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

func decodeTools(raw []byte) (tools []message.Definition, err error) {
	if err := dialect.Array("tools", raw); err != nil {
		return nil, err
	}
	for e := range rawjson.Elements(raw) {
		at := fmt.Sprintf("tools[%d]", len(tools))
		if kind := rawjson.KindOf(e); kind != rawjson.Object {
			return nil, gateway.Invalidf(at, "%s is %s; it must be an object", at, kind)
		}
		fn, ok := rawjson.Get(e, "function")
		name, _ := rawjson.Get(fn, "name")
		if typ, _ := rawjson.Get(e, "type"); rawjson.Text(typ) != "function" || !ok || rawjson.Text(name) == "" {
			return nil, gateway.Invalidf(at, "%s must be {\"type\":\"function\",\"function\":{\"name\":...}}", at)
		}
		tools = append(tools, message.Definition{Name: rawjson.Text(name), Raw: e})
	}
	return tools, nil
}

// decodeChoice returns auto, none, required, or the kind of a forced choice.
func decodeChoice(raw []byte) (string, error) {
	switch rawjson.KindOf(raw) {
	case rawjson.Null:
		return "auto", nil
	case rawjson.String:
		return rawjson.Text(raw), nil
	case rawjson.Object:
		typ, _ := rawjson.Get(raw, "type")
		return rawjson.Text(typ), nil
	}
	return "", gateway.Invalidf("tool_choice", "tool_choice must be a string or an object")
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
		schema, ok := rawjson.Get(format, "schema")
		if !ok || rawjson.KindOf(schema) != rawjson.Object {
			return nil, gateway.Invalidf("response_format", "response_format.json_schema.schema must be an object")
		}
		return &engine.Grammar{Kind: "json_schema", Value: string(schema)}, nil
	}
	return nil, gateway.Invalidf("response_format", "response_format.type must be text, json_object or json_schema")
}
