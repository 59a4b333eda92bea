package journal

import (
	"errors"
	"fmt"
	"regexp"

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

// An event id travels in headers and is compared as bytes.
var eventID = regexp.MustCompile(`^[!-~]{1,128}$`)

// Check reports an event that no journal takes. The error wraps ErrInvalid.
func Check(ev *event.Event) error {
	switch {
	case !ValidSession(ev.GetSession()):
		return fmt.Errorf("%w: session %q", ErrInvalid, ev.GetSession())
	case !eventID.MatchString(ev.GetId()):
		return fmt.Errorf("%w: id %q", ErrInvalid, ev.GetId())
	}
	return nil
}
