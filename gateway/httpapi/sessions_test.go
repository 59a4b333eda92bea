package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/schema/tree"
)

// admin sends a request with the admin key.
func admin(w *dialecttest.World, t *testing.T, method, path, body string) dialecttest.Response {
	t.Helper()
	return w.Do(t.Context(), method, path, body, "Authorization: Bearer admin")
}

// value returns a member of a response's body as it stands, by path.
func value(t *testing.T, r dialecttest.Response, path ...string) string {
	t.Helper()
	raw := []byte(r.Body)
	for _, k := range path {
		v, ok := rawjson.Get(raw, k)
		require.True(t, ok, "no %s in %s", k, r.Body)
		raw = v
	}
	if rawjson.KindOf(raw) == rawjson.String {
		return rawjson.Text(raw)
	}
	return string(raw)
}

// refuses checks the status and the shape of an error.
func refuses(t *testing.T, r dialecttest.Response, status int, what string) {
	t.Helper()
	require.Equal(t, status, r.Status, "%s: %s", what, r.Body)
	require.NotEmpty(t, value(t, r, "error", "message"), what)
}

func TestABadRequestAboutASessionIs400AndOpensNone(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	for _, body := range []string{
		`[]`, `null`, `{`, `{"session":1}`, `{"session":"a b"}`, `{"session":"` + strings.Repeat("x", 65) + `"}`,
		`{"session":"run:x"}`, `{"session":"a.b"}`, `{"session":"*"}`, `{"run":"a/b"}`, `{"run":[]}`, `{"index":-1}`, `{"index":1.5}`,
		`{"index":"1"}`, `{"attempt":99999999999}`, `{"metadata":[]}`, `{"metadata":"x"}`, `{"sampling":[]}`,
		`{"sampling":{"default":{"temperature":"hot"}}}`, `{"sampling":{"override":{"n":2}}}`, `{"sampling":{"other":{}}}`,
		`{"limits":{"turns":-1}}`, `{"limits":{"lines":1}}`, `{"limits":7}`, `{"buffered":"yes"}`, `{"unknown":1}`,
	} {
		refuses(t, admin(w, t, http.MethodPost, "/sessions", body), http.StatusBadRequest, body)
	}
	require.Equal(t, 1, w.Gateway.Stats().Sessions, "the one that was there")
}

func TestASessionIsOpenedOnceAndNeverTakenOverByAnother(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	body := `{"run":"r","group":"g","index":1,"group_size":4,"metadata":{"a":1}}`
	first := admin(w, t, http.MethodPost, "/sessions", body)
	require.Equal(t, http.StatusCreated, first.Status, first.Body)
	again := admin(w, t, http.MethodPost, "/sessions", body)
	require.Equal(t, http.StatusOK, again.Status)
	require.Equal(t, value(t, first, "key"), value(t, again, "key"))
	require.Contains(t, value(t, first, "base_url"), "/sessions/"+value(t, first, "session")+"/v1")
	other := `{"session":"` + value(t, first, "session") + `","run":"r","group":"g","index":2}`
	refuses(t, admin(w, t, http.MethodPost, "/sessions", other), http.StatusConflict, "another index")
	next := admin(w, t, http.MethodPost, "/sessions", `{"run":"r","group":"g","index":1,"attempt":1}`)
	require.Equal(t, http.StatusCreated, next.Status, "another attempt is another session")
	require.Equal(t, http.StatusCreated, admin(w, t, http.MethodPost, "/sessions", "").Status, "the body may be left out")
}

// A session that is at work must not be closed as idle: until its turn ends,
// the log holds nothing new.
func TestAnIdleLimitIsLongerThanAnyGeneration(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{Deadline: time.Minute})
	refuses(t, admin(w, t, http.MethodPost, "/sessions", `{"limits":{"idle_seconds":60}}`), http.StatusBadRequest, "as long")
	require.Equal(t, http.StatusCreated, admin(w, t, http.MethodPost, "/sessions", `{"limits":{"idle_seconds":61}}`).Status)
}

