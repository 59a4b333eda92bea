package session_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
)

// conversation builds histories by hand: "u:text", "a:text", "s:text" and
// messages.
func conversation(list ...any) message.Conversation {
	var all []message.Message
	for _, x := range list {
		switch x := x.(type) {
		case string:
			role := map[byte]message.Role{'u': message.User, 'a': message.Assistant, 's': message.System}[x[0]]
			all = append(all, message.Message{Role: role, Content: message.TextContent(x[2:])})
		case message.Message:
			all = append(all, x)
		}
	}
	return message.Split(all, nil)
}

func calls(ids ...string) message.Message {
	m := message.Message{Role: message.Assistant}
	for _, id := range ids {
		m.Calls = append(m.Calls, message.Call{ID: id, Name: "f", Arguments: `{"a": 1.0}`})
	}
	return m
}

func result(id, text string) message.Message {
	return message.Message{Role: message.Tool, CallID: id, Content: message.TextContent(text)}
}

// world is one session on a journal, seen by one gateway or more.
type world struct {
	t     *testing.T
	j     *mem.Journal
	store *session.Store
	n     int
}

func newWorld(t *testing.T) *world {
	j := mem.New(mem.Options{})
	w := &world{t: t, j: j, store: session.NewStore(j, 1<<20, nil)}
	ev := &event.Event{Id: "open", Session: "s", Run: "r"}
	ev.Body = &event.Event_SessionOpened{SessionOpened: &event.SessionOpened{}}
	require.NoError(t, w.store.Open(t.Context(), ev, false, func(*session.Session, bool) error { return nil }))
	t.Cleanup(w.compare)
	return w
}

// compare checks that what was folded from memory is what a reader of the log
// has.
func (w *world) compare() {
	known := func(s *session.Store) (list []session.Known) {
		_ = s.Use(context.Background(), "s", func(s *session.Session) error { list = s.Known(); return nil })
		return list
	}
	require.Equal(w.t, known(session.NewStore(w.j, 1<<20, nil)), known(w.store))
}

func (w *world) use(fn func(*session.Session)) {
	require.NoError(w.t, w.store.Use(w.t.Context(), "s", func(s *session.Session) error { fn(s); return nil }))
}

func (w *world) match(c message.Conversation) (m session.Match, known bool) {
	sorted, changed := session.SortResults(c.Messages)
	c.Messages = sorted
	w.use(func(s *session.Session) { m, known = s.Match(c) })
	if changed {
		m.Tolerances = append([]string{session.ResultOrder}, m.Tolerances...)
	}
	return m, known
}

// turn commits a turn for a history and returns its id.
func (w *world) turn(c message.Conversation, answer message.Message, more ...func(*event.TurnCommitted)) string {
	m, _ := w.match(c)
	w.n++
	id := fmt.Sprintf("t%d", w.n)
	head := c.Head.Hash()
	committed := &event.TurnCommitted{
		Turn:       id,
		Segments:   []*event.Segment{{Ids: event.AppendIDs(nil, []uint32{1, 2})}},
		Completion: &event.Completion{Ids: event.AppendIDs(nil, []uint32{3})},
		Conversation: &event.Conversation{
			Head: head[:], Keep: uint32(m.Keep), Answer: answer.AppendJSON(nil),
		},
	}
	committed.Match = &event.Match{Rewritten: m.Rewritten, RewrittenTurns: m.RewrittenTurns}
	for _, x := range m.Added {
		committed.Conversation.Messages = append(committed.Conversation.Messages, x.AppendJSON(nil))
	}
	if m.Parent != nil {
		committed.Parent, committed.ParentKeep = m.Parent.ID, uint32(m.Parent.Len)
		committed.Base = &event.Base{Turn: m.Parent.ID, Keep: uint32(m.Parent.Len)}
	}
	for _, change := range more {
		change(committed)
	}
	ev := &event.Event{Id: id, Session: "s", Body: &event.Event_TurnCommitted{TurnCommitted: committed}}
	w.use(func(s *session.Session) {
		require.NoError(w.t, s.AppendTurn(w.t.Context(), m, answer, func(*tree.Tree) (*event.Event, error) { return ev, nil }))
	})
	return id
}

