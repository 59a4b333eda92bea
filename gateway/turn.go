package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/gateway/run"
	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

// Request is one model call in the canonical form, whatever protocol it came
// in.
type Request struct {
	Session string
	// Turn is the id that the turn gets; empty mints one.
	Turn string
	// Dialect and Translation name the protocol and the version of its
	// translation.
	Dialect      string
	Translation  uint32
	Conversation message.Conversation
	// Model is the name that the client asked for.
	Model string
	// Sampling is a JSON object; see ParseSampling.
	Sampling []byte
	Grammar  *engine.Grammar
	// Likeliest is how many of the likeliest tokens the answer names for each of
	// its own; the log has none of them.
	Likeliest int
	// ToolChoice counts where there are tools.
	ToolChoice ToolChoice
	// Kwargs is a JSON object for the template; nil is none.
	Kwargs []byte
	// Thinking is what the client asks for in its protocol's own words.
	Thinking Thinking
	Stream   bool
	// BodyHash is the sha256 of the body without "stream".
	BodyHash       []byte
	RequestID      string
	IdempotencyKey string
	// Thread is what the client calls its conversation, Client its name.
	Thread, Client string
	// Class is main, subagent, side, compaction or probe; empty is main.
	Class string
	// Other is a JSON object of what the client said besides, for the record;
	// nil is nothing.
	Other    []byte
	Received time.Time
	// Begun, if not nil, is called once the prompt is made and before an engine
	// is asked, or, where nothing may leave before the turn is in the log, when it
	// is; from the goroutine that calls early: with the id that the turn will have
	// and the number of its prompt tokens.
	Begun func(turn string, promptTokens int)
	// Pause, if not nil, is called from the goroutine that calls early when nothing
	// more has come for the moment: what early kept of the answer, to write it at
	// once, is to be written then, or when Complete returns. Its error counts as
	// early's.
	Pause func() error
}

func (r Request) begun(turn string, promptTokens int) {
	if r.Begun != nil {
		r.Begun(turn, promptTokens)
	}
}

// Answer is a committed turn.
type Answer struct {
	Turn string
	// Message is the answer as the client may see it: call ids are unique in
	// the session.
	Message message.Message
	// FinishReason is stop, length, tool_calls or abort.
	FinishReason string
	MatchedStop  string
	Model        string
	// PromptTokens includes CachedTokens.
	PromptTokens, CachedTokens, CompletionTokens int
	IDs                                          []uint32
	Logprobs                                     []float32
	// Likeliest are as many as IDs, or none: where nobody asked, or the answer was
	// committed before.
	Likeliest [][]engine.Candidate
	// Tokens returns the bytes of an id.
	Tokens func(id uint32) []byte
	// Repeated says that the answer was committed before, for the same request.
	Repeated bool
}

type stats struct {
	turns, aborted, failed, promptTokens, newTokens atomic.Int64
}

// Stats returns the counters since the start.
func (g *Gateway) Stats() Stats {
	return Stats{
		Turns: g.stats.turns.Load(), Aborted: g.stats.aborted.Load(), Failed: g.stats.failed.Load(),
		PromptTokens: g.stats.promptTokens.Load(), NewTokens: g.stats.newTokens.Load(),
		Sessions: g.sessions.Len(), CachedBytes: g.sessions.Bytes(),
	}
}

// Complete serves one model call. It calls early, one call at a time and never
// after it has returned, with what may reach the client before the turn is
// acknowledged: reasoning and content, never calls. It returns once the log has
// acknowledged the turn; only then may the caller give the rest and say that
// the answer is complete.
//
// An error is what AsError makes of it, and means that no turn was committed,
// or that nobody knows. If ctx ends or early fails while the engine samples,
// what was sampled is recorded as an aborted turn; but see repeat.go for
// requests with a key.
func (g *Gateway) Complete(ctx context.Context, req Request, early func(parse.Delta) error) (answer *Answer, err error) {
	answer, err = g.once(ctx, req, early, func(ctx context.Context, req Request, early func(parse.Delta) error) (answer *Answer, err error) {
		err = g.sessions.Use(ctx, req.Session, func(s *session.Session) error {
			answer, err = g.complete(ctx, s, req, early)
			return err
		})
		return answer, err
	})
	if err != nil {
		g.stats.failed.Add(1)
	}
	return answer, err
}

