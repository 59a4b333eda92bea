package reference

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/schema/event"
)

// refused checks an error in OpenAI's shape.
func refused(t *testing.T, r reply, status int, what string) {
	t.Helper()
	require.Equal(t, status, r.status, "%s: %s", what, r.body)
	require.Contains(t, r.header.Get("Content-Type"), "application/json", what)
	require.NotEmpty(t, r.text("error.message"), "%s: %s", what, r.body)
	require.NotEmpty(t, r.text("error.type"), "%s: %s", what, r.body)
	require.NotContains(t, r.body, "panic", what)
	require.NotContains(t, r.body, "goroutine", what)
}

// TestBadBodiesAre400AndLeaveNoTrace: B5, 8, 14 and 20. Whatever the body is,
// the process lives, the engine is not asked and the log is as it was.
func TestBadBodiesAre400AndLeaveNoTrace(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{MaxBody: 1 << 16})
	_, history := w.served([]object{user("Begin.")})
	before := w.tree(session).Tip
	bodies := map[string]string{
		"empty": ``, "space": ` `, "array": `[]`, "string": `"x"`, "number": `1`, "null": `null`, "true": `true`,
		"cut": `{"messages":[`, "two": `{}{}`, "no JSON": `messages=1`, "NUL": "\x00", "nested": strings.Repeat("[", 50_000),
		"deep":    `{"messages":` + strings.Repeat(`{"a":`, 5000) + `1` + strings.Repeat(`}`, 5000) + `}`,
		"nothing": `{}`, "messages null": `{"messages":null}`, "messages {}": `{"messages":{}}`, "messages []": `{"messages":[]}`,
		"messages string": `{"messages":"x"}`, "messages number": `{"messages":7}`, "message null": `{"messages":[null]}`,
		"message string": `{"messages":["x"]}`, "message number": `{"messages":[1,2]}`, "message array": `{"messages":[[]]}`,
		"message {}": `{"messages":[{}]}`, "role null": `{"messages":[{"role":null,"content":"x"}]}`,
		"role []": `{"messages":[{"role":[],"content":"x"}]}`, "content {}": `{"messages":[{"role":"user","content":{}}]}`,
		"content [null]":  `{"messages":[{"role":"user","content":[null]}]}`,
		"calls string":    `{"messages":[{"role":"assistant","tool_calls":"x"}]}`,
		"calls [null]":    `{"messages":[{"role":"assistant","tool_calls":[null]}]}`,
		"tools string":    `{"tools":"x","messages":[{"role":"user","content":"x"}]}`,
		"tools [null]":    `{"tools":[null],"messages":[{"role":"user","content":"x"}]}`,
		"model []":        `{"model":[],"messages":[{"role":"user","content":"x"}]}`,
		"temperature NaN": `{"temperature":NaN,"messages":[{"role":"user","content":"x"}]}`,
		"max_tokens huge": `{"max_tokens":1e400,"messages":[{"role":"user","content":"x"}]}`,
		"n string":        `{"n":"2","messages":[{"role":"user","content":"x"}]}`,
	}
	for name, body := range bodies {
		refused(t, w.post(chatPath, body), http.StatusBadRequest, name)
		r := w.post("/v1/responses", body)
		refused(t, r, http.StatusBadRequest, "responses: "+name)
		if name == "n string" {
			continue // not a word of Anthropic's
		}
		r = w.post(messages, body)
		require.Equal(t, http.StatusBadRequest, r.status, "messages: %s: %s", name, r.body)
		require.Equal(t, "error", r.text("type"), "messages: %s: %s", name, r.body)
		require.Equal(t, "invalid_request_error", r.text("error.type"), name)
	}
	require.Equal(t, before, w.tree(session).Tip, "nothing was appended")
	require.Equal(t, 1, w.engine.Requests())
	first := w.last()
	w.served(append(history, user("Go on.")))
	extends(t, w.last(), first)
}

// TestABodyOverTheLimitIs413: with its length announced, and without.
func TestABodyOverTheLimitIs413(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{MaxBody: 1000})
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 2000) + `"}]}`
	for _, path := range []string{chatPath, "/v1/responses"} {
		refused(t, w.post(path, long), http.StatusRequestEntityTooLarge, path)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, w.post(messages, long).status)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+chatPath, io.MultiReader(strings.NewReader(long)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+w.key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	res.Body.Close()
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.Empty(t, w.turns())
}

