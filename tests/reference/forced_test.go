package reference

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/tokenizer/family/familytest"
)

// forcing are the ways in which the protocols force a call: of any tool, and of
// the one named go.
var forcing = []struct{ path, body, any, one string }{
	{
		chatPath, `{"messages":[{"role":"user","content":"Go."}],"tools":[{"type":"function","function":{"name":"look","parameters":SCHEMA}},
			{"type":"function","function":{"name":"go","parameters":SCHEMA}}],"tool_choice":CHOICE}`,
		`"required"`, `{"type":"function","function":{"name":"go"}}`,
	},
	{
		"/v1/responses", `{"input":"Go.","tools":[{"type":"function","name":"look","parameters":SCHEMA},{"type":"function","name":"go","parameters":SCHEMA}],
			"tool_choice":CHOICE}`,
		`"required"`, `{"type":"function","name":"go"}`,
	},
	{
		messages, `{"max_tokens":500,"messages":[{"role":"user","content":"Go."}],"tools":[{"name":"look","input_schema":SCHEMA},{"name":"go","input_schema":SCHEMA}],
			"tool_choice":CHOICE}`,
		`{"type":"any"}`, `{"type":"tool","name":"go"}`,
	},
}

const forcedSchema = `{"type":"object","required":["at","unit","what"],"properties":{
	"at":{"type":"integer"},"unit":{"type":"string","enum":["K","F"]},"what":{"type":"string"},"more":{"type":"array"}}}`

// called is the first call in an answer of any protocol.
func called(t *testing.T, r reply) (name string, arguments object) {
	t.Helper()
	text := r.text("choices.0.message.tool_calls.0.function.arguments")
	name = r.text("choices.0.message.tool_calls.0.function.name")
	for _, list := range []string{"output", "content"} {
		items, _ := r.at(list).([]any)
		for _, item := range items {
			switch call, _ := item.(object); call["type"] {
			case "function_call":
				name, _ = call["name"].(string)
				text, _ = call["arguments"].(string)
			case "tool_use":
				name, _ = call["name"].(string)
				raw, err := json.Marshal(call["input"])
				require.NoError(t, err)
				text = string(raw)
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &arguments), r.body)
	return name, arguments
}

// TestAForcedCallComesOutOfEveryFamily: whatever the family, the engine and the
// client's protocol, the client gets the call with arguments that fit, and the
// turn says that it was constrained.
func TestAForcedCallComesOutOfEveryFamily(t *testing.T) {
	for _, c := range familytest.Checkpoints() {
		if !c.Calls {
			continue
		}
		for _, kind := range []string{"sglang", "vllm", "llamacpp"} {
			t.Run(c.Name+"/"+kind, func(t *testing.T) {
				w := newWorld(t, mock.Always(mock.Say("I would rather talk.")), options{Wire: kind, Of: &c})
				for _, f := range forcing {
					for choice, want := range map[string]string{f.any: "look", f.one: "go"} {
						body := strings.NewReplacer("SCHEMA", forcedSchema, "CHOICE", choice).Replace(f.body)
						r := w.post(f.path, `{"model":"any",`+body[1:])
						require.Equal(t, http.StatusOK, r.status, r.body)
						name, arguments := called(t, r)
						require.Equal(t, want, name, r.body)
						require.Contains(t, []any{"K", "F"}, arguments["unit"], r.body)
						require.IsType(t, 0.0, arguments["at"], r.body)
						require.IsType(t, "", arguments["what"], r.body)
						committed := w.last().Committed
						require.Equal(t, []string{gateway.ToolChoiceKind}, committed.GetGeneration().GetConstraints())
						require.Empty(t, committed.GetCompletion().GetFlags(), r.body)
					}
				}
			})
		}
	}
}

// TestAForcedCallThatCannotBeSaidIsRefused by a sentence with the argument that
// is in the way; so is one where there is no tool.
func TestAForcedCallThatCannotBeSaidIsRefused(t *testing.T) {
	glm := familytest.Checkpoints()[8]
	w := newWorld(t, mock.Always(mock.Say("I would rather talk.")), options{Of: &glm})
	for _, f := range forcing {
		body := strings.NewReplacer("SCHEMA", `{"type":"object","properties":{"a<b":{"type":"string"}}}`, "CHOICE", f.any).Replace(f.body)
		r := w.post(f.path, `{"model":"any",`+body[1:])
		require.Equal(t, http.StatusBadRequest, r.status, r.body)
		require.Contains(t, r.text("error.message"), `tool_choice cannot force a call of the model "`+glm.Name+`": the tool "look": its argument "a<b": no tag can hold such a name; use auto or none`)
		before, after, _ := strings.Cut(body, `"tools":[`)
		_, after, _ = strings.Cut(after, `],`)
		r = w.post(f.path, `{"model":"any",`+before[1:]+after)
		require.Equal(t, http.StatusBadRequest, r.status, "no tools: "+r.body)
		require.Contains(t, r.text("error.message"), "tool_choice")
	}
	require.Empty(t, w.turns())
}