func (g *Gateway) complete(ctx context.Context, s *session.Session, req Request, early func(parse.Delta) error) (*Answer, error) {
	if a, err := g.repeated(ctx, s, req); a != nil || err != nil {
		if err == nil {
			err = replay(a, req, early)
		}
		return a, err
	}
	name := ""
	if err := s.View(func(t *tree.Tree) error { name = t.Run; return nil }); err != nil {
		return nil, err
	}
	if err := g.healthy(ctx); err != nil {
		return nil, err
	}
	var answer *Answer
	err := g.runs.Use(name, func(r *run.Run) error {
		leave, err := r.Enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		t, err := g.plan(ctx, s, req)
		if err != nil {
			return err
		}
		answer, err = t.run(ctx, early)
		return err
	})
	return answer, err
}

// healthy fails if the log would not take the turn.
func (g *Gateway) healthy(ctx context.Context) error {
	if err := g.deps.Healthy(ctx); err != nil {
		return &Error{Kind: LogDown, Message: "the log takes no turns now", RetryAfter: 5 * time.Second, Err: err}
	}
	return nil
}

// turn is one model call on its way.
type turn struct {
	g       *Gateway
	session *session.Session
	req     Request
	model   *Model
	prompts *prompt.Assembler // the model's, under the session's history policy; nil where text goes in
	id      string
	runID   string // the session's run
	match   session.Match
	prompt  prompt.Prompt
	ids     []uint32 // the whole prompt
	used    []byte   // sampling as JSON
	params  engine.Sampling
	grammar *engine.Grammar // nil is none
	options prompt.Options
	parser  parse.Parser // nil where the engine parses
	text    textReply
	chat    chatMessages // where the engine was given text
	stops   stops
	// buffered keeps everything back until the turn is in the log.
	buffered bool

	completion []uint32
	logprobs   []float32
	likeliest  [][]engine.Candidate
	blobs      []*event.Blob // what the turn refers to
	memory     memory        // of the event's messages
	reordered  bool          // the client sent results out of order
	released   bool          // the client has seen something of the answer
	pauses     bool          // the engine says when it waits
	sent       time.Time
}

// NewTurn mints the id of a turn.
func (g *Gateway) NewTurn() string { return "t-" + g.deps.NewID() }

// plan decides everything that is decided before the engine is asked.
func (g *Gateway) plan(ctx context.Context, s *session.Session, req Request) (*turn, error) {
	t := &turn{g: g, session: s, req: req, id: req.Turn}
	if t.id == "" {
		t.id = g.NewTurn()
	}
	var policy *event.ModelPolicy
	err := s.View(func(tree *tree.Tree) error {
		t.runID, policy = tree.Run, tree.Opened.GetModelPolicy()
		return g.admit(tree)
	})
	var limit limitError
	if errors.As(err, &limit) {
		return nil, g.closeAtLimit(ctx, s, limit)
	}
	if err != nil {
		return nil, err
	}
	if err := t.resolve(ctx, policy); err != nil {
		return nil, err
	}
	if err := t.constrain(); err != nil {
		return nil, err
	}
	if req.Likeliest > 0 && t.model.Wire != IDs {
		return nil, Invalidf("top_logprobs", "top_logprobs: the model %q is served by an engine that parses its answers itself, "+
			"which does not name the likeliest tokens by their ids; leave it out", t.model.Name)
	}
	t.buffered = policy.GetBuffered()
	return t, t.sampling(policy)
}

// resolve finds the model and makes the prompt.
func (t *turn) resolve(ctx context.Context, policy *event.ModelPolicy) (err error) {
	if t.model, err = t.g.deps.Models.Resolve(t.req.Model, policy.GetModel()); err != nil {
		return err
	}
	if t.prompts, err = t.model.under(prompt.Policy(policy.GetHistory())); err != nil {
		return err
	}
	t.req.Conversation.Messages, t.reordered = session.SortResults(t.req.Conversation.Messages)
	if t.model.Wire != Text {
		if t.req.Conversation, err = t.model.fit(t.req.Conversation); err != nil {
			return err
		}
	}
	return t.place(ctx)
}

