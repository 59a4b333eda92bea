package gateway

import (
	"time"

	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/parse"
)

// committed writes down a turn as the log has it.
func (t *turn) committed(r parse.Reply, a *Answer, generated pool.Result) *event.TurnCommitted {
	c := &event.TurnCommitted{
		Turn: t.id,
		Completion: &event.Completion{
			Ids:          event.AppendIDs(nil, t.completion),
			Logprobs:     event.AppendFloats(nil, t.logprobs),
			FinishReason: a.FinishReason,
			MatchedStop:  generated.MatchedStop,
			Versions:     generated.Versions,
			LogprobKind:  generated.LogprobKind,
			Flags:        r.Flags,
		},
		Match: &event.Match{
			Decision: t.match.Decision, Reason: t.match.Reason, Tolerances: t.match.Tolerances,
			Ambiguous: t.match.Ambiguous, Rewritten: t.match.Rewritten,
		},
		Conversation: t.conversation(a.Message),
		Request:      t.request(),
		Generation:   t.generation(generated),
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
	head := t.req.Conversation.Head.Hash()
	system, tools := headContent(t.req.Conversation)
	c := &event.Conversation{
		Head:           head[:],
		Keep:           uint32(t.match.Keep),
		Answer:         answer.AppendJSON(nil),
		TemplateKwargs: t.options.Kwargs,
		TemplateTime:   t.options.Time.Unix(),
	}
	c.System, c.Tools = reference(system), reference(tools)
	for _, m := range t.match.Added {
		c.Messages = append(c.Messages, m.AppendJSON(nil))
	}
	return c
}

// headContent is what the hashes of a head refer to: nil where there is none.
func headContent(c message.Conversation) (system, tools []byte) {
	if len(c.Head.System) > 0 {
		system = message.AppendList(nil, c.Head.System)
	}
	if len(c.Head.Tools) > 0 {
		tools = message.AppendTools(nil, c.Head.Tools)
	}
	return system, tools
}

func reference(content []byte) []byte {
	if content == nil {
		return nil
	}
	h := event.Sum(content)
	return h[:]
}

// inlineDefinitions puts into an event what it refers to and the session's log
// does not hold yet. It is called again after every lost race, on the event
// that has not been appended.
func inlineDefinitions(c *event.TurnCommitted, conv message.Conversation, tree *tree.Tree) {
	c.Conversation.Definitions = nil
	system, tools := headContent(conv)
	for _, content := range [][]byte{system, tools} {
		hash := reference(content)
		if _, held := tree.Definition(hash); content != nil && !held {
			c.Conversation.Definitions = append(c.Conversation.Definitions, &event.Definition{Hash: hash, Content: content})
		}
	}
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
		ReceivedUs: micros(t.req.Received),
	}
}

func (t *turn) generation(g pool.Result) *event.Generation {
	out := &event.Generation{
		Pool: t.model.Name, Backend: g.Backend, Engine: g.Engine,
		Proof: g.Proof, PromptTokens: uint32(len(t.ids)), CachedTokens: uint32(g.CachedTokens),
		Tokenizer: t.model.TokenizerID, Template: t.model.TemplateID, Family: t.model.Family,
		Policy: "keep", Attempts: g.Attempts,
		SentUs: micros(t.sent), FirstTokenUs: micros(g.FirstToken), DoneUs: micros(t.g.deps.Now()),
	}
	if t.req.Grammar != nil {
		out.Constraints = append(out.Constraints, t.req.Grammar.Kind)
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
