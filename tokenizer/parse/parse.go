// Package parse reads a model's reply from the ids that it sampled: what it
// thought, what it said and which tools it calls.
//
// A Parser works on ids, one after the other, so it never matters how an engine
// cuts its stream: the reply is the same, and so is the concatenation of the
// deltas. A mark that is one token of the vocabulary (such as <tool_call>) is
// recognised by its id alone; the same letters spelled in ordinary tokens are
// text. A mark that the vocabulary does not have is recognised by its letters.
//
// Nothing is guessed and nothing is repaired. What does not follow the format
// stays content, as the model wrote it, and the reply is flagged. A call
// appears, in the deltas too, only when it is complete and well formed: what
// was once streamed cannot be taken back.
package parse

// Kind says what a Delta adds to.
type Kind uint8

// The kinds. A call comes as one CallStart with its name, CallArguments with
// its arguments, and one CallEnd; calls do not overlap.
const (
	Reasoning Kind = iota
	Content
	CallStart
	CallArguments
	CallEnd
)

func (k Kind) String() string {
	return [...]string{"reasoning", "content", "call_start", "call_arguments", "call_end"}[k]
}

// Delta is what a piece of the stream adds to the reply.
type Delta struct {
	Kind Kind
	// Call is the index of the call, from 0.
	Call int
	// Name and ModelID are set at CallStart.
	Name, ModelID string
	// Text is what is added to reasoning, content or arguments.
	Text string
}

// Call is one tool call.
type Call struct {
	// ModelID is the id that the model itself wrote; most formats have none.
	ModelID string
	Name    string
	// Arguments is the JSON that the model wrote, byte for byte. Formats that
	// write arguments as tags have no such text: there it is an object built
	// from the tags, in their order.
	Arguments string
}

// Reply is what a whole turn says.
type Reply struct {
	Reasoning, Content string
	Calls              []Call
	// Flags name what was unusual, each at most once, in order of appearance.
	Flags []string
}

// What Reply.Flags may hold.
const (
	// MalformedCall is a call that does not follow the format; its text is part
	// of the content.
	MalformedCall = "malformed_call"
	// UnclosedCall is a call that the end of the turn cut; its text is part of
	// the content.
	UnclosedCall = "unclosed_call"
	// UnclosedReasoning is thinking that never ended.
	UnclosedReasoning = "unclosed_reasoning"
	// ImplicitReasoningEnd is thinking that a call ended, without its end mark.
	ImplicitReasoningEnd = "implicit_reasoning_end"
	// ContentAfterCall is text behind a call; the format has none there.
	ContentAfterCall = "content_after_call"
	// StrayMark is a mark where the format has none; it is part of the text.
	StrayMark = "stray_mark"
	// SpecialToken is a control token inside the reply; it is left out of the
	// text, which clients send back.
	SpecialToken = "special_token"
	// AfterStop are ids behind a stop token; they are not part of the reply.
	AfterStop = "after_stop"
	// InvalidUTF8 are bytes that are no text; each maximal run became U+FFFD.
	InvalidUTF8 = "invalid_utf8"
	// RepeatedID is a call with an id that the model gave an earlier call of the
	// reply: what the model reads of their results looks the same.
	RepeatedID = "repeated_id"
	// UntypedArgument is an argument written as a tag that its tool's schema
	// does not describe, or describes otherwise; it became a JSON string.
	UntypedArgument = "untyped_argument"
)

// Parser reads one reply. It is used by one goroutine.
type Parser interface {
	// Push reads the next sampled ids and returns what is now certain.
	Push(ids []uint32) []Delta
	// Finish ends the reply. finishReason is the engine's: "length" says that
	// the turn was cut. The deltas are those that Push still held back. It is
	// called once.
	Finish(finishReason string) (Reply, []Delta)
}
