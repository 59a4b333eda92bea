package prompt

import (
	"errors"
	"strings"
	"time"

	"turnlog.dev/schema/message"
)

// The words of the stand-ins that templates are probed with. No template gives
// them a meaning, trims them or escapes them.
const (
	system  = "turnlogsystem"
	query   = "turnlogquery"
	thought = "turnlogthought"
	reply   = "turnlogreply"
	more    = "turnlogmore"
	other   = "turnlogother"
	result  = "turnlogresult"
	tool    = "turnlogtool"
	speaker = "turnlogspeaker"
)

const space = " \t\r\n"

// heads are the texts that messages begin with, by role.
type heads struct {
	system, user, assistant, tool string
	// again is what a tool result begins with right behind another one, after
	// what a user's message begins with behind one.
	again, after string
}

func say(role message.Role, text string) message.Message {
	return message.Message{Role: role, Content: message.TextContent(text)}
}

func calling(args string, ids ...string) message.Message {
	m := say(message.Assistant, "")
	for _, id := range ids {
		m.Calls = append(m.Calls, message.Call{ID: id, Name: tool, Arguments: args})
	}
	return m
}

func answering(id, text string) message.Message {
	m := say(message.Tool, text)
	m.CallID, m.Name = id, tool
	return m
}

// definition is the stand-in for a request's tools. more makes its name longer.
func definition(more string) message.Definition {
	return message.Definition{Name: tool + more, Raw: []byte(
		`{"type":"function","function":{"name":"` + tool + more + `","description":"","parameters":{"type":"object","properties":{"turnlog":{"type":"string"}}}}}`)}
}

// callID is nine letters and digits, which one family insists on.
const callID = "turnlog00"

// probe are the options of the renders that a template is learned with: any
// time will do.
var probe = Options{Time: time.Unix(0, 0)}

// learn renders short conversations and remembers what they show.
func (a *Assembler) learn() error {
	user, answer := say(message.User, query), say(message.Assistant, reply)
	next := say(message.User, more)
	opened, err := a.render([]message.Message{user}, nil, true, probe)
	if err != nil || !strings.Contains(opened, query) {
		a.listed = true
		opened, err = a.render([]message.Message{user}, nil, true, probe)
	}
	if err != nil {
		return err
	}
	at := strings.Index(opened, query)
	if at < 0 {
		return errors.New("the template leaves out what the user says")
	}
	prompted := opened[at+len(query):]

	chat, err := a.render([]message.Message{user, answer, next}, nil, true, probe)
	if err != nil {
		return err
	}
	closed, err := a.render([]message.Message{user, answer}, nil, false, probe)
	if err != nil {
		return err
	}
	a.learnEnds(behind(closed, reply), behind(chat, reply))
	if lead, ok := strings.CutPrefix(between(closed, query, reply), prompted); ok && strings.TrimSpace(lead) == "" {
		a.lead = lead
	}
	a.heads.assistant = a.opener(common(a.head(between(chat, query, reply)), a.head(prompted)))
	a.heads.user = a.head(between(chat, reply, more))
	a.learnSystem(user, answer, next)
	a.learnTools(user, next)
	a.learnParts(user, opened)
	a.learnBoundary()
	a.learned = true
	a.learnHistory(user, next)
	_, err = a.Extend(Parent{Len: 1, Tail: []uint32{0}, Answer: answer, Options: probe}, message.Conversation{}, []message.Message{next}, probe)
	a.ability.Extends = err == nil
	return nil
}

// learnSystem finds where system messages may stand.
func (a *Assembler) learnSystem(user, answer, next message.Message) {
	note := say(message.System, system)
	if s, err := a.render([]message.Message{user, answer, note, next}, nil, true, probe); err == nil {
		a.heads.system = a.head(between(s, reply, system))
		a.ability.SystemInside = a.heads.system != "" && strings.Index(s, system) > strings.Index(s, reply)
	}
	second := say(message.System, other)
	if s, err := a.render([]message.Message{note, second, user}, nil, true, probe); err == nil {
		first := strings.Index(s, system)
		a.ability.Systems = first >= 0 && strings.Index(s, other) > first
	}
}

// partTypes are the parts of content that clients send.
var partTypes = []string{"image", "image_url", "video", "video_url", "audio", "audio_url", "input_audio", "document", "file"}