// TestKeysAreCheckedBeforeAnyWork: 60 and 61. No engine is asked, nothing is
// appended, and no agent's key reaches an engine.
func TestKeysAreCheckedBeforeAnyWork(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	body := object{"messages": []object{user("Hello.")}}
	before := w.tree(session).Tip
	own := "/sessions/" + session + chatPath
	for name, c := range map[string]struct {
		path, key string
		status    int
	}{
		"no key":             {chatPath, "", http.StatusUnauthorized},
		"unknown key":        {chatPath, "Bearer nonsense", http.StatusUnauthorized},
		"wrong secret":       {chatPath, "Bearer tls-" + session + ".wrong", http.StatusUnauthorized},
		"unknown session":    {chatPath, "Bearer tls-nobody.wrong", http.StatusUnauthorized},
		"a name that is bad": {chatPath, "Bearer tls-../..*>.x", http.StatusUnauthorized},
		"basic":              {own, "Basic YTpi", http.StatusUnauthorized},
		"another's session":  {"/sessions/s2" + chatPath, "Bearer " + w.key, http.StatusForbidden},
		"admin, unknown":     {"/sessions/s2" + chatPath, "Bearer " + adminKey, http.StatusNotFound},
		"admin, no session":  {chatPath, "Bearer " + adminKey, http.StatusBadRequest},
	} {
		refused(t, w.post(c.path, body, "Authorization: "+c.key), c.status, name)
	}
	for _, path := range []string{"/sessions", "/sessions/s1/close", "/sessions/s1/reward", "/runs", "/runs/r/pause"} {
		refused(t, w.post(path, `{}`), http.StatusUnauthorized, path)
	}
	require.Equal(t, before, w.tree(session).Tip)
	require.Zero(t, w.engine.Requests())
	require.Equal(t, http.StatusOK, w.post(own, body, "Cookie: secret=1", "x-api-key: "+w.key, "x-custom: secret").status)
	for _, r := range w.reached() {
		for name, values := range r.Header {
			require.NotContains(t, strings.Join(values, ","), w.key, name)
			require.NotContains(t, strings.Join(values, ","), "secret", name)
		}
	}
}

// TestOnlyListedRoutesExist: B17. Nothing that an engine offers can be reached
// through the gateway, with whatever key and method.
func TestOnlyListedRoutesExist(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	for _, prefix := range []string{"", "/sessions/" + session, "/sessions/none"} {
		for _, path := range []string{
			"/generate", "/flush_cache", "/update_weights_from_disk", "/v1/completions", "/health", "/v1/embeddings",
			"/abort_request", "/metrics", "/docs", "/openapi.json", "/v1/chat/completions/render", "/inference/v1/generate",
			"/v1/../generate", "/%2e%2e/generate", "/v1/chat/completions/..%2f..%2fgenerate",
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
				for _, key := range []string{w.key, adminKey} {
					r := w.do(t.Context(), method, w.url+prefix+path, `{}`, "Authorization: Bearer "+key)
					refused(t, r, http.StatusNotFound, method+" "+prefix+path)
				}
			}
		}
	}
	require.Empty(t, w.reached(), "no request reached the engine")
}

// TestAMethodThatARouteDoesNotHaveIs405.
func TestAMethodThatARouteDoesNotHaveIs405(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		r := w.do(t.Context(), method, w.url+chatPath, `{}`)
		refused(t, r, http.StatusMethodNotAllowed, method)
		require.Contains(t, r.header.Get("Allow"), http.MethodPost)
	}
}

// TestAClosedSessionIs410AndTakesNoTurn: 36 and 67. DELETE is a close with a
// reason; what is asked for afterwards gets a definite error.
func TestAClosedSessionIs410AndTakesNoTurn(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	_, history := w.served([]object{user("Begin.")})
	admin := "Authorization: Bearer " + adminKey
	// A DELETE whose caller has gone leaves the session as deletable as it was.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, w.url+"/sessions/"+session, nil)
	require.NoError(t, err)
	_, err = http.DefaultClient.Do(req) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, context.Canceled)
	w.served(append(history, user("Go on.")))
	for range 2 {
		require.Equal(t, http.StatusNoContent, w.do(t.Context(), http.MethodDelete, w.url+"/sessions/"+session, nil, admin).status)
	}
	refused(t, w.do(t.Context(), http.MethodDelete, w.url+"/sessions/nobody", nil, admin), http.StatusNotFound, "unknown")
	refused(t, w.chat(append(history, user("And?"))), http.StatusGone, "closed")
	tr := w.tree(session)
	require.Equal(t, "deleted", tr.Closed.GetReason())
	require.Len(t, tr.Turns, 2, "nothing is erased")
	require.Equal(t, http.StatusOK, w.do(t.Context(), http.MethodPost, w.url+"/sessions/"+session+"/reward", `{"reward":1}`, admin).status)
}

