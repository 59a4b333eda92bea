package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/demo"
)

// forgetful writes a model's folder whose template drops the thinking of
// answers once the user speaks again, as many vendors' do.
func forgetful(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, demo.Files()))
	const thinks = `{%- if message.reasoning_content %}`
	source := demo.Template()
	require.Equal(t, 1, strings.Count(source, thinks))
	source = `{%- set last = namespace(user=-1) %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- set last.user = loop.index0 %}
    {%- endif %}
{%- endfor %}
` + strings.Replace(source, thinks, `{%- if message.reasoning_content and loop.index0 > last.user %}`, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(source), 0o644))
	return dir
}

// loggedTurn is what the gateway shows of a turn.
type loggedTurn struct {
	Parent, Decision, Reason, History string
	Keep                              int `json:"parent_keep"`
	Segments                          []struct {
		Source string
		IDs    []uint32
	}
	Completion []uint32
}

func (l loggedTurn) text() string {
	var ids []uint32
	for _, s := range l.Segments {
		ids = append(ids, s.IDs...)
	}
	return demo.Tokenizer().Decode(ids)
}

func (l loggedTurn) rerendered() bool {
	for _, s := range l.Segments {
		if s.Source == "assistant_rerendered" {
			return true
		}
	}
	return false
}

// turn asks in session s, and looks at the turn in the log.
func (a *agent) turn(t *testing.T, key string, history []chatMessage) (chatMessage, string, loggedTurn) {
	t.Helper()
	answer, id, err := a.chat(t.Context(), key, history, 1, false, "")
	require.NoError(t, err)
	res, err := a.get(t.Context(), "/sessions/s/turns/"+id)
	require.NoError(t, err)
	var l loggedTurn
	require.NoError(t, decode(res, &l))
	return answer, id, l
}

// TestTheHistoryPolicyIsTheModelsOrTheSessions has a model think, call a tool,
// and be asked again, under either policy, said by the configuration and by the
// session: keep goes on behind the sampled thinking, vendor makes a new root
// without it. What the recorder renders to compare with is of the same policy.
func TestTheHistoryPolicyIsTheModelsOrTheSessions(t *testing.T) {
	folder := forgetful(t)
	models := func(history string) string {
		return fmt.Sprintf(`[{name: demo, files: %q, engine: mock, aliases: ["*"], %s}]`, folder, history)
	}
	text := func(s string) *string { return &s }
	for _, c := range []struct{ name, model, session, want string }{
		{"by default", "", "", "keep"},
		{"vendor for the model", "history: vendor", "", "vendor"},
		{"vendor for the session", "", "vendor", "vendor"},
		{"keep for the session", "history: vendor", "keep", "keep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			p, a := all(t, data, "--models", models(c.model), "--recorder.policy.audit", "1")
			body := map[string]any{"session": "s"}
			if c.session != "" {
				body["history"] = c.session
			}
			var opened struct{ Session, Key string }
			require.NoError(t, a.post(t.Context(), "/sessions", a.key, body, nil, &opened))
			ask := func(history []chatMessage) (chatMessage, string, loggedTurn) {
				answer, id, l := a.turn(t, opened.Key, history)
				require.Equal(t, c.want, l.History)
				return answer, id, l
			}
			history := []chatMessage{{Role: "user", Content: text("Look.\nmock: think Where might it be?\nmock: call look {\"at\": \"here\"}\nmock: think Found.\nmock: say Here.")}}
			answer, first, l := ask(history)
			require.Len(t, answer.ToolCalls, 1)
			require.Contains(t, demo.Tokenizer().Decode(l.Completion), "Where might it be?")
			history = append(history, answer, chatMessage{Role: "tool", ToolCallID: answer.ToolCalls[0].ID, Content: text("it is")})
			// Inside a turn of the user, vendors keep thinking: both continue.
			answer, second, l := ask(history)
			require.Equal(t, []string{first, "extend", ""}, []string{l.Parent, l.Decision, l.Reason})
			require.Positive(t, l.Keep)
			history = append(history, answer, chatMessage{Role: "user", Content: text("And now?\nmock: say Still here.")})
			answer, third, l := ask(history)
			if c.want == "keep" {
				require.Equal(t, []string{second, "extend", ""}, []string{l.Parent, l.Decision, l.Reason})
				require.False(t, l.rerendered())
			} else {
				require.Equal(t, []string{"", "root", "template_rewrites"}, []string{l.Parent, l.Decision, l.Reason})
				require.True(t, l.rerendered())
				require.Contains(t, l.text(), "Here.<|im_end|>")
				require.NotContains(t, l.text(), "<think>")
			}
			// Nothing thought since: the new branch goes on.
			history = append(history, answer, chatMessage{Role: "user", Content: text("Thanks.\nmock: say Bye.")})
			_, _, l = ask(history)
			require.Equal(t, []string{third, "extend", ""}, []string{l.Parent, l.Decision, l.Reason})
			require.NoError(t, a.post(t.Context(), "/sessions/s/close", a.key, map[string]any{"reward": 1}, nil, nil))
			recorded, err := a.get(t.Context(), "/sessions/s/trajectory?wait=30")
			require.NoError(t, err)
			recorded.Body.Close()
			require.Equal(t, http.StatusOK, recorded.StatusCode)
			p.stop(t)
			said, err := output("verify", "--data", data, "--models", models(c.model), "--recorder.policy.audit", "1", "--logging.level", "warn")
			require.NoError(t, err, said)
			require.Contains(t, said, "4 turns")
			require.Contains(t, said, "0 findings")
		})
	}

	said, err := output("up", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--models", models("history: forget"))
	require.Error(t, err)
	require.Contains(t, said, `models[0].history: "forget" is neither keep nor vendor`)
}

// TestAnotherHistoryPolicyContinuesNoTurn starts again with another policy for
// the model: the ids so far hold what it would not have written.
func TestAnotherHistoryPolicyContinuesNoTurn(t *testing.T) {
	folder, data := forgetful(t), filepath.Join(t.TempDir(), "data")
	text := func(s string) *string { return &s }
	history := []chatMessage{{Role: "user", Content: text("Look.\nmock: think Hm.\nmock: say Here.")}}
	for _, c := range [][]string{{"keep", "root", "first_turn"}, {"vendor", "root", "policy_changed"}, {"vendor", "extend", ""}} {
		p, a := all(t, data, "--models", fmt.Sprintf(`[{name: demo, files: %q, engine: mock, aliases: ["*"], history: %s}]`, folder, c[0]))
		var opened struct{ Session, Key string }
		require.NoError(t, a.post(t.Context(), "/sessions", a.key, map[string]any{"session": "s"}, nil, &opened))
		answer, _, l := a.turn(t, opened.Key, history)
		got := []string{l.History, l.Decision, l.Reason}
		require.Equal(t, c, got)
		history = append(history, answer, chatMessage{Role: "user", Content: text("And now?\nmock: say Still here.")})
		p.stop(t)
	}
}