func TestARewardThatIsSaidAgainIsOneReward(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	path := "/sessions/" + dialecttest.Session
	for _, body := range []string{
		``, `[]`, `{}`, `{"reward":"1"}`, `{"reward":null}`, `{"reward":NaN}`, `{"reward":1e999}`, `{"reward":true}`,
		`{"reward":1,"revision":-1}`, `{"reward":1,"components":[]}`, `{"reward":1,"turn":7}`, `{"reward":1,"other":1}`,
	} {
		refuses(t, admin(w, t, http.MethodPost, path+"/reward", body), http.StatusBadRequest, body)
	}
	refuses(t, admin(w, t, http.MethodPost, path+"/reward", `{"reward":1,"turn":"t-none"}`), http.StatusNotFound, "unknown turn")
	refuses(t, admin(w, t, http.MethodPost, "/sessions/none/reward", `{"reward":1}`), http.StatusNotFound, "unknown session")
	for i, c := range []struct{ body, revision string }{
		{`{"reward":1}`, "1"},
		{`{"reward":1}`, "1"}, // the answer was lost, says the caller
		{`{"reward":0.5}`, "2"},
		{`{"reward":1}`, "3"},
		{`{"reward":1,"components":{"a":1}}`, "4"},
		{`{"reward":1,"components":{"a":1}}`, "4"},
		{`{"reward":0.5,"revision":2}`, "2"},
	} {
		r := admin(w, t, http.MethodPost, path+"/reward", c.body)
		require.Equal(t, http.StatusOK, r.Status, r.Body)
		require.Equal(t, c.revision, value(t, r, "revision"), "call %d", i)
	}
	closing := `{"reason":"completed","reward":2}`
	for range 2 {
		require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, path+"/close", closing).Status)
	}
	w.Tree(func(t2 *tree.Tree) {
		require.Len(t, t2.Rewards, 5)
		require.InDelta(t, 2.0, t2.Reward().GetReward(), 0)
	})
	require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, path+"/reward", `{"reward":3}`).Status, "late rewards are legal")
}

