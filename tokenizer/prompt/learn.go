package prompt

import (
	"errors"
	"slices"
	"strings"
	"time"

	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/parse"
)

// The words of the stand-ins that templates are probed with. No template gives
// them a meaning, trims them or escapes them.
const (
	system  = "turnlogsystem"
	query   = "turnlogquery"
	thought = "turnlogthought"
	reply   = "turnlogreply"
	more    = "turnlogmore"
	result  = "turnlogresult"
	tool    = "turnlogtool"
)

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

// definition is the stand-in for a request's tools.
var definition = message.Definition{Name: tool, Raw: []byte(
	`{"type":"function","function":{"name":"` + tool + `","description":"","parameters":{"type":"object","properties":{"turnlog":{"type":"string"}}}}}`)}

// callID is nine letters and digits, which one family insists on.
const callID = "turnlog00"

func (a *Assembler) render(messages []message.Message, tools []message.Definition, generate bool, o Options) (string, error) {
	if a.textual {
		messages = textual(messages)
	}
	if a.listed {
		messages = listed(messages)
	}
	out, err := a.m.Renderer.Render(messages, tools, chat.Options{
		AddGenerationPrompt: generate, Kwargs: a.kwargs(o), Now: o.Time,
	})
	return out.Text, err
}

// kwargs are the request's arguments with the policy's on top.
func (a *Assembler) kwargs(o Options) []byte {
	pins := a.m.Family.Keep
	if a.m.Policy != Keep || pins == nil {
		return o.Kwargs
	}
	if rawjson.KindOf(o.Kwargs) != rawjson.Object {
		return pins
	}
	var sets []rawjson.Set
	for k, v := range rawjson.Members(pins) {
		sets = append(sets, rawjson.Set{Key: k, Value: v})
	}
	return rawjson.Splice(nil, o.Kwargs, sets...)
}

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
	generate := a.head(prompted)

	chat, err := a.render([]message.Message{user, answer, next}, nil, true, probe)
	if err != nil {
		return err
	}
	closed, err := a.render([]message.Message{user, answer}, nil, false, probe)
	if err != nil {
		return err
	}
	// The token that ends a turn is known from the family or shows here; where a
	// turn has none, the next message's first token takes its part.
	tail, follows := behind(closed, reply), behind(chat, reply)
	if !a.known(tail) {
		if _, id, ok := a.firstAdded(tail); ok {
			a.closes(id)
		}
	}
	a.opens = !a.known(tail)
	if lead, ok := strings.CutPrefix(between(closed, query, reply), prompted); ok && strings.TrimSpace(lead) == "" {
		a.lead = lead
	}
	if _, id, ok := a.firstAdded(follows); ok && !a.known(follows) {
		if a.opens {
			a.closes(id)
		} else if s, ok := a.m.Tokenizer.Token(id); ok {
			// A last answer ends otherwise than one that something follows. The
			// token is its end only if another one opens what follows.
			_, joint, _ := strings.Cut(follows, s)
			joint, _, _ = strings.Cut(joint, more)
			if _, _, opens := a.firstAdded(joint); opens {
				a.closers = append(a.closers, s)
			}
		}
	}
	if a.opens && len(a.trim) == 0 {
		for _, id := range a.stops {
			a.trim[id] = true
		}
	}
	a.heads.assistant = a.opener(common(a.head(between(chat, query, reply)), generate))
	a.heads.user = a.head(between(chat, reply, more))
	_, err = a.Extend(Parent{Len: 1, Tail: []uint32{0}, Answer: answer}, message.Conversation{}, []message.Message{next}, probe)
	a.ability.Extends = err == nil

	note := say(message.System, system)
	if s, err := a.render([]message.Message{user, answer, note, next}, nil, true, probe); err == nil {
		a.heads.system = a.head(between(s, reply, system))
		a.ability.SystemInside = a.heads.system != "" && strings.Index(s, system) > strings.Index(s, reply)
	}
	tools := []message.Definition{definition}
	if used := []message.Message{user, calling("{}", callID)}; !a.renders(used, tools) {
		a.textual = true
		a.textual = a.renders(used, tools)
	}
	used := []message.Message{user, calling(`{"turnlog":"`+reply+`"}`, callID), answering(callID, result)}
	if s, err := a.render(used, tools, true, probe); err == nil {
		a.heads.tool = a.head(between(s, reply, result))
	}
	if s, err := a.render(append(used, next), tools, true, probe); err == nil {
		a.heads.after = a.head(between(s, result, more))
	}
	used = []message.Message{
		user, calling(`{"turnlog":"`+reply+`"}`, callID, callID[:8]+"1"),
		answering(callID, result), answering(callID[:8]+"1", more),
	}
	if s, err := a.render(used, tools, true, probe); err == nil {
		a.heads.again = a.head(between(s, result, more))
	}
	parts := user
	parts.Content = message.Content{Form: message.List, Parts: []message.Part{
		{Type: "text", Text: query[:4]}, {Type: "text", Text: query[4:]},
	}}
	s, err := a.render([]message.Message{parts}, nil, true, probe)
	a.ability.Parts = err == nil && s == opened
	return nil
}

