// Package journal is the log as the rest of turnlog sees it: one ordered list
// of events per session, appended to under a fence, read back, and followed by
// partition.
//
// Two packages implement Journal: journal/mem in memory, journal/jet on NATS
// JetStream. journal/journaltest holds the promises as tests that both pass,
// and a wrapper that injects the faults of a real log.
package journal

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"strings"
	"time"

	"turnlog.dev/schema/event"
)

// Partitions is the number of partitions, fixed for ever: it is part of every
// subject.
const Partitions = 64

// Errors of a Journal, found with errors.Is.
var (
	// ErrConflict says that the session's log is not where the appender
	// thought: read on from the last known tip, and decide again.
	ErrConflict = errors.New("journal: the session has moved on")
	// ErrUnavailable says that nothing was appended, or that nobody knows:
	// append the same event with the same tip again.
	ErrUnavailable = errors.New("journal: unavailable")
	// ErrFull says that the log has no room. Nothing was appended.
	ErrFull = errors.New("journal: full")
	// ErrTooLarge says that an event is above the size limit. Nothing was
	// appended, and trying again will not help.
	ErrTooLarge = event.ErrTooLarge
	// ErrGap says that entries which should be there are not: a broken chain,
	// or a position that has been trimmed.
	ErrGap = errors.New("journal: gap")
	// ErrTrimmed is an ErrGap where a session's log begins: what is asked for
	// was there, and has been trimmed.
	ErrTrimmed = fmt.Errorf("%w: trimmed", ErrGap)
	// ErrClosed says that the journal or subscription was closed.
	ErrClosed = errors.New("journal: closed")
)

// Tip is where a session's log ends, as its holder last saw it. The zero Tip
// is a session without events.
type Tip struct {
	// Position is the cursor of the last event. Cursors grow along a
	// partition; they are no identity and say nothing across partitions.
	Position uint64
	// Count is the number of events.
	Count uint64
	// Chain is the hash over all bodies so far; see event.Chain.
	Chain event.Hash
}

// Next returns the tip after one more event.
func (t Tip) Next(position uint64, body []byte) Tip {
	return Tip{position, t.Count + 1, event.Chain(t.Chain, event.Sum(body))}
}

// Entry is an event as it stands in the log.
type Entry struct {
	Event *event.Event
	// Body is the uncompressed encoding of Event.
	Body []byte
	// Tip is the session's tip right after this event: the event's ordinal is
	// Tip.Count-1.
	Tip Tip
	// Time is the log's own time of the append.
	Time time.Time
	// Stream names the physical stream that Tip.Position counts in.
	Stream string
}

// Ordinal is the place of the event in its session, from 0.
func (e Entry) Ordinal() uint64 { return e.Tip.Count - 1 }

// Journal is one log: the turn stream or the trajectory stream of a tenant.
// All methods are safe for concurrent use.
type Journal interface {
	// Append adds ev to its session if the session's log ends at tip, and
	// returns the new tip once the log has acknowledged it: what that means is
	// the log's durability mode. One event is appended once, whatever happens:
	// appending it again after an unknown outcome returns the tip of the first
	// time.
	//
	// A session of which all events were trimmed goes on only if tip has their
	// Count and Chain, and no Position. With its Position it fails with ErrTrimmed.
	//
	// It does not hold on to ev. It fails with ErrConflict, ErrUnavailable,
	// ErrFull or ErrTooLarge. A canceled ctx gives its own error and an unknown outcome.
	Append(ctx context.Context, tip Tip, ev *event.Event) (Tip, error)

	// ReadSession yields the events of a session after from, in order, up to
	// at least the last one that was acknowledged before the call. Its cost
	// depends on the number of those events. The zero Tip reads from the
	// start. It ends after an error.
	ReadSession(ctx context.Context, session string, from Tip) iter.Seq2[Entry, error]

	// Subscribe follows one partition. See Subscription.
	Subscribe(ctx context.Context, partition int, options SubscribeOptions) (Subscription, error)

	// End returns the position of the partition's last entry at this moment, 0
	// if it has none: who follows the partition and was given that entry has
	// been given, with the same fetch at the latest, all that was acknowledged
	// before the call.
	End(ctx context.Context, partition int) (uint64, error)

	// Pending returns how many entries of a partition a group has not
	// acknowledged at this moment: its lag. A group that has never subscribed
	// has acknowledged none. A server may count an append a moment after it
	// acknowledged it, but zero is zero.
	Pending(ctx context.Context, partition int, group string) (uint64, error)

	// Floor returns a position up to which every group has acknowledged all
	// entries of a partition: the highest number where no group has subscribed.
	Floor(ctx context.Context, partition int) (uint64, error)

	// Trim removes beginnings of sessions, for good: the entries of each up to
	// and including a tip of it. What stands before, between and behind them
	// stays where it is. It fails with ErrGap if a tip is none of its session's;
	// of other sessions some may be trimmed then. What is trimmed already is no
	// error. Whoever trims has made sure that nobody needs what goes.
	Trim(ctx context.Context, through map[string]Tip) error
}

