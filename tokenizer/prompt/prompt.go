// Package prompt makes the ids of a model call's prompt so that no sampled id
// ever changes.
//
// The first call of a conversation is rendered and encoded as a whole (Root).
// Every further call begins with the ids of the call before, prompt and
// completion, exactly as they were; only what is new is rendered (Extend): the
// end of the assistant's turn where it was cut, the new messages, and the
// generation prompt. The new text is the difference between two short renders
// with a stand-in for the history, taken behind the assistant's turn end. That
// end is an added token, and nothing that tokenizers do crosses an added token,
// so the new ids are those that a render of the whole would have there; and the
// work does not depend on the length of the history.
//
// README.md tells why histories must not be encoded again, and what differs
// between families.
package prompt

import (
	"errors"
	"fmt"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/family"
)

// Prompt is the prompt of one call.
type Prompt struct {
	// Keep is how many of the parent's ids, prompt and completion, the prompt
	// begins with; 0 for a root.
	Keep int
	// Segments are the ids behind those.
	Segments []Segment
	// Omits are the messages that the template left something of out, by their
	// place in the conversation for a root, and among the added ones otherwise:
	// a text, or a call. Templates do that, and the model never sees it, so
	// whoever records the prompt should say it.
	Omits []int
}

// Segment is a run of ids of one provenance.
type Segment struct {
	Provenance event.Provenance
	IDs        []uint32
}

// Len is the number of ids of the whole prompt.
func (p Prompt) Len() int {
	n := p.Keep
	for _, s := range p.Segments {
		n += len(s.IDs)
	}
	return n
}

// Append appends the ids of the whole prompt to dst. parent are the ids of the
// call that it continues, prompt and completion.
func (p Prompt) Append(dst, parent []uint32) []uint32 {
	dst = append(dst, parent[:p.Keep]...)
	for _, s := range p.Segments {
		dst = append(dst, s.IDs...)
	}
	return dst
}

// Parent is what Extend needs of the call that is continued.
type Parent struct {
	// Len is the number of its ids, prompt and completion.
	Len int
	// Tail are the last of its ids; one is enough.
	Tail []uint32
	// Answer is what it said.
	Answer message.Message
	// Head and Options are what its prompt was made with. A call with others
	// does not continue it.
	Head    message.Head
	Options Options
	// Thought says that the ids hold thinking that a vendor's template might
	// leave out of the history: in Answer or before. Policy vendor needs it.
	Thought bool
}

// Options are the arguments of one call's template.
type Options struct {
	// Kwargs is a JSON object of template arguments, or nil.
	Kwargs []byte
	// Time is what the template takes for now. The calls of a conversation
	// must give the same, or the head would change.
	Time time.Time
}

// Renderer renders conversations as one checkpoint's template does; it is
// normally a *chat.Template. It is safe for concurrent use, and the same
// arguments give the same text.
type Renderer interface {
	Render([]message.Message, []message.Definition, chat.Options) (chat.Output, error)
}

var _ Renderer = (*chat.Template)(nil)

// Policy says what becomes of a history that the vendor's template would write
// otherwise than it was sampled. See family.Policy.
type Policy = family.Policy

// The policies.
const (
	Keep   = family.KeepHistory
	Vendor = family.VendorHistory
)

// Model is what an Assembler works with.
type Model struct {
	Renderer  Renderer
	Tokenizer tokenizer.Tokenizer
	Family    family.Family
	// Policy is one that the family allows; Keep if empty.
	Policy Policy
	// StopTokens are ids that end a turn besides the family's: eos_token_id of
	// generation_config.json.
	StopTokens []uint32
}

// Reason says why a call cannot continue its parent's ids.
type Reason string

// The reasons.
const (
	// NothingNew: there is nothing to continue with, or nothing to continue.
	NothingNew Reason = "nothing new"
	// HeadChanged: the system messages or the tools are others than the
	// parent's prompt begins with.
	HeadChanged Reason = "head changed"
	// ArgumentsChanged: the template's arguments or its time are others.
	ArgumentsChanged Reason = "arguments changed"
	// EarlierCall: a result answers a call of an earlier turn, or none. What a
	// template writes for it may depend on that call.
	EarlierCall Reason = "result of an earlier call"
	// OneCall: the answer makes several calls, and the template writes one to a
	// message.
	OneCall Reason = "several calls"
	// Switched: the history holds a word by which the template turns thinking on
	// or off further down.
	Switched Reason = "switch in the history"
	// Counted: the template writes such messages otherwise where the history
	// holds others of their role.
	Counted Reason = "depends on the history"
	// Rewritten: the template changes what stands before the new messages.
	Rewritten Reason = "history rewritten"
	// Unjoined: no token that ends a turn, or opens a message, stands between
	// the answer and what follows.
	Unjoined Reason = "no boundary token"
	// Refused: the template refuses the new messages behind a short history. It
	// may take the real one.
	Refused Reason = "refused behind a short history"
)

// NotAppendOnlyError says that the new messages cannot be put behind the
// parent's ids. The caller makes a new root.
type NotAppendOnlyError struct {
	Reason Reason
	// Detail says more, for people; it may be empty.
	Detail string
}

func (e *NotAppendOnlyError) Error() string {
	s := "prompt: not append-only: " + string(e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Errors of conversations that a model cannot express. They are wrapped.
var (
	// ErrSystemInside is a system message behind the first other message,
	// which the template refuses or leaves out.
	ErrSystemInside = errors.New("the model's template takes no system message inside a conversation")
	// ErrContent is a part of content that the template does not render.
	ErrContent = errors.New("the model's template does not render such content")
	// ErrUnknownTool is a reference to a tool that the request does not define.
	ErrUnknownTool = errors.New("a result refers to a tool that is not defined")
)

func fault(op string, err error) error { return fmt.Errorf("prompt: %s: %w", op, err) }
