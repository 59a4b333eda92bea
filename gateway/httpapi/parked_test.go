package httpapi_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// aside has one parked session in run r.
type aside struct{ released []string }

func (*aside) List(_ context.Context, run string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if run == "" || run == "r" {
			yield([]byte(`{"session":"p","reason":"illegal"}`), nil)
		}
	}
}

func (a *aside) Release(_ context.Context, session, detail string) error {
	if session != "p" {
		return &gateway.Error{Kind: gateway.UnknownThing, Message: "no such session"}
	}
	a.released = append(a.released, detail)
	return nil
}

func TestParkedSessionsAreListedAndReleased(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	refuses(t, admin(w, t, http.MethodGet, "/parked", ""), http.StatusNotFound, "without a recorder's records")
	refuses(t, admin(w, t, http.MethodPost, "/sessions/p/release", ""), http.StatusNotFound, "without a recorder's records")
	all := &aside{}
	var err error
	w.Handler, err = httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: w.Gateway, Parked: all})
	require.NoError(t, err)

	r := admin(w, t, http.MethodGet, "/parked", "")
	require.Equal(t, http.StatusOK, r.Status)
	require.Equal(t, "application/x-ndjson", r.Header.Get("Content-Type"))
	require.JSONEq(t, `{"session":"p","reason":"illegal"}`, r.Body)
	require.Empty(t, admin(w, t, http.MethodGet, "/parked?run=other", "").Body)

	r = admin(w, t, http.MethodPost, "/sessions/p/release", "")
	require.Equal(t, http.StatusAccepted, r.Status)
	require.Equal(t, "released", value(t, r, "state"))
	require.Equal(t, http.StatusAccepted, admin(w, t, http.MethodPost, "/sessions/p/release", `{"detail":"repaired"}`).Status)
	require.Equal(t, []string{"", "repaired"}, all.released)

	refuses(t, admin(w, t, http.MethodPost, "/sessions/none/release", ""), http.StatusNotFound, "unknown session")
	for _, body := range []string{`[]`, `{`, `{"detail":1}`, `{"other":""}`} {
		refuses(t, admin(w, t, http.MethodPost, "/sessions/p/release", body), http.StatusBadRequest, body)
	}
	refuses(t, admin(w, t, http.MethodPost, "/sessions/run:x/release", ""), http.StatusBadRequest, "a run is no session")
	// Sandboxes have session keys.
	for _, path := range []string{"/parked", "/sessions/p/release"} {
		method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[path == "/parked"]
		refuses(t, w.Do(t.Context(), method, path, ""), http.StatusUnauthorized, path)
	}
	require.Len(t, all.released, 2)
}

func TestTheTrajectoryOfAReleasedSessionIsItsLastRound(t *testing.T) {
	w := dialecttest.New(t, dialecttest.Options{})
	require.Equal(t, http.StatusOK, w.Post("/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`).Status)
	log, tip := mem.New(mem.Options{}), journal.Tip{}
	record := func(id string, ordinal uint64, outputs ...*event.Output) {
		ev := &event.Event{Id: id, Session: dialecttest.Session, Body: &event.Event_TrajectoryUpdate{TrajectoryUpdate: &event.TrajectoryUpdate{
			Input: &event.Input{Event: id, Ordinal: ordinal}, Outputs: outputs,
		}}}
		var err error
		tip, err = log.Append(t.Context(), tip, ev)
		require.NoError(t, err)
	}
	var err error
	w.Handler, err = httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: w.Gateway, Trajectories: log})
	require.NoError(t, err)
	view := func() dialecttest.Response {
		return admin(w, t, http.MethodGet, fmt.Sprintf("/sessions/%s/trajectory", dialecttest.Session), "")
	}
	spans := func(id uint32) *event.Output {
		return &event.Output{Output: &event.Output_TurnSpans{TurnSpans: &event.TurnSpans{
			Turn: "t", Ids: event.AppendIDs(nil, []uint32{id}), Mask: []byte{1}, Versions: event.AppendInts(nil, []int32{1}),
			Spans: []*event.Span{{Provenance: event.Provenance_PROVENANCE_SAMPLED, Count: 1}},
		}}}
	}
	sealed := func(status string) *event.Output {
		return &event.Output{Output: &event.Output_SessionSealed{SessionSealed: &event.SessionSealed{Status: status}}}
	}
	record("a", 0)
	record("b", 1, spans(7), sealed("failed"))
	require.Equal(t, "failed", value(t, view(), "status"))
	record("c", 2, &event.Output{Output: &event.Output_SessionRestarted{SessionRestarted: &event.SessionRestarted{Round: 1}}})
	require.Equal(t, http.StatusAccepted, view().Status, "it is recorded again")
	record("1:a", 0)
	require.Equal(t, http.StatusAccepted, view().Status)
	record("1:b", 1, spans(8))
	r := view()
	require.Equal(t, http.StatusOK, r.Status)
	require.Equal(t, "open", value(t, r, "state"))
	require.Contains(t, r.Body, `"ids":[8]`)
	require.NotContains(t, r.Body, `"ids":[7]`)
}
