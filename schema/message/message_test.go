package message_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
)

// The golden file holds messages as version 1 encodes them, and the hashes under
// which the log knows their heads. Entries are only ever added.
var update = flag.Bool("update", false, "write the golden file if it is missing")

const golden = "testdata/v1.json"

type goldenFile struct {
	Messages []string     `json:"messages"`
	Heads    []goldenHead `json:"heads"`
}

type goldenHead struct {
	System string `json:"system"`
	Tools  string `json:"tools"`
	Hash   string `json:"hash"`
}

// messages are one of each shape, in the canonical form.
var messages = []string{
	`{"role":"system","content":"Be brief."}`,
	`{"role":"developer","content":"Be brief."}`,
	`{"role":"user","content":"Ünïcode \n \" \\ \u0000 😀"}`,
	`{"role":"user","content":null}`,
	`{"role":"user","content":""}`,
	`{"role":"user","content":[]}`,
	`{"role":"user","content":[{"type":"text","text":"a"}]}`,
	`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
	`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url", "image_url": {"url":"data:,"}}]}`,
	`{"role":"user","content":"a","name":"ann"}`,
	`{"role":"assistant","content":"a","reasoning":"because"}`,
	`{"role":"assistant","content":null,"calls":[{"id":"c1","name":"ls","arguments":"{\"a\": 1.0}"}]}`,
	`{"role":"assistant","content":"x","calls":[{"id":"c1","model_id":"functions.ls:0","name":"ls","arguments":"not json"},{"id":"c2","name":"cat","arguments":""}]}`,
	`{"role":"tool","content":"ok","call_id":"c1","name":"ls"}`,
	`{"role":"tool","content":"no","call_id":"c2","is_error":true}`,
	`{"role":"assistant","content":"a","extra":{"refusal": null, "n": 1.50}}`,
}

// heads are lists of system messages and of tools.
var heads = [][2]string{
	{`[]`, `[]`},
	{`[{"role":"system","content":"Be brief."}]`, `[]`},
	{`[{"role":"developer","content":"Be brief."}]`, `[]`},
	{
		`[{"role":"system","content":"a"},{"role":"system","content":"b"}]`,
		`[{"type":"function","function":{"name":"ls","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}]`,
	},
}

func TestMessagesOfVersionOneKeepTheirBytesAndHeadsTheirHashes(t *testing.T) {
	raw, err := os.ReadFile(golden)
	if errors.Is(err, os.ErrNotExist) && *update {
		raw = write(t)
	} else {
		require.NoError(t, err)
	}
	var file goldenFile
	require.NoError(t, json.Unmarshal(raw, &file))
	require.Len(t, file.Messages, len(messages))

	for _, raw := range file.Messages {
		m, err := message.Parse([]byte(raw))
		require.NoError(t, err, raw)
		require.Equal(t, raw, string(m.AppendJSON(nil)))
	}
	for _, g := range file.Heads {
		require.Equal(t, g.Hash, text(head(t, g.System, g.Tools).Hash()), g.System)
	}
}

