package dialecttest

import (
	"context"
	"sync"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
)

// Reply is what the engine says to one request.
type Reply struct {
	Text string
	// Cut leaves out the stop token: the answer ends with finish reason length.
	Cut bool
	// Stop is the client's stop text that ended the answer.
	Stop   string
	Cached int
	// Err ends the answer after Text.
	Err error
	// Wait, if not nil, is waited for before the first token; After is a time
	// that is.
	Wait  <-chan struct{}
	After time.Duration
	// Spelled samples every byte by itself, as sampling may do and encoding
	// never does.
	Spelled bool
}

// Call is a reply that calls a tool.
func Call(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

// Engine says one reply after the other; without any left it says "ok".
type Engine struct {
	tok *bpe.Tokenizer

	mu       sync.Mutex
	replies  []Reply
	requests []engine.Request
}

// Say queues replies.
func (e *Engine) Say(replies ...Reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replies = append(e.replies, replies...)
}

// SayText queues replies that are text alone.
func (e *Engine) SayText(texts ...string) {
	for _, t := range texts {
		e.Say(Reply{Text: t})
	}
}

// Requests are what the engine was asked, in order.
func (e *Engine) Requests() []engine.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]engine.Request(nil), e.requests...)
}

// Prompts are the decoded prompts.
func (e *Engine) Prompts() (list []string) {
	for _, r := range e.Requests() {
		list = append(list, e.tok.Decode(r.Prompt))
	}
	return list
}

// Generate implements engine.Engine.
func (e *Engine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	e.mu.Lock()
	e.requests = append(e.requests, req)
	reply := Reply{Text: "ok"}
	if len(e.replies) > 0 {
		reply, e.replies = e.replies[0], e.replies[1:]
	}
	e.mu.Unlock()
	if reply.After > 0 {
		ready := make(chan struct{})
		time.AfterFunc(reply.After, func() { close(ready) })
		reply.Wait = ready
	}
	if reply.Wait != nil {
		select {
		case <-reply.Wait:
		case <-ctx.Done():
			return engine.Report{}, ctx.Err()
		}
	}
	report := engine.Report{
		FinishReason: "stop", MatchedStop: reply.Stop, PromptTokens: len(req.Prompt), CachedTokens: reply.Cached,
		Proof: event.PromptProof_PROMPT_PROOF_ECHO, LogprobKind: event.LogprobKind_LOGPROB_KIND_RAW,
	}
	ids := e.tok.Encode(nil, reply.Text)
	if reply.Spelled {
		ids = ids[:0]
		for _, b := range []byte(reply.Text) {
			ids = append(ids, e.byteID(b))
		}
	}
	switch {
	case reply.Err != nil:
	case reply.Cut:
		report.FinishReason = "length"
	case reply.Stop == "":
		ids = append(ids, req.Sampling.StopTokens[0])
	}
	for _, id := range ids {
		c := engine.Chunk{IDs: []uint32{id}, Logprobs: []float32{-0.5}}
		if req.Likeliest > 0 {
			c.Likeliest = [][]engine.Candidate{likeliest(id, req.Likeliest)}
		}
		if err := emit(c); err != nil {
			return report, err
		}
	}
	return report, reply.Err
}

// likeliest begins with the sampled token; the others are those that follow it in
// the vocabulary.
func likeliest(id uint32, n int) (list []engine.Candidate) {
	for k := range n {
		list = append(list, engine.Candidate{ID: id + uint32(k), Logprob: -0.5 - float32(k)})
	}
	return list
}

// byteID is the token of a single byte, which a byte-level vocabulary has.
func (e *Engine) byteID(b byte) uint32 {
	for id := range uint32(e.tok.VocabSize()) {
		if raw, _ := e.tok.AppendBytes(nil, id); len(raw) == 1 && raw[0] == b {
			return id
		}
	}
	panic("the demo's vocabulary has every byte")
}

// Check implements engine.Engine.
func (e *Engine) Check(context.Context, tokenizer.Tokenizer) (engine.Info, error) {
	return engine.Info{Kind: "test", Model: "demo"}, nil
}
