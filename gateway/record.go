package gateway

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"turnlog.dev/gateway/pool"
	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/parse"
)

// memory is where messages are encoded for an engine and for an event, which are
// copied on their way: what stands there is valid until it is given back.
type memory struct{ b *[]byte }

var memories = sync.Pool{New: func() any { return new([]byte) }}

// memoryLimit is what a memory may have grown to and still be kept, in bytes.
const memoryLimit = 1 << 20

func (m *memory) encode(msg message.Message) []byte { return m.take(msg.AppendJSON) }

// take returns what write appends.
func (m *memory) take(write func(dst []byte) []byte) []byte {
	if m.b == nil {
		m.b = memories.Get().(*[]byte)
	}
	at := len(*m.b)
	*m.b = write(*m.b)
	return slices.Clip((*m.b)[at:])
}

func (m *memory) giveBack() {
	if m.b != nil && cap(*m.b) <= memoryLimit {
		*m.b = (*m.b)[:0]
		memories.Put(m.b)
	}
	m.b = nil
}

// committed writes down a turn as the log has it. But for the messages, which are
// in t.memory, it shares no memory with the request's body: the session keeps it.
func (t *turn) committed(r parse.Reply, a *Answer, generated pool.Result) *event.TurnCommitted {
	if len(t.logprobs) != len(t.completion) {
		t.logprobs = nil // some never came
	}
	c := &event.TurnCommitted{
		Turn: t.id,
		Completion: &event.Completion{
			Ids:          event.AppendIDs(nil, t.completion),
			Logprobs:     event.AppendFloats(nil, t.logprobs),
			Text:         t.written(a.Message),
			FinishReason: a.FinishReason,
			MatchedStop:  generated.MatchedStop,
			Versions:     generated.Versions,
			LogprobKind:  generated.LogprobKind,
			Flags:        r.Flags,
		},
		Match: &event.Match{
			Decision: t.match.Decision, Reason: t.match.Reason, Tolerances: t.match.Tolerances,
			Ambiguous: t.match.Ambiguous, Rewritten: t.match.Rewritten, RewrittenTurns: t.match.RewrittenTurns,
		},
		Conversation: t.conversation(a.Message),
		Request:      t.request(),
		Generation:   t.generation(generated),
	}
	if t.reordered {
		c.Match.Tolerances = append([]string{session.ResultOrder}, c.Match.Tolerances...)
	}
	if len(t.prompt.Omits) > 0 {
		c.Match.Tolerances = append(slices.Clip(c.Match.Tolerances), session.TemplateOmits)
	}
	if p := t.match.Parent; p != nil {
		c.Parent, c.ParentKeep = p.ID, uint32(t.prompt.Keep)
		c.Base = &event.Base{Turn: c.Parent, Keep: c.ParentKeep}
	}
	for _, s := range t.prompt.Segments {
		c.Segments = append(c.Segments, &event.Segment{Provenance: s.Provenance, Ids: event.AppendIDs(nil, s.IDs)})
	}
	return c
}

func (t *turn) conversation(answer message.Message) *event.Conversation {
	c := &event.Conversation{
		Keep:           uint32(t.match.Keep),
		Answer:         t.memory.encode(answer),
		TemplateKwargs: bytes.Clone(t.options.Kwargs),
		TemplateTime:   t.options.Time.Unix(),
	}
	if h := t.session.Head(t.req.Conversation.Head); h != nil {
		c.Head, c.System, c.Tools = h.Hash[:], h.System, h.Tools
	} else {
		head := t.req.Conversation.Head.Hash()
		c.Head = head[:]
		if system := t.req.Conversation.Head.System; len(system) > 0 {
			c.System = define(c, message.AppendList(nil, system))
		}
		if tools := t.req.Conversation.Head.Tools; len(tools) > 0 {
			c.Tools = define(c, message.AppendTools(nil, tools))
		}
	}
	for i, m := range t.match.Added {
		raw, ok := t.chat.canonical(len(t.match.Added)-i, m)
		if !ok {
			raw = t.memory.encode(m)
		}
		c.Messages = append(c.Messages, raw)
	}
	return c
}

// define puts a definition into a conversation and returns its hash.
func define(c *event.Conversation, content []byte) []byte {
	h := event.Sum(content)
	c.Definitions = append(c.Definitions, &event.Definition{Hash: h[:], Content: content})
	return h[:]
}

// dropHeld removes the definitions that the session's log holds by now.
func dropHeld(c *event.Conversation, tree *tree.Tree) {
	c.Definitions = slices.DeleteFunc(c.Definitions, func(d *event.Definition) bool {
		_, held := tree.Definition(d.GetHash())
		return held
	})
}

func (t *turn) request() *event.Request {
	class := t.req.Class
	if class == "" {
		class = "main"
	}
	return &event.Request{
		Dialect: t.req.Dialect, Translation: t.req.Translation,
		ModelAsked: t.req.Model, Model: t.model.Name,
		SamplingAsked: t.req.Sampling, SamplingUsed: t.used,
		BodyHash: t.req.BodyHash, RequestId: t.req.RequestID, IdempotencyKey: t.req.IdempotencyKey,
		Thread: t.req.Thread, Class: class, Stream: t.req.Stream, Client: t.req.Client,
		ReceivedUs: micros(t.req.Received), Other: t.req.Other,
	}
}

func (t *turn) generation(g pool.Result) *event.Generation {
	history := ""
	if t.prompts != nil {
		history = string(t.prompts.Policy())
	}
	out := &event.Generation{
		Pool: t.model.Name, Backend: g.Backend, Engine: g.Engine,
		Proof: g.Proof, PromptTokens: uint32(len(t.ids)), CachedTokens: uint32(g.CachedTokens),
		Tokenizer: t.model.TokenizerID, Template: t.model.TemplateID, Family: t.model.Family,
		Policy: history, Attempts: g.Attempts, Constraints: t.constraints(), Blobs: t.blobs,
		SentUs: micros(t.sent), FirstTokenUs: micros(g.FirstToken), DoneUs: micros(t.g.deps.Now()),
	}
	return out
}

// micros is a time as the log has it; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