// place finds the parent and makes the prompt.
func (t *turn) place(ctx context.Context) error {
	match, known := t.session.Match(t.req.Conversation)
	if !known {
		// An answer that we do not know: another gateway may have given it.
		if err := t.session.CatchUp(ctx); err != nil {
			return err
		}
		match, _ = t.session.Match(t.req.Conversation)
	}
	t.options = prompt.Options{Time: t.g.deps.Now()}
	if p := match.Parent; p != nil {
		gen := p.Committed.GetGeneration()
		t.options.Time = time.Unix(p.Committed.GetConversation().GetTemplateTime(), 0)
		switch {
		case t.model.Wire == Text:
			// Without ids there is nothing to keep but the place in the tree.
		case gen.GetProof() == event.PromptProof_PROMPT_PROOF_NONE || len(p.Committed.GetCompletion().GetIds()) == 0:
			match = asRoot(t.req, session.TextParent)
		case gen.GetTokenizer() != t.model.TokenizerID || gen.GetTemplate() != t.model.TemplateID:
			match = asRoot(t.req, session.ModelChanged)
		case gen.GetPolicy() != string(t.prompts.Policy()):
			match = asRoot(t.req, session.PolicyChanged)
		default:
			return t.extend(match)
		}
	}
	if t.model.Wire == Text {
		t.match, t.options.Kwargs = match, t.kwargs(match.Parent)
		return nil
	}
	return t.root(match)
}

// asRoot places a request without a parent.
func asRoot(req Request, reason string) session.Match {
	return session.Match{Decision: session.Root, Reason: reason, Added: req.Conversation.Messages}
}

// parentTail is how many of the parent's last ids the prompt assembly sees.
const parentTail = 16

func (t *turn) extend(m session.Match) error {
	p := m.Parent
	conv := p.Committed.GetConversation()
	parent := prompt.Parent{
		Len:     p.Len,
		Tail:    p.Slice(nil, max(0, p.Len-parentTail), p.Len),
		Answer:  m.Answer,
		Head:    m.Head,
		Options: prompt.Options{Kwargs: conv.GetTemplateKwargs(), Time: time.Unix(conv.GetTemplateTime(), 0)},
		Thought: m.Thought,
	}
	t.options.Kwargs = t.kwargs(p)
	out, err := t.prompts.Extend(parent, t.req.Conversation, t.modelIDs(m.Added), t.options)
	var unfit *prompt.NotAppendOnlyError
	if errors.As(err, &unfit) {
		return t.root(asRoot(t.req, rootReason(unfit.Reason)))
	}
	if err != nil {
		return promptError(err)
	}
	t.match, t.prompt = m, out
	t.ids = appendSegments(p.IDs(make([]uint32, 0, out.Keep+count(out.Segments)), out.Keep), out.Segments)
	return nil
}

// rootReason is what the log calls the reason for which a prompt is no
// continuation.
func rootReason(r prompt.Reason) string {
	switch r {
	case prompt.HeadChanged:
		return session.HeadChanged
	case prompt.ArgumentsChanged:
		return session.KwargsChanged
	default:
		return session.TemplateRewrites
	}
}

func (t *turn) root(m session.Match) error {
	conv := t.req.Conversation
	conv.Messages = t.modelIDs(m.Added)
	t.options.Kwargs = t.kwargs(nil)
	out, err := t.prompts.Root(conv, t.options)
	if err != nil {
		return promptError(err)
	}
	t.match, t.prompt = m, out
	t.ids = appendSegments(make([]uint32, 0, count(out.Segments)), out.Segments)
	return nil
}

func count(segments []prompt.Segment) (n int) {
	for _, s := range segments {
		n += len(s.IDs)
	}
	return n
}

func appendSegments(dst []uint32, segments []prompt.Segment) []uint32 {
	for _, s := range segments {
		dst = append(dst, s.IDs...)
	}
	return dst
}

