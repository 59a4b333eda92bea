// Package deadletter keeps what a recorder could not fold in a journal of its
// own, under the session that it belongs to: one Annotated event named
// "dead_letter" for each, whose value is a Letter in JSON.
package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Name is the name of the annotation that holds a letter.
const Name = "dead_letter"

// Letter says what could not be folded, and where it stands.
type Letter struct {
	Session string `json:"session"`
	// Round counts the releases of the session before.
	Round uint32 `json:"round,omitempty"`
	// Event is empty when the message could not be read.
	Event    string    `json:"event,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Stream   string    `json:"stream"`
	Position uint64    `json:"position"`
	Time     time.Time `json:"time"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail"`
	// Raw is the message as it was stored, where it could not be read.
	Raw []byte `json:"raw,omitempty"`
}

// id is the same however often the letter is sent.
func (l Letter) id() string {
	what := fmt.Appendf(nil, "%s\x00%s\x00%d", l.Event, l.Stream, l.Position)
	if l.Round > 0 {
		what = fmt.Appendf(what, "\x00%d", l.Round)
	}
	h := sha256.Sum256(what)
	return "dl:" + hex.EncodeToString(h[:16])
}

// Box is the journal of dead letters. It is safe for concurrent use.
type Box struct{ journal journal.Journal }

// New returns the box that is kept in a journal.
func New(j journal.Journal) *Box { return &Box{j} }

// Put stores a letter once, however often it is called with it.
func (b *Box) Put(ctx context.Context, l Letter) error {
	value, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("deadletter: put: %w", err)
	}
	ev := &event.Event{
		Id:       l.id(),
		Session:  l.Session,
		TimeUs:   l.Time.UnixMicro(),
		Producer: "recorder",
		Body:     &event.Event_Annotated{Annotated: &event.Annotated{Name: Name, Value: value, Source: "recorder"}},
	}
	var tip journal.Tip
	for {
		for e, err := range b.journal.ReadSession(ctx, l.Session, tip) {
			if err != nil {
				return fmt.Errorf("deadletter: put: %w", err)
			}
			if e.Event.GetId() == ev.Id {
				return nil
			}
			tip = e.Tip
		}
		_, err := b.journal.Append(ctx, tip, ev)
		if err == nil || errors.Is(err, journal.ErrIdentity) {
			return nil
		}
		if !errors.Is(err, journal.ErrConflict) {
			return fmt.Errorf("deadletter: put: %w", err)
		}
	}
}

// Read returns the letters of a session.
func (b *Box) Read(ctx context.Context, session string) ([]Letter, error) {
	var letters []Letter
	for e, err := range b.journal.ReadSession(ctx, session, journal.Tip{}) {
		if err != nil {
			return letters, fmt.Errorf("deadletter: read %s: %w", session, err)
		}
		if a := e.Event.GetAnnotated(); a.GetName() == Name {
			var l Letter
			if err := json.Unmarshal(a.GetValue(), &l); err != nil {
				return letters, fmt.Errorf("deadletter: read %s: %w", session, err)
			}
			letters = append(letters, l)
		}
	}
	return letters, nil
}