func (a *Assembler) renders(messages []message.Message, tools []message.Definition) bool {
	_, err := a.render(messages, tools, false, probe)
	return err == nil
}

// textual shows a template the arguments of calls as text. A few templates put
// them together with text themselves, and fail on a mapping.
func textual(messages []message.Message) []message.Message {
	messages = slices.Clone(messages)
	for i, m := range messages {
		if len(m.Calls) == 0 {
			continue
		}
		calls := []byte(`[`)
		for j, c := range m.Calls {
			if j > 0 {
				calls = append(calls, ',')
			}
			calls = rawjson.AppendText(append(calls, `{"id":`...), c.ID)
			calls = rawjson.AppendText(append(calls, `,"type":"function","function":{"name":`...), c.Name)
			calls = rawjson.AppendText(append(calls, `,"arguments":`...), c.Arguments)
			calls = append(calls, "}}"...)
		}
		if m.Extra == nil {
			m.Extra = []byte(`{}`)
		}
		m.Extra = rawjson.Splice(nil, m.Extra, rawjson.Set{Key: "tool_calls", Value: append(calls, ']')})
		m.Calls = nil
		messages[i] = m
	}
	return messages
}

// listed gives templates of models that see images the lists of parts that they
// insist on.
func listed(messages []message.Message) []message.Message {
	messages = slices.Clone(messages)
	for i, m := range messages {
		if m.Content.Form == message.Text {
			messages[i].Content = message.Content{
				Form: message.List, Parts: []message.Part{{Type: "text", Text: m.Content.Text}},
			}
		}
	}
	return messages
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

// read finds out how replies are read. The family says it; for one that is not
// known it is the format that reads what the template writes for a call. In any
// case the template's own way to write a call is the test.
func (a *Assembler) read() {
	a.grammar = a.bind(a.m.Family.Format)
	if a.ability.Calls = a.reads(a.grammar); a.ability.Calls || a.m.Family.Name != family.Generic.Name {
		return
	}
	for _, f := range parse.Formats() {
		if g := a.bind(f); a.reads(g) {
			a.grammar, a.ability.Calls = g, true
			return
		}
	}
	if a.marks("<think>") && a.marks("</think>") {
		f := a.m.Family.Format
		f.ThinkOpen, f.ThinkClose, f.Thinking = "<think>", "</think>", "\n"
		a.grammar = a.bind(f)
	}
}

func (a *Assembler) marks(token string) bool {
	id, ok := a.m.Tokenizer.TokenID(token)
	return ok && a.added[id]
}

// reads reports whether a grammar reads a call as the template writes it.
func (a *Assembler) reads(g *parse.Grammar) bool {
	// Where the id of a call carries its name, it must be in that form. Where
	// the generation prompt has opened a thinking, the answer must have one;
	// where it has closed it, none.
	for _, id := range []string{callID, "functions." + tool + ":0"} {
		for _, reasoning := range []string{thought, ""} {
			call := calling(`{"turnlog":"`+reply+`"}`, id)
			call.Reasoning = reasoning
			if a.readsCall(g, call) {
				return true
			}
		}
	}
	return false
}

func (a *Assembler) readsCall(g *parse.Grammar, call message.Message) bool {
	user, tools := say(message.User, query), []message.Definition{definition}
	opened, err := a.render([]message.Message{user}, tools, true, probe)
	if err != nil {
		return false
	}
	closed, err := a.render([]message.Message{user, call}, tools, false, probe)
	rest, ok := strings.CutPrefix(closed, opened)
	if at := strings.LastIndex(opened, g.ThinkOpen); !ok && g.ThinkOpen != "" && at >= 0 {
		// The history leaves out the thinking that the prompt opens.
		rest, ok = strings.CutPrefix(closed, opened[:at])
		rest = g.ThinkClose + rest
	}
	if err != nil || !ok {
		return false
	}
	p := g.Parser(parse.Options{Prompt: behind(opened, query), Lead: a.lead, Tools: tools})
	p.Push(a.m.Tokenizer.Encode(nil, rest))
	r, _ := p.Finish("stop")
	return len(r.Calls) == 1 && r.Calls[0].Name == tool && strings.Contains(r.Calls[0].Arguments, reply) &&
		strings.TrimSpace(r.Content) == ""
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
