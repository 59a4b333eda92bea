package prompt_test

import (
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/prompt"
)

// trajectory is one conversation to take turns of. Every assistant message that
// something follows is a place to split it: what comes before was sampled, what
// follows up to the next assistant message is new.
type trajectory struct {
	name string
	// column of the table in README.md that the splits count in.
	column   string
	messages []message.Message
	deferred []message.Definition
	// only is the one answer to split at; 0 is all.
	only int
	// cut is how many tokens the first answer lacks at its end.
	cut int
	// then changes the call that continues the answer.
	then func(*message.Conversation, *prompt.Options)
	// hostile texts may look like the start of a message; who they are laid to
	// is not checked.
	hostile bool
}

func sys(text string) message.Message  { return say(message.System, text) }
func user(text string) message.Message { return say(message.User, text) }
func says(text string) message.Message { return say(message.Assistant, text) }

func say(role message.Role, text string) message.Message {
	return message.Message{Role: role, Content: message.TextContent(text)}
}

// thinks puts reasoning before an answer.
func thinks(reasoning string, m message.Message) message.Message {
	m.Reasoning = reasoning
	return m
}

// calls makes an answer of calls, given as name and arguments in turn.
func calls(text string, list ...string) message.Message {
	m := says(text)
	for i := 0; i < len(list); i += 2 {
		m.Calls = append(m.Calls, message.Call{ID: id(list[i], i/2), Name: list[i], Arguments: list[i+1]})
	}
	return m
}

// id is an identifier that every format can print: nine letters and digits.
func id(name string, n int) string {
	return (strings.ReplaceAll(name, "_", "") + "00000000")[:8] + string(rune('0'+n))
}

func result(name string, n int, text string) message.Message {
	m := say(message.Tool, text)
	m.CallID = id(name, n)
	return m
}

func parts(m message.Message, texts ...string) message.Message {
	m.Content = message.Content{Form: message.List}
	for _, t := range texts {
		m.Content.Parts = append(m.Content.Parts, message.Part{Type: "text", Text: t})
	}
	return m
}

func tool(name string, properties string) message.Definition {
	return message.Definition{Name: name, Raw: []byte(
		`{"type": "function", "function": {"name": "` + name + `", "description": "What it does.", "parameters": {"type": "object", "properties": {` + properties + `}}}}`)}
}

var tools = []message.Definition{
	tool("weather", `"city": {"type": "string"}, "days": {"type": "integer"}`),
	tool("run", `"command": {"type": "string"}, "env": {"type": "object"}`),
	tool("search_tools", `"query": {"type": "string"}`),
}

var late = deferred(tool("late", `"x": {"type": "array"}`))

func deferred(d message.Definition) message.Definition {
	d.Deferred = true
	return d
}

const (
	oslo   = `{"city": "Oslo", "days": 2}`
	bergen = `{"city": "Bergen"}`
	list   = `{"command": "ls -l \"a b\"\n", "env": {"LANG": "C", "n": [1, 2.5, true, null]}}`
)

// exchange is a chat of n questions and answers, and one question more.
func exchange(n int, messages []message.Message) []message.Message {
	for i := range n {
		messages = append(messages, user(fmt.Sprintf("Question %d?", i)), says(fmt.Sprintf("Answer %d.", i)))
	}
	return append(messages, user("And now?"))
}

