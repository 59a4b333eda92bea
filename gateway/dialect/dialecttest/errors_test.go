package dialecttest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/engine"
)

// troubles are what can go wrong beyond the client, with what each protocol's
// clients are told. A client tries again by status (Claude Code and the SDKs:
// 5xx and 529; Codex: 5xx, and dies of a 429 without Retry-After), and knows a
// history that is too long by the text (Claude Code) or the code (Codex).
var troubles = []struct {
	name    string
	options dialecttest.Options
	reply   dialecttest.Reply
	// openai and anthropic are status, type and, of OpenAI's, code.
	openai, anthropic [3]any
	retryAfter        string
	text              string
}{
	{
		name: "the engines are busy", reply: failing(engine.Overloaded),
		openai: [3]any{503, "server_error", "overloaded"}, anthropic: [3]any{529, "overloaded_error"},
		retryAfter: "1", text: "the engines are busy (overloaded, try again)",
	},
	{
		name: "the engines are busy for a time that they name", reply: dialecttest.Reply{Err: &engine.Error{Class: engine.Overloaded, RetryAfter: 7 * time.Second}},
		openai: [3]any{503, "server_error", "overloaded"}, anthropic: [3]any{529, "overloaded_error"},
		retryAfter: "7", text: "the engines are busy",
	},
	{
		name: "no engine answers", reply: failing(engine.Unreachable),
		openai: [3]any{503, "server_error", "engine_down"}, anthropic: [3]any{503, "api_error"},
		retryAfter: "2", text: "no engine answers (service unavailable, try again)",
	},
	{
		name: "the engine fails", reply: failing(engine.Failed),
		openai: [3]any{502, "server_error", "engine_error"}, anthropic: [3]any{502, "api_error"},
		retryAfter: "1", text: "the engine failed (service unavailable, try again)",
	},
	{
		name: "the engine's answer cannot be recorded", reply: failing(engine.Broken),
		openai: [3]any{502, "server_error", "engine_error"}, anthropic: [3]any{502, "api_error"},
		text: "the engine's answer cannot be recorded: as the case says",
	},
	{
		name: "the engine refuses", reply: failing(engine.Refused),
		openai: [3]any{400, "invalid_request_error", nil}, anthropic: [3]any{400, "invalid_request_error"},
		text: "the engine refused the request: as the case says",
	},
	{
		name: "the engine finds it too long", reply: failing(engine.TooLong),
		openai: [3]any{400, "invalid_request_error", "context_length_exceeded"}, anthropic: [3]any{400, "invalid_request_error"},
	},
	{
		name: "the deadline", options: dialecttest.Options{Deadline: 5 * time.Second}, reply: dialecttest.Reply{Text: "late", After: time.Minute},
		openai: [3]any{504, "server_error", "timeout"}, anthropic: [3]any{504, "timeout_error"},
		text: "the turn took too long (timed out)",
	},
	{
		name: "the log takes no turns", options: dialecttest.Options{LogDown: true},
		openai: [3]any{503, "server_error", "log_unavailable"}, anthropic: [3]any{503, "api_error"},
		retryAfter: "5", text: "the log takes no turns now (service unavailable, try again)",
	},
}

func failing(class engine.Class) dialecttest.Reply {
	return dialecttest.Reply{Err: &engine.Error{Class: class, Message: "as the case says"}}
}

func TestTroubleIsToldAsEachProtocolsClientsKnowIt(t *testing.T) {
	for _, c := range troubles {
		for name, call := range every {
			for _, stream := range []string{"false", "true"} {
				synctest.Test(t, func(t *testing.T) {
					w := dialecttest.New(t, c.options)
					w.Engine.Say(c.reply, c.reply, c.reply, c.reply)
					r := w.Do(context.Background(), http.MethodPost, call.path, strings.Replace(call.body, "{", `{"stream":`+stream+`,`, 1))
					what := c.name + ", " + name + ", stream " + stream + ": " + r.Body
					expected := c.openai
					body := dialecttest.Event{Data: []byte(r.Body)}
					if name == "messages" {
						expected = c.anthropic
						require.Equal(t, "error", body.Get("type"), what)
						require.Equal(t, r.Header.Get("request-id"), body.Get("request_id"), what)
					} else {
						code := "null"
						if expected[2] != nil {
							code = expected[2].(string)
						}
						require.Equal(t, code, body.Get("error", "code"), what)
						require.NotEmpty(t, r.Header.Get("x-request-id"), what)
					}
					require.Equal(t, expected[0], r.Status, what)
					require.Equal(t, expected[1], body.Get("error", "type"), what)
					require.Contains(t, body.Get("error", "message"), c.text, what)
					require.Equal(t, c.retryAfter, r.Header.Get("Retry-After"), what)
					require.Equal(t, "application/json", r.Header.Get("Content-Type"), what)
					require.Empty(t, w.Turns(), what)
				})
			}
		}
	}
}

