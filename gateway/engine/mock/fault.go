package mock

import "time"

// FaultKind is a way to misbehave.
type FaultKind string

// The faults. Where a fault happens at a token, Fault.After says how many were
// sent before.
const (
	NoFault FaultKind = ""
	// Status answers with Fault.Status and nothing else.
	Status FaultKind = "status"
	// Cut closes the connection in the middle of the answer.
	Cut FaultKind = "cut"
	// Hang sends nothing more and keeps the connection open.
	Hang FaultKind = "hang"
	// ErrorEvent ends the stream with the wire's error object.
	ErrorEvent FaultKind = "error_event"
	// NoEnd ends the stream properly, without the last chunk: no finish reason.
	NoEnd FaultKind = "no_end"
	// Abort finishes with reason abort, as when another client aborted us.
	Abort FaultKind = "abort"
	// Garbage sends something that is not JSON.
	Garbage FaultKind = "garbage"
	// WrongCount counts one completion token too many.
	WrongCount FaultKind = "wrong_count"
	// WrongPromptCount counts one prompt token too many.
	WrongPromptCount FaultKind = "wrong_prompt_count"
	// IgnoreIDs works on another prompt than ours, and says so where the wire
	// echoes the prompt.
	IgnoreIDs FaultKind = "ignore_ids"
	// NoPromptEcho neither echoes nor counts the prompt.
	NoPromptEcho FaultKind = "no_prompt_echo"
	// NoIDs leaves out the sampled ids, as a server does that is too old for
	// them.
	NoIDs FaultKind = "no_ids"
	// FloatIDs writes ids as floats.
	FloatIDs FaultKind = "float_ids"
	// NaN, Null and Minus (infinity) are logprobs that are no finite numbers.
	NaN   FaultKind = "nan"
	Null  FaultKind = "null"
	Minus FaultKind = "minus"
	// StringLogprob writes a logprob as a string.
	StringLogprob FaultKind = "string_logprob"
	// MissingLogprob leaves one logprob out, NoLogprobs all of them.
	MissingLogprob FaultKind = "missing_logprob"
	NoLogprobs     FaultKind = "no_logprobs"
	// Extra sends more tokens than were asked for.
	Extra FaultKind = "extra"
	// LostRows leaves the choice of experts for one token out.
	LostRows FaultKind = "lost_rows"
)

// Fault is one misbehaviour.
type Fault struct {
	Kind FaultKind
	// After is how many tokens come first.
	After int
	// Status and RetryAfter belong to the kind Status.
	Status     int
	RetryAfter time.Duration
	// Message is what an error says.
	Message string
}
