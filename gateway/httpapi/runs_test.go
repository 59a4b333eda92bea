package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

const hello = `{"messages":[{"role":"user","content":"hi"}]}`

func TestABadRequestAboutARunIs400(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	for path, bodies := range map[string][]string{
		"/runs": {
			``, `[]`, `{}`, `{"run":1}`, `{"run":"a b"}`, `{"run":"r","policy":[]}`, `{"run":"r","policy":{"other":1}}`,
			`{"run":"r","policy":{"buffered":1}}`, `{"run":"r","policy":{"history":"forget"}}`, `{"run":"r","policy":{"history":1}}`, `{"run":"r","policy":{"limits":{"turns":-1}}}`, `{"run":"r","policy":{"sampling":{"override":{"n":2}}}}`, `{"run":"r","other":1}`,
		},
		"/runs/r/weights":   {``, `[]`, `{}`, `{"version":-1}`, `{"version":"7"}`, `{"version":1.5}`, `{"version":1,"other":1}`},
		"/runs/a.b/weights": {`{"version":1}`},
	} {
		for _, body := range bodies {
			refuses(t, admin(w, t, http.MethodPost, path, body), http.StatusBadRequest, path+" "+body)
		}
	}
	for range 2 {
		require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, "/runs", `{"run":"r","metadata":{"a":1}}`).Status)
		require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, "/runs/r/weights", `{"version":7,"label":"step-7"}`).Status)
	}
}

func TestAPausedRunHoldsItsTurnsBackUntilItIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := dialecttest.New(t, dialecttest.Options{})
		open := make(chan struct{})
		w.Engine.Say(dialecttest.Reply{Text: "one", Wait: open})
		answers := make(chan dialecttest.Response, 2)
		go func() { answers <- w.Post("/v1/chat/completions", hello) }()
		synctest.Wait()
		// A drain waits for the turn that is under way, and lets none begin.
		drained := make(chan int, 1)
		go func() { drained <- admin(w, t, http.MethodPost, "/runs/default/drain", "").Status }()
		synctest.Wait()
		go func() { answers <- w.Post("/v1/chat/completions", hello) }()
		synctest.Wait()
		require.Empty(t, drained)
		require.Len(t, w.Engine.Requests(), 1)
		close(open)
		require.Equal(t, http.StatusOK, (<-answers).Status)
		require.Equal(t, http.StatusOK, <-drained)
		synctest.Wait()
		require.Len(t, w.Engine.Requests(), 1, "the second turn waits")
		// Who gives up waiting leaves no turn.
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan int, 1)
		go func() { gone <- w.Do(ctx, http.MethodPost, "/v1/chat/completions", hello).Status }()
		synctest.Wait()
		cancel()
		require.Equal(t, 499, <-gone)
		require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, "/runs/default/resume", "").Status)
		require.Equal(t, http.StatusOK, (<-answers).Status)
		require.Len(t, w.Turns(), 2)
	})
}

// What a run says counts for the sessions that are opened in it, where they do
// not say otherwise themselves.
func TestSessionsInheritWhatTheirRunSays(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	policy := `{"model":"demo","buffered":true,"history":"vendor","sampling":{"default":{"temperature":0.5,"top_p":0.9},"override":{"max_tokens":7}},"limits":{"turns":3,"tokens":1000}}`
	run := `{"run":"r","policy":` + policy + `,"metadata":{"a":1}}`
	require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, "/runs", run).Status)
	require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, "/runs", run).Status, "opening it again as it is")
	refuses(t, admin(w, t, http.MethodPost, "/runs", `{"run":"r"}`), http.StatusConflict, "another policy")

	opened := func(session, more string) *event.SessionOpened {
		r := admin(w, t, http.MethodPost, "/sessions", `{"session":"`+session+`","run":"r"`+more+`}`)
		require.Equal(t, http.StatusCreated, r.Status, r.Body)
		var o *event.SessionOpened
		require.NoError(t, w.Gateway.View(t.Context(), session, func(tr *tree.Tree, _ bool) error { o = tr.Opened; return nil }))
		return o
	}
	all := opened("plain", "")
	require.Equal(t, "demo", all.GetModelPolicy().GetModel())
	require.True(t, all.GetModelPolicy().GetBuffered())
	require.Equal(t, "vendor", all.GetModelPolicy().GetHistory())
	require.JSONEq(t, `{"temperature":0.5,"top_p":0.9}`, string(all.GetModelPolicy().GetSamplingDefault()))
	require.JSONEq(t, `{"max_tokens":7}`, string(all.GetModelPolicy().GetSamplingOverride()))
	require.EqualValues(t, 3, all.GetLimits().GetTurns())
	require.EqualValues(t, 1000, all.GetLimits().GetTokens())

	// Buffered: a failure in the middle of an answer is the run's secret.
	w.Engine.Say(dialecttest.Reply{Text: "half an answer", Err: &engine.Error{Class: engine.Failed}}, dialecttest.Reply{Text: "whole"})
	whole := admin(w, t, http.MethodPost, "/sessions/plain/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, http.StatusOK, whole.Status, whole.Body)
	require.NotContains(t, whole.Body, "half")
	require.Contains(t, whole.Body, `"content":"whole"`)

	own := opened("own", `,"history":"keep","sampling":{"default":{"top_p":0.1}},"limits":{"turns":9}`)
	require.JSONEq(t, `{"temperature":0.5,"top_p":0.1}`, string(own.GetModelPolicy().GetSamplingDefault()))
	require.EqualValues(t, 9, own.GetLimits().GetTurns())
	require.Equal(t, "keep", own.GetModelPolicy().GetHistory())
	require.EqualValues(t, 1000, own.GetLimits().GetTokens())
	r := admin(w, t, http.MethodPost, "/sessions", `{"session":"plain","run":"r"}`)
	require.Equal(t, http.StatusOK, r.Status, "opening a session again is still the same session")

	refuses(t, admin(w, t, http.MethodPost, "/runs", `{"run":"idle","policy":{"limits":{"idle_seconds":1}}}`), http.StatusBadRequest, "shorter than a generation")
}

// A model whose family does not allow a history policy serves none that asks for
// it: refused when it is opened where the model is named, else at its first turn.
func TestAHistoryPolicyThatTheModelDoesNotHaveIsRefused(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{NoHistories: true})
	const lacks = `no history policy "vendor"`
	r := admin(w, t, http.MethodPost, "/runs", `{"run":"r","policy":{"model":"demo","history":"vendor"}}`)
	refuses(t, r, http.StatusBadRequest, lacks)
	require.Contains(t, value(t, r, "error", "message"), lacks)
	r = admin(w, t, http.MethodPost, "/sessions", `{"session":"a","model":"demo","history":"vendor"}`)
	refuses(t, r, http.StatusBadRequest, lacks)
	r = admin(w, t, http.MethodPost, "/sessions", `{"session":"b","history":"vendor"}`)
	require.Equal(t, http.StatusCreated, r.Status, r.Body)
	r = w.Do(t.Context(), http.MethodPost, "/v1/chat/completions", hello, "Authorization: Bearer "+value(t, r, "key"))
	refuses(t, r, http.StatusBadRequest, lacks)
	require.Contains(t, value(t, r, "error", "message"), lacks)
	require.Empty(t, w.Engine.Requests())
}