// learnParts finds which parts of content, and which members of a message, are
// rendered at all: those that change the text.
// A template that knows no lists prints them as Python would, which is not meant.
func (a *Assembler) learnParts(user message.Message, opened string) {
	list := func(parts ...message.Part) (string, error) {
		m := user
		m.Content = message.Content{Form: message.List, Parts: append([]message.Part{{Type: "text", Text: query}}, parts...)}
		return a.render([]message.Message{m}, nil, true, probe)
	}
	if plain, err := list(); err == nil && plain == opened {
		for _, kind := range partTypes {
			raw := `{"type":"` + kind + `","` + kind + `":{"url":"` + other + `"}}`
			if s, err := list(message.Part{Type: kind, Raw: []byte(raw)}); err == nil && s != plain {
				a.ability.Parts = append(a.ability.Parts, kind)
			}
		}
	}
	named := user
	named.Name = speaker
	s, err := a.render([]message.Message{named}, nil, true, probe)
	a.ability.Names = err == nil && strings.Contains(s, speaker)
}

// learnBoundary collects the tokens that what is new may begin with.
func (a *Assembler) learnBoundary() {
	if !a.opens {
		for _, c := range a.closers {
			if id, ok := a.m.Tokenizer.TokenID(c); ok {
				a.boundary[id] = true
			}
		}
		return
	}
	for _, h := range []string{a.heads.system, a.heads.user, a.heads.assistant, a.heads.tool, a.heads.again, a.heads.after} {
		if at, id, ok := a.firstAdded(h); ok && at == 0 {
			a.boundary[id] = true
		}
	}
}

// switchWords are what people write to a model to turn its thinking on or off,
// and what some templates look for in what they wrote.
var switchWords = []string{"/no_think", "/nothink", "/think", "detailed thinking on", "detailed thinking off"}

// learnHistory finds what a short history cannot stand in for: what the
// template writes for new messages may depend on how many came before them, and
// on words far up in the history.
func (a *Assembler) learnHistory(user, next message.Message) {
	first, second := callID, callID[:8]+"1"
	tools := message.Conversation{Head: message.Head{Tools: []message.Definition{definition("")}}}
	for _, behind := range [][]message.Message{{next}, {answering(second, result)}} {
		c := message.Conversation{}
		last := say(message.Assistant, reply)
		long := []message.Message{user, say(message.Assistant, other), say(message.User, "turnlogagain")}
		if behind[0].Role == message.Tool {
			c, last = tools, calling(argument(reply), second)
			long = append(long[:1:1], calling(argument(other), first), answering(first, result),
				say(message.Assistant, other), say(message.User, "turnlogagain"))
		}
		suffix := func(history []message.Message) (string, error) {
			history = append(history[:len(history):len(history)], last)
			return a.difference(append(history, behind...), len(history), c, probe)
		}
		short, err := suffix([]message.Message{user})
		if err != nil {
			continue
		}
		if s, err := suffix(long); err == nil && s != short {
			a.counts[behind[0].Role] = true
		}
		for _, w := range switchWords {
			said := say(message.User, query+" "+w+" "+query)
			ruled := []message.Message{say(message.System, system+" "+w), user}
			plain, err := suffix([]message.Message{say(message.System, system), user})
			if s, e := suffix(ruled); err == nil && e == nil && s != plain {
				a.switches = append(a.switches, w)
			} else if s, e := suffix([]message.Message{said}); e == nil && s != short {
				a.switches = append(a.switches, w)
			}
		}
	}
}

// learnEnds finds the token that ends a turn in what stands behind a last
// answer, and behind one that a question follows. The family knows it or it
// shows here; where a turn has none, the next message's first token takes its
// part.
func (a *Assembler) learnEnds(last, followed string) {
	if !a.known(last) {
		if _, id, ok := a.firstAdded(last); ok {
			a.closes(id)
		}
	}
	a.opens = !a.known(last)
	if _, id, ok := a.firstAdded(followed); ok && !a.known(followed) {
		if a.opens {
			a.closes(id)
		} else if s, ok := a.m.Tokenizer.Token(id); ok {
			// A last answer ends otherwise than one that something follows. The
			// token is its end only if another one opens what follows.
			_, joint, _ := strings.Cut(followed, s)
			joint, _, _ = strings.Cut(joint, more)
			if _, _, opens := a.firstAdded(joint); opens {
				a.closers = append(a.closers, s)
				a.replaces(last)
			}
		}
	}
	if a.opens && len(a.trim) == 0 {
		for _, id := range a.stops {
			a.trim[id] = true
		}
	}
}

