package chat_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/jinja"
)

var noon = time.Date(2025, time.December, 1, 12, 30, 5, 0, time.UTC)

func text(role message.Role, s string) message.Message {
	return message.Message{Role: role, Content: message.TextContent(s)}
}

func template(t testing.TB, source string) *chat.Template {
	tmpl, err := chat.New(source, chat.SpecialTokens{"bos_token": "<s>", "eos_token": "</s>"})
	require.NoError(t, err)
	return tmpl
}

func render(t testing.TB, source string, messages []message.Message, opt chat.Options) string {
	out, err := template(t, source).Render(messages, nil, opt)
	require.NoError(t, err)
	return out.Text
}

func TestATemplateSeesWhatTransformersGivesIt(t *testing.T) {
	const source = `{{ bos_token }}{{ documents is none }}{{ tools is none }}{{ add_generation_prompt }}{{ messages | length }}{{ x }}{{ unk_token is defined }}`
	require.Equal(t, "<s>TrueTrueTrue1[1.0, {'b': None}]False", render(t, source, []message.Message{text(message.User, "hi")},
		chat.Options{AddGenerationPrompt: true, Kwargs: []byte(`{"x": [1.0, {"b": null}]}`)}))
	require.Equal(t, "own", render(t, `{{ bos_token }}`, nil, chat.Options{Kwargs: []byte(`{"bos_token": "own"}`)}), "arguments win over special tokens")
}

func TestMessagesKeepOrderAndForm(t *testing.T) {
	m := message.Message{
		Role: message.Assistant, Reasoning: "hm", Name: "bot", Extra: []byte(`{"z": 1.0, "role": "evil", "a": [null]}`),
		Calls: []message.Call{
			{ID: "c1", ModelID: "functions.f:0", Name: "f", Arguments: `{"z": 1.0, "a": 12345678901234567890, "u": "ü\n"}`},
			{ID: "c2", Name: "g", Arguments: `not JSON`},
			{Name: "h", Arguments: ` `},
			{Name: "i", Arguments: `[1]`},
		},
	}
	require.Equal(t, `{"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [`+
		`{"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": {"z": 1.0, "a": 12345678901234567890, "u": "ü\n"}}}, `+
		`{"id": "c2", "type": "function", "function": {"name": "g", "arguments": "not JSON"}}, `+
		`{"type": "function", "function": {"name": "h", "arguments": {}}}, `+
		`{"type": "function", "function": {"name": "i", "arguments": "[1]"}}], "name": "bot", "z": 1.0, "a": [null]}`,
		render(t, `{{ messages[0] | tojson }}{# reasoning_content #}`, []message.Message{m}, chat.Options{}))
	list := message.Message{Role: message.Tool, CallID: "c1", Content: message.Content{Form: message.List, Parts: []message.Part{
		{Type: "text", Text: "a"}, {Type: "image", Raw: []byte(`{"type": "image", "size": 1.50}`)},
	}}}
	require.Equal(t, `{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "image", "size": 1.5}], "tool_call_id": "c1"}`,
		render(t, `{{ messages[0] | tojson }}`, []message.Message{list}, chat.Options{}))
}

func TestToolsAreTheClientsJSON(t *testing.T) {
	tools := []message.Definition{{Name: "f", Raw: []byte(`{"type":"function","function":{"name":"f","parameters":{"z":1.0,"a":{}}}}`)}}
	out, err := template(t, `{% for t in tools %}{{ t | tojson }}{% endfor %}`).Render(nil, tools, chat.Options{})
	require.NoError(t, err)
	require.Equal(t, `{"type": "function", "function": {"name": "f", "parameters": {"z": 1.0, "a": {}}}}`, out.Text)
}

func TestThinkingIsWhereTheTemplateLooksForIt(t *testing.T) {
	for source, want := range map[string]string{
		"{{ message.reasoning_content }}": "reasoning_content",
		"{% if message.thinking %}":       "thinking",
		"{{ m['reasoning'] }}":            "reasoning",
		"{{ message.content }}":           "reasoning_content",
		"{% if thinking %}":               "reasoning_content",
	} {
		require.Equal(t, want, chat.ReasoningKey(source), source)
	}
}

