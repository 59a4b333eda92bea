package reference

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
)

var weather = []object{{"type": "function", "function": object{
	"name": "weather", "description": "Tells the weather.",
	"parameters": object{"type": "object", "properties": object{"city": object{"type": "string"}}, "required": []string{"city"}},
}}}

// TestARetryOfTheFirstTurnIsServed: B1. The answer of the first turn did not
// arrive, and the agent asks again with the same history, then goes on with it.
func TestARetryOfTheFirstTurnIsServed(t *testing.T) {
	w := newWorld(t, nil, options{NonCanonical: 0.3})
	first := []object{system("You help."), user("Tell me a story about a king.")}
	w.served(first)
	for range 3 {
		_, history := w.served(first)
		retried := w.last()
		require.Equal(t, "root", retried.Committed.GetMatch().GetDecision())
		require.Equal(t, "resample", retried.Committed.GetMatch().GetReason())
		r, _ := w.served(append(history, user("Go on.")))
		require.Equal(t, r.header.Get("Turnlog-Turn"), w.last().ID)
		require.NotEmpty(t, w.last().Committed.GetParent())
	}
	require.Len(t, w.turns(), 7)
}

// TestAKeyedRetryGetsTheCommittedAnswer: the same without a second sample.
func TestAKeyedRetryGetsTheCommittedAnswer(t *testing.T) {
	w := newWorld(t, nil, options{})
	body := object{"model": "any", "messages": []object{user("Once more?")}}
	a := w.post(chatPath, body, "Idempotency-Key: k1")
	b := w.post(chatPath, body, "Idempotency-Key: k1")
	require.Equal(t, http.StatusOK, b.status, b.body)
	require.Equal(t, a.text("choices.0.message.content"), b.text("choices.0.message.content"))
	require.Equal(t, a.header.Get("Turnlog-Turn"), b.header.Get("Turnlog-Turn"))
	require.Equal(t, 1, w.engine.Requests())
	body["messages"] = []object{user("Something else?")}
	require.Equal(t, http.StatusConflict, w.post(chatPath, body, "Idempotency-Key: k1").status)
	require.Len(t, w.turns(), 1)
}

// TestAHistoryThatBeginsWithAnswersCanBeEdited: B2. A session starts with a
// history from elsewhere; an edit of its last message must not leave the old
// one in the prompt.
func TestAHistoryThatBeginsWithAnswersCanBeEdited(t *testing.T) {
	w := newWorld(t, nil, options{})
	carried := []object{user("What is one and one?"), assistant("It is two, from elsewhere.")}
	_, abandoned := w.served(append(carried, user("And the zebra?")))
	w.served(append(abandoned, user("And its stripes?")))
	_, edited := w.served(append(carried, user("And the walrus?")))
	n := w.last()
	require.Equal(t, "root", n.Committed.GetMatch().GetDecision())
	require.NotContains(t, promptOf(n), "zebra")
	require.Contains(t, promptOf(n), "It is two, from elsewhere.")
	require.Contains(t, promptOf(n), "walrus")
	w.served(append(edited, user("And its tusks?")))
	extends(t, w.last(), n)
	// What others said was not sampled here, and the log does not say so.
	require.Less(t, event.Count(n.Committed.GetCompletion().GetIds()), n.Len)
}

// TestAnEchoThatReadsAlikeExtends: B6. What clients change without meaning it
// costs no branch and is named.
func TestAnEchoThatReadsAlikeExtends(t *testing.T) {
	called := mock.Say("\n\nLet me look.\n" + mock.CallText("weather", `{"city":   "Rome"}`))
	for name, c := range map[string]struct {
		change    func(m, call object)
		tolerance string
	}{
		"as it was":         {func(object, object) {}, ""},
		"index dropped":     {func(_, call object) { delete(call, "index") }, ""},
		"arguments spaced":  {func(_, call object) { call["function"].(object)["arguments"] = `{ "city" : "Rome" }` }, "respelled_arguments"},
		"newlines stripped": {func(m, _ object) { m["content"] = "Let me look." }, ""},
		"content as parts": {func(m, _ object) {
			m["content"] = []object{{"type": "text", "text": m["content"]}}
		}, "content_form"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mock.Steps(called, mock.Say("It rains.")), options{NonCanonical: 0.3})
			r, history := w.served([]object{user("What is the weather in Rome?")}, object{"tools": weather})
			id := r.text("choices.0.message.tool_calls.0.id")
			require.NotEmpty(t, id, r.body)
			m := history[1]
			c.change(m, m["tool_calls"].([]any)[0].(object))
			w.served(append(history, result(id, "rain")), object{"tools": weather})
			turns := w.turns()
			extends(t, turns[1], turns[0])
			if c.tolerance != "" {
				require.Contains(t, turns[1].Committed.GetMatch().GetTolerances(), c.tolerance)
			}
		})
	}
}

// TestReasoningThatIsDroppedStaysInThePrompt: B7 and 25. The agent leaves the
// thinking out, or echoes it under either name; the sampled ids stay.
func TestReasoningThatIsDroppedStaysInThePrompt(t *testing.T) {
	for name, change := range map[string]func(m object){
		"dropped":           func(m object) { delete(m, "reasoning_content") },
		"reasoning":         func(m object) { m["reasoning"] = m["reasoning_content"]; delete(m, "reasoning_content") },
		"reasoning_content": func(object) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mock.Always(mock.Say("<think>\nA secret thought.\n</think>\n\nYes.")), options{})
			_, history := w.served([]object{user("Is it so?")})
			require.Equal(t, "A secret thought.", history[1]["reasoning_content"])
			change(history[1])
			_, history = w.served(append(history, user("Sure?")))
			change(history[3])
			w.served(append(history, user("Really?")))
			turns := w.turns()
			extends(t, turns[1], turns[0])
			extends(t, turns[2], turns[1])
			require.Contains(t, promptOf(turns[2]), "A secret thought.")
		})
	}
}

