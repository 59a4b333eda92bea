package jet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Headers that the server adds to what it reads directly.
const (
	headerSubject  = "Nats-Subject"
	headerSequence = "Nats-Sequence"
	headerTime     = "Nats-Time-Stamp"
	headerStatus   = "Status"      // of an answer without a message
	headerReason   = "Description" // of a status
)

// One direct read asks for at most so much.
const (
	batchMessages = 256
	batchBytes    = 4 << 20
)

// ReadSession implements journal.Journal.
func (l *Log) ReadSession(ctx context.Context, session string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		at := from
		for m, err := range l.walk(ctx, session, from) {
			var e journal.Entry
			if err == nil {
				e, err = m.entry()
			}
			if err == nil {
				err = m.follows(at)
			}
			if err != nil {
				yield(journal.Entry{}, fmt.Errorf("journal: read session %s: %w", session, err))
				return
			}
			if at = e.Tip; !yield(e, nil) {
				return
			}
		}
	}
}

// follows checks that a message that entry could read is the next one after a
// tip.
func (m message) follows(at journal.Tip) error {
	if text := m.header.Get(headerCount); text != strconv.FormatUint(at.Count+1, 10) {
		gap := journal.ErrGap
		if count, _ := strconv.ParseUint(text, 10, 64); count > at.Count {
			gap = journal.ErrTrimmed // nothing else takes events out of a stream
		}
		return fmt.Errorf("%w: event %s stands after event %d", gap, text, at.Count)
	}
	if m.header.Get(headerPrev) != at.Chain.String() {
		return fmt.Errorf("%w: event %d belongs to another history", journal.ErrGap, at.Count+1)
	}
	return nil
}

// walk yields a session's messages after a tip, as they stand. It asks the
// leader for the last one first: replicas serve the rest, and one that lags
// behind must not hide the tail.
func (l *Log) walk(ctx context.Context, session string, from journal.Tip) iter.Seq2[message, error] {
	partition := journal.PartitionOf(session)
	stream, subject := l.stream(partition), l.cfg.subject(session, partition)
	return func(yield func(message, error) bool) {
		last, err := l.get(ctx, stream, getRequest{LastBySubject: subject})
		switch {
		case errors.Is(err, errNoMessage) && from.Position == 0:
			return
		case errors.Is(err, errNoMessage):
			yield(message{}, fmt.Errorf("%w: nothing is left of the session", journal.ErrTrimmed))
			return
		case err != nil:
			yield(message{}, err)
			return
		case last.position < from.Position:
			yield(message{}, fmt.Errorf("%w: the log ends at %d, before %d", journal.ErrGap, last.position, from.Position))
			return
		}
		if err := standsAt(last, from); err != nil {
			yield(message{}, err)
			return
		}
		if near, ok := l.back(ctx, stream, from, last); ok {
			for _, m := range near {
				if !yield(m, nil) {
					return
				}
			}
			return
		}
		for at := from.Position; at < last.position; {
			direct := at
			for m, err := range l.batch(ctx, stream, subject, at+1) {
				if err != nil || !yield(m, nil) {
					if err != nil {
						yield(message{}, err)
					}
					return
				}
				at = m.position
			}
			if at > direct {
				continue
			}
			// The replica that answered lags behind: one from the leader.
			m, err := l.get(ctx, stream, getRequest{Seq: at + 1, NextBySubject: subject})
			if errors.Is(err, errNoMessage) {
				err = fmt.Errorf("%w: the session went while it was read", journal.ErrTrimmed)
			}
			if err != nil || !yield(m, nil) {
				if err != nil {
					yield(message{}, err)
				}
				return
			}
			at = m.position
		}
	}
}

// A server finds a session's next message by looking at all that stand before
// it, which is slow where a session's messages are few and far between. Each of
// them names the position of the one before, as its fence: one at a time, they
// are found at once.
const (
	// sparse is the distance between a session's messages, on average, from which
	// on asking for each is faster than the search.
	sparse = 1000
	// backMessages is the most that is read so: it is held in memory.
	backMessages = 256
)

// back reads what stands after a tip, up to and with the last message, from the
// last one backwards, if that is worthwhile and each can be read so.
func (l *Log) back(ctx context.Context, s *stream, from journal.Tip, last message) ([]message, bool) {
	count, err := strconv.ParseUint(last.header.Get(headerCount), 10, 64)
	if err != nil || count <= from.Count || count-from.Count > backMessages ||
		last.position-from.Position < sparse*(count-from.Count) {
		return nil, false
	}
	list := make([]message, count-from.Count)
	for i, m := len(list)-1, last; ; i-- {
		list[i] = m
		before, err := strconv.ParseUint(m.header.Get(headerExpect), 10, 64)
		switch {
		case err != nil:
			return nil, false // of a batch
		case i == 0:
			return list, before == from.Position
		}
		if m, err = l.direct(ctx, s, last.subject, before); err != nil {
			return nil, false // the search will tell
		}
	}
}