func TestTheFinalMessageCanBeContinued(t *testing.T) {
	keep := `{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}`
	trim := `{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}[/]{% endfor %}`
	messages := []message.Message{text(message.User, "go"), text(message.Assistant, "Roses are ")}
	opt := chat.Options{ContinueFinalMessage: true}
	require.Equal(t, "[user]go[/][assistant]Roses are ", render(t, keep, messages, opt))
	require.Equal(t, "[user]go[/][assistant]Roses are", render(t, trim, messages, opt))
	parts := []message.Message{{Role: message.Assistant, Content: message.Content{Form: message.List, Parts: []message.Part{
		{Type: "text", Text: "a"}, {Type: "text", Text: "b"}, {Type: "image", Raw: []byte(`{"type":"image"}`)},
	}}}}
	require.Equal(t, "ab", render(t, `{% for p in messages[0].content %}{{ p.text }}{% endfor %}.`, parts, opt))

	for name, c := range map[string]struct {
		source   string
		messages []message.Message
		opt      chat.Options
	}{
		"no messages":            {keep, nil, opt},
		"no content":             {keep, []message.Message{{Role: message.Assistant}}, opt},
		"no text":                {keep, []message.Message{{Role: message.Assistant, Content: message.Content{Form: message.List}}}, opt},
		"a template that drops":  {`{{ messages[0].content }}`, messages, opt},
		"a template that alters": {`{{ messages[1].content | upper }}`, messages, opt},
		"both":                   {keep, messages, chat.Options{ContinueFinalMessage: true, AddGenerationPrompt: true}},
	} {
		_, err := template(t, c.source).Render(c.messages, nil, c.opt)
		require.ErrorIs(t, err, chat.ErrContinue, name)
	}
	require.Equal(t, "Roses are ", messages[1].Content.Text, "the caller's messages stay as they were")
}

func TestTimeIsTheCallersAndNeverTheClocks(t *testing.T) {
	source := `{{ strftime_now('%d %B %Y') }}`
	require.Equal(t, "01 December 2025", render(t, source, nil, chat.Options{Now: noon}))
	_, err := template(t, source).Render(nil, nil, chat.Options{})
	require.ErrorIs(t, err, chat.ErrNoTime)
	require.True(t, template(t, source).UsesTime())
	require.False(t, template(t, `x`).UsesTime())
}

func TestStrftimeIsPythons(t *testing.T) {
	// python3 -c "print(datetime(2025, 12, 1, 12, 30, 5).strftime(...))" in the C locale.
	for format, want := range map[string]string{
		"%a %A %b %B %h":       "Mon Monday Dec December Dec",
		"%c|%x|%X|%r|%R|%T|%D": "Mon Dec  1 12:30:05 2025|12/01/25|12:30:05|12:30:05 PM|12:30|12:30:05|12/01/25",
		"%C %d %e %F %g %G":    "20 01  1 2025-12-01 25 2025",
		"%H %I %j %k %l %m %M": "12 12 335 12 12 12 30",
		"%p %P %s %S %u %w":    "PM pm 1764592205 05 1 1",
		"%U %V %W %y %Y %% %f": "48 49 48 25 2025 % 000000",
		"%-d %_d %-m %^b %0e":  "1  1 12 DEC 01",
		"%z%Z|%n|%t|%Q|%":      "|\n|\t|%Q|%",
	} {
		require.Equal(t, want, chat.Strftime(noon, format), format)
	}
}

func TestASetOfTemplatesHasOneForTools(t *testing.T) {
	tmpl, err := chat.NewSet(map[string]string{chat.Default: "d", chat.ToolUse: "t"}, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		tools []message.Definition
		want  string
	}{{nil, "d"}, {[]message.Definition{{Raw: []byte(`{}`)}}, "t"}} {
		out, err := tmpl.Render(nil, c.tools, chat.Options{})
		require.NoError(t, err)
		require.Equal(t, c.want, out.Text)
	}
	none, err := chat.NewSet(map[string]string{"rag": "r"}, nil)
	require.NoError(t, err)
	_, err = none.Render(nil, nil, chat.Options{})
	require.ErrorIs(t, err, chat.ErrNoTemplate)
	require.ErrorContains(t, err, "rag")
}

func TestFingerprintsTellTemplatesApart(t *testing.T) {
	a, b := template(t, "a"), template(t, "b")
	require.NotEqual(t, a.Fingerprint(), b.Fingerprint())
	require.Equal(t, a.Fingerprint(), template(t, "a").Fingerprint())
}