// TestChangedToolsAreReadByTheModel: B9.
func TestChangedToolsAreReadByTheModel(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	_, history := w.served([]object{user("Hello.")}, object{"tools": weather})
	more := append(append([]object(nil), weather...), object{"type": "function", "function": object{"name": "teleport"}})
	w.served(append(history, user("And now?")), object{"tools": more})
	n := w.last()
	require.Contains(t, promptOf(n), "teleport")
	require.Equal(t, "head_changed", n.Committed.GetMatch().GetReason())
}

// TestTemplateArgumentsReachThePrompt: B10.
func TestTemplateArgumentsReachThePrompt(t *testing.T) {
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{})
	ask := []object{user("Hello.")}
	w.served(ask)
	w.served(ask, object{"chat_template_kwargs": object{"enable_thinking": false}})
	turns := w.turns()
	require.NotContains(t, promptOf(turns[0]), "<think>")
	require.Contains(t, promptOf(turns[1]), "<think>\n\n</think>")
	require.JSONEq(t, `{"enable_thinking":false}`, string(turns[1].Committed.GetConversation().GetTemplateKwargs()))
}

// TestRewindsOfAnyDepthAreServed: B11 and 13. Rewinds over many steps and a
// compaction branch; the abandoned line can still be continued.
func TestRewindsOfAnyDepthAreServed(t *testing.T) {
	w := newWorld(t, nil, options{NonCanonical: 0.2})
	history := []object{system("You help.")}
	var at [][]object
	for i := range 12 {
		_, history = w.served(append(history, user(fmt.Sprintf("Question %d.", i))))
		at = append(at, history)
	}
	main := w.last()
	for _, step := range []int{9, 6, 3, 0} {
		w.served(append(append([]object(nil), at[step]...), user("Another way, please.")))
		n := w.last()
		require.Equal(t, "branch", n.Committed.GetMatch().GetDecision())
		require.Equal(t, "rewind", n.Committed.GetMatch().GetReason())
		require.Equal(t, w.turns()[step].ID, n.Committed.GetParent())
		require.NotContains(t, promptOf(n), fmt.Sprintf("Question %d.", step+1))
	}
	w.served([]object{system("You help."), user("A summary of all that was said: nothing.")})
	require.Equal(t, "root", w.last().Committed.GetMatch().GetDecision())
	w.served(append(history, user("Where were we?")))
	extends(t, w.last(), main)
}

// TestAnEditWhoseEngineFailsLeavesTheOtherBranchAsItWas: B12, 14 and 32.
func TestAnEditWhoseEngineFailsLeavesTheOtherBranchAsItWas(t *testing.T) {
	down := mock.Reply{Fault: mock.Fault{Kind: mock.Status, Status: http.StatusInternalServerError}}
	script := mock.Match(mock.Always(mock.Say("Fine.")), mock.Rule{Contains: "edited", Reply: down})
	w := newWorld(t, script, options{})
	_, one := w.served([]object{user("First.")})
	_, two := w.served(append(one, user("Second.")))
	before := w.last()
	r := w.chat(append(one, user("edited")))
	require.GreaterOrEqual(t, r.status, 500, r.body)
	require.Len(t, w.turns(), 2)
	require.Len(t, w.tree(session).Aborted, 1, "what failed is in the log")
	w.served(append(two, user("Third.")))
	extends(t, w.last(), before)
}

// TestOneTurnIsTheFirst: clients ask for a title beside their first turn.
func TestOneTurnIsTheFirst(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	w := newWorld(t, func(mock.Request) mock.Reply {
		both.Done()
		both.Wait()
		return mock.Say("Fine.")
	}, options{})
	var answered sync.WaitGroup
	for _, text := range []string{"Name this conversation.", "Let us begin."} {
		answered.Go(func() { w.chat([]object{user(text)}) })
	}
	answered.Wait()
	var reasons []string
	for _, n := range w.turns() {
		reasons = append(reasons, n.Committed.GetMatch().GetReason())
	}
	require.Equal(t, []string{"first_turn", "new_conversation"}, reasons)
}

// TestEveryChoiceIsInTheLog: B14.
func TestEveryChoiceIsInTheLog(t *testing.T) {
	w := newWorld(t, nil, options{NonCanonical: 0.2})
	r, _ := w.served([]object{user("Say something, anything.")}, object{"n": 5, "temperature": 1})
	choices, _ := r.at("choices").([]any)
	require.Len(t, choices, 5)
	require.Len(t, r.header.Values("Turnlog-Turn"), 5)
	require.Len(t, w.turns(), 5)
	for i, n := range w.turns() {
		require.Equal(t, i == 0, n.Committed.GetMatch().GetReason() == "first_turn")
		require.Equal(t, i > 0, n.Committed.GetMatch().GetReason() == "resample")
	}

	// Of seeds each choice has its own, to the last digit.
	for seed, second := range map[int64]string{7: "8", 1<<53 + 1: "9007199254740994", math.MaxInt64: "9223372036854775806"} {
		before := len(w.turns())
		w.served([]object{user("Say something, anything.")}, object{"n": 2, "seed": seed})
		var used []string
		for _, n := range w.turns()[before:] {
			raw, _ := rawjson.Get(n.Committed.GetRequest().GetSamplingUsed(), "seed")
			used = append(used, string(raw))
		}
		require.ElementsMatch(t, []string{strconv.FormatInt(seed, 10), second}, used)
	}
}
