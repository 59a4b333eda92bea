package prompt

import (
	"bytes"
	"slices"
	"strings"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// Extend makes the prompt of a call that continues parent with the added
// messages, which are the last ones of the conversation. What stands before
// them is in the parent's ids, and only looked at for what decides whether the
// call continues them at all.
//
// The error is a *NotAppendOnlyError where the caller should make a root
// instead. The others, which wrap one of the errors of this package, hold for a
// root as well.
func (a *Assembler) Extend(parent Parent, c message.Conversation, added []message.Message, o Options) (Prompt, error) {
	if reason := a.parts(parent, c, added, o); reason != "" {
		return Prompt{}, &NotAppendOnlyError{Reason: reason}
	}
	before := standIn(parent, c)
	messages, from, err := a.prepare(slices.Concat(before, added), len(before)-2, c.Deferred)
	if err != nil {
		return Prompt{}, fault("extend", err)
	}
	n := len(before)
	if a.m.Policy == Vendor && parent.Thought && messages[n-1].Reasoning == "" {
		// The thinking is further up; what becomes of the answer's, had it any,
		// becomes of that.
		thinks := slices.Clone(messages)
		thinks[n-1].Reasoning = thought
		if _, err := a.difference(thinks, n, c, o); err != nil {
			return Prompt{}, err
		}
	}
	suffix, err := a.difference(messages, n, c, o)
	if err != nil {
		return Prompt{}, err
	}
	return a.join(parent, suffix, messages[n:], func(i int) int { return from(n+i) - n })
}

// parts says why a call cannot continue its parent, "" if it may. Nothing is
// rendered for it.
func (a *Assembler) parts(parent Parent, c message.Conversation, added []message.Message, o Options) Reason {
	switch {
	case len(added) == 0 || parent.Len == 0 || len(parent.Tail) == 0:
		return NothingNew
	case !sameHead(parent.Head, c.Head):
		return HeadChanged
	case !bytes.Equal(parent.Options.Kwargs, o.Kwargs) || !parent.Options.Time.Equal(o.Time):
		return ArgumentsChanged
	case len(parent.Answer.Calls) > 1 && a.learned && !a.ability.Parallel:
		return OneCall
	}
	calls := parent.Answer.Calls
	history := c.Messages[:max(0, len(c.Messages)-len(added))]
	for _, m := range added {
		switch {
		case m.Role == message.Assistant && len(m.Calls) > 0:
			calls = append(calls[:len(calls):len(calls)], m.Calls...)
		case m.Role == message.Tool && !answers(m, calls):
			return EarlierCall
		case a.counts[m.Role] && slices.ContainsFunc(history, func(h message.Message) bool { return h.Role == m.Role }):
			return Counted
		}
	}
	if len(a.switches) > 0 && (slices.ContainsFunc(c.Head.System, a.switched) || slices.ContainsFunc(history, a.switched)) {
		return Switched
	}
	return ""
}

// answers reports whether a result belongs to one of the calls. One that names
// no call belongs to the last.
func answers(m message.Message, calls []message.Call) bool {
	if m.CallID == "" {
		return len(calls) > 0
	}
	return slices.ContainsFunc(calls, func(c message.Call) bool { return c.ID == m.CallID || c.ModelID == m.CallID })
}

func (a *Assembler) switched(m message.Message) bool {
	text := m.Content.String()
	return slices.ContainsFunc(a.switches, func(s string) bool { return strings.Contains(text, s) })
}

// sameHead reports whether two heads are the same to every template.
func sameHead(a, b message.Head) bool {
	system := func(r message.Role) message.Role {
		if r == message.Developer {
			return message.System
		}
		return r
	}
	return slices.EqualFunc(a.System, b.System, func(x, y message.Message) bool {
		return system(x.Role) == system(y.Role) && x.Name == y.Name && bytes.Equal(x.Extra, y.Extra) &&
			x.Content.OnlyText() == y.Content.OnlyText() && x.Content.String() == y.Content.String() &&
			(x.Content.OnlyText() || bytes.Equal(x.Content.AppendJSON(nil), y.Content.AppendJSON(nil)))
	}) && slices.EqualFunc(a.Tools, b.Tools, func(x, y message.Definition) bool { return bytes.Equal(x.Raw, y.Raw) })
}

// standIn is a conversation as short as the parent's is long: the same kinds of
// head, one question, one answer with the parent's calls. The answer's last
// word is reply, behind which the renders are cut.
func standIn(parent Parent, c message.Conversation) []message.Message {
	var out []message.Message
	if len(c.Head.System) > 0 {
		out = append(out, say(message.System, system))
	}
	answer := say(message.Assistant, reply)
	if parent.Answer.Reasoning != "" {
		answer.Reasoning = thought
	}
	for i, call := range parent.Answer.Calls {
		call.Arguments = argument(other)
		if i == len(parent.Answer.Calls)-1 {
			call.Arguments = argument(reply)
			answer.Content.Text = ""
		}
		answer.Calls = append(answer.Calls, call)
	}
	return append(out, say(message.User, query), answer)
}

func argument(word string) string { return `{"turnlog":"` + word + `"}` }

// difference renders the stand-in, the first n messages, without and with what
// is added, and returns what comes behind the stand-in's last word but for what
// belongs to the answer: from the token that ends the turn on, or, where turns
// have no end of their own, from the next message on.
func (a *Assembler) difference(messages []message.Message, n int, c message.Conversation, o Options) (string, error) {
	more := ""
	short, long, err := a.renders(messages, n, more, c, o)
	if err == nil && repeats(long, more) {
		// What is added may say the stand-in's words, too: longer ones that it
		// does not say.
		run := 0
		for _, w := range words {
			run = max(run, longestRun(long, w)+1)
		}
		more = strings.Repeat("x", run)
		short, long, err = a.renders(messages, n, more, c, o)
	}
	if err != nil {
		// If the template refuses the real history, too, the root will say why.
		return "", &NotAppendOnlyError{Refused, err.Error()}
	}
	mark := reply + more
	if strings.Count(short, mark) != 1 || strings.Count(long, mark) != 1 {
		return "", &NotAppendOnlyError{Rewritten, "the template leaves out the answer or repeats it"}
	}
	if repeats(long, more) {
		return "", &NotAppendOnlyError{Rewritten, "the template writes what stands before the answer behind it"}
	}
	shortAt, longAt := strings.Index(short, mark), strings.Index(long, mark)
	// Policy keep accepts that the template rewrites the answer itself, which
	// is where vendors drop thinking: the sampled ids stay. What stands before
	// the answer must not change under either policy.
	same := shortAt
	if at := strings.LastIndex(short[:shortAt], query+more); a.m.Policy == Keep && at >= 0 {
		same = at + len(query) + len(more)
	}
	if longAt < same || !strings.HasPrefix(long, short[:same]) ||
		a.m.Policy == Vendor && messages[n-1].Reasoning != "" && !strings.Contains(long[:longAt], thought+more) {
		return "", &NotAppendOnlyError{Rewritten, "the template changes the history when messages follow"}
	}
	tail, rest := short[shortAt+len(mark):], long[longAt+len(mark):]
	end, size := a.closer(tail)
	if end < 0 {
		if !strings.HasPrefix(rest, tail) {
			return "", &NotAppendOnlyError{Rewritten, "the template changes the end of the answer when messages follow"}
		}
		return rest[len(tail):], nil
	}
	// The end token itself may differ: a last answer can end otherwise.
	at, width := a.closer(rest)
	if at < 0 || rest[:at] != tail[:end] || !strings.HasPrefix(rest[at+width:], tail[end+size:]) {
		return "", &NotAppendOnlyError{Rewritten, "the template changes the end of the answer when messages follow"}
	}
	return rest[at:], nil
}

// words are those of a stand-in: none of them may stand behind its answer.
var words = [...]string{reply, system, query, thought, other, tool}

// repeats reports whether a word of the stand-in stands behind its answer.
func repeats(long, more string) bool {
	_, rest, _ := strings.Cut(long, reply+more)
	for _, w := range words {
		if strings.Contains(rest, w+more) {
			return true
		}
	}
	return false
}

// renders are the stand-in alone, and with what is added. The stand-in's words
// are made longer by more.
func (a *Assembler) renders(messages []message.Message, n int, more string, c message.Conversation, o Options) (short, long string, err error) {
	var offered []message.Definition
	if len(c.Head.Tools) > 0 {
		offered = []message.Definition{definition(more)}
	}
	if more != "" {
		messages = slices.Clone(messages)
		for i, m := range messages[:n] {
			messages[i] = longer(m, more)
		}
	}
	short, err = a.render(messages[:n:n], offered, false, o)
	if err != nil {
		return "", "", err
	}
	long, err = a.render(messages, offered, true, o)
	return short, long, err
}

// longer makes the words of a stand-in's message longer.
func longer(m message.Message, more string) message.Message {
	lengthen := func(s string) string {
		for _, w := range words {
			s = strings.ReplaceAll(s, w, w+more)
		}
		return s
	}
	m.Content.Text, m.Reasoning = lengthen(m.Content.Text), lengthen(m.Reasoning)
	m.Calls = slices.Clone(m.Calls)
	for i, call := range m.Calls {
		m.Calls[i].Arguments = lengthen(call.Arguments)
	}
	return m
}

// longestRun is the largest number of x that stand behind word somewhere.
func longestRun(text, word string) (longest int) {
	for {
		_, after, ok := strings.Cut(text, word)
		if !ok {
			return longest
		}
		rest := strings.TrimLeft(after, "x")
		longest = max(longest, len(after)-len(rest))
		text = rest
	}
}

// join puts the suffix behind the parent. The suffix begins with the token at
// which the parent's turn ends, or should have ended.
func (a *Assembler) join(parent Parent, suffix string, added []message.Message, place func(int) int) (Prompt, error) {
	spans := a.m.Tokenizer.EncodeSpans(suffix)
	if len(spans) == 0 || !a.boundary[spans[0].ID] || spans[0].Start != 0 {
		return Prompt{}, &NotAppendOnlyError{Reason: Unjoined}
	}
	end, last := spans[0], parent.Tail[len(parent.Tail)-1]
	parts, omits := a.label(suffix, event.Provenance_PROVENANCE_BOUNDARY, added)
	out := Prompt{Keep: parent.Len}
	for _, i := range omits {
		out.Omits = append(out.Omits, place(i))
	}
	out.Omits = places(out.Omits)
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

// places are the given ones in order, each once.
func places(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}