func text(h message.Hash) string {
	const digits = "0123456789abcdef"
	var b []byte
	for _, c := range h {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return string(b)
}

func head(t *testing.T, system, tools string) message.Head {
	t.Helper()
	list, err := message.ParseList([]byte(system))
	require.NoError(t, err)
	definitions, err := message.ParseTools([]byte(tools))
	require.NoError(t, err)
	return message.Head{System: list, Tools: definitions}
}

func write(t *testing.T) []byte {
	t.Helper()
	var file goldenFile
	file.Messages = messages
	for _, h := range heads {
		file.Heads = append(file.Heads, goldenHead{h[0], h[1], text(head(t, h[0], h[1]).Hash())})
	}
	raw, err := json.MarshalIndent(file, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, os.WriteFile(golden, append(raw, '\n'), 0o644))
	return raw
}

func parse(t *testing.T, raw string) message.Message {
	t.Helper()
	m, err := message.Parse([]byte(raw))
	require.NoError(t, err, raw)
	return m
}

func TestAConversationIsCutAtItsHead(t *testing.T) {
	list := []message.Message{
		{Role: message.System, Content: message.TextContent("a")},
		{Role: message.Developer, Content: message.TextContent("b")},
		{Role: message.User, Content: message.TextContent("c")},
		{Role: message.System, Content: message.TextContent("late")},
	}
	tools := []message.Definition{{Name: "now", Raw: []byte(`{}`)}, {Name: "later", Raw: []byte(`{}`), Deferred: true}}
	c := message.Split(list, tools)
	require.Equal(t, list[:2], c.Head.System)
	require.Equal(t, list[2:], c.Messages)
	require.Equal(t, "now", c.Head.Tools[0].Name)
	require.Equal(t, "later", c.Deferred[0].Name)
	require.Equal(t, list, c.All())
}

func TestWhatIsNoMessageIsMalformed(t *testing.T) {
	for _, raw := range []string{
		``, `null`, `[]`, `"a"`, `{}`, `{"role":"user"`, `{"role":"robot","content":"a"}`, `{"role":1,"content":"a"}`,
		`{"role":"user","content":1}`, `{"role":"user","content":{}}`, `{"role":"user","content":[1]}`,
		`{"role":"user","content":[{}]}`, `{"role":"user","content":[{"type":"text"}]}`, `{"role":"user","content":"a","surprise":1}`,
	} {
		_, err := message.Parse([]byte(raw))
		require.ErrorIs(t, err, message.ErrMalformed, raw)
	}
	for _, raw := range []string{``, `{`, `[{"role":"robot"}]`, `[1]`} {
		_, err := message.ParseList([]byte(raw))
		require.ErrorIs(t, err, message.ErrMalformed, raw)
	}
}

func TestADurableMessageIsReadAsItWasWritten(t *testing.T) {
	durable := 0
	for _, raw := range messages {
		m := parse(t, raw)
		if m.Durable() {
			durable++
			require.Equal(t, m, parse(t, string(m.AppendJSON(nil))))
		}
	}
	require.Greater(t, durable, len(messages)/2)
	text := message.TextContent("a")
	for name, m := range map[string]message.Message{
		"no role":           {Content: text},
		"a list":            {Role: message.User, Content: message.Content{Form: message.List}},
		"members besides":   {Role: message.User, Content: text, Extra: []byte("{}")},
		"text of null":      {Role: message.User, Content: message.Content{Text: "a"}},
		"no calls":          {Role: message.Assistant, Content: text, Calls: []message.Call{}},
		"bytes":             {Role: message.User, Content: message.TextContent("\xff")},
		"bytes in thinking": {Role: message.Assistant, Content: text, Reasoning: "\xff"},
		"bytes in a call":   {Role: message.Assistant, Content: text, Calls: []message.Call{{ID: "a", Name: "b", Arguments: "\xff"}}},
	} {
		require.False(t, m.Durable(), name)
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range messages {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := message.Parse(raw)
		if err != nil {
			require.ErrorIs(t, err, message.ErrMalformed)
			return
		}
		first := m.AppendJSON(nil)
		again, err := message.Parse(first)
		require.NoError(t, err, "%s", first)
		require.Equal(t, string(first), string(again.AppendJSON(nil)), "one message has one encoding")
		if m.Durable() {
			require.Equal(t, m, again)
		}

		list, err := message.ParseList(message.AppendList(nil, []message.Message{m, m}))
		require.NoError(t, err)
		require.Len(t, list, 2)
	})
}

func FuzzParseTools(f *testing.F) {
	f.Add([]byte(heads[3][1]))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tools, err := message.ParseTools(raw)
		if err != nil {
			require.ErrorIs(t, err, message.ErrMalformed)
			return
		}
		first := message.AppendTools(nil, tools)
		again, err := message.ParseTools(first)
		require.NoError(t, err)
		require.Equal(t, string(first), string(message.AppendTools(nil, again)))
		require.Equal(t, message.Head{Tools: tools}.Hash(), message.Head{Tools: again}.Hash())
	})
}
