package prompt

import (
	"strings"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// Extend makes the prompt of a call that continues parent with the added
// messages. Of the conversation only the head's presence and the deferred tools
// count: its messages are in the parent's ids.
//
// The error is a *NotAppendOnlyError where the caller should make a root
// instead. The others, which wrap one of the errors of this package, hold for a
// root as well.
func (a *Assembler) Extend(parent Parent, c message.Conversation, added []message.Message, o Options) (Prompt, error) {
	if len(added) == 0 || parent.Len == 0 || len(parent.Tail) == 0 {
		return Prompt{}, &NotAppendOnlyError{"nothing to continue, or nothing to continue with"}
	}
	before := a.standIn(parent, c, added)
	messages, err := a.prepare(append(before, added...), len(before)-2, c.Deferred)
	if err != nil {
		return Prompt{}, fault("extend", err)
	}
	answer := &messages[len(before)-1]
	if a.m.Policy == Vendor && parent.Thought && answer.Reasoning == "" {
		// The thinking is further up; what becomes of the answer's, had it any,
		// becomes of that.
		answer.Reasoning = thought
		if _, err := a.difference(messages, len(before), c, o); err != nil {
			return Prompt{}, err
		}
		answer.Reasoning = ""
	}
	suffix, err := a.difference(messages, len(before), c, o)
	if calls := answer.Calls; err != nil && len(calls) > 1 {
		// Some templates refuse more calls than one, but models make them.
		answer.Calls = calls[len(calls)-1:]
		suffix, err = a.difference(messages, len(before), c, o)
	}
	if err != nil {
		return Prompt{}, err
	}
	return a.join(parent, suffix, messages[len(before):])
}

// standIn is a conversation as short as the parent's is long: the same kinds of
// head, one question, one answer with the parent's calls. The answer's last
// word is a mark, which the renders are cut behind; it does not occur in the
// added messages.
func (a *Assembler) standIn(parent Parent, c message.Conversation, added []message.Message) []message.Message {
	said := append(added[:len(added):len(added)], message.Message{Calls: parent.Answer.Calls})
	for _, d := range c.Deferred {
		said = append(said, message.Message{Content: message.TextContent(string(d.Raw))})
	}
	mark := unused(reply, said)
	var out []message.Message
	if len(c.Head.System) > 0 {
		out = append(out, say(message.System, system))
	}
	answer := say(message.Assistant, mark)
	if parent.Answer.Reasoning != "" {
		answer.Reasoning = thought
	}
	if len(parent.Answer.Calls) > 0 {
		answer.Content.Text = ""
		for _, call := range parent.Answer.Calls {
			call.Arguments = `{"turnlog":"` + mark + `"}`
			answer.Calls = append(answer.Calls, call)
		}
	}
	return append(out, say(message.User, query), answer)
}

// unused lengthens a word until it occurs in no message.
func unused(word string, messages []message.Message) string {
	longest := -1
	look := func(texts ...string) {
		for _, s := range texts {
			for {
				at := strings.Index(s, word)
				if at < 0 {
					break
				}
				s = s[at+len(word):]
				rest := strings.TrimLeft(s, "x")
				longest = max(longest, len(s)-len(rest))
				s = rest
			}
		}
	}
	for _, m := range messages {
		look(m.Content.String(), m.Reasoning, m.CallID, m.Name)
		for _, call := range m.Calls {
			look(call.ID, call.ModelID, call.Name, call.Arguments)
		}
	}
	return word + strings.Repeat("x", longest+1)
}

// difference renders the stand-in without and with what is added, and returns
// what comes behind the stand-in's last word but for what belongs to the
// answer: from the token that ends the turn on, or, where turns have no end of
// their own, from the next message on.
func (a *Assembler) difference(messages []message.Message, n int, c message.Conversation, o Options) (string, error) {
	var offered []message.Definition
	if len(c.Head.Tools) > 0 {
		offered = []message.Definition{definition}
	}
	// A template may refuse the stand-in where it would take the real history;
	// if it refuses that, too, the root will say why.
	short, err := a.render(messages[:n:n], offered, false, o)
	if err != nil {
		return "", &NotAppendOnlyError{"the template refuses a short history: " + err.Error()}
	}
	long, err := a.render(messages, offered, true, o)
	if err != nil {
		return "", &NotAppendOnlyError{"the template refuses the messages behind a short history: " + err.Error()}
	}
	mark := markOf(messages[n-1])
	shortAt, longAt := strings.LastIndex(short, mark), strings.LastIndex(long, mark)
	if shortAt < 0 || longAt < 0 {
		return "", &NotAppendOnlyError{"the template leaves out the answer"}
	}
	// Policy keep accepts that the template rewrites the answer itself, which
	// is where vendors drop thinking: the sampled ids stay. What stands before
	// the answer must not change under either policy.
	same := shortAt
	if at := strings.Index(short, query); a.m.Policy == Keep && at >= 0 {
		same = at + len(query)
	}
	if !strings.HasPrefix(long, short[:same]) ||
		a.m.Policy == Vendor && messages[n-1].Reasoning != "" && !strings.Contains(long[:longAt], thought) {
		return "", &NotAppendOnlyError{"the template changes the history when messages follow"}
	}
	tail, rest := short[shortAt+len(mark):], long[longAt+len(mark):]
	end, size := a.closer(tail)
	if end < 0 {
		if !strings.HasPrefix(rest, tail) {
			return "", &NotAppendOnlyError{"the template changes the end of the answer when messages follow"}
		}
		return rest[len(tail):], nil
	}
	// The end token itself may differ: a last answer can end otherwise.
	at, width := a.closer(rest)
	if at < 0 || rest[:at] != tail[:end] || !strings.HasPrefix(rest[at+width:], tail[end+size:]) {
		return "", &NotAppendOnlyError{"the template changes the end of the answer when messages follow"}
	}
	return rest[at:], nil
}

func markOf(answer message.Message) string {
	if len(answer.Calls) > 0 {
		mark, _ := strings.CutPrefix(answer.Calls[0].Arguments, `{"turnlog":"`)
		return strings.TrimSuffix(mark, `"}`)
	}
	return answer.Content.Text
}

// join puts the suffix behind the parent. The suffix begins with the token at
// which the parent's turn ends, or should have ended.
func (a *Assembler) join(parent Parent, suffix string, added []message.Message) (Prompt, error) {
	spans := a.m.Tokenizer.EncodeSpans(suffix)
	if len(spans) == 0 || !a.added[spans[0].ID] {
		return Prompt{}, &NotAppendOnlyError{"no added token stands between the answer and what follows"}
	}
	end, last := spans[0], parent.Tail[len(parent.Tail)-1]
	parts := a.label(suffix, event.Provenance_PROVENANCE_BOUNDARY, added)
	out := Prompt{Keep: parent.Len}
	switch {
	case last == end.ID, !a.opens && a.ends[last]:
		spans = spans[1:]
	case a.trim[last]:
		out.Keep--
	case !a.opens:
		parts[0].from = event.Provenance_PROVENANCE_TURN_END
		parts = append([]part{parts[0], {end.End, event.Provenance_PROVENANCE_BOUNDARY}}, parts[1:]...)
	}
	out.Segments = segments(spans, parts)
	return out, nil
}
