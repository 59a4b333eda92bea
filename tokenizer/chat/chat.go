// Package chat renders conversations as transformers' apply_chat_template does
// (version 5): it gives a template its variables, and does what transformers
// adds around the template engine.
//
// A template sees messages in the form that OpenAI's API has, plus:
//
//	messages               role, content, reasoning_content, tool_calls, tool_call_id, name, ...
//	tools                  the definitions, or None if there are none
//	documents              None
//	add_generation_prompt  whether to end with the start of an assistant's turn
//	bos_token, ...         the special tokens that the model names
//	strftime_now(format)   the time, which the caller pins
//	anything else          the caller's template arguments (enable_thinking, ...)
//
// The arguments of a tool call, which are text on the wire, become a mapping
// with the order of keys and the form of numbers kept, since most templates
// expect one; text that is not a JSON object stays text.
package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/jinja"
)

// Errors of calls that no template can serve. They are wrapped.
var (
	// ErrNoTemplate: the model has several templates and none is the default.
	ErrNoTemplate = errors.New("the model has no default chat template")
	// ErrNoTime: the template asks for the time and Options.Now is not set.
	ErrNoTime = errors.New("the template needs the time: set Options.Now")
	// ErrContinue: the final message cannot be continued.
	ErrContinue = errors.New("the final message cannot be continued")
)

// The names under which models file several templates.
const (
	// Default is the template for all calls that no other one is for.
	Default = "default"
	// ToolUse is the template for calls with tools, where there is one.
	ToolUse = "tool_use"
)

// SpecialTokens are the special tokens that a model gives a name, such as
// bos_token and eos_token.
type SpecialTokens map[string]string

// Template is a model's chat template, or its set of them. It is immutable and
// safe for concurrent use.
type Template struct {
	sources  map[string]string
	compiled map[string]*jinja.Template
	special  jinja.Vars
	hash     string
}

// New compiles a template.
func New(source string, special SpecialTokens) (*Template, error) {
	return NewSet(map[string]string{Default: source}, special)
}

// NewSet compiles several templates, by name.
func NewSet(sources map[string]string, special SpecialTokens) (*Template, error) {
	t := &Template{sources: maps.Clone(sources), compiled: map[string]*jinja.Template{}, special: jinja.Vars{}}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		compiled, err := jinja.Compile(sources[name])
		if err != nil {
			return nil, fmt.Errorf("chat: template %q: %w", name, err)
		}
		t.compiled[name] = compiled
		fmt.Fprintf(h, "%q=%q\n", name, sources[name])
	}
	for _, name := range slices.Sorted(maps.Keys(special)) {
		t.special[name] = special[name]
		fmt.Fprintf(h, "%q:%q\n", name, special[name])
	}
	t.hash = hex.EncodeToString(h.Sum(nil))
	return t, nil
}

// Fingerprint identifies the templates and special tokens: a sha256 in hex.
func (t *Template) Fingerprint() string { return t.hash }

// UsesTime reports whether a render may depend on Options.Now.
func (t *Template) UsesTime() bool {
	for _, c := range t.compiled {
		if c.Mentions("strftime_now") {
			return true
		}
	}
	return false
}

// Source returns the source of a template, "" if there is none of that name.
func (t *Template) Source(name string) string { return t.sources[name] }

// Options are what a caller may say besides the conversation.
type Options struct {
	// AddGenerationPrompt ends the text with the start of an assistant's turn.
	AddGenerationPrompt bool
	// ContinueFinalMessage ends the text inside the last message, so that the
	// model goes on with it. It excludes AddGenerationPrompt.
	ContinueFinalMessage bool
	// Kwargs is a JSON object of template arguments, or nil. They win over
	// special tokens of the same name.
	Kwargs []byte
	// Now is what strftime_now formats, in the location that it carries. A
	// template that needs it does not render without it: the time decides the
	// bytes of the prompt, so it must be known to whoever renders it again.
	Now time.Time
	// Limits bounds the render. The zero value means the engine's defaults.
	Limits jinja.Limits
}

// Output is a rendered conversation. Its spans are the {% generation %}
// blocks, in bytes of the text; there are none where the text was cut to
// continue a message.
type Output = jinja.Output