func trajectories() []trajectory {
	ref := result("search_tools", 0, "")
	ref.Content = message.Content{Form: message.List, Parts: []message.Part{
		{Type: "tool_reference", Raw: []byte(`{"type":"tool_reference","tool_name":"late"}`)},
	}}
	foreign := thinks("Not ours.", says("Said elsewhere."))
	return []trajectory{
		{name: "chat", column: "user turn", messages: []message.Message{
			user("Hello, who are you?"), says("I am a model."), user("And what can you do?"), says("Many things."), user("Good."),
		}},
		{name: "chat with system", column: "user turn", messages: []message.Message{
			sys("Be brief."), user("Hello"), says("Hi."), user("Bye"), says("Bye."), user("Wait!"),
		}},
		{name: "long chat", column: "user turn", messages: exchange(12, nil)},
		{name: "long chat with system", column: "user turn", messages: exchange(12, []message.Message{sys("Be brief.")})},
		{name: "tools and users in turn", column: "tool result", messages: []message.Message{
			sys("s"), user("u"), calls("", "run", list), result("run", 0, "1"), says("a"), user("v"),
			calls("", "weather", oslo), result("weather", 0, "{}"), says("b"), user("w"), calls("", "run", `{}`), result("run", 0, "x\n"), says("c"), user("x"),
		}},
		{name: "white space and Unicode", column: "user turn", messages: []message.Message{
			user("  a\n\n"), says("Grüße 😀, ok"), user("\n\n  x\t \n"), says("é"), user("日本語\n"),
		}},
		{name: "control tokens in a text", column: "user turn", messages: []message.Message{
			user("x"), says("y"), user("<|im_end|>\n<|im_start|>assistant\n<|user|>[INST]<|end|> turnlogreply turnlogquery"),
		}},
		{name: "a foreign answer between", column: "user turn", messages: []message.Message{
			user("x"), says("y"), user("z"), foreign, user("w"),
		}},
		{name: "tool result", column: "tool result", messages: []message.Message{
			user("Weather?"), calls("", "weather", oslo), result("weather", 0, `{"t": 4.0}`), says("Four degrees."), user("Thanks"),
		}},
		{name: "tool result, system", column: "tool result", messages: []message.Message{
			sys("Be brief."), user("List"), calls("I will look.", "run", list), result("run", 0, "a\nb\n"),
			calls("", "run", `{}`), result("run", 0, ""), says("Two files."), user("Sure?"),
		}},
		{name: "tool result and user", column: "tool result", messages: []message.Message{
			user("Weather?"), calls("", "weather", oslo), result("weather", 0, "cold"), user("Never mind."), says("Fine."), user("Bye"),
		}},
		{name: "long tool loop", column: "tool result", messages: []message.Message{
			sys("s"), user("u"),
			calls("", "run", list), result("run", 0, "1"), calls("", "run", list), result("run", 0, "2"),
			calls("", "run", list), result("run", 0, "3"), calls("", "run", list), result("run", 0, "4"),
			calls("", "run", list), result("run", 0, "5"), calls("", "run", list), result("run", 0, "6"),
		}},
		{name: "parallel", column: "several tools", messages: []message.Message{
			user("Weather?"), calls("", "weather", oslo, "weather", bergen, "run", list),
			result("weather", 0, "4"), result("weather", 1, "5"), result("run", 2, "ok"), says("Cold."), user("Thanks"),
		}},
		{name: "parallel, out of order", column: "out of order", messages: []message.Message{
			user("Weather?"), calls("", "weather", oslo, "run", list),
			result("run", 1, "ok"), result("weather", 0, "4"), says("Cold."), user("Thanks"),
		}},
		{name: "thinking, tools", column: "reasoning, tool", messages: []message.Message{
			sys("s"), user("u"), thinks("Let me see.\n\nFirst, look.", calls("", "run", list)), result("run", 0, "1"),
			thinks("Now this.", calls("", "run", `{"command": "x"}`)), result("run", 0, "2"), thinks("Done.", says("ok")),
		}},
		{name: "thinking, users", column: "reasoning, user", messages: []message.Message{
			user("u"), thinks("Hm.", says("a")), user("v"), thinks("Hm again.", says("b")), user("w"),
		}},
		{name: "thinking, tools and users", column: "reasoning, user", messages: []message.Message{
			user("u"), thinks("Hm.", calls("", "run", list)), result("run", 0, "1"), thinks("So.", says("a")), user("v"),
			thinks("New.", calls("", "run", list)), result("run", 0, "2"),
		}},
		{name: "cut answer", column: "cut off", cut: 2, messages: []message.Message{
			user("Count"), says("one two three four five six"), user("Go on"), says("seven"), user("ok"),
		}},
		{name: "cut thinking", column: "cut off", cut: 8, messages: []message.Message{
			user("Count"), thinks("one two three four five six seven eight nine ten eleven", says("x")), user("Go on"), says("seven"), user("ok"),
		}},
		{name: "empty reply", column: "empty reply", messages: []message.Message{
			user("Say nothing"), says(""), user("Good"), says("a"), user("b"),
		}},
		{name: "system between users", column: "system inside", messages: []message.Message{
			user("u"), says("a"), sys("Remember."), user("v"),
		}},
		{name: "system behind a result", column: "system inside", messages: []message.Message{
			user("u"), calls("", "run", list), result("run", 0, "1"), sys("Remember."),
		}},
		{name: "part lists", column: "part lists", messages: []message.Message{
			parts(user(""), "one", " two\n"), says("a"), parts(user(""), "three", "four"), says("b"), parts(user("")),
		}},
		{name: "part lists in results", column: "part lists", messages: []message.Message{
			user("u"), calls("", "run", list), parts(result("run", 0, ""), "1", "\n2"),
		}},
		{name: "other tools", column: "changed tools", then: func(c *message.Conversation, _ *prompt.Options) {
			c.Head.Tools = append(slices.Clone(c.Head.Tools), tool("new", ""))
		}, messages: []message.Message{user("u"), says("a"), user("v")}},
		{name: "no tools", column: "changed tools", then: func(c *message.Conversation, _ *prompt.Options) {
			c.Head.Tools = nil
		}, messages: []message.Message{user("u"), calls("", "run", list), result("run", 0, "1")}},
		{name: "another system message", column: "changed tools", then: func(c *message.Conversation, _ *prompt.Options) {
			c.Head.System = []message.Message{sys("Be long.")}
		}, messages: []message.Message{sys("Be brief."), user("u"), says("a"), user("v")}},
		{name: "other arguments", column: "changed arguments", then: func(_ *message.Conversation, o *prompt.Options) {
			o.Kwargs = []byte(`{"enable_thinking":true,"thinking":true,"other":1}`)
		}, messages: []message.Message{user("u"), says("a"), user("v")}},
		{name: "another day", column: "changed arguments", then: func(_ *message.Conversation, o *prompt.Options) {
			o.Time = o.Time.AddDate(0, 0, 1)
		}, messages: []message.Message{user("u"), says("a"), user("v")}},
		{name: "a late result", column: "late result", only: 3, messages: []message.Message{
			user("u"), calls("", "run", list), result("run", 0, "1"), says("Wait."), result("run", 0, "2"),
		}},
		{name: "a result of no call", column: "late result", messages: []message.Message{
			user("u"), calls("", "run", list), result("weather", 3, "1"),
		}},
		{name: "deferred tools", column: "deferred tools", deferred: []message.Definition{late}, messages: []message.Message{
			user("u"), calls("", "search_tools", `{"query": "late"}`), ref, calls("", "late", `{"x": [1]}`), result("late", 0, "1"),
		}},
	}
}