// ends are what a client takes for the end of an answer, and what it is told
// instead when an answer breaks.
var ends = map[string]struct {
	end, told string
}{
	"chat":      {"[DONE]", `data: {"error":{"message":"the engine failed (service unavailable, try again)","type":"server_error"`},
	"messages":  {"message_stop", `event: error` + "\n" + `data: {"type":"error","error":{"type":"api_error","message":"the engine failed (service unavailable, try again)"},"request_id":"req_0"}`},
	"responses": {"response.completed", `"status":"failed","error":{"code":"server_error","message":"the engine failed (service unavailable, try again)"}`},
}

func TestAnAnswerThatBreaksHasNoEnd(t *testing.T) {
	for name, call := range every {
		w := dialecttest.New(t, dialecttest.Options{})
		w.Engine.Say(dialecttest.Reply{Text: "half an answer", Err: &engine.Error{Class: engine.Failed}})
		r := w.Post(call.path, strings.Replace(call.body, "{", `{"stream":true,`, 1))
		require.Equal(t, http.StatusOK, r.Status, name)
		require.Contains(t, r.Body, "half", name)
		require.Contains(t, r.Body, ends[name].told, name)
		require.NotContains(t, r.Body, ends[name].end, name)
		require.NotContains(t, r.Body, "output_item.done", name)
		require.Empty(t, w.Turns(), name)
	}
}

func TestNothingOfABufferedAnswerLeavesBeforeItsTurnIsRecorded(t *testing.T) {
	for name, call := range every {
		synctest.Test(t, func(t *testing.T) {
			w := dialecttest.New(t, dialecttest.Options{Buffered: true, PingEvery: 10 * time.Second})
			w.Engine.Say(
				dialecttest.Reply{Text: "half an answer", Err: &engine.Error{Class: engine.Failed}},
				dialecttest.Reply{Text: "<think>\nhm\n</think>\n\nwhole"},
				dialecttest.Reply{Text: "late", After: 15 * time.Second, Err: &engine.Error{Class: engine.Refused}},
				dialecttest.Reply{Text: "late", After: 15 * time.Second},
			)
			body := strings.Replace(call.body, "{", `{"stream":true,`, 1)
			// The engine's failure is nobody's business while nothing was sent.
			r := w.Do(context.Background(), http.MethodPost, call.path, body)
			require.Equal(t, http.StatusOK, r.Status, "%s: %s", name, r.Body)
			require.NotContains(t, r.Body, "half", name)
			require.Contains(t, r.Body, "hm", name)
			require.Contains(t, r.Body, "whole", name)
			require.Contains(t, r.Body, ends[name].end, name)
			require.Equal(t, w.Turns()[0].ID, r.Header.Get("Turnlog-Turn"), name)

			// Pings are all that a client gets of an answer that comes to nothing.
			r = w.Do(context.Background(), http.MethodPost, call.path, body)
			require.Equal(t, 1, strings.Count(r.Body, "ping\n"), "%s: %s", name, r.Body)
			require.NotContains(t, r.Body, "late", name)
			require.NotContains(t, r.Body, "message_start", name)
			require.NotContains(t, r.Body, "response.output", name)
			require.NotContains(t, r.Body, ends[name].end, name)
			require.Len(t, w.Turns(), 1, name)
		})
	}
}

func TestEveryChoiceNamesItsTurn(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	const body = `{"model":"m","n":2,"messages":[{"role":"user","content":"hi"}]`
	whole := w.Post("/v1/chat/completions", body+`}`)
	streamed := w.Post("/v1/chat/completions", body+`,"stream":true}`)
	turns := w.Turns()
	require.Len(t, turns, 4)
	require.ElementsMatch(t, []string{turns[0].ID, turns[1].ID}, whole.Header.Values("Turnlog-Turn"))
	for i, turn := range turns {
		require.Equal(t, 1, strings.Count([]string{whole.Body, streamed.Body}[i/2], `"finish_reason":"stop","turnlog_turn":"`+turn.ID+`"`))
	}
}
