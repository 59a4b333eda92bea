package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
)

const hello = `{"messages":[{"role":"user","content":"hi"}]}`

func TestABadRequestAboutARunIs400(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	for path, bodies := range map[string][]string{
		"/runs":             {``, `[]`, `{}`, `{"run":1}`, `{"run":"a b"}`, `{"run":"r","policy":[]}`, `{"run":"r","other":1}`},
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