// modelIDs gives calls and their results the ids that the model itself wrote,
// where its format has any: templates print them.
func (t *turn) modelIDs(messages []message.Message) []message.Message {
	out := slices.Clone(messages)
	for i := range out {
		m := &out[i]
		if own := t.session.ModelID(m.CallID); own != "" {
			m.CallID = own
		}
		for j, c := range m.Calls {
			if own := t.session.ModelID(c.ID); own != "" {
				if m.Calls[j].ModelID == "" {
					m.Calls = slices.Clone(m.Calls)
				}
				m.Calls[j].ModelID = own
			}
		}
	}
	return out
}

// sampling settles the parameters: what the client asked, under the policies
// of the model and the session, within the context.
func (t *turn) sampling(policy *event.ModelPolicy) (err error) {
	t.used = mergeSampling(t.model.SamplingDefault, policy.GetSamplingDefault(), t.req.Sampling,
		t.model.SamplingOverride, policy.GetSamplingOverride())
	if t.params, err = ParseSampling(t.used); err != nil {
		return err
	}
	limit, window := t.params.MaxTokens, t.model.ContextLength
	if window > 0 {
		// sglang refuses a request that could fill the context to the last
		// token.
		room := window - len(t.ids) - 1
		if room < 1 {
			return &Error{Kind: TooLong, Window: window, Prompt: len(t.ids), Message: fmt.Sprintf(
				"this model's maximum context length is %d tokens; the messages resulted in %d tokens", window, len(t.ids))}
		}
		if limit == 0 || limit > room {
			limit = room
		}
	} else if limit == 0 {
		limit = t.g.cfg.DefaultMaxTokens
	}
	if limit != t.params.MaxTokens {
		t.params.MaxTokens = limit
		t.used = mergeSampling(t.used, fmt.Appendf(nil, `{"max_tokens":%d}`, limit))
	}
	if t.model.Wire != Text {
		t.params.StopTokens = append(t.params.StopTokens, t.prompts.StopTokens()...)
	}
	return nil
}

// run has the engine sample, appends the turn and returns the answer.
func (t *turn) run(ctx context.Context, early func(parse.Delta) error) (*Answer, error) {
	if t.buffered {
		early = nil
	} else {
		t.req.begun(t.id, len(t.ids))
	}
	t.sent = t.g.deps.Now()
	generated, err := t.generate(ctx, early)
	if err != nil {
		reply, _ := t.reply("abort", generated)
		return nil, t.tooLong(t.abort(ctx, reply, generated, err))
	}
	reply, rest := t.reply(generated.FinishReason, generated)
	if err := t.chosen(&reply, generated.FinishReason); err != nil {
		return nil, t.abort(ctx, reply, generated, err)
	}
	if matched := t.stops.end(&reply); matched != "" {
		generated.FinishReason, generated.MatchedStop = "stop", matched
	}
	if generated.Logprobs != nil {
		t.logprobs = generated.Logprobs
	}
	if generated.Likeliest != nil {
		t.likeliest = generated.Likeliest
	}
	if err := t.keepExperts(ctx, generated.Routed); err != nil {
		return nil, t.abort(ctx, reply, generated, err)
	}
	answer := t.answer(reply, generated)
	committed := t.committed(reply, answer, generated)
	t.g.deps.Fault("turn.before_append")
	winner, err := t.commit(ctx, committed, answer.Message)
	if err != nil {
		return nil, err
	}
	if winner != nil {
		return t.concede(winner, early)
	}
	t.g.deps.Fault("turn.after_append")
	if t.buffered {
		t.req.begun(t.id, len(t.ids))
	}
	t.g.stats.turns.Add(1)
	t.g.stats.promptTokens.Add(int64(len(t.ids)))
	t.g.stats.newTokens.Add(int64(committed.NewIDs()))
	for _, d := range rest {
		if err := release(t.stops.pass(d), early); err != nil {
			// The turn is in the log; that its answer did not arrive is for
			// the caller, who writes it, to say.
			return answer, nil //nolint:nilerr // see above
		}
	}
	return answer, nil
}

// pause says that nothing more has come for the moment.
func (t *turn) pause() error {
	if t.req.Pause != nil && t.released {
		if err := t.req.Pause(); err != nil {
			return clientGone(err)
		}
	}
	return nil
}