func say(s string) message.Message {
	return message.Message{Role: message.Assistant, Content: message.TextContent(s)}
}

func (w *world) expect(c message.Conversation, parent, decision, reason string, tolerances ...string) session.Match {
	w.t.Helper()
	m, _ := w.match(c)
	got := ""
	if m.Parent != nil {
		got = m.Parent.ID
	}
	require.Equal(w.t, parent, got)
	require.Equal(w.t, decision, m.Decision)
	require.Equal(w.t, reason, m.Reason)
	require.Equal(w.t, tolerances, m.Tolerances)
	return m
}

func TestAHistoryContinuesTheTurnThatItRepeats(t *testing.T) {
	w := newWorld(t)
	w.expect(conversation("s:x", "u:1"), "", session.Root, session.FirstTurn)
	w.turn(conversation("s:x", "u:1"), say("A"))
	w.turn(conversation("s:x", "u:1", "a:A", "u:2"), say("B"))
	m := w.expect(conversation("s:x", "u:1", "a:A", "u:2", "a:B", "u:3"), "t2", session.Extend, "")
	require.Len(t, m.Added, 1)
	require.Equal(t, 4, m.Keep)
}

func TestNoHistoryIsRefused(t *testing.T) {
	w := newWorld(t)
	w.turn(conversation("s:x", "u:1"), say("A"))
	w.turn(conversation("s:x", "u:1", "a:A", "u:2"), say("B"))
	w.turn(conversation("s:x", "u:1", "a:A", "u:2", "a:B", "u:3"), say("C"))

	w.expect(conversation("s:x", "u:1"), "", session.Root, session.Resample)
	w.expect(conversation("s:x", "u:1", "a:A", "u:2"), "t1", session.Branch, session.Resample)
	w.expect(conversation("s:x", "u:1", "a:A", "u:other"), "t1", session.Branch, session.Rewind)
	w.expect(conversation("s:y", "u:1", "a:A", "u:2"), "", session.Root, session.HeadChanged)
	w.expect(conversation("s:x", "u:else"), "", session.Root, session.NewConversation)
	w.expect(conversation("s:x", "u:summary", "a:foreign", "u:go"), "", session.Root, session.HistoryRewritten)
	w.expect(conversation("s:x", "u:1", "a:foreign", "u:go"), "", session.Root, session.HistoryRewritten)
	w.expect(conversation("s:x", "u:1", "u:go"), "", session.Root, session.NewConversation)
	m := w.expect(conversation("s:x", "u:1", "a:A", "u:2", "a:edited", "u:3"), "t1", session.Branch, session.HistoryRewritten)
	require.Len(t, m.Added, 3)
}

func TestWhatClientsChangeIsNamed(t *testing.T) {
	w := newWorld(t)
	answer := calls("c1", "c2")
	answer.Reasoning = "hm "
	w.turn(conversation("u:go"), answer)
	with := func(change func(*message.Message), results ...any) message.Conversation {
		a := calls("c1", "c2")
		a.Reasoning = "hm "
		change(&a)
		return conversation(append([]any{"u:go", a}, results...)...)
	}
	same := func(*message.Message) {}
	in := []any{result("c1", "1"), result("c2", "2")}
	w.expect(with(same, in...), "t1", session.Extend, "")
	m := w.expect(with(same, result("c2", "2"), result("c1", "1")), "t1", session.Extend, "", session.ResultOrder)
	require.Equal(t, "c1", m.Added[0].CallID, "results stand in the order of the calls")
	w.expect(with(func(a *message.Message) { a.Reasoning = "" }, in...), "t1", session.Extend, "", session.DroppedReasoning)
	w.expect(with(func(a *message.Message) { a.Reasoning = "hm" }, in...), "t1", session.Extend, "", session.TrailingSpace)
	w.expect(with(func(a *message.Message) { a.Reasoning = "no" }, in...), "t1", session.Extend, "", session.ChangedReasoning)
	w.expect(with(func(a *message.Message) { a.Content = message.TextContent("") }, in...), "t1", session.Extend, "", session.ContentForm)
	m = w.expect(with(func(a *message.Message) { a.Calls[1].Arguments = `{"a":1}` }, in...), "t1", session.Extend, "", session.RespelledArguments)
	require.False(t, m.Rewritten)
	for _, other := range []string{`{"a":2}`, `{"a":1,"b":null}`, `{`, ``} {
		m = w.expect(with(func(a *message.Message) { a.Calls[1].Arguments = other }, in...), "t1", session.Extend, "")
		require.True(t, m.Rewritten, other)
	}
	m = w.expect(with(func(a *message.Message) { a.Calls[0].Name = "invalid" }, in...), "t1", session.Extend, "")
	require.True(t, m.Rewritten)

	list := conversation("u:go").Messages[0]
	list.Content = message.Content{Form: message.List, Parts: []message.Part{{Type: "text", Text: "go\n"}}}
	w.expect(conversation(list, answer, in[0], in[1]), "t1", session.Extend, "", session.ContentForm, session.TrailingSpace)
}

