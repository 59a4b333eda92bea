package fold

import (
	"crypto/sha256"
	"encoding/hex"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Producer is what the recorder's events say who wrote them.
const Producer = "recorder"

// UnreadableID is the id of the update that parks a session for an entry that
// could not be read.
const UnreadableID = "u:unreadable"

// UpdateID is the id of the update that is made from an input event.
func UpdateID(input string) string {
	const longest = 128 // of what a journal takes
	if id := "u:" + input; len(id) <= longest {
		return id
	}
	h := sha256.Sum256([]byte(input))
	return "u:sha256:" + hex.EncodeToString(h[:])
}

// Event is the event of the trajectory stream that carries an update made from
// e. Its time is the log's and not a clock's, so that whoever makes it makes
// the same bytes.
func (s *State) Event(id string, e journal.Entry, u *event.TrajectoryUpdate) *event.Event {
	return &event.Event{
		Id:       id,
		Tenant:   s.tree.Tenant,
		Run:      s.tree.Run,
		Session:  s.tree.Session,
		TimeUs:   e.Time.UnixMicro(),
		Producer: Producer,
		Body:     &event.Event_TrajectoryUpdate{TrajectoryUpdate: u},
	}
}
