package journal

import (
	"errors"
	"fmt"
	"strings"

	"turnlog.dev/schema/event"
)

// Errors of a caller that broke the rules; nothing was appended.
var (
	// ErrInvalid says that an event cannot be addressed: its session or id is
	// not one.
	ErrInvalid = errors.New("journal: invalid event")
	// ErrIdentity says that the session already holds another event under this
	// id. To report the old one as this one would lose an event silently.
	ErrIdentity = errors.New("journal: event id in use for another body")
)

// validID reports whether id can name an event: 1 to 128 visible bytes of
// ASCII. It travels in headers and is compared as bytes.
func validID(id string) bool {
	return 1 <= len(id) && len(id) <= 128 && !strings.ContainsFunc(id, func(c rune) bool { return c < '!' || c > '~' })
}

// Check reports an event that no journal takes. The error wraps ErrInvalid.
func Check(ev *event.Event) error {
	switch {
	case !ValidSession(ev.GetSession()):
		return fmt.Errorf("%w: session %q", ErrInvalid, ev.GetSession())
	case !validID(ev.GetId()):
		return fmt.Errorf("%w: id %q", ErrInvalid, ev.GetId())
	}
	return nil
}

// CheckBatch reports a list that no Batcher takes. The error wraps ErrInvalid.
func CheckBatch(partition int, list []Continuation) error {
	seen := map[string]bool{}
	for _, c := range list {
		if len(c.Events) == 0 {
			return fmt.Errorf("%w: a continuation without events", ErrInvalid)
		}
		session := c.Events[0].GetSession()
		if seen[session] || PartitionOf(session) != partition {
			return fmt.Errorf("%w: session %q twice in a batch, or not of partition %d", ErrInvalid, session, partition)
		}
		seen[session] = true
		ids := map[string]bool{}
		for _, ev := range c.Events {
			if ids[ev.GetId()] {
				return fmt.Errorf("%w: id %q twice in a batch", ErrInvalid, ev.GetId())
			}
			ids[ev.GetId()] = true
			if ev.GetSession() != session {
				return fmt.Errorf("%w: session %q in the continuation of %q", ErrInvalid, ev.GetSession(), session)
			}
			if err := Check(ev); err != nil {
				return err
			}
		}
	}
	return nil
}
