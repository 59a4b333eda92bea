package gateway

import "turnlog.dev/schema/rawjson"

// ToolChoice is what a client says about calling tools. The zero value leaves it
// to the model.
type ToolChoice struct {
	// Required: the model must call a tool; Name, if not empty, says which.
	Required bool
	Name     string
	// Single: it may call no more than one.
	Single bool
}

// choose refuses a choice that no engine of the model enforces: a prompt cannot.
// That calls be single is a wish that is recorded; most models never know.
func (t *turn) choose() error {
	if !t.req.ToolChoice.Required || t.model.Wire == Text {
		return nil
	}
	return Invalidf("tool_choice",
		"tool_choice cannot force a call of the model %q: no engine grammar has calls in its own format; use auto or none", t.model.Name)
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