// replaces notes that the token which ends a last answer gives way to another
// once something follows, as if the family said so.
func (a *Assembler) replaces(last string) {
	if at, n := a.closer(last); at >= 0 {
		if id, ok := a.m.Tokenizer.TokenID(last[at : at+n]); ok && !a.ends[id] {
			a.trim[id] = true
		}
	}
}

// learnTools finds what tool results, and questions behind them, begin with.
// Templates that know no tools, or not several, leave it unknown.
func (a *Assembler) learnTools(user, next message.Message) {
	tools := []message.Definition{definition("")}
	if used := []message.Message{user, calling("{}", callID)}; !a.takes(used, tools) {
		a.textual = true
		a.textual = a.takes(used, tools)
	}
	second := callID[:8] + "1"
	call := calling(argument(reply), callID)
	if s, err := a.render([]message.Message{user, call}, tools, false, probe); err == nil && !a.opens {
		a.learnCallEnd(behind(s, reply))
	}
	null := call
	null.Content = message.Content{}
	if s, err := a.render([]message.Message{user, null}, tools, false, probe); err != nil || strings.Contains(between(s, query, reply), "None") {
		a.nulls = true
	}
	used := []message.Message{user, call, answering(callID, result)}
	if s, err := a.render(used, tools, true, probe); err == nil {
		a.heads.tool = a.head(between(s, reply, result))
		a.ability.CallIDs = strings.Contains(between(s, reply, result), callID)
	}
	if s, err := a.render(append(used, next), tools, true, probe); err == nil {
		a.heads.after = a.head(between(s, result, more))
	}
	both := calling(argument(reply), callID, second)
	both.Calls[0].Arguments = argument(other)
	used = []message.Message{user, both, answering(callID, result), answering(second, more)}
	if s, err := a.render(used, tools, true, probe); err == nil {
		a.heads.again = a.head(between(s, result, more))
		a.ability.Parallel = strings.Contains(s, other) && strings.Contains(s, reply)
	}
}

// learnCallEnd finds the token that ends an answer with a call, given what
// stands behind the call's arguments: mostly the one that ends all answers, else
// a control token at the very end.
func (a *Assembler) learnCallEnd(tail string) {
	if a.known(tail) {
		return
	}
	for _, t := range a.m.Tokenizer.Added() {
		if t.Special && strings.HasSuffix(strings.TrimRight(tail, space), t.Content) {
			a.closes(t.ID)
			return
		}
	}
}

func (a *Assembler) takes(messages []message.Message, tools []message.Definition) bool {
	_, err := a.render(messages, tools, false, probe)
	return err == nil
}

// known reports whether the text holds a token that is known to end a turn.
func (a *Assembler) known(text string) bool {
	at, _ := a.closer(text)
	return at >= 0
}

// head is what a message begins with, given the text between the content of
// the message before and its own: from the first added token behind the token
// that ends a turn, or from the latter where that opens the message. It ends
// before the stand-ins' names.
func (a *Assembler) head(joint string) string {
	at, n := a.closer(joint)
	switch {
	case at >= 0 && a.opens:
		joint = joint[at:]
	case at >= 0:
		joint = joint[at+n:]
	}
	if at, _, ok := a.firstAdded(joint); ok {
		joint = joint[at:]
	}
	for _, name := range []string{callID[:8], tool} {
		joint, _, _ = strings.Cut(joint, name)
	}
	return joint
}

// opener is a head up to its second added token: what follows in an
// assistant's may depend on whether it thinks.
func (a *Assembler) opener(head string) string {
	if at, id, ok := a.firstAdded(head); ok {
		s, _ := a.m.Tokenizer.Token(id)
		if next, _, ok := a.firstAdded(head[at+len(s):]); ok {
			return head[:at+len(s)+next]
		}
	}
	return head
}

func (a *Assembler) firstAdded(text string) (at int, id uint32, ok bool) {
	for _, s := range a.m.Tokenizer.EncodeSpans(text) {
		if a.added[s.ID] {
			return s.Start, s.ID, true
		}
	}
	return 0, 0, false
}

// behind is the text behind the last s.
func behind(text, s string) string {
	if at := strings.LastIndex(text, s); at >= 0 {
		return text[at+len(s):]
	}
	return ""
}

// between is the text between a and the b behind it.
func between(text, a, b string) string {
	at := strings.LastIndex(text, a)
	if at < 0 {
		return ""
	}
	joint, _, ok := strings.Cut(text[at+len(a):], b)
	if !ok {
		return ""
	}
	return joint
}

// common is the longest common prefix of a and b, cut to whole characters.
func common(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return strings.ToValidUTF8(a[:n], "")
}
