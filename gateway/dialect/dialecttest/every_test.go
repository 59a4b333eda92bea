package dialecttest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
)

// every is a small call in every dialect.
var every = map[string]struct{ path, body string }{
	"chat":      {"/v1/chat/completions", `{"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}`},
	"messages":  {"/v1/messages", `{"model":"gpt-x","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`},
	"responses": {"/v1/responses", `{"model":"gpt-x","input":"hi"}`},
}

func TestAnUnknownModelsErrorListsTheKnownOnes(t *testing.T) {
	for name, c := range every {
		w := dialecttest.New(t, dialecttest.Options{OneName: true})
		r := w.Post(c.path, c.body)
		require.Equal(t, http.StatusNotFound, r.Status, "%s: %s", name, r.Body)
		require.Contains(t, r.Body, `known models: demo`, name)
		r = w.Post(c.path, strings.Replace(c.body, "gpt-x", "demo", 1))
		require.Equal(t, http.StatusOK, r.Status, "%s: %s", name, r.Body)
	}
}

func TestTheNameThatWasAskedForComesBack(t *testing.T) {
	for name, c := range every {
		r := dialecttest.New(t, dialecttest.Options{}).Post(c.path, c.body)
		require.Contains(t, r.Body, `"model":"gpt-x"`, name)
	}
}

func TestWithoutALogNoEngineIsAsked(t *testing.T) {
	for name, c := range every {
		w := dialecttest.New(t, dialecttest.Options{LogDown: true})
		r := w.Post(c.path, c.body)
		require.Equal(t, http.StatusServiceUnavailable, r.Status, "%s: %s", name, r.Body)
		require.NotEmpty(t, r.Header.Get("Retry-After"), name)
		require.Empty(t, w.Engine.Requests(), name)
	}
}

func TestAClosedSessionIsGone(t *testing.T) {
	for name, c := range every {
		w := dialecttest.New(t, dialecttest.Options{})
		require.NoError(t, w.Gateway.Close(t.Context(), dialecttest.Session, "completed", ""))
		r := w.Post(c.path, c.body)
		require.Equal(t, http.StatusGone, r.Status, "%s: %s", name, r.Body)
	}
}

func TestTheKeyIsReadWhereEachClientPutsIt(t *testing.T) {
	for name, c := range every {
		w := dialecttest.New(t, dialecttest.Options{})
		for _, header := range []string{"x-api-key", "x-goog-api-key"} {
			r := w.Post(c.path, c.body, "Authorization: ", header+": "+w.Key)
			require.Equal(t, http.StatusOK, r.Status, "%s, %s: %s", name, header, r.Body)
			r = w.Post(c.path, c.body, "Authorization: ", header+": tls-s1.wrong")
			require.Equal(t, http.StatusUnauthorized, r.Status, name)
		}
		r := w.Post(c.path, c.body, "Authorization: bearer "+w.Key)
		require.Equal(t, http.StatusOK, r.Status, "%s: the scheme in small letters: %s", name, r.Body)
		r = w.Post(c.path, c.body, "Authorization: ")
		require.Equal(t, http.StatusUnauthorized, r.Status, name)
		// A session's path, with an admin's key.
		r = w.Post("/sessions/s1"+c.path, c.body, "Authorization: Bearer admin")
		require.Equal(t, http.StatusOK, r.Status, "%s: %s", name, r.Body)
	}
}

func TestATurnIsNamedInTheHeader(t *testing.T) {
	for name, c := range every {
		w := dialecttest.New(t, dialecttest.Options{})
		for i, body := range []string{c.body, strings.Replace(c.body, "{", `{"stream":true,`, 1)} {
			r := w.Post(c.path, body)
			require.Equal(t, w.Turns()[i].ID, r.Header.Get("Turnlog-Turn"), name)
		}
	}
}

func TestAModelIsShownByItsName(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{OneName: true})
	r := w.Do(t.Context(), http.MethodGet, "/v1/models/demo", "")
	require.Contains(t, r.Body, `"id":"demo","object":"model","created":1767323045,`)
	r = w.Do(t.Context(), http.MethodGet, "/v1/models/demo", "", "anthropic-version: 2023-06-01")
	require.Contains(t, r.Body, `"created_at":"2026-01-02T03:04:05Z"`)
	r = w.Do(t.Context(), http.MethodGet, "/v1/models/some/other", "")
	require.Equal(t, http.StatusNotFound, r.Status)
	require.Contains(t, r.Body, `the model \"some/other\" does not exist`)
}