func clientGone(err error) error {
	return fmt.Errorf("gateway: write to the client: %w: %w", context.Canceled, err)
}

// release passes on what may leave before the turn is acknowledged.
func release(d parse.Delta, early func(parse.Delta) error) error {
	if early != nil && mayLeave(d) {
		if err := early(d); err != nil {
			return clientGone(err)
		}
	}
	return nil
}

// mayLeave says what a client may see of an answer that is not committed:
// thinking and text, but no call.
func mayLeave(d parse.Delta) bool {
	return d.Text != "" && (d.Kind == parse.Reasoning || d.Kind == parse.Content)
}

func (t *turn) generate(ctx context.Context, early func(parse.Delta) error) (pool.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, t.g.cfg.GenerateTimeout)
	defer cancel()
	emit := func(c engine.Chunk) error {
		t.completion = append(t.completion, c.IDs...)
		t.logprobs = append(t.logprobs, c.Logprobs...)
		t.likeliest = append(t.likeliest, c.Likeliest...)
		for _, d := range t.push(c) {
			d = t.stops.pass(d)
			t.released = t.released || early != nil && mayLeave(d)
			if err := release(d, early); err != nil {
				return err
			}
		}
		if t.stops.over {
			return engine.ErrEnough
		}
		if t.pauses {
			return nil
		}
		return t.pause()
	}
	// Another replica may begin again while the client has seen nothing.
	restart := func() bool {
		if t.released {
			return false
		}
		t.begin()
		return true
	}
	t.begin()
	req := engine.Request{
		ID: t.id, Session: t.req.Session, Model: t.model.Name, Prompt: t.ids,
		Sampling: t.params, Grammar: t.grammar, RoutedFrom: t.routedFrom(), Likeliest: t.req.Likeliest,
		Idle: func() error { t.pauses = true; return t.pause() },
	}
	if t.model.Wire == IDs {
		req.Sampling.Stop = nil // see stops
	} else {
		req.Text = t.body()
	}
	generated, err := t.model.Pool.Generate(ctx, req, emit, restart)
	if err == nil {
		err = t.pause() // the append takes its time
	}
	return generated, err
}

// push takes a chunk of the answer and returns what it says.
func (t *turn) push(c engine.Chunk) []parse.Delta {
	if t.parser != nil {
		return t.parser.Push(c.IDs)
	}
	return t.text.push(c)
}

// reply returns the whole answer, and what push still held back.
func (t *turn) reply(finishReason string, generated pool.Result) (parse.Reply, []parse.Delta) {
	if t.parser != nil {
		return t.parser.Finish(finishReason)
	}
	return t.text.finish(generated), nil
}

// begin forgets what was sampled so far.
func (t *turn) begin() {
	t.completion, t.logprobs, t.likeliest, t.pauses = nil, nil, nil, false
	t.stops = stops{texts: t.params.Stop}
	t.parser, t.text = nil, textReply{}
	if t.model.Wire == IDs {
		t.parser = t.prompts.Parser(t.prompt, t.req.Conversation)
	}
}

// commit appends the turn; or, when the session has been closed meanwhile or
// the same keyed request was answered by another gateway, that it was aborted:
// the winner is that other turn. The client's going away does not stop it: what
// was sampled is recorded.
func (t *turn) commit(ctx context.Context, c *event.TurnCommitted, answer message.Message) (winner *tree.Turn, err error) {
	defer t.memory.giveBack()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.g.cfg.AppendTimeout)
	defer cancel()
	ev := t.g.event(t.id, t.runID, t.req.Session)
	closed := false
	err = t.session.AppendTurn(ctx, t.match, answer, func(tree *tree.Tree) (*event.Event, error) {
		there := tree.Turn(t.id) != nil // from a try whose outcome was unknown
		closed, winner = tree.Closed != nil && !there, nil
		if !there {
			winner = t.winner(tree)
		}
		switch {
		case winner != nil:
			ev.Body = &event.Event_TurnAborted{TurnAborted: &event.TurnAborted{Turn: t.id, Reason: "duplicate", Partial: c, Winner: winner.ID}}
		case closed:
			ev.Body = &event.Event_TurnAborted{TurnAborted: &event.TurnAborted{Turn: t.id, Reason: "closed", Partial: c}}
		default:
			dropHeld(c.Conversation, tree)
			if c.Match.Reason == session.FirstTurn && len(tree.Turns) > 0 {
				// Another, asked at the same time, was quicker.
				c.Match.Reason = session.NewConversation
				if len(tree.WithBody(t.req.BodyHash)) > 0 {
					c.Match.Reason = session.Resample
				}
			}
			ev.Body = &event.Event_TurnCommitted{TurnCommitted: c}
		}
		return ev, nil
	})
	if err != nil || winner == nil && !closed {
		return nil, err
	}
	t.g.stats.aborted.Add(1)
	if winner == nil {
		return nil, session.ErrClosed
	}
	return winner, nil
}

