package tree_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
)

// log builds the entries of one session.
type log struct {
	t       *testing.T
	tip     journal.Tip
	entries []journal.Entry
}

func (l *log) add(id string, body any) *log {
	ev := &event.Event{Id: id, Session: "s", Run: "r", Tenant: "default"}
	switch b := body.(type) {
	case *event.SessionOpened:
		ev.Body = &event.Event_SessionOpened{SessionOpened: b}
	case *event.TurnCommitted:
		ev.Body = &event.Event_TurnCommitted{TurnCommitted: b}
	case *event.TurnAborted:
		ev.Body = &event.Event_TurnAborted{TurnAborted: b}
	case *event.RewardAssigned:
		ev.Body = &event.Event_RewardAssigned{RewardAssigned: b}
	case *event.SessionClosed:
		ev.Body = &event.Event_SessionClosed{SessionClosed: b}
	case *event.DeliveryFailed:
		ev.Body = &event.Event_DeliveryFailed{DeliveryFailed: b}
	}
	raw, err := event.Encode(ev)
	require.NoError(l.t, err)
	l.tip = l.tip.Next(l.tip.Position+1, raw)
	l.entries = append(l.entries, journal.Entry{Event: ev, Body: raw, Tip: l.tip, Time: time.Unix(int64(l.tip.Count), 0)})
	return l
}

func (l *log) fold() (*tree.Tree, error) {
	tr := tree.New("s")
	for _, e := range l.entries {
		if err := tr.Apply(e); err != nil {
			return tr, err
		}
	}
	return tr, nil
}

func user(s string) []byte {
	return message.Message{Role: message.User, Content: message.TextContent(s)}.AppendJSON(nil)
}

func assistant(s string) []byte {
	return message.Message{Role: message.Assistant, Content: message.TextContent(s)}.AppendJSON(nil)
}

// turn continues parent at keep ids with a prompt segment and a completion.
func turn(id, parent string, keep int, messages int, seg, completion []uint32) *event.TurnCommitted {
	c := &event.TurnCommitted{
		Turn: id, Parent: parent, ParentKeep: uint32(keep),
		Segments:   []*event.Segment{{Provenance: event.Provenance_PROVENANCE_USER, Ids: event.AppendIDs(nil, seg)}},
		Completion: &event.Completion{Ids: event.AppendIDs(nil, completion)},
		Conversation: &event.Conversation{
			Keep: uint32(messages), Messages: [][]byte{user("to " + id)}, Answer: assistant("from " + id),
		},
	}
	if parent != "" {
		c.Base = &event.Base{Turn: parent, Keep: uint32(keep)}
	}
	return c
}

func opened(t *testing.T) *log {
	return (&log{t: t}).add("open", &event.SessionOpened{Group: "g"})
}

func TestIDsOfATurnAreItsParentsKeptIDsAndItsOwn(t *testing.T) {
	tr, err := opened(t).
		add("a", turn("a", "", 0, 0, []uint32{1, 2}, []uint32{3, 4})).
		add("b", turn("b", "a", 3, 2, []uint32{5}, []uint32{6, 7})).
		add("c", turn("c", "b", 6, 4, []uint32{8}, nil)).
		add("d", turn("d", "a", 4, 2, []uint32{9}, []uint32{10})).
		fold()
	require.NoError(t, err)
	ids := func(id string) []uint32 { n := tr.Turn(id); return n.IDs(nil, n.Len) }
	require.Equal(t, []uint32{1, 2, 3, 4}, ids("a"))
	require.Equal(t, []uint32{1, 2, 3, 5, 6, 7}, ids("b"))
	require.Equal(t, []uint32{1, 2, 3, 5, 6, 7, 8}, ids("c"))
	require.Equal(t, []uint32{1, 2, 3, 4, 9, 10}, ids("d"))
	require.Equal(t, []uint32{1, 2, 3, 5}, tr.Turn("b").PromptIDs(nil))
	for n := 1; n < 8; n++ {
		require.Equal(t, ids("c")[:min(n, 7)], tr.Turn("c").IDs(nil, n)[:min(n, 7)], "first %d", n)
	}
	for from := range 9 {
		for to := from; to < 9; to++ {
			require.Equal(t, append([]uint32{42}, ids("c")[min(from, 7):min(to, 7)]...), tr.Turn("c").Slice([]uint32{42}, from, to), "%d to %d", from, to)
		}
	}
	require.Equal(t, []uint32{42, 1, 2}, tr.Turn("a").IDs([]uint32{42}, 2), "appended to what is there")
	require.Len(t, tr.Turn("a").Children, 2)
	require.Equal(t, 10, tr.NewIDs())
	path := tr.Turn("c").Path()
	require.Equal(t, []string{"a", "b", "c"}, []string{path[0].ID, path[1].ID, path[2].ID})

	msgs, err := tr.Turn("c").Messages()
	require.NoError(t, err)
	var got []string
	for _, m := range msgs {
		got = append(got, m.Content.Text)
	}
	require.Equal(t, []string{"to a", "from a", "to b", "from b", "to c", "from c"}, got)
	msgs, err = tr.Turn("d").Messages()
	require.NoError(t, err)
	require.Equal(t, "to d", msgs[2].Content.Text)
}

