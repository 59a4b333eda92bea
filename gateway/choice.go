package gateway

import (
	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// ToolChoice is what a client says about calling tools. The zero value leaves it
// to the model.
type ToolChoice struct {
	// Required: the model must call a tool; Name, if not empty, says which.
	Required bool
	Name     string
	// Single: it may call no more than one.
	Single bool
}

// CallsNotLimited flags a turn whose client wanted no more than one call, where
// nothing saw to it: a grammar for an answer that may hold a call would change
// how everything else in it is sampled.
const CallsNotLimited = "calls_not_limited"

// constrain settles what the engine has to enforce. Engines that read messages
// are told of the tool choice there; all others get a grammar of the model's own
// calls, which is refused where it cannot be exact.
func (t *turn) constrain() error {
	t.grammar = t.req.Grammar
	choice := t.req.ToolChoice
	if t.model.Wire != IDs || !choice.Required && t.grammar == nil {
		return nil
	}
	g := engine.Grammar{Kind: ToolChoiceKind}
	if t.grammar != nil {
		g = *t.grammar
	}
	g.Before = t.prompts.Before(t.prompt, choice.Required)
	if choice.Required {
		if t.grammar != nil {
			return Invalidf("tool_choice", "tool_choice cannot force a call where response_format asks for %s; leave one of them out", g.Kind)
		}
		calls, err := t.prompts.Forced(t.req.Conversation, choice.Name, choice.Single)
		if err != nil {
			return Invalidf("tool_choice", "tool_choice cannot force a call of the model %q: %v; use auto or none", t.model.Name, err)
		}
		g.Pattern = &calls
	}
	t.grammar = &g
	return nil
}

// ToolChoiceKind is the kind of grammar, and the constraint in the log, of a
// choice that forces a call.
const ToolChoiceKind = "tool_choice"

// constraints are what the sampling was bound by, for the record.
func (t *turn) constraints() (list []string) {
	if t.grammar != nil {
		list = append(list, t.grammar.Kind)
	} else if t.req.ToolChoice.Required {
		list = append(list, ToolChoiceKind)
	}
	if len(t.params.LogitBias) > 0 {
		list = append(list, "logit_bias")
	}
	return list
}

// chosen checks a reply against the choice: an engine that left a grammar out
// has sampled something else than was asked for.
func (t *turn) chosen(r *parse.Reply, finishReason string) error {
	choice := t.req.ToolChoice
	forced := t.grammar != nil && t.grammar.Kind == ToolChoiceKind
	if forced && finishReason == "stop" && len(r.Calls) == 0 {
		return &engine.Error{Class: engine.Broken, Message: "the engine did not enforce tool_choice: the answer holds no call; does it have a grammar backend?"}
	}
	if choice.Single && !forced && t.model.Wire == IDs {
		r.Flags = append(r.Flags, CallsNotLimited)
	}
	return nil
}

// appendChoice appends the choice in OpenAI's form, for engines that read it.
func (c ToolChoice) appendChoice(dst []byte) []byte {
	switch {
	case c.Name != "":
		dst = append(dst, `,"tool_choice":{"type":"function","function":{"name":`...)
		dst = append(rawjson.AppendText(dst, c.Name), "}}"...)
	case c.Required:
		dst = append(dst, `,"tool_choice":"required"`...)
	}
	if c.Single {
		dst = append(dst, `,"parallel_tool_calls":false`...)
	}
	return dst
}