func TestErrorsNameTheirCause(t *testing.T) {
	_, err := chat.New("{% if %}", nil)
	require.ErrorContains(t, err, `chat: template "default": jinja: compile: line 1`)
	_, err = template(t, "{{ raise_exception('no') }}").Render(nil, nil, chat.Options{})
	var raised *jinja.RaiseError
	require.ErrorAs(t, err, &raised)
	for _, kwargs := range []string{`{"messages": []}`, `[1]`, `{`} {
		_, err = template(t, "x").Render(nil, nil, chat.Options{Kwargs: []byte(kwargs)})
		require.ErrorContains(t, err, "chat: render: template arguments: ", kwargs)
	}
	_, err = template(t, "x").Render([]message.Message{{Role: message.User, Extra: []byte(`{"a": 01}`)}}, nil, chat.Options{})
	require.ErrorContains(t, err, "message 0: a: ")
}

// TestTheDemoTemplateRendersAsInTransformers compares with what transformers
// made of the demo's template (testdata/generate.py).
func TestTheDemoTemplateRendersAsInTransformers(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var golden []struct {
		Name     string
		Messages json.RawMessage
		Tools    json.RawMessage
		Generate bool
		Continue bool
		Kwargs   json.RawMessage
		Text     string
		Raises   bool
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	tmpl, err := chat.New(demo.Template(), nil)
	require.NoError(t, err)
	for _, c := range golden {
		messages, err := jinja.FromJSON(c.Messages)
		require.NoError(t, err)
		tools, err := jinja.FromJSON(c.Tools)
		require.NoError(t, err)
		out, err := tmpl.RenderValues(messages.(*jinja.List), tools, chat.Options{
			AddGenerationPrompt: c.Generate, ContinueFinalMessage: c.Continue, Kwargs: c.Kwargs, Now: noon,
		})
		if c.Raises {
			require.Error(t, err, c.Name)
			continue
		}
		require.NoError(t, err, c.Name)
		require.Equal(t, c.Text, out.Text, c.Name)
	}
}

func TestTheDemoTemplateIsAppendOnly(t *testing.T) {
	call := message.Message{Role: message.Assistant, Reasoning: "I should look.", Calls: []message.Call{{ID: "1", Name: "ls", Arguments: `{"path": "/"}`}}}
	conversation := []message.Message{
		text(message.System, "Be brief."), text(message.User, "What is here?"), call,
		{Role: message.Tool, CallID: "1", Content: message.TextContent("a.go")},
		text(message.Assistant, "One file."),
		text(message.System, "The user is in a hurry."), text(message.User, "Thanks."), text(message.Assistant, "Welcome."),
	}
	tmpl, err := chat.New(demo.Template(), nil)
	require.NoError(t, err)
	for _, kwargs := range []string{"", `{"enable_thinking": false}`} {
		before := ""
		for n := 1; n <= len(conversation); n++ {
			out, err := tmpl.Render(conversation[:n], nil, chat.Options{Kwargs: []byte(kwargs)})
			require.NoError(t, err)
			require.True(t, len(out.Text) > len(before) && out.Text[:len(before)] == before, "%q does not begin with %q", out.Text, before)
			before = out.Text
		}
	}
	_, err = tmpl.Render([]message.Message{{Role: message.User, Content: message.Content{Form: message.List, Parts: []message.Part{{Type: "image", Raw: []byte(`{"type":"image"}`)}}}}}, nil, chat.Options{})
	var raised *jinja.RaiseError
	require.ErrorAs(t, err, &raised)
}

func FuzzMessages(f *testing.F) {
	tmpl := template(f, demo.Template())
	f.Add([]byte(`[{"role":"user","content":"hi"},{"role":"assistant","content":null,"reasoning":"r","calls":[{"id":"1","name":"f","arguments":"{\"a\": 1}"}]},{"role":"tool","content":[{"type":"text","text":"x"}],"call_id":"1","extra":{"z":1.0}}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		messages, err := message.ParseList(raw)
		if err != nil {
			return
		}
		first, err := tmpl.Render(messages, nil, chat.Options{AddGenerationPrompt: true, Limits: jinja.Limits{Steps: 100_000, Output: 1 << 20}})
		again, _ := tmpl.Render(messages, nil, chat.Options{AddGenerationPrompt: true, Limits: jinja.Limits{Steps: 100_000, Output: 1 << 20}})
		if err == nil && first.Text != again.Text {
			t.Fatal("two renders differ")
		}
	})
}