// TestASlowBodyHoldsNothing: 17. While one body dribbles in, the session
// serves, and is closed.
func TestASlowBodyHoldsNothing(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	r, body := io.Pipe()
	status := make(chan int, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+chatPath, r)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+w.key)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			status <- 0
			return
		}
		res.Body.Close()
		status <- res.StatusCode
	}()
	_, err = io.WriteString(body, `{"messages":[{"role":`)
	require.NoError(t, err)
	w.served([]object{user("Quick.")})
	require.NoError(t, w.gateway.Close(t.Context(), session, "completed", ""))
	_, err = io.WriteString(body, `"user","content":"Slow."}]}`)
	require.NoError(t, err)
	body.Close()
	require.Equal(t, http.StatusGone, <-status)
}

// TestTwoTurnsAtOnceAreBothServed: 33. What was a conflict is two branches.
func TestTwoTurnsAtOnceAreBothServed(t *testing.T) {
	both := make(chan struct{}, 2)
	open := make(chan struct{})
	w := newWorld(t, func(r mock.Request) mock.Reply {
		if strings.Contains(r.Last("user"), "at once") {
			both <- struct{}{}
			<-open
		}
		return mock.Say("Fine.")
	}, options{})
	_, history := w.served([]object{user("Begin.")})
	first := w.last()
	got := make(chan reply, 2)
	for _, text := range []string{"at once, one", "at once, two"} {
		go func() {
			got <- w.post(chatPath, object{"messages": append(append([]object(nil), history...), user(text))})
		}()
	}
	<-both
	<-both
	close(open)
	for range 2 {
		r := <-got
		require.Equal(t, http.StatusOK, r.status, r.body)
	}
	for _, n := range w.turns()[1:] {
		require.Equal(t, first.ID, n.Committed.GetParent())
	}
	require.Len(t, w.turns(), 3)
}

// TestIDsOfARequestAreInTheLog: 39 and 42.
func TestIDsOfARequestAreInTheLog(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	w.post(chatPath, object{"messages": []object{user("One.")}}, "x-request-id: req-7", "x-session-id: thread-3", "User-Agent: tester/1")
	w.post(chatPath, object{"messages": []object{user("Two.")}})
	turns := w.turns()
	require.Equal(t, "req-7", turns[0].Committed.GetRequest().GetRequestId())
	require.Equal(t, "thread-3", turns[0].Committed.GetRequest().GetThread())
	require.Equal(t, "tester/1", turns[0].Committed.GetRequest().GetClient())
	require.Empty(t, turns[1].Committed.GetRequest().GetThread())
}

// TestALimitClosesTheSession: a limit of the session ends it with its reason.
func TestALimitClosesTheSession(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{Limits: &event.Limits{Turns: 2}})
	ask := []object{user("Hello.")}
	w.served(ask)
	w.served(ask)
	refused(t, w.chat(ask), http.StatusGone, "at the limit")
	require.Equal(t, "limit_turns", w.tree(session).Closed.GetReason())
}

// TestASilentEngineDoesNotLeaveTheClientWithoutBytes: C4. A stream that waits
// gets comments; clients and proxies do not give up.
func TestASilentEngineDoesNotLeaveTheClientWithoutBytes(t *testing.T) {
	open := make(chan struct{})
	w := newWorld(t, func(mock.Request) mock.Reply { <-open; return mock.Say("Fine.") }, options{PingEvery: time.Millisecond})
	for _, path := range []string{chatPath, messages, "/v1/responses"} {
		body := object{"stream": true, "max_tokens": 50, "messages": []object{user("Hello.")}}
		if strings.HasSuffix(path, "responses") {
			body = object{"stream": true, "input": "Hello."}
		}
		res := w.open(t.Context(), http.MethodPost, w.url+path, body)
		first := make([]byte, 1)
		_, err := io.ReadFull(res.Body, first)
		require.NoError(t, err)
		open <- struct{}{}
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		res.Body.Close()
	}
	require.Len(t, w.turns(), 3)
}

// TestNullIsAsGoodAsAbsent: 21.
func TestNullIsAsGoodAsAbsent(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{Wire: "vllm"})
	r, _ := w.served([]object{user("Hello.")}, object{"logprobs": true, "top_logprobs": nil, "stop": nil, "n": nil, "seed": nil})
	content, _ := r.at("choices.0.logprobs.content").([]any)
	require.Len(t, content, event.Count(w.last().Committed.GetCompletion().GetIds()))
}
