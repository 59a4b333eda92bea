package jet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/rawjson"
)

// Waits between tries of one append.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 500 * time.Millisecond
)

// headerRoom is more than the headers of an event take, beyond its id and
// session.
const headerRoom = 512

// code is an error of the server's table.
type code uint16

// The errors of an append that say what became of it. schema/README.md has the
// table.
const (
	codeWrongLast         code = 10071 // the session's last message is another
	codeWrongLastInFlight code = 10164 // ... or is about to be
	codeDuplicateInFlight code = 10158 // the same id is being stored
	codeStoreFailed       code = 10077 // MaxBytes, or the disk
	codeNoStorage         code = 10047
	codeNoResources       code = 10023
	codeTooLarge          code = 10054
	codeBatchTooLarge     code = 10199
	codeBatchDuplicate    code = 10201 // a batch holds an id that is stored
)

// serverError is the server's refusal of an append: it was not stored.
type serverError struct {
	code code
	text string
}

func (e *serverError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

// Append implements journal.Journal. It tries for as long as ctx lasts: give it
// a deadline.
func (l *Log) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if err := journal.Check(ev); err != nil {
		return journal.Tip{}, err
	}
	partition := journal.PartitionOf(ev.Session)
	message, sum, size, err := l.pack(partition, tip, ev)
	if err != nil {
		return journal.Tip{}, err
	}
	a := appending{
		log: l, stream: l.stream(partition), message: message,
		tip: tip, id: ev.Id, session: ev.Session, sum: sum,
	}
	if err := a.stream.inFlight.Acquire(ctx, size); err != nil {
		return journal.Tip{}, fmt.Errorf("journal: append: %w", err)
	}
	defer a.stream.inFlight.Release(size)
	next, err := a.run(ctx)
	if err != nil {
		return journal.Tip{}, fmt.Errorf("journal: append %s to session %s: %w", ev.Id, ev.Session, err)
	}
	return next, nil
}

// pack returns the message of an event, the hash of its body, and the bytes that
// it takes on its way.
func (l *Log) pack(partition int, tip journal.Tip, ev *event.Event) (*nats.Msg, event.Hash, int64, error) {
	sealed, err := event.Seal(ev)
	if err != nil {
		return nil, event.Hash{}, 0, fmt.Errorf("journal: append: %w", err)
	}
	size := len(sealed.Packed) + headerRoom + len(ev.Session) + len(ev.Id)
	if size > l.cfg.MaxEvent {
		return nil, event.Hash{}, 0, fmt.Errorf("%w: %d bytes packed, the limit is %d", journal.ErrTooLarge, size, l.cfg.MaxEvent)
	}
	return newMessage(l.cfg.subject(ev.Session, partition), tip, ev, sealed), sealed.Sum, int64(size), nil
}

// appending is one event on its way: the same message however often it is sent.
type appending struct {
	log     *Log
	stream  *stream
	message *nats.Msg
	tip     journal.Tip
	session string
	id      string
	sum     event.Hash
}

