package reference

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/schema/event"
)

// TestALineThatChangesWithEveryRequestSplitsNoConversation: C1.
func TestALineThatChangesWithEveryRequestSplitsNoConversation(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	history := []object{user("Begin.")}
	for i := range 3 {
		r := w.post(messages, object{"model": "any", "max_tokens": 50, "messages": history, "system": []object{
			{"type": "text", "text": fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.36.%d; cc_entrypoint=cli; cch=%05x;", i, i*7919)},
			{"type": "text", "text": "You help.", "cache_control": object{"type": "ephemeral"}},
		}})
		require.Equal(t, http.StatusOK, r.status, r.body)
		history = append(history, object{"role": "assistant", "content": r.at("content")}, user("Go on."))
	}
	turns := w.turns()
	extends(t, turns[1], turns[0])
	extends(t, turns[2], turns[1])
	require.NotContains(t, promptOf(turns[2]), "cch=")
}

// TestSystemMessagesInsideAHistoryAreServed: C2.
func TestSystemMessagesInsideAHistoryAreServed(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	history := []object{user("Begin.")}
	for i := range 3 {
		history = append(history, system(fmt.Sprintf("%d tokens remain.", 1000-i)))
		r := w.post(messages, object{"model": "any", "max_tokens": 50, "messages": history})
		require.Equal(t, http.StatusOK, r.status, r.body)
		history = append(history, object{"role": "assistant", "content": r.at("content")}, user("Go on."))
	}
	turns := w.turns()
	extends(t, turns[1], turns[0])
	extends(t, turns[2], turns[1])
	require.Contains(t, promptOf(turns[2]), "998 tokens remain.")
}

// TestEqualOpeningsOfDifferentSessionsDoNotCollide: C3 and 41. A session is
// what the key or the path says, never what the content looks like; and what a
// client calls its conversations is recorded.
func TestEqualOpeningsOfDifferentSessionsDoNotCollide(t *testing.T) {
	w := newWorld(t, nil, options{})
	body := object{"model": "any", "max_tokens": 50, "messages": []object{user("The same for all.")}}
	admin := "Authorization: Bearer " + adminKey
	for i := range 4 {
		r := w.do(t.Context(), http.MethodPost, w.url+"/sessions", object{"group": "g", "index": i}, admin)
		require.Equal(t, http.StatusCreated, r.status, r.body)
		again := w.do(t.Context(), http.MethodPost, w.url+"/sessions", object{"group": "g", "index": i}, admin)
		require.Equal(t, http.StatusOK, again.status, "opening is idempotent")
		require.Equal(t, r.text("key"), again.text("key"))
		id := r.text("session")
		a := w.post(messages, body, "Authorization: Bearer "+r.text("key"), "x-claude-code-session-id: c1")
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Len(t, w.tree(id).Turns, 1)
		require.Equal(t, "c1", w.tree(id).Turns[0].Committed.GetRequest().GetThread())
	}
}

// TestUnrelatedConversationsUnderOneKeyAreTreesOfTheirOwn: 41. Each returns to
// its own turns.
func TestUnrelatedConversationsUnderOneKeyAreTreesOfTheirOwn(t *testing.T) {
	w := newWorld(t, nil, options{})
	histories := make([][]object, 3)
	for i := range histories {
		histories[i] = []object{system(fmt.Sprintf("You are agent %d.", i)), user("Begin.")}
	}
	for range 3 {
		for i := range histories {
			_, h := w.served(histories[i])
			histories[i] = append(h, user("Go on."))
		}
	}
	require.Len(t, w.tree(session).Roots, 3)
	turns := w.turns()
	for i := 3; i < len(turns); i++ {
		extends(t, turns[i], turns[i-3])
	}
}

// TestAnthropicClientsGetWhatTheyExpect: C4 and 45. Thinking with a signature,
// stop sequences, usage of the cache, a count that is the usage, errors in
// their own envelope; a history of thinking alone is kept.
func TestAnthropicClientsGetWhatTheyExpect(t *testing.T) {
	w := newWorld(t, mock.Steps(
		mock.Say("<think>\nHm.\n</think>\n\nOne, two, three, four."), mock.Say("<think>\nOnly a thought.\n</think>\n\n"), mock.Say("Fine.")), options{})
	body := object{"model": "any", "max_tokens": 50, "stop_sequences": []string{"three"}, "messages": []object{user("Count.")}}
	count := w.post(messages+"/count_tokens", body)
	r := w.post(messages, body)
	require.Equal(t, "thinking", r.text("content.0.type"), r.body)
	require.Equal(t, "Hm.", r.text("content.0.thinking"))
	require.NotEmpty(t, r.text("content.0.signature"))
	require.Equal(t, "One, two, ", r.text("content.1.text"))
	require.Equal(t, "stop_sequence", r.text("stop_reason"))
	require.Equal(t, "three", r.text("stop_sequence"))
	input := func(r reply) (sum float64) {
		for _, k := range []string{"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"} {
			n, _ := r.at("usage." + k).(float64)
			sum += n
		}
		return sum
	}
	require.Equal(t, count.at("input_tokens"), input(r))
	history := []object{user("Count."), {"role": "assistant", "content": r.at("content")}, user("Go on.")}
	next := w.post(messages, object{"model": "any", "max_tokens": 50, "messages": history})
	require.Positive(t, next.at("usage.cache_read_input_tokens"), next.body)
	extends(t, w.turns()[1], w.turns()[0])
	history = append(history, object{"role": "assistant", "content": next.at("content")}, user("Say it."))
	require.Equal(t, http.StatusOK, w.post(messages, object{"model": "any", "max_tokens": 50, "messages": history}).status)
	extends(t, w.turns()[2], w.turns()[1])
	require.Contains(t, promptOf(w.last()), "Only a thought.")
	bad := w.post(messages, object{"messages": history}, "Authorization: Bearer wrong")
	require.Equal(t, "error", bad.text("type"), bad.body)
	require.Equal(t, "authentication_error", bad.text("error.type"))
}

// TestAStreamIsAStream: C5 and 4. Who asks for a stream gets events.
func TestAStreamIsAStream(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("One, two, three.")), options{})
	for path, c := range map[string]struct {
		body object
		last string
	}{
		chatPath:        {object{"messages": []object{user("Count.")}, "stream_options": object{"include_usage": true}}, "data: [DONE]"},
		messages:        {object{"max_tokens": 50, "messages": []object{user("Count.")}}, "event: message_stop"},
		"/v1/responses": {object{"input": "Count."}, "event: response.completed"},
	} {
		c.body["stream"] = true
		r := w.post(path, c.body)
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Equal(t, "text/event-stream", r.header.Get("Content-Type"))
		require.Contains(t, r.body, c.last)
		require.Greater(t, strings.Count(r.body, "data: "), 4)
	}
	require.Len(t, w.turns(), 3)
}

