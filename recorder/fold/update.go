package fold

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Producer is what the recorder's events say who wrote them.
const Producer = "recorder"

// UpdateID is the id of the update that is made from an input event. A session
// that was released has another one for each round.
func (s *State) UpdateID(input string) string {
	const longest = 128 // of what a journal takes
	prefix := "u:"
	if round := s.Round(); round > 0 {
		prefix = fmt.Sprintf("u%d:", round)
	}
	if id := prefix + input; len(id) <= longest {
		return id
	}
	h := sha256.Sum256([]byte(input))
	return prefix + "sha256:" + hex.EncodeToString(h[:])
}

// UnreadableID is the id of the update that parks a session for an entry that
// could not be read.
func (s *State) UnreadableID() string { return s.UpdateID("unreadable") }

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