// run sends until the outcome is known.
func (a *appending) run(ctx context.Context) (journal.Tip, error) {
	wait := firstWait
	for {
		next, err := a.try(ctx)
		if !errors.Is(err, journal.ErrUnavailable) {
			return next, err
		}
		a.log.troubled.Store(time.Now().UnixNano())
		if errors.Is(err, nats.ErrConnectionClosed) {
			return journal.Tip{}, fmt.Errorf("%w: %w", journal.ErrClosed, err)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return journal.Tip{}, fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		wait = min(2*wait, lastWait)
	}
}

// try sends once. ErrUnavailable means that sending again is right.
func (a *appending) try(ctx context.Context) (journal.Tip, error) {
	position, duplicate, err := a.send(ctx)
	var refused *serverError
	switch {
	case err == nil && duplicate:
		return a.find(ctx, position)
	case err == nil:
		return journal.Tip{Position: position, Count: a.tip.Count + 1, Chain: event.Chain(a.tip.Chain, a.sum)}, nil
	case errors.Is(err, nats.ErrMaxPayload):
		return journal.Tip{}, fmt.Errorf("%w: %w", journal.ErrTooLarge, err)
	case !errors.As(err, &refused):
		return journal.Tip{}, unavailable(err)
	}
	switch refused.code {
	case codeWrongLast, codeWrongLastInFlight:
		return a.scan(ctx, refused)
	case codeStoreFailed, codeNoStorage, codeNoResources:
		return journal.Tip{}, fmt.Errorf("%w: %w", journal.ErrFull, refused)
	case codeTooLarge:
		return journal.Tip{}, fmt.Errorf("%w: %w", journal.ErrTooLarge, refused)
	default: // no leader, too many at once, the same id in flight, ...
		return journal.Tip{}, unavailable(refused)
	}
}

// send publishes and waits for the answer: the position of the event, which is
// an old one when the server knows the message's id.
func (a *appending) send(ctx context.Context) (position uint64, duplicate bool, err error) {
	answer, err := a.log.request(ctx, a.message)
	if err != nil {
		return 0, false, err
	}
	again, _ := rawjson.Get(answer, "duplicate")
	position, err = number(answer, "seq")
	return position, string(again) == "true", err
}

// request publishes a message and returns the server's answer, which has a
// position in it. A refusal is a serverError.
func (l *Log) request(ctx context.Context, m *nats.Msg) ([]byte, error) {
	asking, cancel := l.conn.patient(ctx)
	defer cancel()
	reply, err := l.conn.nc.RequestMsgWithContext(asking, m)
	if err != nil {
		return nil, failed(ctx, err)
	}
	if e, ok := rawjson.Get(reply.Data, "error"); ok {
		text, _ := rawjson.Get(e, "description")
		n, err := number(e, "err_code")
		if err != nil {
			return nil, err
		}
		return nil, &serverError{code(n), rawjson.Text(text)}
	}
	if _, err := number(reply.Data, "seq"); err != nil {
		return nil, err
	}
	if l.troubled.Load() != 0 {
		l.troubled.Store(0)
	}
	return reply.Data, nil
}

// number reads a positive number of a server's answer.
func number(answer []byte, key string) (uint64, error) {
	raw, _ := rawjson.Get(answer, key)
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("answer of the server: %.200q", answer)
	}
	return n, nil
}

// find returns the tip of the message that the server took ours for. A message
// id holds only a part of the body's hash: the body decides.
func (a *appending) find(ctx context.Context, position uint64) (journal.Tip, error) {
	m, err := a.log.get(ctx, a.stream, getRequest{Seq: position})
	if errors.Is(err, errNoMessage) {
		return journal.Tip{}, fmt.Errorf("%w: stored at %d once, and gone", journal.ErrGap, position)
	}
	if err != nil {
		return journal.Tip{}, err
	}
	return a.ours(m)
}

func (a *appending) ours(m message) (journal.Tip, error) {
	e, err := m.entry()
	if err != nil || e.Event.Session != a.session || e.Event.Id != a.id || event.Sum(e.Body) != a.sum {
		return journal.Tip{}, fmt.Errorf("%w: position %d", journal.ErrIdentity, m.position)
	}
	return e.Tip, nil
}

// scan looks for our event after our tip, and tells who is right: we, who have
// stored it already, or somebody else, who went on before us.
func (a *appending) scan(ctx context.Context, refused *serverError) (journal.Tip, error) {
	prefix := idPrefix(a.session, a.id)
	moved := uint64(0)
	for m, err := range a.log.walk(ctx, a.session, a.tip) {
		if err != nil {
			return journal.Tip{}, err
		}
		if strings.HasPrefix(m.header.Get(headerID), prefix) {
			return a.ours(m)
		}
		moved = m.position
	}
	if moved == 0 {
		// An append that is still on its way may yet fail.
		return journal.Tip{}, unavailable(refused)
	}
	return journal.Tip{}, fmt.Errorf("%w: it ends at %d, not %d", journal.ErrConflict, moved, a.tip.Position)
}
