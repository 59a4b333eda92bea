// Package engine is what the gateway needs of an inference server: prompt ids
// and sampling in, a stream of sampled ids with their logprobs and a final
// report out.
//
// The subpackages sglang, vllm, llamacpp and openai are the adapters, one wire
// each; mock is a double of all those wires. engine/enginetest holds the
// contract below as tests that every adapter passes.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/parse"
)

// Engine is one replica of an inference server. All methods are safe for
// concurrent use.
type Engine interface {
	// Generate sends one request and calls emit for every chunk that arrives,
	// from the calling goroutine and in order, then returns the report.
	//
	// Whatever happened, the chunks that were emitted are what the engine
	// sampled, and nothing else. On an error the report holds what is known.
	// An error is an *Error, or what emit returned, or ctx's error; in the
	// last two cases the request has been canceled at the engine as well as
	// its wire allows. Generate never retries.
	Generate(ctx context.Context, req Request, emit func(Chunk) error) (Report, error)

	// Check compares the engine with the tokenizer that prompts are made
	// with: size of the vocabulary, special ids, the ids of a probe text. The
	// error says cause and remedy; it is an *Error of class Unreachable when
	// the engine does not answer.
	Check(ctx context.Context, tok tokenizer.Tokenizer) (Info, error)
}

// ErrEnough is what emit returns to end an answer that is complete as it is: the
// pool takes it for a success with finish reason stop.
var ErrEnough = errors.New("engine: enough was sampled")

// Info is what an engine says about itself.
type Info struct {
	Kind    string // sglang, vllm, llamacpp, openai
	Version string
	Model   string
	// ContextLength in tokens; 0 is unknown.
	ContextLength int
	// LogprobKind is what its logprobs are, where that can be found out.
	LogprobKind event.LogprobKind
	// TextOnly engines take no ids: their turns are of grade D.
	TextOnly bool
}

// Request is one generation.
type Request struct {
	// ID is unique; engines that know request ids get it.
	ID string
	// Session keeps the requests of one session together, for prefix caches.
	Session string
	Model   string
	Prompt  []uint32
	// Text is the whole prompt as a request body in OpenAI's chat form, for
	// engines that take no ids or that parse the answer themselves. Members
	// about sampling and streaming are replaced. It is read until Generate returns,
	// not longer: the memory is used again.
	Text     []byte
	Sampling Sampling
	// Grammar constrains the answer; nil is none.
	Grammar *Grammar
	// Likeliest is how many of the likeliest tokens are asked for at each place of
	// the answer, the sampled one among them or not: for who asked only, the log
	// has none. Not with Text.
	Likeliest int
	// RoutedFrom asks for routed experts from this position on; -1 for none.
	RoutedFrom int
	// Idle, if not nil, is called by Generate, from its goroutine, when all that
	// arrived has been emitted and before it waits for more, the first time before
	// anything arrives. Whoever is called so may keep chunks until then and pass
	// them on as one. Its error counts as emit's.
	Idle func() error
}

// Sampling is what the engine is asked to do, in the words that all engines
// share. A nil pointer leaves the engine's default.
type Sampling struct {
	MaxTokens         int
	Temperature       *float64
	TopP              *float64
	TopK              *int
	MinP              *float64
	FrequencyPenalty  *float64
	PresencePenalty   *float64
	RepetitionPenalty *float64
	Seed              *int64
	Stop              []string
	StopTokens        []uint32
	// LogitBias is added to the logits of ids, in their order.
	LogitBias []Bias
}

// Bias is what is added to the logit of one id.
type Bias struct {
	ID    uint32
	Value float64
}

// Grammar is a constraint that the engine enforces.
type Grammar struct {
	Kind  string // json_object, json_schema, regex, ebnf, gbnf, tool_choice
	Value string
	// Pattern is what kind tool_choice asks for.
	Pattern *parse.Pattern
	// Before is what may, or has to, come before: thinking, and the header of an
	// answer; nil is nothing. The kinds regex, ebnf and gbnf say so themselves.
	Before *parse.Pattern
}

// Chunk is a run of sampled tokens.
type Chunk struct {
	IDs []uint32
	// Logprobs are as many as IDs, or none at all; see Report.Logprobs.
	Logprobs []float32
	// Likeliest are as many as IDs, or none at all; see Report.Likeliest.
	Likeliest [][]Candidate
	// Text and Reasoning are parts of the answer's text, from engines that
	// return no ids. Calls of tools are in Report.Calls only.
	Text, Reasoning string
}

// Candidate is a token that could have been sampled.
type Candidate struct {
	ID      uint32
	Logprob float32
}

// Report is what an engine says at the end.
type Report struct {
	// FinishReason is stop, length or abort; content_filter from engines that
	// take text.
	FinishReason string
	MatchedStop  string
	// Proof is how it showed that it used the prompt ids.
	Proof        event.PromptProof
	PromptTokens int
	CachedTokens int
	// CompletionTokens is what an engine counts that does not return all ids.
	CompletionTokens int
	// Versions are the weight versions that sampled the ids; they tile them,
	// or are empty where the engine does not say.
	Versions    []*event.VersionSpan
	LogprobKind event.LogprobKind
	Routed      *Routed
	// Message is the answer as a message object in OpenAI's chat form, from
	// engines that parse it themselves and give it whole; nil from all others.
	Message []byte
	// Calls are those of an answer whose text came in the chunks.
	Calls []parse.Call
	// Logprobs, if any, are those of all ids, in place of what the chunks had:
	// some became known only afterwards. So are Likeliest.
	Logprobs  []float32
	Likeliest [][]Candidate
	// Discarded are ids that were sampled and are not part of the answer; see
	// llamacpp.
	Discarded []uint32
	// FirstToken is when the first chunk arrived.
	FirstToken time.Time
}

// Routed are the experts that the layers of a mixture model chose.
type Routed struct {
	Data  []byte
	DType string
	Shape []int64
	Start int
}

// Class says what an error means for the caller.
type Class string

// The classes.
const (
	// Unreachable: no connection, or cut before an answer: another replica may
	// do.
	Unreachable Class = "unreachable"
	// Overloaded: 429 or 503: wait, or another replica.
	Overloaded Class = "overloaded"
	// Failed: the engine said that it failed.
	Failed Class = "failed"
	// Refused: the request is at fault: trying again will not help.
	Refused Class = "refused"
	// TooLong: prompt and answer do not fit the context.
	TooLong Class = "too_long"
	// Broken: the answer contradicts itself or our request: a wrong count, a
	// logprob that is missing or not finite, other prompt ids than ours. It
	// must not be recorded as a turn.
	Broken Class = "broken"
)

// Error is a failed generation.
type Error struct {
	Class      Class
	Status     int // HTTP, where there was one
	RetryAfter time.Duration
	Message    string
	Err        error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("engine: %s", e.Class)
	if e.Status != 0 {
		s += fmt.Sprintf(" (status %d)", e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an engine's error, or "" for any other error.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ""
}