func TestARewrittenAnswerIsNamedByTheFirstTurnThatShowsIt(t *testing.T) {
	w := newWorld(t)
	other := func(m message.Message) message.Message {
		m.Calls = slices.Clone(m.Calls)
		m.Calls[0].Arguments = `{"other":1}`
		return m
	}
	history := []any{"u:go"}
	w.turn(conversation(history...), calls("c1"))
	history = append(history, other(calls("c1")), result("c1", "1"))
	m := w.expect(conversation(history...), "t1", session.Extend, "")
	require.Equal(t, []string{"t1"}, m.RewrittenTurns)
	w.turn(conversation(history...), calls("c2"))
	history = append(history, calls("c2"), result("c2", "2"))
	m = w.expect(conversation(history...), "t2", session.Extend, "")
	require.True(t, m.Rewritten, "it is in the history still")
	require.Empty(t, m.RewrittenTurns, "t2 has named it")
	w.turn(conversation(history...), calls("c3"))
	// An old answer is changed late, and the last one as well.
	history[3] = other(calls("c2"))
	m = w.expect(conversation(append(history, other(calls("c3")), result("c3", "3"))...), "t3", session.Extend, "")
	require.Equal(t, []string{"t2", "t3"}, m.RewrittenTurns)
}

func TestEqualSiblingsAreAmbiguousUnlessOneNeverArrived(t *testing.T) {
	w := newWorld(t)
	w.turn(conversation("u:go"), say("A"))
	w.turn(conversation("u:go"), say("A"))
	m := w.expect(conversation("u:go", "a:A", "u:2"), "t2", session.Extend, "")
	require.True(t, m.Ambiguous)

	lost := &event.Event{Id: "lost", Session: "s", Body: &event.Event_DeliveryFailed{DeliveryFailed: &event.DeliveryFailed{Turn: "t2"}}}
	w.use(func(s *session.Session) {
		require.NoError(t, s.Append(t.Context(), func(*tree.Tree) (*event.Event, error) { return lost, nil }))
	})
	m = w.expect(conversation("u:go", "a:A", "u:2"), "t1", session.Extend, "")
	require.False(t, m.Ambiguous)
}

func TestTwoGatewaysServeOneSession(t *testing.T) {
	one := newWorld(t)
	two := &world{t: t, j: one.j, store: session.NewStore(one.j, 1<<20, nil), n: 100}
	one.turn(conversation("u:1"), say("A"))
	two.turn(conversation("u:1", "a:A", "u:2"), say("B")) // reads the session first
	_, known := one.match(conversation("u:1", "a:A", "u:2", "a:B", "u:3"))
	require.False(t, known, "an answer of the other gateway")
	one.use(func(s *session.Session) { require.NoError(t, s.CatchUp(t.Context())) })
	one.expect(conversation("u:1", "a:A", "u:2", "a:B", "u:3"), "t101", session.Extend, "")

	// Both append from the same view: the loser catches up, nothing is lost.
	two.turn(conversation("u:1", "a:A", "u:2", "a:B", "u:3"), say("C"))
	one.turn(conversation("u:1", "a:A", "u:2", "a:B", "u:4"), say("D"))
	for _, w := range []*world{one, two} {
		w.use(func(s *session.Session) {
			require.NoError(t, s.CatchUp(t.Context()))
			require.NoError(t, s.View(func(tr *tree.Tree) error { require.Len(t, tr.Turns, 4); return nil }))
		})
	}
}

