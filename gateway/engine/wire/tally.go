package wire

import (
	"bytes"
	"fmt"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
)

// aboveOne is how far above 0 rounding may lift a logprob of a token that is
// all but certain. More means that the engine sends logits.
const aboveOne = 1e-3

// Tally checks the chunks of one answer against each other and against the
// request, passes them on, and counts.
type Tally struct {
	// Tokens were emitted so far.
	Tokens int
	// Report is filled as the answer goes on.
	Report engine.Report

	req  *engine.Request
	emit func(engine.Chunk) error
}

// NewTally starts an answer.
func NewTally(req *engine.Request, emit func(engine.Chunk) error) *Tally {
	return &Tally{req: req, emit: emit}
}

// Emit checks one chunk of an engine that returns ids and logprobs. The error
// is Broken, or what the receiver returned.
func (t *Tally) Emit(c engine.Chunk) error {
	if len(c.IDs) != len(c.Logprobs) {
		return Broken("%d logprobs came with %d token ids, after %d tokens", len(c.Logprobs), len(c.IDs), t.Tokens)
	}
	return t.EmitUnscored(c)
}

// EmitUnscored is Emit for a chunk that may also be without logprobs, or
// without ids: of an answer that is of a lower grade.
func (t *Tally) EmitUnscored(c engine.Chunk) error {
	if limit := t.req.Sampling.MaxTokens; limit > 0 && t.Tokens+len(c.IDs) > limit {
		return Broken("at least %d tokens came where at most %d were asked for", t.Tokens+len(c.IDs), limit)
	}
	if n := len(c.Likeliest); n > 0 && n != len(c.IDs) {
		return Broken("the likeliest tokens of %d places came with %d token ids, after %d tokens", n, len(c.IDs), t.Tokens)
	}
	for i, f := range c.Logprobs {
		if f > aboveOne {
			return Broken("the logprob of token %d is %g, above 0: does the server return logits?", t.Tokens+i, f)
		}
	}
	if len(c.IDs) == 0 && c.Text == "" && c.Reasoning == "" {
		return nil
	}
	if t.Report.FirstToken.IsZero() {
		t.Report.FirstToken = time.Now()
	}
	t.Tokens += len(c.IDs)
	return t.emit(c)
}

// Echo checks the prompt ids that the engine says it used.
func (t *Tally) Echo(raw []byte) error {
	same, err := EqualIDs(raw, t.req.Prompt)
	if err != nil {
		return Broken("prompt_token_ids: %v", err)
	}
	if !same {
		return Broken("the engine used other prompt ids than the %d that were sent; is something between us that renders prompts again?", len(t.req.Prompt))
	}
	t.Echoed()
	return nil
}

// Echoed notes that the prompt came back as it was sent.
func (t *Tally) Echoed() {
	t.Report.Proof = event.PromptProof_PROMPT_PROOF_ECHO
	t.Report.PromptTokens = len(t.req.Prompt)
}

// CountPrompt checks the number of prompt tokens that the engine says it used.
func (t *Tally) CountPrompt(raw []byte) error {
	n, err := Int(raw)
	if err != nil {
		return Broken("prompt_tokens: %v", err)
	}
	if n != len(t.req.Prompt) {
		return Broken("the engine counts %d prompt tokens where %d were sent", n, len(t.req.Prompt))
	}
	if t.Report.Proof == event.PromptProof_PROMPT_PROOF_UNSPECIFIED {
		t.Report.Proof = event.PromptProof_PROMPT_PROOF_COUNT
	}
	t.Report.PromptTokens = n
	return nil
}

// CountTokens checks the number of completion tokens that the engine claims.
func (t *Tally) CountTokens(raw []byte) error {
	n, err := Int(raw)
	if err != nil {
		return Broken("completion_tokens: %v", err)
	}
	if n != t.Tokens {
		return Broken("the engine counts %d completion tokens but sent %d", n, t.Tokens)
	}
	return nil
}

