package mock

import (
	"strings"
	"sync/atomic"
	"time"
)

// Script decides what the model says. It is called once for each request and
// must be safe for concurrent use.
type Script func(Request) Reply

// Request is what a script knows of a request.
type Request struct {
	// N counts the requests of the server, from 0.
	N int
	// Wire is the path that was called.
	Wire string
	ID   string
	// Model is the model that was asked for, or the adapter.
	Model  string
	Prompt []uint32
	// Text is the prompt decoded, Messages its ChatML messages.
	Text     string
	Messages []Message
	// Seed depends on the server's seed and the prompt, and on the request's
	// own seed where it names one: best of n gives n answers.
	Seed uint64
}

// Last returns the text of the last message with one of the roles, or "".
func (r Request) Last(roles ...string) string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		for _, role := range roles {
			if r.Messages[i].Role == role {
				return r.Messages[i].Text
			}
		}
	}
	return ""
}

// Reply is what the model says, and how the server misbehaves over it.
type Reply struct {
	// Text is sampled as the tokenizer splits it, or now and then otherwise.
	Text string
	// IDs are sampled instead of Text, exactly.
	IDs []uint32
	// NoStop leaves out the stop token: the answer ends with finish reason
	// length, as if the budget were used up.
	NoStop bool
	// Delay comes before the first byte, Pace between two chunks.
	Delay, Pace time.Duration
	// Version replaces the server's weight version from token VersionAt on: a
	// weight update inside the turn.
	Version   string
	VersionAt int
	Fault     Fault
}

// Say returns a reply of text alone.
func Say(text string) Reply { return Reply{Text: text} }

// Call returns a reply that calls a tool, as hermes spells it. Arguments are a
// JSON object.
func Call(name, arguments string) Reply { return Reply{Text: CallText(name, arguments)} }

// CallText is the text of one tool call.
func CallText(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

// Always says the same to everything.
func Always(r Reply) Script { return func(Request) Reply { return r } }

// Steps says one reply after the other, whoever asks; the last one is
// repeated.
func Steps(replies ...Reply) Script {
	var n atomic.Int64
	return func(Request) Reply {
		i := int(n.Add(1)) - 1
		return replies[min(i, len(replies)-1)]
	}
}

// Rule is one line of Match.
type Rule struct {
	// Contains is looked for in the last user or tool message.
	Contains string
	Reply    Reply
}

// Match says the reply of the first rule that fits, otherwise what next says.
func Match(next Script, rules ...Rule) Script {
	return func(r Request) Reply {
		last := r.Last("user", "tool")
		for _, rule := range rules {
			if strings.Contains(last, rule.Contains) {
				return rule.Reply
			}
		}
		return next(r)
	}
}
