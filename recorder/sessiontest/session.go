// Package sessiontest writes session logs for tests: by hand, event after
// event, or at random from a seed. It knows nothing of the fold, only what a
// gateway may append.
package sessiontest

import (
	"fmt"
	"slices"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Epoch is when every log begins.
var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Turn is what was recorded of one turn, in the clear.
type Turn struct {
	ID, Parent         string
	Prompt, Completion []uint32
	Logprobs           []float32
	Event              *event.Event
}

// IDs are the prompt's and the completion's.
func (t *Turn) IDs() []uint32 { return slices.Concat(t.Prompt, t.Completion) }

// Session is the log of one session while it is written.
type Session struct {
	ID, Run string
	Events  []*event.Event
	Turns   []*Turn
	clock   time.Time
}

// New returns the log of a session that has only been opened.
func New(id string, opened ...func(*event.SessionOpened)) *Session {
	s := &Session{ID: id, Run: "run1", clock: Epoch}
	o := &event.SessionOpened{Group: "g1", GroupSize: 2, Task: "task"}
	for _, f := range opened {
		f(o)
	}
	s.Add("open", &event.Event{Body: &event.Event_SessionOpened{SessionOpened: o}})
	return s
}

// Add appends an event under an id. Each event is a second after the one
// before.
func (s *Session) Add(id string, ev *event.Event) *event.Event {
	s.clock = s.clock.Add(time.Second)
	ev.Id, ev.Session, ev.Run, ev.Tenant = id, s.ID, s.Run, "default"
	ev.TimeUs, ev.Producer = s.clock.UnixMicro(), "test"
	s.Events = append(s.Events, ev)
	return ev
}

// Turn returns a turn by its id.
func (s *Session) Turn(id string) *Turn {
	for _, t := range s.Turns {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// Step describes a turn to be appended.
type Step struct {
	ID, Parent string
	// Cut is how many of the parent's last ids the prompt does not keep.
	Cut int
	// New are the prompt's new ids; Out the completion's.
	New, Out []uint32
	// Text is a turn that the engine was given as text: the log holds no ids of
	// its prompt. Without Out the answer came as text, too.
	Text bool
	// Edit changes the event before it is appended.
	Edit func(*event.TurnCommitted)
}

// Commit appends a turn of grade A: proven by echo, with raw logprobs and
// weight version 7.
func (s *Session) Commit(step Step) *Turn {
	t := &Turn{ID: step.ID, Parent: step.Parent, Completion: step.Out}
	c := &event.TurnCommitted{Turn: step.ID, Parent: step.Parent}
	if p := s.Turn(step.Parent); p != nil {
		before := p.IDs()
		keep := len(before) - step.Cut
		t.Prompt = slices.Clone(before[:keep])
		c.ParentKeep = uint32(keep)
		c.Base = &event.Base{Turn: step.Parent, Keep: uint32(keep)}
	}
	t.Prompt = append(t.Prompt, step.New...)
	half := len(step.New) / 2
	c.Segments = []*event.Segment{
		{Provenance: event.Provenance_PROVENANCE_USER, Ids: event.AppendIDs(nil, step.New[:half])},
		{Provenance: event.Provenance_PROVENANCE_GENERATION_PROMPT, Ids: event.AppendIDs(nil, step.New[half:])},
	}
	for i := range step.Out {
		t.Logprobs = append(t.Logprobs, -float32(i+1)/16)
	}
	c.Completion = &event.Completion{
		Ids:          event.AppendIDs(nil, step.Out),
		Logprobs:     event.AppendFloats(nil, t.Logprobs),
		FinishReason: "stop",
		LogprobKind:  event.LogprobKind_LOGPROB_KIND_RAW,
		Versions:     []*event.VersionSpan{{Count: uint32(len(step.Out)), Label: "7"}},
	}
	c.Match = &event.Match{Decision: "extend"}
	received := s.clock.Add(500 * time.Millisecond).UnixMicro()
	c.Request = &event.Request{Model: "model", Class: "main", ReceivedUs: received, SamplingUsed: []byte(`{"temperature":1}`)}
	c.Generation = &event.Generation{
		Engine: "mock", Tokenizer: "tok", Template: "tpl", Family: "fam",
		Proof: event.PromptProof_PROMPT_PROOF_ECHO, PromptTokens: uint32(len(t.Prompt)),
		SentUs: received + 1, DoneUs: received + 1000,
	}
	c.Conversation = &event.Conversation{
		Messages: [][]byte{[]byte(`{"role":"user","content":"question"}`)},
		Answer:   []byte(`{"role":"assistant","content":"answer"}`),
	}
	if p := s.Turn(step.Parent); p != nil {
		before := p.Event.GetTurnCommitted().GetConversation()
		c.Conversation.Keep = before.GetKeep() + uint32(len(before.GetMessages())) + 1
	}
	if step.Text {
		t.Prompt = nil
		c.Base, c.ParentKeep, c.Segments = nil, 0, nil
		c.Generation.Proof, c.Generation.PromptTokens = event.PromptProof_PROMPT_PROOF_NONE, 0
		if len(step.Out) == 0 {
			c.Completion.Text = "answer"
		}
	}
	if step.Edit != nil {
		step.Edit(c)
	}
	t.Event = s.Add("turn-"+step.ID, &event.Event{Body: &event.Event_TurnCommitted{TurnCommitted: c}})
	s.Turns = append(s.Turns, t)
	return t
}

// Abort appends a call that gave no answer after some ids.
func (s *Session) Abort(id, reason string, ids ...uint32) *event.Event {
	return s.Add("abort-"+id, &event.Event{Body: &event.Event_TurnAborted{TurnAborted: &event.TurnAborted{
		Turn: id, Reason: reason,
		Partial: &event.TurnCommitted{Turn: id, Completion: &event.Completion{Ids: event.AppendIDs(nil, ids)}},
	}}})
}

// Undelivered says that the answer of a turn could not be written.
func (s *Session) Undelivered(turn string) *event.Event {
	return s.Add("undelivered-"+turn, &event.Event{Body: &event.Event_DeliveryFailed{DeliveryFailed: &event.DeliveryFailed{Turn: turn}}})
}

// Reward assigns a reward to the session.
func (s *Session) Reward(reward float64, revision int64) *event.Event {
	return s.Add(fmt.Sprintf("reward-%d", revision), &event.Event{Body: &event.Event_RewardAssigned{RewardAssigned: &event.RewardAssigned{
		Reward: reward, Revision: revision, Source: "test",
	}}})
}

// Annotate attaches a value to the session.
func (s *Session) Annotate(name string, revision int64) *event.Event {
	return s.Add(fmt.Sprintf("annotated-%s-%d", name, revision), &event.Event{Body: &event.Event_Annotated{Annotated: &event.Annotated{
		Name: name, Value: []byte("1"), Revision: revision,
	}}})
}

// Close ends the session.
func (s *Session) Close(reason string) *event.Event {
	return s.Add("close", &event.Event{Body: &event.Event_SessionClosed{SessionClosed: &event.SessionClosed{Reason: reason}}})
}

// Release orders that the session be folded again, should it be parked.
func (s *Session) Release() *event.Event {
	return s.Add(fmt.Sprintf("release-%d", len(s.Events)), &event.Event{Body: &event.Event_SessionReleased{SessionReleased: &event.SessionReleased{Detail: "test"}}})
}

// Misplace appends a turn that nobody can fold: it continues one that is not
// there.
func (s *Session) Misplace(id string) *event.Event {
	return s.Add("misplaced-"+id, &event.Event{Body: &event.Event_TurnCommitted{TurnCommitted: &event.TurnCommitted{
		Turn: id, Parent: "nowhere", ParentKeep: 1, Completion: &event.Completion{Ids: event.AppendIDs(nil, []uint32{1, 2, 3})},
	}}})
}

// Entries are the events as a log would hold them in the given order. The log's
// time of an event is its own, wherever it stands.
func Entries(events []*event.Event) []journal.Entry {
	var tip journal.Tip
	out := make([]journal.Entry, len(events))
	for i, ev := range events {
		body, err := event.Encode(ev)
		if err != nil {
			panic(err) // of a test's own making
		}
		tip = tip.Next(uint64(10*i+3), body)
		out[i] = journal.Entry{Event: ev, Body: body, Tip: tip, Time: time.UnixMicro(ev.GetTimeUs()).UTC(), Stream: "test"}
	}
	return out
}