// TestAnyGatewayGoesOnWhereAnotherWas: A1, A2 and A7. A second gateway on the
// log, or one that has just started, serves a session as the first did.
func TestAnyGatewayGoesOnWhereAnotherWas(t *testing.T) {
	w := newWorld(t, nil, options{NonCanonical: 0.2})
	first := w.url
	_, second := w.serve()
	history := []object{user("Begin.")}
	for i := range 8 {
		w.url = []string{first, second}[i%2]
		var r reply
		r, history = w.served(history)
		require.Equal(t, w.last().ID, r.header.Get("Turnlog-Turn"))
		history = append(history, user("Go on."))
	}
	turns := w.turns()
	for i, n := range turns[1:] {
		extends(t, n, turns[i])
	}
}

// TestAPanicIsAnErrorOfItsRequest: 38. A fault of ours is one 500, without a
// word of its inside, and the process lives.
func TestAPanicIsAnErrorOfItsRequest(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	h, err := httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: w.gateway, Fault: func(string) { panic("secret detail") }})
	require.NoError(t, err)
	w.url = listen(t, h)
	r := w.chat([]object{user("Begin.")})
	refused(t, r, http.StatusInternalServerError, "panic")
	require.NotContains(t, r.body, "secret detail")
	w.gateway, w.url = w.serve()
	w.served([]object{user("Again.")})
	_, err = w.gateway.Open(t.Context(), gateway.OpenRequest{Session: "s2", Opened: &event.SessionOpened{}})
	require.NoError(t, err)
}