// Batcher is what a Journal may offer besides: many appends for the price of
// one, where each waits for a disk.
type Batcher interface {
	// AppendAll appends events to sessions of one partition, all or none, and
	// returns the new tip of each session. Any error but ctx's and ErrClosed
	// says nothing about any of the events: append them one by one, which finds
	// what is there already.
	AppendAll(ctx context.Context, partition int, list []Continuation) ([]Tip, error)
}

// Continuation is what comes next in a session: events one after another, the
// first right after Tip. A list has one for each session.
type Continuation struct {
	Tip    Tip
	Events []*event.Event
}

// SubscribeOptions says who follows and from where.
type SubscribeOptions struct {
	// Group names a position that the log keeps: of all subscriptions of one
	// group to one partition, one at a time gets entries, and the next goes on
	// after the last acknowledged one. Empty is a subscription of its own.
	Group string
	// After is the position after which to begin: for a group only when it is
	// new. Subscribe fails with ErrGap if an entry after it was trimmed.
	After uint64
	// Remaining takes what is still there after After, whatever was trimmed.
	Remaining bool
}

// Subscription yields the entries of a partition in order: those of one
// session in the session's order, each at least once.
type Subscription interface {
	// Fetch waits for the next entry and returns it with those that are there,
	// at most max. It fails with ErrUnavailable (try again), ErrClosed, or
	// ctx's error.
	Fetch(ctx context.Context, max int) ([]Delivery, error)
	// Ack says that all entries up to and including d are done with.
	Ack(ctx context.Context, d Delivery) error
	// Close ends the subscription; entries that were not acknowledged will be
	// delivered to the next one of the group.
	Close() error
}

// Delivery is one entry, or what stands in its place when it cannot be read.
type Delivery struct {
	Entry
	// Err is set when the stored message is no event of this version; Entry
	// then has only Tip.Position, Stream and Time, and Raw holds the message.
	Err     error
	Raw     []byte
	Session string
	// Prev is the session's chain before the entry: what the Tip of the one
	// before it should have.
	Prev event.Hash
	// Attempt counts the deliveries of this entry to the group, from 1.
	Attempt int
}

// PartitionOf returns the partition of a session: FNV-1a-32 of its id modulo
// Partitions, as the server's own partition() computes it.
func PartitionOf(session string) int {
	h := fnv.New32a()
	h.Write([]byte(session))
	return int(h.Sum32() % Partitions)
}

// ValidSession reports whether id can name a session (or the pseudo-session of
// a run): 1 to 64 of A-Z, a-z, 0-9, _ and -.
func ValidSession(id string) bool {
	name := strings.TrimPrefix(id, runPrefix)
	return 1 <= len(name) && len(name) <= 64 && !strings.ContainsFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	})
}

const runPrefix = "run:"

// RunSession is the pseudo-session that holds what belongs to a run.
func RunSession(run string) string { return runPrefix + run }

// IsRunSession reports whether a session is the pseudo-session of a run.
func IsRunSession(session string) bool { return strings.HasPrefix(session, runPrefix) }
