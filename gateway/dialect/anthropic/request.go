// Package anthropic speaks Anthropic's Messages API: /v1/messages, its token
// count and its list of models, as Claude Code and Anthropic's SDKs use them.
package anthropic

import (
	"slices"
	"strings"

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
//   - attribution_line: a system block that begins with
//     "x-anthropic-billing-header:" is left out. It differs from task to task
//     and would make every prompt another one from its first tokens on.
//   - join: the text blocks of system, of a user message and of a tool result
//     become one text, a line break between them; those of an assistant become
//     one without anything between. Cache marks do not count.
//   - results: the tool results of a user message become tool messages, and
//     what else it says a user message behind them.
//   - references: a tool_reference becomes the definition of the tool.
const Translation = 1

// Name is how the dialect is called in the log.
const Name = "anthropic_messages"

// Options are the parts of a request that shape the answer's form only.
type Options struct {
	Stream bool
	// Model is the name to answer with: the one that was asked for.
	Model string
	// Stops are the stop sequences that an answer may name.
	Stops []string
	// Request is the request's id, which errors name.
	Request string
}

var protocol = dialect.Protocol{
	Name:        Name,
	Translation: Translation,
	Sampling: map[string]string{
		"max_tokens":     "max_tokens",
		"temperature":    "temperature",
		"top_p":          "top_p",
		"top_k":          "top_k",
		"stop_sequences": "stop",
	},
	Recorded: []string{"messages", "system", "tools"},
}

// request is a body while it is read.
type request struct {
	dialect.Body
	system []message.Message
	// messages wait until the tools are known, which they may refer to.
	messages []byte
	effort   gateway.Thinking
	// hosted are the names of tools that only Anthropic runs.
	hosted []string
}

// Decode reads the body of a message or of a token count. The error is a
// *gateway.Error of kind Invalid. Fields and betas that are not known are
// recorded and ignored.
func Decode(body []byte) (gateway.Request, Options, error) {
	var r request
	err := r.Read(&protocol, body, r.member)
	if err == nil {
		err = r.finish()
	}
	opt := Options{Stream: r.Req.Stream, Model: r.Req.Model}
	if stop, ok := rawjson.Get(r.Req.Sampling, "stop"); ok {
		for s := range rawjson.Elements(stop) {
			opt.Stops = append(opt.Stops, rawjson.Text(s))
		}
	}
	return r.Req, opt, err
}

func (r *request) member(k string, v []byte) (err error) {
	switch k {
	case "messages":
		r.messages = v
	case "system":
		r.system, err = decodeSystem(v)
	case "tools":
		err = r.decodeTools(v)
	case "tool_choice":
		r.Choice, err = decodeChoice(v)
	case "thinking":
		err = r.thinking(v)
	case "output_config":
		if effort, ok := rawjson.Get(v, "effort"); ok {
			r.effort = dialect.Effort(rawjson.Text(effort))
		}
		if format, ok := rawjson.Get(v, "format"); ok {
			r.Req.Grammar, err = decodeFormat("output_config.format", format)
		}
	case "output_format":
		r.Req.Grammar, err = decodeFormat(k, v)
	}
	return err
}

// thinking reads the switch. A budget is an effort where no effort is named.
func (r *request) thinking(raw []byte) error {
	if dialect.IsNull(raw) {
		return nil
	}
	typ, _ := rawjson.Get(raw, "type")
	switch rawjson.Text(typ) {
	case "enabled", "adaptive":
		r.Req.Thinking.Mode = "on"
	case "disabled":
		r.Req.Thinking.Mode = "off"
	default:
		return gateway.Invalidf("thinking", "thinking.type must be enabled, adaptive or disabled")
	}
	if budget, ok := rawjson.Get(raw, "budget_tokens"); ok {
		switch n := dialect.Int(budget); {
		case n <= 0:
		case n < 4096:
			r.Req.Thinking.Effort = "low"
		case n < 8192:
			r.Req.Thinking.Effort = "medium"
		default:
			r.Req.Thinking.Effort = "high"
		}
	}
	return nil
}

func (r *request) finish() error {
	if name := r.Choice.Name; slices.Contains(r.hosted, name) {
		// Claude Code searches the web so, beside its conversation. An answer
		// would be made up.
		return gateway.Invalidf("tool_choice", "the tool %q is run by Anthropic, and by nobody here; "+
			"give the agent a tool of its own for it", name)
	}
	if r.effort.Effort != "" {
		r.Req.Thinking.Effort = r.effort.Effort
	}
	if r.Req.Thinking.Mode == "off" {
		r.Req.Thinking.Effort = ""
	}
	list, err := r.decodeMessages(r.messages)
	if err != nil {
		return err
	}
	return r.Finish(append(r.system, list...))
}

// attribution is the beginning of a line that Claude Code puts before its
// system text.
const attribution = "x-anthropic-billing-header:"

func decodeSystem(raw []byte) ([]message.Message, error) {
	var text string
	switch kind := rawjson.KindOf(raw); kind {
	case rawjson.Null:
		return nil, nil
	case rawjson.String:
		text = rawjson.Text(raw)
	case rawjson.Array:
		var blocks []string
		for e := range rawjson.Elements(raw) {
			typ, _ := rawjson.Get(e, "type")
			value, ok := rawjson.Get(e, "text")
			if rawjson.Text(typ) != "text" || !ok || rawjson.KindOf(value) != rawjson.String {
				return nil, gateway.Invalidf("system", "system must be a text or a list of text blocks")
			}
			if block := rawjson.Text(value); !strings.HasPrefix(block, attribution) {
				blocks = append(blocks, block)
			}
		}
		text = strings.Join(blocks, "\n")
	default:
		return nil, gateway.Invalidf("system", "system is %s; it must be a text or a list of text blocks", kind)
	}
	if text == "" {
		return nil, nil
	}
	return []message.Message{{Role: message.System, Content: message.TextContent(text)}}, nil
}

// decodeTools reads the tools that the client runs. Tools that Anthropic runs
// or defines have no schema to show to a model; they are skipped.
func (r *request) decodeTools(raw []byte) (err error) {
	if err := dialect.Array("tools", raw); err != nil {
		return err
	}
	for e := range rawjson.Elements(raw) {
		if kind := rawjson.KindOf(e); kind != rawjson.Object {
			return gateway.Invalidf("tools", "a tool is %s; it must be an object", kind)
		}
		v := dialect.Pick(e, "type", "name", "description", "input_schema", "defer_loading")
		name := rawjson.Text(v[1])
		if t := rawjson.Text(v[0]); t != "" && t != "custom" {
			r.hosted = append(r.hosted, name)
			continue
		}
		if name == "" {
			return gateway.Invalidf("tools", "a tool needs a name")
		}
		deferred := false
		if v[4] != nil {
			if deferred, err = dialect.Bool("tools.defer_loading", v[4]); err != nil {
				return err
			}
		}
		r.Tools = append(r.Tools, message.Definition{
			Name: name, Raw: dialect.Function(name, v[2], v[3]), Deferred: deferred,
		})
	}
	return nil
}

func decodeChoice(raw []byte) (c dialect.Choice, err error) {
	if dialect.IsNull(raw) {
		return c, nil
	}
	v := dialect.Pick(raw, "type", "name", "disable_parallel_tool_use")
	if v[2] != nil {
		if c.Single, err = dialect.Bool("tool_choice.disable_parallel_tool_use", v[2]); err != nil {
			return c, err
		}
	}
	switch rawjson.Text(v[0]) {
	case "auto":
	case "none":
		c.None = true
	case "any":
		c.Required = true
	case "tool":
		if c.Required, c.Name = true, rawjson.Text(v[1]); c.Name == "" {
			return c, gateway.Invalidf("tool_choice", "tool_choice of type tool needs the name of a tool")
		}
	default:
		return c, gateway.Invalidf("tool_choice", "tool_choice.type must be auto, any, tool or none")
	}
	return c, nil
}

func decodeFormat(param string, raw []byte) (*engine.Grammar, error) {
	if dialect.IsNull(raw) {
		return nil, nil
	}
	if typ, _ := rawjson.Get(raw, "type"); rawjson.Text(typ) != "json_schema" {
		return nil, gateway.Invalidf(param, "%s.type must be json_schema", param)
	}
	schema, _ := rawjson.Get(raw, "schema")
	return dialect.Schema(param+".schema", schema)
}