func TestAnEvictedSessionComesBackFromTheLog(t *testing.T) {
	w := newWorld(t)
	w.turn(conversation("u:1"), say("A"))
	w.store = session.NewStore(w.j, 1, nil) // room for nothing
	for range 3 {
		w.expect(conversation("u:1", "a:A", "u:2"), "t1", session.Extend, "")
		require.Zero(t, w.store.Len())
		require.Zero(t, w.store.Bytes())
	}
}

func TestAnUnknownSessionIsUnknown(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"nobody", "", "a/b", "run:r"} {
		err := w.store.Use(context.Background(), id, func(*session.Session) error { return nil })
		require.ErrorIs(t, err, session.ErrUnknown, "%q", id)
	}
}

func TestAnAnswerThatNamesItsTurnIsThatTurnAmongEqualOnes(t *testing.T) {
	w := newWorld(t)
	asked := conversation("u:hi")
	answer := asked.Messages[0]
	answer.Role, answer.Content = message.Assistant, message.TextContent("hello")
	first := w.turn(asked, answer)
	second := w.turn(asked, answer)

	echo := answer
	m, _ := w.match(conversation("u:hi", echo, "u:more"))
	require.Equal(t, second, m.Parent.ID)
	require.True(t, m.Ambiguous)

	echo.Turn = first
	m, known := w.match(conversation("u:hi", echo, "u:more"))
	require.True(t, known)
	require.Equal(t, first, m.Parent.ID)
	require.False(t, m.Ambiguous)

	echo.Content = message.TextContent("hello, said otherwise")
	m, _ = w.match(conversation("u:hi", echo, "u:more"))
	require.Equal(t, first, m.Parent.ID)
	require.True(t, m.Rewritten)

	// Under another history the name proves nothing.
	m, known = w.match(conversation("u:other", echo, "u:more"))
	require.False(t, known)
	require.Nil(t, m.Parent)
}

// A session whose events have left the log is over: nothing is served under its
// id, and nothing begins again.
func TestATrimmedSessionIsOverAndNeverBeginsAgain(t *testing.T) {
	w := newWorld(t)
	w.turn(conversation("u:1"), say("A"))
	var opened, end journal.Tip
	w.use(func(s *session.Session) {
		require.NoError(t, s.View(func(tr *tree.Tree) error { end = tr.Tip; return nil }))
	})
	for e, err := range w.j.ReadSession(t.Context(), "s", journal.Tip{}) {
		require.NoError(t, err)
		opened = e.Tip
		break
	}
	row := func(_ context.Context, id string) (bool, error) { return id == "s", nil } // the registry's
	note := &event.Event{Id: "note", Session: "s", Body: &event.Event_Annotated{Annotated: &event.Annotated{Name: "n", Value: []byte("1")}}}
	open := &event.Event{Id: "open", Session: "s", Run: "r", Body: &event.Event_SessionOpened{SessionOpened: &event.SessionOpened{}}}
	for _, upTo := range []journal.Tip{opened, end} {
		require.NoError(t, w.j.Trim(t.Context(), map[string]journal.Tip{"s": upTo}))
		cold := session.NewStore(w.j, 1<<20, row)
		require.ErrorIs(t, cold.Use(t.Context(), "s", func(*session.Session) error { return nil }), journal.ErrTrimmed)
		require.ErrorIs(t, cold.Open(t.Context(), open, false, func(*session.Session, bool) error { return nil }), journal.ErrTrimmed)
		require.Zero(t, cold.Len())
	}
	// A gateway that still holds the session finds out when it appends or looks.
	err := w.store.Use(t.Context(), "s", func(s *session.Session) error {
		require.ErrorIs(t, s.CatchUp(t.Context()), journal.ErrTrimmed)
		return s.Append(t.Context(), func(*tree.Tree) (*event.Event, error) { return note, nil })
	})
	require.ErrorIs(t, err, journal.ErrTrimmed)
	require.ErrorIs(t, session.NewStore(w.j, 1<<20, row).Use(t.Context(), "other", func(*session.Session) error { return nil }), session.ErrUnknown)
}

