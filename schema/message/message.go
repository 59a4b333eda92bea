// Package message holds the canonical conversation: the one form that every
// dialect is translated into, that templates are rendered from, and that the
// log stores.
//
// It keeps what a careless translation loses. Tool-call arguments stay the raw
// text that the model wrote; tool definitions stay the client's JSON with the
// order of keys and the form of numbers; content that came as a list of parts
// stays one. A message has exactly one encoding (AppendJSON), and its hash is
// taken over that encoding's meaning (see Hash), so that two gateways always
// agree.
package message

import (
	"slices"
	"unicode/utf8"
)

// Role is who speaks.
type Role string

// The roles. Developer is what OpenAI calls a system message; templates that
// do not know it get it as system.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one entry of a conversation. The zero value of every field means
// that the client did not say it.
type Message struct {
	Role Role
	// Content is what the message says. See Content for null, text and lists.
	Content Content
	// Reasoning is the thinking of an assistant message, verbatim.
	Reasoning string
	// Calls are the tool calls of an assistant message, in order.
	Calls []Call
	// CallID names the call that a tool message answers.
	CallID string
	// Name is the optional name of the speaker, or of the tool that answers.
	Name string
	// Turn is the turn that the client says an answer was given in: read from a
	// signature of ours that it echoed. It is a hint, neither hashed nor encoded.
	Turn string
	// IsError marks a tool result as a failure.
	IsError bool
	// Extra is a JSON object of fields that this package does not know, in the
	// client's bytes; nil if there were none. Templates can see them.
	Extra []byte
}

// Form is how a client spelled the content of a message.
type Form uint8

// The forms of content.
const (
	Null Form = iota
	Text
	List
)

// Content is null, a text, or a list of parts. Templates may treat the three
// differently, so the form is kept.
type Content struct {
	Form  Form
	Text  string // of form Text
	Parts []Part // of form List
}

// TextContent is content of form Text.
func TextContent(s string) Content { return Content{Form: Text, Text: s} }

// Part is one element of a content list.
type Part struct {
	// Type is text, image or document, or a dialect's own word.
	Type string
	Text string // of type text
	// Raw is the JSON object of a part that is not text, in the client's bytes.
	Raw []byte
}

// Call is one tool call of an assistant.
type Call struct {
	// ID is unique in its session: minted by the gateway, known to the client.
	ID string
	// ModelID is the id that the model itself wrote, where its format has one.
	ModelID string
	Name    string
	// Arguments is the raw text that the model wrote, normally a JSON object.
	Arguments string
}

// Definition is one tool that the model may call, in the shape
// {"type":"function","function":{...}} with the client's own bytes inside.
type Definition struct {
	Name string
	Raw  []byte
	// Deferred tools are not part of the head; they are rendered where a tool
	// result refers to them.
	Deferred bool
}

// Head is what a conversation starts with. A change of the head starts a new
// root in the tree.
type Head struct {
	// System are the leading system and developer messages.
	System []Message
	// Tools are the definitions that are not deferred.
	Tools []Definition
}

// Conversation is a request's history as the canonical form has it.
type Conversation struct {
	Head Head
	// Deferred are the tools that are not part of the head.
	Deferred []Definition
	// Messages are all but the leading system messages.
	Messages []Message
}

// Split cuts a flat list of messages into a conversation: the leading system
// and developer messages become the head.
func Split(messages []Message, tools []Definition) Conversation {
	var c Conversation
	n := 0
	for n < len(messages) && (messages[n].Role == System || messages[n].Role == Developer) {
		n++
	}
	c.Head.System, c.Messages = messages[:n:n], messages[n:]
	for _, t := range tools {
		if t.Deferred {
			c.Deferred = append(c.Deferred, t)
		} else {
			c.Head.Tools = append(c.Head.Tools, t)
		}
	}
	return c
}

// All returns the messages of the conversation as one list, the head's first.
func (c Conversation) All() []Message {
	return slices.Concat(c.Head.System, c.Messages)
}

// Durable reports whether Parse surely gives m again, all but Turn, from what
// AppendJSON makes of it. It says no of messages with parts or extra members,
// which are the client's bytes.
func (m Message) Durable() bool {
	switch m.Role {
	case System, Developer, User, Assistant, Tool:
	default:
		return false
	}
	plain := m.Content.Form == Text || m.Content.Form == Null && m.Content.Text == ""
	if !plain || m.Content.Parts != nil || m.Extra != nil || m.Calls != nil && len(m.Calls) == 0 {
		return false
	}
	valid := utf8.ValidString(m.Content.Text) && utf8.ValidString(m.Reasoning) && utf8.ValidString(m.CallID) && utf8.ValidString(m.Name)
	for _, c := range m.Calls {
		valid = valid && utf8.ValidString(c.ID) && utf8.ValidString(c.ModelID) && utf8.ValidString(c.Name) && utf8.ValidString(c.Arguments)
	}
	return valid
}

// String returns the text of the content: the text itself, or the text parts
// of a list joined without anything between them. Null is empty.
func (c Content) String() string {
	switch c.Form {
	case Text:
		return c.Text
	case List:
		if len(c.Parts) == 1 {
			return c.Parts[0].Text
		}
		var b []byte
		for _, p := range c.Parts {
			b = append(b, p.Text...)
		}
		return string(b)
	default:
		return ""
	}
}

// OnlyText reports whether the content has no part but text.
func (c Content) OnlyText() bool {
	return !slices.ContainsFunc(c.Parts, func(p Part) bool { return p.Type != "text" })
}