// direct reads the message at a position, which must be of the subject, from any
// replica.
func (l *Log) direct(ctx context.Context, s *stream, subject string, position uint64) (message, error) {
	request, err := json.Marshal(getRequest{Seq: position})
	if err != nil {
		return message{}, err
	}
	asking, cancel := l.conn.patient(ctx)
	defer cancel()
	reply, err := l.conn.nc.RequestWithContext(asking, "$JS.API.DIRECT.GET."+s.name, request)
	if err != nil {
		return message{}, failed(ctx, err)
	}
	if reply.Header.Get(headerStatus) != "" || reply.Header.Get(headerSubject) != subject {
		return message{}, errNoMessage
	}
	return directMessage(reply, subject, s.id)
}

// directMessage is the message that an answer to a direct read holds.
func directMessage(reply *nats.Msg, subject, stream string) (message, error) {
	position, err := strconv.ParseUint(reply.Header.Get(headerSequence), 10, 64)
	if err != nil {
		return message{}, unavailable(fmt.Errorf("direct read: %w", err))
	}
	at, err := time.Parse(time.RFC3339Nano, reply.Header.Get(headerTime))
	if err != nil {
		return message{}, unavailable(fmt.Errorf("direct read: %w", err))
	}
	return message{subject: subject, header: reply.Header, data: reply.Data, position: position, time: at, stream: stream}, nil
}

// standsAt checks the holder's tip against the last message where they are the
// same; later ones are bound to it by their own chain.
func standsAt(last message, from journal.Tip) error {
	if last.position != from.Position {
		return nil
	}
	e, err := last.entry()
	if err != nil {
		return err
	}
	if e.Tip != from {
		return fmt.Errorf("%w: position %d holds another history", journal.ErrGap, from.Position)
	}
	return nil
}

// errNoMessage is the leader's word that there is none.
var errNoMessage = errors.New("no message")

// getRequest asks for one message: by sequence, the last of a subject, or the
// first of a subject from a sequence on.
type getRequest struct {
	Seq           uint64 `json:"seq,omitempty"`
	LastBySubject string `json:"last_by_subj,omitempty"`
	NextBySubject string `json:"next_by_subj,omitempty"`
	Batch         int    `json:"batch,omitempty"`
	MaxBytes      int    `json:"max_bytes,omitempty"`
}

// get reads one message from the stream's leader.
func (l *Log) get(ctx context.Context, s *stream, what getRequest) (message, error) {
	request, err := json.Marshal(what)
	if err != nil {
		return message{}, err
	}
	asking, cancel := l.conn.patient(ctx)
	defer cancel()
	reply, err := l.conn.nc.RequestWithContext(asking, "$JS.API.STREAM.MSG.GET."+s.name, request)
	if err != nil {
		return message{}, failed(ctx, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return message{}, unavailable(fmt.Errorf("answer of the server: %w", err))
	}
	switch m := answer.Message; {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return message{}, errNoMessage
	case answer.Error != nil:
		return message{}, unavailable(answer.Error)
	case m == nil:
		return message{}, unavailable(errors.New("answer of the server: no message in it"))
	default:
		header, err := decodeHeader(m.Header)
		if err != nil {
			return message{}, err
		}
		return message{subject: m.Subject, header: header, data: m.Data, position: m.Seq, time: m.Time, stream: s.id}, nil
	}
}

func decodeHeader(block []byte) (nats.Header, error) {
	if len(block) == 0 {
		return nil, nil // entry says what is missing
	}
	header, err := nats.DecodeHeadersMsg(block)
	if err != nil {
		return nil, fmt.Errorf("%w: headers: %w", event.ErrMalformed, err)
	}
	return header, nil
}

// batch reads a subject's messages from a sequence on, as many as one answer of
// any replica holds.
func (l *Log) batch(ctx context.Context, s *stream, subject string, seq uint64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		asking, cancel := l.conn.patient(ctx)
		defer cancel()
		request, err := json.Marshal(getRequest{Seq: seq, NextBySubject: subject, Batch: batchMessages, MaxBytes: batchBytes})
		if err != nil {
			yield(message{}, err)
			return
		}
		inbox := l.conn.nc.NewInbox()
		answers, err := l.conn.nc.SubscribeSync(inbox)
		if err != nil {
			yield(message{}, unavailable(err))
			return
		}
		defer func() { _ = answers.Unsubscribe() }()
		if err := l.conn.nc.PublishRequest("$JS.API.DIRECT.GET."+s.name, inbox, request); err != nil {
			yield(message{}, unavailable(err))
			return
		}
		for {
			reply, err := answers.NextMsgWithContext(asking)
			if err != nil {
				yield(message{}, failed(ctx, err))
				return
			}
			if status := reply.Header.Get(headerStatus); status != "" {
				switch status {
				case "204", "404": // end of the batch; nothing there
				default:
					yield(message{}, unavailable(fmt.Errorf("direct read: %s %s", status, reply.Header.Get(headerReason))))
				}
				return
			}
			m, err := directMessage(reply, subject, s.id)
			if err != nil {
				yield(message{}, err)
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}
