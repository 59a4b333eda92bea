package reference

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/schema/event"
)

// TestNoBrokenAnswerBecomesATurn: B13, B15, 9, 27 and 37. An answer that
// contradicts itself or was not computed from our ids is an error of the
// engine, for the agent and in the log, and the session goes on.
func TestNoBrokenAnswerBecomesATurn(t *testing.T) {
	faults := []mock.FaultKind{
		mock.StringLogprob, mock.FloatIDs, mock.NaN, mock.Null, mock.Minus, mock.MissingLogprob, mock.WrongCount,
		mock.NoIDs, mock.Extra, mock.Garbage, mock.NoEnd, mock.ErrorEvent, mock.Cut,
		mock.IgnoreIDs, mock.WrongPromptCount,
	}
	for _, kind := range []string{"sglang", "vllm"} {
		for _, fault := range faults {
			t.Run(kind+"/"+string(fault), func(t *testing.T) {
				bad := mock.Reply{Text: "This goes wrong somewhere.", Fault: mock.Fault{Kind: fault, After: 2}}
				script := mock.Match(mock.Always(mock.Say("Fine.")), mock.Rule{Contains: "badly", Reply: bad})
				w := newWorld(t, script, options{Wire: kind})
				_, history := w.served([]object{user("Begin.")})
				limit := 64
				if fault == mock.Extra {
					limit = 3 // more than that
				}
				r := w.chat(append(history, user("badly")), object{"max_tokens": limit})
				require.Contains(t, []int{http.StatusBadGateway, http.StatusServiceUnavailable}, r.status, r.body)
				require.Equal(t, "server_error", r.text("error.type"), r.body)
				require.NotEmpty(t, r.text("error.message"))
				require.Len(t, w.turns(), 1)
				require.Len(t, w.tree(session).Aborted, 1)
				first := w.last()
				w.served(append(history, user("Go on.")))
				extends(t, w.last(), first)
			})
		}
	}
}

// TestAnEngineThatProvesNothingGivesNoTokenInTurn: B15. Where the engine
// neither echoes nor counts the prompt, no turn claims that it used our ids.
func TestAnEngineThatProvesNothingGivesNoTokenInTurn(t *testing.T) {
	for _, kind := range []string{"sglang", "vllm"} {
		for _, fault := range []mock.FaultKind{mock.NoPromptEcho, mock.NoLogprobs} {
			w := newWorld(t, mock.Always(mock.Reply{Text: "Fine.", Fault: mock.Fault{Kind: fault}}), options{Wire: kind})
			r := w.chat([]object{user("Begin.")})
			require.Equal(t, http.StatusBadGateway, r.status, "%s %s: %s", kind, fault, r.body)
			require.Empty(t, w.turns())
		}
	}
}

// TestStatusOfAnEngineReachesTheAgent: 26 and 53. An engine that is busy or
// failed is told apart, and the log says what happened.
func TestStatusOfAnEngineReachesTheAgent(t *testing.T) {
	for status, want := range map[int]int{
		http.StatusTooManyRequests:     http.StatusServiceUnavailable,
		http.StatusServiceUnavailable:  http.StatusServiceUnavailable,
		http.StatusInternalServerError: http.StatusBadGateway,
		http.StatusBadRequest:          http.StatusBadRequest,
	} {
		w := newWorld(t, mock.Always(mock.Reply{Fault: mock.Fault{Kind: mock.Status, Status: status, RetryAfter: 7 * time.Second}}), options{})
		r := w.chat([]object{user("Begin.")})
		require.Equal(t, want, r.status, "%d: %s", status, r.body)
		require.NotEmpty(t, r.text("error.message"))
		if want == http.StatusServiceUnavailable {
			require.Equal(t, "7", r.header.Get("Retry-After"), "%d", status)
		}
		require.Empty(t, w.turns())
		require.Len(t, w.tree(session).Aborted, 1)
	}
}

// TestATurnThatTakesTooLongIs504AndInTheLog: 56 and 58.
func TestATurnThatTakesTooLongIs504AndInTheLog(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Reply{Text: "This never comes to its end.", Fault: mock.Fault{Kind: mock.Hang, After: 3}}),
		options{Generate: 200 * time.Millisecond})
	r := w.chat([]object{user("Begin.")})
	require.Equal(t, http.StatusGatewayTimeout, r.status, r.body)
	require.Equal(t, "timeout", r.text("error.code"))
	aborted := w.tree(session).Aborted
	require.Len(t, aborted, 1)
	require.Equal(t, "deadline", aborted[0].GetReason())
	require.Equal(t, 3, event.Count(aborted[0].GetPartial().GetCompletion().GetIds()), "what was sampled is in the log")
}

// TestTextLeavesWhileTheEngineSamplesAndAClientThatLeavesIsRecorded: C4 and
// 66. The first bytes arrive while the engine is at work; what was sampled for
// a client that went away is in the log, and the history is still good.
func TestTextLeavesWhileTheEngineSamplesAndAClientThatLeavesIsRecorded(t *testing.T) {
	hang := mock.Reply{Text: "This never comes to its end, sadly.", Fault: mock.Fault{Kind: mock.Hang, After: 5}}
	w := newWorld(t, mock.Match(mock.Always(mock.Say("Fine.")), mock.Rule{Contains: "hang", Reply: hang}), options{})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	res := w.open(ctx, http.MethodPost, w.url+chatPath, object{"stream": true, "messages": []object{user("hang")}})
	defer res.Body.Close()
	for s := bufio.NewScanner(res.Body); s.Scan() && !strings.Contains(s.Text(), `"content":"T`); {
		continue
	}
	require.Positive(t, w.engine.Running(), "the engine is still at work")
	leave()
	eventually(t, func() bool { return len(w.tree(session).Aborted) == 1 }, "the aborted turn is recorded")
	aborted := w.tree(session).Aborted[0]
	require.Equal(t, "client_gone", aborted.GetReason())
	eventually(t, func() bool { return len(w.engine.Journal().All()) == 1 }, "the engine stops")
	sampled := w.engine.Journal().All()[0]
	ids := event.IDs(nil, aborted.GetPartial().GetCompletion().GetIds())
	require.Equal(t, sampled.Completion[:len(ids)], ids)
	w.served([]object{user("Again, then.")})
}

// TestWhatTheOperatorSetsGoesBeforeWhatTheAgentAsks: 55.
func TestWhatTheOperatorSetsGoesBeforeWhatTheAgentAsks(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	opened, err := w.gateway.Open(t.Context(), gateway.OpenRequest{Session: "s2", Opened: &event.SessionOpened{ModelPolicy: &event.ModelPolicy{
		SamplingOverride: []byte(`{"temperature":0.25}`), SamplingDefault: []byte(`{"top_p":0.5,"seed":4}`),
	}}})
	require.NoError(t, err)
	w.key = opened.Key
	w.served([]object{user("Hello.")}, object{"temperature": 1.5, "seed": 9})
	r := w.tree("s2").Turns[0].Committed.GetRequest()
	require.Contains(t, string(r.GetSamplingAsked()), "1.5", "what was asked is recorded too")
	for _, set := range []string{`"temperature":0.25`, `"top_p":0.5`, `"seed":9`} {
		require.Contains(t, string(r.GetSamplingUsed()), set)
	}
	require.Equal(t, http.StatusBadRequest, w.do(t.Context(), http.MethodPost, w.url+"/sessions",
		`{"sampling":{"override":{"stream":true}}}`, "Authorization: Bearer "+adminKey).status)
}
