package archive_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/archive"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// updates are what a recorder might say of events: of each one, and a seal with
// the close.
func updates(events []*event.Event, also ...*event.Output) []journal.Entry {
	var list []*event.Event
	for _, ev := range events {
		u := &event.TrajectoryUpdate{Input: &event.Input{Event: ev.GetId(), Kind: string(ev.Kind())}}
		if ev.GetSessionClosed() != nil {
			u.Outputs = append([]*event.Output{{Output: &event.Output_SessionSealed{SessionSealed: &event.SessionSealed{Status: "completed"}}}}, also...)
		}
		list = append(list, &event.Event{
			Id: "u:" + ev.GetId(), Session: ev.GetSession(), TimeUs: ev.GetTimeUs(),
			Body: &event.Event_TrajectoryUpdate{TrajectoryUpdate: u},
		})
	}
	return sessiontest.Entries(list)
}

func TestASessionGoesWhenNobodyNeedsIt(t *testing.T) {
	const window = time.Hour
	s := sessiontest.New("s")
	s.Commit(sessiontest.Step{ID: "t", New: []uint32{1}, Out: []uint32{2}})
	open := len(s.Events)
	s.Close("completed")
	s.Reward(1, 1)
	turns, recorded := sessiontest.Entries(s.Events), updates(s.Events)
	last := turns[len(turns)-1]
	fault := &event.Output{Output: &event.Output_Fault{Fault: &event.Fault{Reason: "illegal"}}}
	// The same session, parked and released in between: an order in the log, and
	// a second round of updates.
	order := &event.Event{Id: "release:4", Session: "s", Body: &event.Event_SessionReleased{SessionReleased: &event.SessionReleased{}}}
	ordered := append(s.Events[:len(s.Events):len(s.Events)], order)
	restart := &event.Event{Id: "u:release:4", Session: "s", Body: &event.Event_TrajectoryUpdate{TrajectoryUpdate: &event.TrajectoryUpdate{
		Input:   &event.Input{Event: "release:4"},
		Outputs: []*event.Output{{Output: &event.Output_SessionRestarted{SessionRestarted: &event.SessionRestarted{Round: 1}}}},
	}}}
	rounds := append(updates(s.Events, fault), journal.Entry{Event: restart})
	rounds = append(rounds, updates(ordered)...)
	released := func(f *archive.Facts) {
		f.Turns, f.Updates = sessiontest.Entries(ordered), rounds
		f.Turns[len(f.Turns)-1].Time = last.Time
		f.Floor = f.Turns[len(f.Turns)-1].Tip.Position
	}
	goes := archive.Facts{State: registry.Closed, Turns: turns, Updates: recorded, Floor: last.Tip.Position, Exported: true}
	twice := append(turns[:len(turns):len(turns)], turns[1])

	for n, c := range []struct {
		what   string
		change func(*archive.Facts)
		since  time.Duration // the last event
		want   archive.Reason
	}{
		{"all is done", func(*archive.Facts) {}, window, archive.Go},
		{"long ago", func(*archive.Facts) {}, 1000 * window, archive.Go},
		{"an event is there twice", func(f *archive.Facts) { f.Turns = twice }, window, archive.Go},
		{"its tombstone is there, and something came after it", func(f *archive.Facts) { f.State = registry.Trimmed }, window, archive.Go},
		{"the reward is too young, not the close", func(*archive.Facts) {}, window - time.Nanosecond, archive.Recent},
		{"the log says that it is open", func(f *archive.Facts) { f.Turns, f.Updates = turns[:open], recorded[:open] }, window, archive.NotClosed},
		{"the registry says that it is open", func(f *archive.Facts) { f.State = registry.Open }, window, archive.NotClosed},
		{"nothing is known", func(f *archive.Facts) { *f = archive.Facts{} }, window, archive.NotClosed},
		{"the log holds nothing", func(f *archive.Facts) { f.Turns = nil }, window, archive.NotClosed},
		{"the registry says that it is parked", func(f *archive.Facts) { f.State = registry.Parked }, window, archive.Parked},
		{"the trajectory says that it is parked", func(f *archive.Facts) { f.Updates = updates(s.Events, fault) }, window, archive.Parked},
		{"it was parked, and is not any more", released, window, archive.Go},
		{"it was released, and is not folded again", func(f *archive.Facts) {
			released(f)
			f.Updates = rounds[:len(rounds)-1]
		}, window, archive.NotRecorded},
		{"it was released, and nothing is folded again", func(f *archive.Facts) {
			released(f)
			f.Updates = rounds[:len(ordered)]
		}, window, archive.NotRecorded},
		{"it was released, and is parked again", func(f *archive.Facts) {
			released(f)
			f.Updates = append(rounds[:len(ordered):len(ordered)], updates(ordered, fault)...)
		}, window, archive.Parked},
		{"nothing is recorded", func(f *archive.Facts) { f.Updates = nil }, window, archive.NotRecorded},
		{"the reward is not recorded", func(f *archive.Facts) { f.Updates = recorded[:len(recorded)-1] }, window, archive.NotRecorded},
		{"the close is not recorded", func(f *archive.Facts) { f.Updates = recorded[:open] }, window, archive.NotRecorded},
		{"the updates are of other events", func(f *archive.Facts) {
			f.Updates = append(recorded[1:len(recorded):len(recorded)], recorded[0])
		}, window, archive.NotRecorded},
		{"more is recorded than there is", func(f *archive.Facts) { f.Updates = append(recorded[:len(recorded):len(recorded)], recorded[0]) }, window, archive.NotRecorded},
		{"a group is one event behind", func(f *archive.Facts) { f.Floor-- }, window, archive.NotAcknowledged},
		{"no group has acknowledged anything", func(f *archive.Facts) { f.Floor = 0 }, window, archive.NotAcknowledged},
		{"the exporter is behind", func(f *archive.Facts) { f.Exported = false }, window, archive.NotExported},
	} {
		f := goes
		c.change(&f)
		require.Equal(t, c.want, archive.Judge(f, last.Time.Add(c.since), window), fmt.Sprint(n, ": ", c.what))
	}
}
