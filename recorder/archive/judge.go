package archive

import (
	"time"

	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Reason is why a session stays in the log.
type Reason string

// The reasons, in the order in which they are looked for. Go is none of them.
const (
	Go Reason = ""
	// NotClosed: turns may come.
	NotClosed Reason = "not_closed"
	// Recent: its last event is younger than the window, so that another reward
	// or note may come.
	Recent Reason = "recent"
	// Parked: somebody has to look at an event of it.
	Parked Reason = "parked"
	// NotRecorded: an event has no update, or the close no seal.
	NotRecorded Reason = "not_recorded"
	// NotAcknowledged: a group may be given its events again.
	NotAcknowledged Reason = "not_acknowledged"
	// NotExported: an exporter has not come to its end.
	NotExported Reason = "not_exported"
)

// Facts are what both logs and their readers say of a session.
type Facts struct {
	// State is the registry's.
	State registry.State
	// Turns and Updates are the session's two logs, from their first events on.
	Turns, Updates []journal.Entry
	// Floor is the position up to which all groups have acknowledged the
	// session's partition of the turn log.
	Floor uint64
	// Exported says that the exporters are done with the updates.
	Exported bool
}

// Judge says whether a session may leave the log, by the log's times: nobody
// needs it there, and nothing can be said of it any more. now is the log
// server's.
func Judge(f Facts, now time.Time, after time.Duration) Reason {
	closed := false
	var events []journal.Entry // each once
	seen := map[string]bool{}
	for _, e := range f.Turns {
		closed = closed || e.Event.GetSessionClosed() != nil
		if id := e.Event.GetId(); !seen[id] {
			seen[id] = true
			events = append(events, e)
		}
	}
	if !closed || f.State != registry.Closed && f.State != registry.Trimmed {
		if f.State == registry.Parked {
			return Parked
		}
		return NotClosed
	}
	last := f.Turns[len(f.Turns)-1]
	if now.Sub(last.Time) < after {
		return Recent
	}
	sealed, parked, updates := false, false, f.Updates
	for i, u := range f.Updates {
		for _, o := range u.Event.GetTrajectoryUpdate().GetOutputs() {
			sealed = sealed || o.GetSessionSealed() != nil
			parked = parked || o.GetFault() != nil
			if o.GetSessionRestarted() != nil { // what was before is void
				sealed, parked, updates = false, false, f.Updates[i+1:]
			}
		}
	}
	if parked {
		return Parked
	}
	if !sealed || !follow(events, updates) {
		return NotRecorded
	}
	if f.Floor < last.Tip.Position {
		return NotAcknowledged
	}
	if !f.Exported {
		return NotExported
	}
	return Go
}

// follow reports whether each event has its update, and no other is there.
func follow(events, updates []journal.Entry) bool {
	if len(events) != len(updates) {
		return false
	}
	for i, u := range updates {
		if input(u.Event) != events[i].Event.GetId() {
			return false
		}
	}
	return true
}

func input(u *event.Event) string { return u.GetTrajectoryUpdate().GetInput().GetEvent() }