// concede gives the answer of the turn that was quicker. A client that has seen
// a part of ours must ask again.
func (t *turn) concede(winner *tree.Turn, early func(parse.Delta) error) (*Answer, error) {
	if t.released {
		return nil, &Error{Kind: Overloaded, Message: "another gateway answered this request; ask again for its answer", RetryAfter: time.Second}
	}
	a := t.g.recorded(winner)
	return a, replay(a, t.req, early)
}

// abort records a call that failed after the engine was asked, and returns the
// error to give. What cannot be recorded is logged: the agent gets its error
// all the same.
func (t *turn) abort(ctx context.Context, reply parse.Reply, generated pool.Result, cause error) error {
	reason := "engine"
	switch {
	case errors.Is(cause, context.Canceled):
		reason = "client_gone"
	case errors.Is(cause, context.DeadlineExceeded):
		reason = "deadline"
	}
	partial := t.committed(reply, t.answer(reply, generated), generated)
	partial.Completion.FinishReason = "abort"
	defer t.memory.giveBack()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.g.cfg.AppendTimeout)
	defer cancel()
	ev := t.g.event(t.id, t.runID, t.req.Session)
	err := t.session.Append(ctx, func(tree *tree.Tree) (*event.Event, error) {
		dropHeld(partial.Conversation, tree)
		ev.Body = &event.Event_TurnAborted{TurnAborted: &event.TurnAborted{
			Turn: t.id, Reason: reason, Error: cause.Error(), Partial: partial,
		}}
		return ev, nil
	})
	if err != nil {
		t.g.deps.Log.ErrorContext(ctx, "aborted turn not recorded", "session", t.req.Session, "turn", t.id, "error", err)
	}
	t.g.stats.aborted.Add(1)
	return cause
}

// answer makes the client-visible message of a reply.
func (t *turn) answer(r parse.Reply, generated pool.Result) *Answer {
	m := message.Message{Role: message.Assistant, Reasoning: r.Reasoning}
	if r.Content != "" || len(r.Calls) == 0 {
		m.Content = message.TextContent(r.Content)
	}
	for i, c := range r.Calls {
		m.Calls = append(m.Calls, message.Call{
			ID:      fmt.Sprintf("call_%s_%d", strings.TrimPrefix(t.id, "t-"), i),
			ModelID: c.ModelID, Name: c.Name, Arguments: c.Arguments,
		})
	}
	finish := generated.FinishReason
	if len(m.Calls) > 0 && finish == "stop" {
		finish = "tool_calls"
	}
	prompt, completion := len(t.ids), len(t.completion)
	if t.model.Wire == Text {
		if prompt = generated.PromptTokens; prompt == 0 {
			prompt = t.model.Counter.prompt(t.req.Conversation, t.options)
		}
		if completion == 0 {
			completion = generated.CompletionTokens
		}
		if completion == 0 {
			completion = t.model.Counter.reply(r)
		}
	}
	return &Answer{
		Turn: t.id, Message: m, FinishReason: finish, MatchedStop: generated.MatchedStop, Model: t.model.Name,
		PromptTokens: prompt, CachedTokens: max(0, min(generated.CachedTokens, prompt)), CompletionTokens: completion,
		IDs: t.completion, Logprobs: t.logprobs, Likeliest: t.likeliest,
		Tokens: t.model.bytes,
	}
}