// Finish checks what must be known of an answer that ended well.
func (t *Tally) Finish() error {
	if t.Report.FinishReason == "" {
		return &engine.Error{Class: engine.Unreachable, Message: fmt.Sprintf("the stream ended after %d tokens, before the answer did", t.Tokens)}
	}
	if t.Report.Proof == event.PromptProof_PROMPT_PROOF_UNSPECIFIED {
		return Broken("the engine neither echoed nor counted the prompt, so nothing shows that it used our ids")
	}
	if t.Tokens == 0 {
		return Broken("the answer has no tokens")
	}
	return nil
}

// Spans reads weight versions as sglang and vLLM write them: a list of
// {version, start, end} that tiles the tokens.
func (t *Tally) Spans(raw []byte) error {
	out, n, err := versionSpans(raw)
	if err == nil && n != t.Tokens {
		err = Broken("weight_versions cover %d tokens of %d", n, t.Tokens)
	}
	if err == nil {
		t.Report.Versions = out
	}
	return err
}

// SpansOfMore is Spans where the engine sampled tokens that were not taken any
// more, behind those that were.
func (t *Tally) SpansOfMore(raw []byte) error {
	out, n, err := versionSpans(raw)
	if err == nil && n < t.Tokens {
		err = Broken("weight_versions cover %d tokens of %d", n, t.Tokens)
	}
	if err != nil {
		return err
	}
	left := uint32(t.Tokens)
	for i, span := range out {
		if span.Count = min(span.Count, left); span.Count == 0 {
			out = out[:i]
			break
		}
		left -= span.Count
	}
	t.Report.Versions = out
	return nil
}

func versionSpans(raw []byte) (out []*event.VersionSpan, at int, err error) {
	for span := range rawjson.Elements(raw) {
		var start, end int
		var label string
		for k, v := range rawjson.Members(span) {
			switch k {
			case "version":
				label = Label(v)
			case "start":
				start, err = Int(v)
			case "end":
				end, err = Int(v)
			}
			if err != nil {
				return nil, 0, Broken("weight_versions: %s: %v", k, err)
			}
		}
		if start != at || end < start {
			return nil, 0, Broken("weight_versions: a span from %d to %d stands after token %d", start, end, at)
		}
		if at = end; end > start {
			out = append(out, &event.VersionSpan{Count: uint32(end - start), Label: label})
		}
	}
	return out, at, nil
}

// RoutedRows is how many rows the experts of this answer have: from the position
// that was asked for to the last token but one, the last never having been
// through the model.
func (t *Tally) RoutedRows() int { return len(t.req.Prompt) + t.Tokens - 1 - t.req.RoutedFrom }

// Stopped notes that the answer ended by itself, and what matched: a text, or a
// token by its number.
func (t *Tally) Stopped(matched []byte) {
	t.Report.FinishReason = "stop"
	if t.Report.MatchedStop = rawjson.Text(matched); rawjson.KindOf(matched) == rawjson.Number {
		t.Report.MatchedStop = string(matched)
	}
}

// OneVersion says that all tokens were sampled by one version.
func (t *Tally) OneVersion(label string) {
	t.Report.Versions = nil
	if label != "" && t.Tokens > 0 {
		t.Report.Versions = []*event.VersionSpan{{Count: uint32(t.Tokens), Label: label}}
	}
}

// Label reads a version label: a string, or a number as it is written.
func Label(raw []byte) string {
	switch rawjson.KindOf(raw) {
	case rawjson.String:
		return rawjson.Text(raw)
	case rawjson.Number:
		return string(raw)
	}
	return ""
}

// Elide replaces the value of a key in an event by null where it is exactly
// value, and reports whether it did. An echoed prompt of 80,000 ids is found
// by comparing bytes instead of being parsed.
func Elide(data []byte, key string, value []byte) ([]byte, bool) {
	if len(value) < len("null") {
		return data, false // parsing it costs nothing
	}
	for at := 0; ; {
		i := bytes.Index(data[at:], value)
		if i < 0 {
			return data, false
		}
		start, end := at+i, at+i+len(value)
		if bytes.HasSuffix(bytes.TrimRight(data[:start], " "), []byte(`"`+key+`":`)) {
			n := copy(data[start:], "null")
			return append(data[:start+n], data[end:]...), true
		}
		at = start + 1
	}
}

// Request is what the answer is to.
func (t *Tally) Request() *engine.Request { return t.req }