// Render renders a conversation.
func (t *Template) Render(messages []message.Message, tools []message.Definition, opt Options) (Output, error) {
	c, name, err := t.choose(len(tools) > 0)
	if err != nil {
		return Output{}, fmt.Errorf("chat: render: %w", err)
	}
	conv := Converter{ReasoningKey: ReasoningKey(t.sources[name])}
	list, err := conv.Messages(messages)
	if err != nil {
		return Output{}, fmt.Errorf("chat: render: %w", err)
	}
	defs, err := Tools(tools)
	if err != nil {
		return Output{}, fmt.Errorf("chat: render: %w", err)
	}
	out, err := t.render(c, name, list, defs, opt)
	if err != nil {
		return Output{}, fmt.Errorf("chat: render: %w", err)
	}
	return out, nil
}

// RenderValues is Render for a conversation in the form that templates see:
// messages is a list of dicts, tools a list or nil.
func (t *Template) RenderValues(messages *jinja.List, tools jinja.Value, opt Options) (Output, error) {
	c, name, err := t.choose(tools != nil)
	if err != nil {
		return Output{}, fmt.Errorf("chat: render: %w", err)
	}
	out, err := t.render(c, name, messages, tools, opt)
	if err != nil {
		return Output{}, fmt.Errorf("chat: render: %w", err)
	}
	return out, nil
}

// choose picks the template of a call.
func (t *Template) choose(tools bool) (*jinja.Template, string, error) {
	if c, ok := t.compiled[ToolUse]; ok && tools {
		return c, ToolUse, nil
	}
	if c, ok := t.compiled[Default]; ok {
		return c, Default, nil
	}
	return nil, "", fmt.Errorf("%w: it has %s", ErrNoTemplate, strings.Join(slices.Sorted(maps.Keys(t.compiled)), ", "))
}

func (t *Template) render(c *jinja.Template, name string, messages *jinja.List, tools jinja.Value, opt Options) (Output, error) {
	vars := make(jinja.Vars, len(t.special)+8)
	maps.Copy(vars, t.special)
	vars["strftime_now"] = clock(opt.Now)
	if err := addKwargs(vars, opt.Kwargs); err != nil {
		return Output{}, err
	}
	vars["messages"], vars["tools"], vars["documents"] = messages, tools, nil
	vars["add_generation_prompt"] = opt.AddGenerationPrompt
	if !opt.ContinueFinalMessage {
		return c.Render(vars, opt.Limits)
	}
	if opt.AddGenerationPrompt {
		return Output{}, fmt.Errorf("%w: AddGenerationPrompt is set, too", ErrContinue)
	}
	tagged, final, err := tagFinal(messages, t.sources[name])
	if err != nil {
		return Output{}, err
	}
	vars["messages"] = tagged
	out, err := c.Render(vars, opt.Limits)
	if err != nil {
		return Output{}, err
	}
	out.Spans = nil
	out.Text, err = cutAtTag(out.Text, final)
	return out, err
}

// addKwargs adds the caller's template arguments.
func addKwargs(vars jinja.Vars, kwargs []byte) error {
	if len(kwargs) == 0 {
		return nil
	}
	v, err := jinja.FromJSON(kwargs)
	if err != nil {
		return fmt.Errorf("template arguments: %w", err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return errors.New("template arguments: not a JSON object")
	}
	for _, key := range d.Keys() {
		switch key {
		case "messages", "tools", "documents", "add_generation_prompt":
			return fmt.Errorf("template arguments: %q is not one, it is set by the call", key)
		}
		vars[key], _ = d.Get(key)
	}
	return nil
}

// clock is strftime_now.
func clock(now time.Time) jinja.Func {
	return func(args []jinja.Value) (jinja.Value, error) {
		if now.IsZero() {
			return nil, ErrNoTime
		}
		if len(args) != 1 {
			return nil, fmt.Errorf("strftime_now takes one format, got %d arguments", len(args))
		}
		format, ok := args[0].(string)
		if !ok {
			return nil, errors.New("strftime_now takes a string")
		}
		return Strftime(now, format), nil
	}
}
