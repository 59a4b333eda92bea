package reference

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/message"
)

// realLog opens a turn stream on a server in this process.
func realLog(t *testing.T) journal.Journal {
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 1 << 29
	log, err := natsdtest.Dial(t, natsdtest.Serve(t, natsd.Config{})).Open(t.Context(), cfg)
	require.NoError(t, err)
	return log
}

// TestASessionWhoseTurnsLeftTheLogIs410 trims a session's first event, and then
// all of it: whatever is asked of it is answered with 410 and a word why, by a
// gateway that knew it and by one that did not, and no second tree begins.
func TestASessionWhoseTurnsLeftTheLogIs410(t *testing.T) {
	log := realLog(t)
	pool, _ := newStill()
	serve := func() (*gateway.Gateway, string) {
		model := demoModel(t)
		model.Pool = pool
		g, err := gateway.New(gateway.Default(), gateway.Deps{
			Journal: log, Models: gateway.NewModels(model), Keys: gateway.NewKeys([]byte("seed"), adminKey),
			// What the registry says: it keeps the row.
			Existed: func(_ context.Context, id string) (bool, error) { return id == session, nil },
		})
		require.NoError(t, err)
		h, err := httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: g, Trajectories: log})
		require.NoError(t, err)
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		return g, srv.URL
	}
	g, warm := serve()
	opened, err := g.Open(t.Context(), gateway.OpenRequest{Session: session, Opened: &event.SessionOpened{}})
	if err == nil {
		t.Fatal("a session that existed was opened again")
	}
	require.Equal(t, gateway.Closed, gateway.AsError(err).Kind)

	// As it would be had the row come after the session.
	before, err := gateway.New(gateway.Default(), gateway.Deps{
		Journal: log, Models: gateway.NewModels(g.Models().List()...), Keys: gateway.NewKeys([]byte("seed"), adminKey),
	})
	require.NoError(t, err)
	opened, err = before.Open(t.Context(), gateway.OpenRequest{Session: session, Opened: &event.SessionOpened{}})
	require.NoError(t, err)
	say := func(text string) gateway.Request {
		return gateway.Request{Session: session, Conversation: message.Split([]message.Message{{Role: message.User, Content: message.TextContent(text)}}, nil)}
	}
	a, err := g.Complete(t.Context(), say("hi"), nil) // the warm one holds it now
	require.NoError(t, err)

	var tips []journal.Tip
	for e, err := range log.ReadSession(t.Context(), session, journal.Tip{}) {
		require.NoError(t, err)
		tips = append(tips, e.Tip)
	}
	require.Len(t, tips, 2)
	chat := `{"model":"demo","messages":[{"role":"user","content":"more"}]}`
	ask := func(url, method, path, key, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		said, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(said)
	}
	requests := []struct{ method, path, key, body string }{
		{http.MethodPost, "/v1/chat/completions", opened.Key, chat},
		{http.MethodPost, "/sessions/" + session + "/v1/chat/completions", adminKey, chat},
		{http.MethodPost, "/v1/messages", opened.Key, `{"model":"demo","max_tokens":8,"messages":[{"role":"user","content":"more"}]}`},
		{http.MethodPost, "/v1/responses", opened.Key, `{"model":"demo","input":"more"}`},
		{http.MethodGet, "/sessions/" + session, adminKey, ""},
		{http.MethodGet, "/sessions/" + session + "/turns/" + a.Turn, adminKey, ""},
		{http.MethodGet, "/sessions/" + session + "/trajectory", adminKey, ""},
		{http.MethodPost, "/sessions/" + session + "/reward", adminKey, `{"reward":1}`},
		{http.MethodPost, "/sessions/" + session + "/annotations", adminKey, `{"name":"n","value":1}`},
		{http.MethodPost, "/sessions/" + session + "/close", adminKey, ""},
		{http.MethodDelete, "/sessions/" + session, adminKey, ""},
		{http.MethodPost, "/sessions", adminKey, `{"session":"` + session + `"}`},
	}
	check := func(url, what string) {
		for _, r := range requests {
			status, said := ask(url, r.method, r.path, r.key, r.body)
			require.Equal(t, http.StatusGone, status, "%s: %s %s: %s", what, r.method, r.path, said)
			require.Contains(t, said, "left the log", "%s: %s %s", what, r.method, r.path)
		}
	}
	require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{session: tips[0]}))
	_, cold := serve()
	check(cold, "the first event is gone, a new gateway")
	require.NoError(t, log.Trim(t.Context(), map[string]journal.Tip{session: tips[1]}))
	_, cold = serve()
	check(cold, "all is gone, a new gateway")
	// The one that knew it looks at the log when it has something to append.
	status, said := ask(warm, http.MethodPost, "/v1/chat/completions", opened.Key, chat)
	require.Equal(t, http.StatusGone, status, said)
	check(warm, "all is gone, the gateway that knew it")
	for e, err := range log.ReadSession(t.Context(), session, journal.Tip{}) {
		t.Fatal("something was appended to a session that is over", e, err)
	}
}