func TestAnAnnotationThatIsSaidAgainIsOneAnnotation(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	path := "/sessions/" + dialecttest.Session + "/annotations"
	require.Equal(t, http.StatusOK, w.Post("/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`).Status)
	var branch string
	w.Tree(func(t2 *tree.Tree) { branch = tree.BranchID(t2.Session, t2.Turns[0].ID) })
	for _, nowhere := range []string{`{"name":"judge","value":1,"branch":"b"}`, `{"name":"judge","value":1,"turn":"b"}`} {
		refuses(t, admin(w, t, http.MethodPost, path, nowhere), http.StatusNotFound, nowhere)
	}
	for i, c := range []struct{ body, revision string }{
		{`{"name":"judge","value":1}`, "1"},
		{`{"name":"judge","value":1}`, "1"}, // the answer was lost, says the caller
		{`{"name":"judge","value":1,"source":"b"}`, "2"},
		{`{"name":"judge","value":1}`, "3"},
		{`{"name":"other","value":1}`, "1"},
		{`{"name":"judge","value":1,"branch":"` + branch + `"}`, "1"},
		{`{"name":"judge","value":{"a":[1]},"revision":7}`, "7"},
		{`{"name":"judge","value":{"a":[1]},"revision":7}`, "7"},
		{`{"name":"judge","value":2}`, "8"},
		{`{"name":"judge","value":{"a":[1]},"revision":7}`, "7"},
	} {
		r := admin(w, t, http.MethodPost, path, c.body)
		require.Equal(t, http.StatusOK, r.Status, r.Body)
		require.Equal(t, c.revision, value(t, r, "revision"), "call %d", i)
	}
	w.Tree(func(t2 *tree.Tree) { require.Len(t, t2.Annotations, 7) })
}

func TestACloseSaysWhyAndHappensOnce(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	path := "/sessions/" + dialecttest.Session + "/close"
	for _, body := range []string{`[]`, `{"reason":1}`, `{"reason":"deleted"}`, `{"reason":"bored"}`, `{"other":1}`, `{"reward":"x"}`} {
		refuses(t, admin(w, t, http.MethodPost, path, body), http.StatusBadRequest, body)
	}
	refuses(t, admin(w, t, http.MethodPost, "/sessions/none/close", ``), http.StatusNotFound, "unknown session")
	require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, path, `{"reason":"failed","detail":"no disk"}`).Status)
	require.Equal(t, http.StatusOK, admin(w, t, http.MethodPost, path, `{"reason":"completed"}`).Status)
	r := admin(w, t, http.MethodGet, "/sessions/"+dialecttest.Session, "")
	require.Equal(t, "closed", value(t, r, "state"))
	require.Equal(t, "failed", value(t, r, "reason"), "the first close counts")
	refuses(t, w.Post("/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`), http.StatusGone, "a turn")
	refuses(t, admin(w, t, http.MethodPost, "/sessions", `{"session":"`+dialecttest.Session+`","index":3}`), http.StatusConflict, "another session of its name")
}

func TestASessionAndItsTurnsCanBeRead(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	r := w.Post("/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, http.StatusOK, r.Status)
	turn := r.Header.Get("Turnlog-Turn")
	session := admin(w, t, http.MethodGet, "/sessions/"+dialecttest.Session, "")
	require.NoError(t, rawjson.Valid([]byte(session.Body)))
	require.Contains(t, session.Body, turn)
	shown := admin(w, t, http.MethodGet, "/sessions/"+dialecttest.Session+"/turns/"+turn, "")
	require.NoError(t, rawjson.Valid([]byte(shown.Body)))
	require.Equal(t, "first_turn", value(t, shown, "reason"))
	require.NotEqual(t, "[]", value(t, shown, "completion"))
	for _, path := range []string{"/sessions/none", "/sessions/none/turns/t", "/sessions/" + dialecttest.Session + "/turns/none", "/sessions/run:x", "/sessions", "/sessions/s1/trajectory"} {
		refuses(t, admin(w, t, http.MethodGet, path, ""), http.StatusNotFound, path)
	}
	// A session's own key reads nothing but answers.
	refuses(t, w.Do(t.Context(), http.MethodGet, "/sessions/"+dialecttest.Session, ""), http.StatusUnauthorized, "session key")
}

// slowReader takes what it is given only when it is told to.
type slowReader struct {
	*httptest.ResponseRecorder
	given, take chan struct{}
	largest     int
}

func (r *slowReader) Write(b []byte) (int, error) {
	r.largest = max(r.largest, len(b))
	r.given <- struct{}{}
	<-r.take
	return r.ResponseRecorder.Write(b)
}

func TestAFullReadIsStreamedAndItsSessionServesOn(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	ask := func(i int) {
		r := w.Post("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"question %d"}]}`, i))
		require.Equal(t, http.StatusOK, r.Status, r.Body)
	}
	const turns = 800
	for i := range turns {
		ask(i)
	}
	reader := &slowReader{httptest.NewRecorder(), make(chan struct{}), make(chan struct{}), 0}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sessions/"+dialecttest.Session, nil)
	r.Header.Set("Authorization", "Bearer admin")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Handler.ServeHTTP(reader, r)
	}()
	pieces := 0
	for reading := true; reading; {
		select {
		case <-reader.given:
			ask(turns + pieces) // while the reader is stuck
			pieces++
			reader.take <- struct{}{}
		case <-ended:
			reading = false
		}
	}
	require.Greater(t, pieces, 1)
	require.Less(t, reader.largest, reader.Body.Len()/2, "in pieces")
	var shown struct {
		Turns []struct{ Turn string }
	}
	require.NoError(t, json.Unmarshal(reader.Body.Bytes(), &shown))
	require.Len(t, shown.Turns, turns, "as it was when it was asked for")
}

func TestAllFaultsOfTheConfigurationAreReportedAtOnce(t *testing.T) {
	_, err := httpapi.New(httpapi.Config{PingEvery: -1}, httpapi.Deps{})
	require.ErrorContains(t, err, "max_body must be positive")
	require.ErrorContains(t, err, "ping_every must be positive")
}

func TestAGatewayThatCannotServeSaysWhyAndWhenToTryAgain(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	h, err := httpapi.New(httpapi.Default(), httpapi.Deps{
		Gateway: w.Gateway, Ready: func(context.Context) error { return errors.New("the log is full") },
	})
	require.NoError(t, err)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Contains(t, rec.Body.String(), "the log is full")
	require.NotEmpty(t, rec.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, w.Do(t.Context(), http.MethodGet, "/healthz", "").Status)
	require.Equal(t, http.StatusOK, w.Do(t.Context(), http.MethodHead, "/", "").Status)
}