func TestOneUndeliveredAnswerIsGivenAgainOnce(t *testing.T) {
	w := newWorld(t)
	body := []byte("hash")
	id := w.turn(conversation("u:1"), say("A"), func(c *event.TurnCommitted) { c.Request = &event.Request{BodyHash: body, RequestId: "q"} })
	take := func() (got string) {
		w.use(func(s *session.Session) {
			if n := s.TakeUndelivered(body); n != nil {
				got = n.ID
			}
			require.Nil(t, s.Repeated("", "other", body))
			require.Nil(t, s.Repeated("", "q", []byte("other")))
			require.Nil(t, s.Repeated("k", "q", body), "a key is asked for alone")
			require.Equal(t, id, s.Repeated("", "q", body).ID)
		})
		return got
	}
	require.Empty(t, take(), "it was delivered")
	lost := &event.Event{Id: "lost", Session: "s", Body: &event.Event_DeliveryFailed{DeliveryFailed: &event.DeliveryFailed{Turn: id}}}
	w.use(func(s *session.Session) {
		require.NoError(t, s.Append(t.Context(), func(*tree.Tree) (*event.Event, error) { return lost, nil }))
	})
	require.Equal(t, id, take())
	require.Empty(t, take())
}

func parse(t *testing.T, raw string) message.Message {
	t.Helper()
	m, err := message.Parse([]byte(raw))
	require.NoError(t, err, raw)
	return m
}

func TestWhatTheModelReadsAlikeIsTheSameMessage(t *testing.T) {
	for name, pair := range map[string][2]string{
		"a text and a list of one": {`{"role":"user","content":"a"}`, `{"role":"user","content":[{"type":"text","text":"a"}]}`},
		"null and nothing":         {`{"role":"assistant","content":null}`, `{"role":"assistant","content":""}`},
		"arguments that are respelled": {
			`{"role":"assistant","content":null,"calls":[{"id":"c","name":"f","arguments":"{\"a\": 1}"}]}`,
			`{"role":"assistant","content":null,"calls":[{"id":"c","name":"f","arguments":"{\"a\":1}"}]}`,
		},
		"reasoning that is dropped": {`{"role":"assistant","content":"a","reasoning":"r"}`, `{"role":"assistant","content":"a"}`},
		"the name of a tool":        {`{"role":"tool","content":"a","call_id":"c","name":"f"}`, `{"role":"tool","content":"a","call_id":"c"}`},
	} {
		require.True(t, session.Alike(parse(t, pair[0]), parse(t, pair[1])), name)
	}
}

func TestWhatTheModelReadsOtherwiseIsAnother(t *testing.T) {
	var seen []message.Message
	for _, raw := range []string{
		`{"role":"user","content":"a"}`,
		`{"role":"assistant","content":"a"}`,
		`{"role":"system","content":"a"}`,
		`{"role":"user","content":"ab"}`,
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
		`{"role":"user","content":[{"type":"text","text":"ab"},{"type":"text","text":""}]}`,
		`{"role":"user","content":"a","name":"b"}`,
		`{"role":"assistant","content":"a","calls":[{"id":"b","name":"","arguments":""}]}`,
		`{"role":"assistant","content":"a","calls":[{"id":"b","name":"","arguments":""},{"id":"","name":"","arguments":""}]}`,
		`{"role":"assistant","content":"","calls":[{"id":"a","name":"","arguments":""},{"id":"b","name":"","arguments":""}]}`,
		`{"role":"tool","content":"a","call_id":"b"}`,
		`{"role":"user","content":[{"type":"image","data":"a"}]}`,
		`{"role":"user","content":[{"type":"text","text":"{\"type\":\"image\",\"data\":\"a\"}"}]}`,
		`{"role":"user","content":[{"type":"text","text":"{\"type\":\"image\",\"data\":\"a\"}"},{"type":"text","text":""}]}`,
		`{"role":"user","content":[{"type":"image","data":"a"},{"type":"text","text":""}]}`,
	} {
		m := parse(t, raw)
		for _, other := range seen {
			require.False(t, session.Alike(m, other), raw)
		}
		seen = append(seen, m)
		require.True(t, session.Alike(m, parse(t, string(m.AppendJSON(nil)))), "as it is read from the log")
	}
}
