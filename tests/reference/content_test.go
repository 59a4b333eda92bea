package reference

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/schema/event"
)

// TestContentInPartsIsRead: B3. A list of parts is as good as a text.
func TestContentInPartsIsRead(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	parts := func(texts ...string) (list []object) {
		for _, s := range texts {
			list = append(list, object{"type": "text", "text": s})
		}
		return list
	}
	_, history := w.served([]object{
		{"role": "system", "content": parts("You are ", "a lighthouse.")},
		{"role": "user", "content": parts("Do not vanish, ", "walrus.")},
	})
	require.Contains(t, promptOf(w.last()), "You are a lighthouse.")
	require.Contains(t, promptOf(w.last()), "Do not vanish, walrus.")
	first := w.last()
	w.served(append(history, object{"role": "user", "content": parts("Still there?")}))
	extends(t, w.last(), first)
}

// TestArgumentsThatAreNoJSONDoNotEndASession: B4. The model wrote half a call;
// the agent echoes it as it got it, and goes on for many turns.
func TestArgumentsThatAreNoJSONDoNotEndASession(t *testing.T) {
	for name, arguments := range map[string]string{
		"cut": `{"city": "Ro`, "text": `Rome`, "list": `["Rome"]`, "empty": ``, "two": `{} {}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mock.Steps(mock.Say(mock.CallText("weather", arguments)), mock.Say("I see."), mock.Say("Yes.")), options{})
			_, history := w.served([]object{user("What is the weather in Rome?")}, object{"tools": weather})
			calls, _ := history[1]["tool_calls"].([]any)
			for _, c := range calls {
				history = append(history, result(c.(object)["id"].(string), "that is no JSON"))
			}
			if len(calls) == 0 {
				history = append(history, user("That is no call."))
			}
			_, history = w.served(history, object{"tools": weather})
			w.served(append(history, user("Go on.")), object{"tools": weather})
			turns := w.turns()
			extends(t, turns[1], turns[0])
			extends(t, turns[2], turns[1])
		})
	}
}

// TestArgumentsThatTheClientBrokeDoNotEndASession: the echo itself is broken,
// as a bridge makes it that puts what it cannot read into a member of its own.
func TestArgumentsThatTheClientBrokeDoNotEndASession(t *testing.T) {
	w := newWorld(t, mock.Steps(mock.Say(mock.CallText("weather", `{"city": "Rome"}`)), mock.Say("I see.")), options{})
	r, history := w.served([]object{user("What is the weather in Rome?")}, object{"tools": weather})
	history[1]["tool_calls"].([]any)[0].(object)["function"].(object)["arguments"] = `{"_raw": "Rome`
	_, history = w.served(append(history, result(r.text("choices.0.message.tool_calls.0.id"), "rain")), object{"tools": weather})
	w.served(append(history, user("Go on.")), object{"tools": weather})
	turns := w.turns()
	extends(t, turns[1], turns[0])
	require.True(t, turns[1].Committed.GetMatch().GetRewritten(), "the change is flagged")
	extends(t, turns[2], turns[1])
}

// TestACutTurnIsEndedInThePrompt: B8. The model was cut; the template's end of
// a turn stands in the next prompt, and is nobody's sample.
func TestACutTurnIsEndedInThePrompt(t *testing.T) {
	w := newWorld(t, mock.Steps(mock.Reply{Text: "and so on and", NoStop: true}, mock.Say("The end.")), options{})
	r, history := w.served([]object{user("Tell me.")}, object{"max_tokens": 64})
	require.Equal(t, "length", r.text("choices.0.finish_reason"))
	w.served(append(history, user("And?")))
	turns := w.turns()
	extends(t, turns[1], turns[0])
	require.Contains(t, promptOf(turns[1]), "and so on and<|im_end|>\n<|im_start|>user\nAnd?")
	end, _ := w.model.Tokenizer.TokenID("<|im_end|>")
	require.NotContains(t, event.IDs(nil, turns[0].Committed.GetCompletion().GetIds()), end)
	repair := turns[1].Committed.GetSegments()[0]
	require.Equal(t, event.Provenance_PROVENANCE_TURN_END, repair.GetProvenance())
	require.Equal(t, end, event.IDs(nil, repair.GetIds())[0])
}

// TestSegmentsTileThePrompt: 30.
func TestSegmentsTileThePrompt(t *testing.T) {
	w := newWorld(t, nil, options{NonCanonical: 0.3})
	history := []object{system("You help.")}
	for range 5 {
		_, history = w.served(append(history, user("Go on.")))
	}
	for i, n := range w.turns() {
		sum := n.Keep
		for _, s := range n.Committed.GetSegments() {
			require.NotEmpty(t, s.GetIds())
			require.NotEqual(t, event.Provenance_PROVENANCE_UNSPECIFIED, s.GetProvenance())
			sum += event.Count(s.GetIds())
		}
		require.Equal(t, n.PromptLen, sum)
		if i > 0 {
			extends(t, n, w.turns()[i-1])
		}
	}
}

// TestACallWithoutContentIsATurn: 5 and 24.
func TestACallWithoutContentIsATurn(t *testing.T) {
	for _, kind := range []string{"sglang", "vllm"} {
		w := newWorld(t, mock.Always(mock.Say(mock.CallText("weather", `{"city": "Rome"}`))), options{Wire: kind})
		r, history := w.served([]object{user("What is the weather in Rome?")}, object{"tools": weather})
		require.Nil(t, r.at("choices.0.message.content"))
		require.Equal(t, "tool_calls", r.text("choices.0.finish_reason"))
		require.Equal(t, "tool_calls", w.last().Committed.GetCompletion().GetFinishReason())
		require.Equal(t, http.StatusOK, w.chat(append(history, result(r.text("choices.0.message.tool_calls.0.id"), "rain")),
			object{"tools": weather}).status)
	}
}

// TestReusedCallIDsOfAModelNameTheirOwnTurn: 52. Ids that clients see are
// unique in the session, whatever the model calls its calls.
func TestReusedCallIDsOfAModelNameTheirOwnTurn(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say(mock.CallText("weather", `{"city": "Rome"}`))), options{})
	history := []object{user("What is the weather?")}
	seen := map[string]bool{}
	for range 4 {
		var r reply
		r, history = w.served(history, object{"tools": weather})
		id := r.text("choices.0.message.tool_calls.0.id")
		require.False(t, seen[id], "call id %s is used twice", id)
		seen[id] = true
		history = append(history, result(id, "rain"))
	}
	turns := w.turns()
	for i, n := range turns[1:] {
		extends(t, n, turns[i])
	}
}
