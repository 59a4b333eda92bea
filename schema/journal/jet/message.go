package jet

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Headers of a message. The server reads the first two.
const (
	headerID     = "Nats-Msg-Id"                         // session:event id:first 16 hex digits of the body's hash
	headerExpect = "Nats-Expected-Last-Subject-Sequence" // position of the session's last event, 0 for none
	headerKind   = "Tl-Kind"                             // what the event says
	headerSchema = "Tl-Schema"                           // major version of the format
	headerEnc    = "Tl-Enc"                              // zstd, or absent
	headerCount  = "Tl-Count"                            // number of the session's events with this one
	headerPrev   = "Tl-Prev"                             // chain hash before this event, 64 hex digits
)

// idPrefix begins the message id of an event, whatever its body is.
func idPrefix(session, id string) string { return session + ":" + id + ":" }

func newMessage(subject string, tip journal.Tip, ev *event.Event, sealed event.Sealed) *nats.Msg {
	header := nats.Header{
		headerID:     {idPrefix(ev.Session, ev.Id) + sealed.Sum.String()[:16]},
		headerExpect: {strconv.FormatUint(tip.Position, 10)},
		headerKind:   {string(ev.Kind())},
		headerSchema: {strconv.Itoa(event.Major)},
		headerCount:  {strconv.FormatUint(tip.Count+1, 10)},
		headerPrev:   {tip.Chain.String()},
	}
	if sealed.Encoding != event.Plain {
		header[headerEnc] = []string{string(sealed.Encoding)}
	}
	return &nats.Msg{Subject: subject, Header: header, Data: sealed.Packed}
}

// message is an event as the server holds it.
type message struct {
	subject  string
	header   nats.Header
	data     []byte
	position uint64
	time     time.Time
	stream   string
}

// session is the last token of the subject.
func (m message) session() string { return m.subject[strings.LastIndexByte(m.subject, '.')+1:] }

// entry decodes a message. The error wraps one of package event.
func (m message) entry() (journal.Entry, error) {
	if major, err := strconv.ParseUint(m.header.Get(headerSchema), 10, 32); err != nil {
		return journal.Entry{}, fmt.Errorf("%w: header %s: %w", event.ErrMalformed, headerSchema, err)
	} else if major > event.Major {
		return journal.Entry{}, fmt.Errorf("%w: %d; this program reads up to %d", event.ErrMajor, major, event.Major)
	}
	count, err := strconv.ParseUint(m.header.Get(headerCount), 10, 64)
	if err != nil || count == 0 {
		return journal.Entry{}, fmt.Errorf("%w: header %s is %q", event.ErrMalformed, headerCount, m.header.Get(headerCount))
	}
	prev, err := event.ParseHash(m.header.Get(headerPrev))
	if err != nil {
		return journal.Entry{}, fmt.Errorf("%w: header %s: %w", event.ErrMalformed, headerPrev, err)
	}
	body, err := event.Unpack(m.data, event.Encoding(m.header.Get(headerEnc)))
	if err != nil {
		return journal.Entry{}, err
	}
	ev, err := event.Decode(body)
	if err != nil {
		return journal.Entry{}, err
	}
	if ev.Session != m.session() {
		return journal.Entry{}, fmt.Errorf("%w: an event of session %q in the log of %q", event.ErrMalformed, ev.Session, m.session())
	}
	tip := journal.Tip{Count: count - 1, Chain: prev}
	return journal.Entry{Event: ev, Body: body, Tip: tip.Next(m.position, body), Time: m.time, Stream: m.stream}, nil
}