func TestAnEventSeenTwiceCountsOnce(t *testing.T) {
	a := turn("a", "", 0, 0, []uint32{1}, []uint32{2})
	tr, err := opened(t).add("a", a).add("a", a).add("r", &event.RewardAssigned{Reward: 1}).add("r", &event.RewardAssigned{Reward: 1}).fold()
	require.NoError(t, err)
	require.Len(t, tr.Turns, 1)
	require.Len(t, tr.Rewards, 1)
	require.EqualValues(t, 5, tr.Tip.Count)
}

func TestNothingResurrectsAClosedSession(t *testing.T) {
	closed := func() *log { return opened(t).add("close", &event.SessionClosed{Reason: "completed"}) }
	for _, legal := range []any{&event.RewardAssigned{}, &event.TurnAborted{}, &event.DeliveryFailed{}} {
		_, err := closed().add("x", legal).fold()
		require.NoError(t, err, "%T", legal)
	}
	for _, illegal := range []any{turn("a", "", 0, 0, nil, nil), &event.SessionClosed{}, &event.SessionOpened{}} {
		tr, err := closed().add("x", illegal).fold()
		require.ErrorIs(t, err, tree.ErrIllegal, "%T", illegal)
		require.NotNil(t, tr.Closed)
		require.Empty(t, tr.Turns)
	}
}

func TestIllegalEventsChangeNothingButTheTip(t *testing.T) {
	for name, c := range map[string]*event.TurnCommitted{
		"unknown parent":     turn("b", "z", 0, 0, nil, nil),
		"more than parent":   turn("b", "a", 3, 2, nil, nil),
		"same turn":          turn("a", "", 0, 0, nil, nil),
		"no id":              turn("", "", 0, 0, nil, nil),
		"keep of no parent":  turn("b", "", 1, 0, nil, nil),
		"messages of nobody": turn("b", "", 0, 1, nil, nil),
		"too many messages":  turn("b", "a", 1, 3, nil, nil),
		"ragged ids":         {Turn: "b", Completion: &event.Completion{Ids: []byte{1, 2, 3}}},
		"keep beyond prompt": {Turn: "b", Parent: "a", ParentKeep: 2},
	} {
		tr, err := opened(t).add("a", turn("a", "", 0, 0, []uint32{1}, []uint32{2})).add("x", c).fold()
		require.ErrorIs(t, err, tree.ErrIllegal, name)
		require.Len(t, tr.Turns, 1, name)
		require.Empty(t, tr.Turn("a").Children, name)
		require.EqualValues(t, 3, tr.Tip.Count, name)
	}
	_, err := (&log{t: t}).add("a", turn("a", "", 0, 0, nil, nil)).fold()
	require.ErrorIs(t, err, tree.ErrIllegal, "before the session was opened")
}

func TestAGapIsNoticed(t *testing.T) {
	l := opened(t).add("r", &event.RewardAssigned{}).add("q", &event.RewardAssigned{})
	l.entries = append(l.entries[:1], l.entries[2])
	_, err := l.fold()
	require.ErrorIs(t, err, journal.ErrGap)
}

func TestTheHighestRevisionOfARewardCounts(t *testing.T) {
	tr, err := opened(t).
		add("1", &event.RewardAssigned{Reward: 1, Revision: 2}).
		add("2", &event.RewardAssigned{Reward: 2, Revision: 1}).
		add("3", &event.RewardAssigned{Reward: 3, Revision: 9, Turn: "t"}).
		fold()
	require.NoError(t, err)
	require.InDelta(t, 1, tr.Reward().GetReward(), 0)
}

func TestTheLogIsLinearInTheSession(t *testing.T) {
	l := opened(t)
	var sizes []int
	parent, n := "", 0
	for i := range 1000 {
		id := "t" + string(rune('a'+i%26)) + time.Duration(i).String()
		msgs := 2 * i
		l.add(id, turn(id, parent, n, msgs, []uint32{1, 2, 3}, []uint32{4, 5, 6, 7}))
		sizes = append(sizes, len(l.entries[len(l.entries)-1].Body))
		parent, n = id, n+7
	}
	tr, err := l.fold()
	require.NoError(t, err)
	require.Equal(t, 7000, tr.Turns[999].Len)
	require.InEpsilon(t, sizes[10], sizes[999], 0.1, "bytes of turn 10 and turn 1,000")
}
