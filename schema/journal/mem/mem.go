// Package mem is a journal in memory: what tests and simulations run on. It
// keeps every promise of journal.Journal but to survive the process, and blocks
// on channels only, so that testing/synctest can see it wait.
package mem

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Stream is the name of the one stream that positions count in.
const Stream = "mem"

// Options bound a journal. Zero is no bound.
type Options struct {
	// MaxEvent is the largest body, in bytes.
	MaxEvent int
	// MaxBytes is the room for bodies, in bytes.
	MaxBytes int
}

// Journal is a log in memory.
type Journal struct {
	options Options

	mu      sync.Mutex
	front   uint64   // the position up to which nothing is left
	records []record // from position front+1 on; see at
	// trimmed is the highest position of each partition that was trimmed.
	trimmed  [journal.Partitions]uint64
	bytes    int
	sessions map[string]*session
	groups   map[groupKey]*group
	// grown is closed and replaced whenever a waiting Fetch should look again.
	grown chan struct{}
}

var (
	_ journal.Journal = (*Journal)(nil)
	_ journal.Batcher = (*Journal)(nil)
)

type record struct {
	session string
	prev    event.Hash
	body    []byte
	tip     journal.Tip
	time    time.Time
	gone    bool // trimmed
}

type session struct {
	base      journal.Tip // where the entries that are still there begin
	tip       journal.Tip
	positions []uint64
	ids       map[string]stored
}

type stored struct {
	body event.Hash
	tip  journal.Tip
}

// New returns an empty journal.
func New(options Options) *Journal {
	return &Journal{
		options:  options,
		sessions: map[string]*session{},
		groups:   map[groupKey]*group{},
		grown:    make(chan struct{}),
	}
}

// Append implements journal.Journal.
func (j *Journal) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if err := journal.Check(ev); err != nil {
		return journal.Tip{}, err
	}
	body, err := event.Encode(ev)
	if err != nil {
		return journal.Tip{}, fmt.Errorf("journal: append: %w", err)
	}
	if limit := j.options.MaxEvent; limit > 0 && len(body) > limit {
		return journal.Tip{}, fmt.Errorf("%w: %d bytes, the limit is %d", journal.ErrTooLarge, len(body), limit)
	}
	if err := ctx.Err(); err != nil {
		return journal.Tip{}, fmt.Errorf("journal: append: %w", err)
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.session(ev.Session)
	if old, ok := s.ids[ev.Id]; ok {
		if old.body != event.Sum(body) {
			return journal.Tip{}, fmt.Errorf("%w: %s of session %s", journal.ErrIdentity, ev.Id, ev.Session)
		}
		return old.tip, nil
	}
	if err := s.endsAt(tip); err != nil {
		return journal.Tip{}, fmt.Errorf("%w: session %s", err, ev.Session)
	}
	if limit := j.options.MaxBytes; limit > 0 && j.bytes+len(body) > limit {
		return journal.Tip{}, fmt.Errorf("%w: %d of %d bytes in use", journal.ErrFull, j.bytes, limit)
	}
	s.goOn(tip)
	tip = j.add(ev.Session, body)
	s.ids[ev.Id] = stored{event.Sum(body), tip}
	return tip, nil
}

// AppendAll implements journal.Batcher.
func (j *Journal) AppendAll(ctx context.Context, partition int, list []journal.Continuation) ([]journal.Tip, error) {
	if err := journal.CheckBatch(partition, list); err != nil {
		return nil, err
	}
	bodies, size := make([][][]byte, len(list)), 0
	for i, c := range list {
		for _, ev := range c.Events {
			body, err := event.Encode(ev)
			if err != nil {
				return nil, fmt.Errorf("journal: append all: %w", err)
			}
			if limit := j.options.MaxEvent; limit > 0 && len(body) > limit {
				return nil, fmt.Errorf("%w: %d bytes, the limit is %d", journal.ErrTooLarge, len(body), limit)
			}
			bodies[i] = append(bodies[i], body)
			size += len(body)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("journal: append all: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range list {
		s := j.session(c.Events[0].GetSession())
		if err := s.endsAt(c.Tip); err != nil {
			return nil, fmt.Errorf("%w: session %s", err, c.Events[0].GetSession())
		}
		for _, ev := range c.Events {
			if _, ok := s.ids[ev.GetId()]; ok {
				return nil, fmt.Errorf("%w: %s of session %s is there", journal.ErrConflict, ev.GetId(), ev.GetSession())
			}
		}
	}
	if limit := j.options.MaxBytes; limit > 0 && j.bytes+size > limit {
		return nil, fmt.Errorf("%w: %d of %d bytes in use", journal.ErrFull, j.bytes, limit)
	}
	tips := make([]journal.Tip, len(list))
	for i, c := range list {
		j.sessions[c.Events[0].GetSession()].goOn(c.Tip)
		for k, ev := range c.Events {
			tips[i] = j.add(ev.GetSession(), bodies[i][k])
			j.sessions[ev.GetSession()].ids[ev.GetId()] = stored{event.Sum(bodies[i][k]), tips[i]}
		}
	}
	return tips, nil
}

// endsAt fails if the session does not end at a tip.
func (s *session) endsAt(tip journal.Tip) error {
	switch {
	case tip.Position == s.tip.Position:
		return nil
	case len(s.positions) == 0:
		return fmt.Errorf("%w: nothing is left", journal.ErrTrimmed)
	default:
		return fmt.Errorf("%w: it ends at %d, not %d", journal.ErrConflict, s.tip.Position, tip.Position)
	}
}

// goOn lets a session of which nothing is left begin where a tip says.
func (s *session) goOn(tip journal.Tip) {
	if len(s.positions) == 0 {
		s.base, s.tip = tip, tip
	}
}

// AppendRaw puts bytes where an event should be, as a newer or broken producer
// might.
func (j *Journal) AppendRaw(session string, raw []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.add(session, raw)
}

// add needs mu.
func (j *Journal) add(id string, body []byte) journal.Tip {
	s := j.session(id)
	position := j.front + uint64(len(j.records)) + 1
	prev := s.tip.Chain
	s.tip = s.tip.Next(position, body)
	s.positions = append(s.positions, position)
	j.records = append(j.records, record{session: id, prev: prev, body: body, tip: s.tip, time: time.Now()})
	j.bytes += len(body)
	j.wake()
	return s.tip
}

// session needs mu.
func (j *Journal) session(id string) *session {
	s, ok := j.sessions[id]
	if !ok {
		s = &session{ids: map[string]stored{}}
		j.sessions[id] = s
	}
	return s
}

// wake needs mu.
func (j *Journal) wake() {
	close(j.grown)
	j.grown = make(chan struct{})
}

// ReadSession implements journal.Journal.
func (j *Journal) ReadSession(ctx context.Context, id string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		records, err := j.after(id, from)
		if err != nil {
			yield(journal.Entry{}, err)
			return
		}
		for _, r := range records {
			if err := ctx.Err(); err != nil {
				yield(journal.Entry{}, fmt.Errorf("journal: read session: %w", err))
				return
			}
			e, err := r.entry()
			if err != nil {
				yield(journal.Entry{}, fmt.Errorf("journal: read session %s: %w", id, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// after returns a session's records after a tip that must be one of its own.
func (j *Journal) after(id string, from journal.Tip) ([]record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.sessions[id]
	if !ok {
		s = &session{}
	}
	if from.Count < s.base.Count || s.tip.Count == 0 && from.Count > 0 {
		return nil, fmt.Errorf("%w: session %s, event %d", journal.ErrTrimmed, id, from.Count)
	}
	if from.Count > s.tip.Count {
		return nil, fmt.Errorf("%w: session %s has no event %d", journal.ErrGap, id, from.Count)
	}
	at, known := s.base, from.Count-s.base.Count
	if known > 0 {
		at = j.at(s.positions[known-1]).tip
	}
	if at.Chain != from.Chain {
		return nil, fmt.Errorf("%w: session %s has another history before event %d", journal.ErrGap, id, from.Count)
	}
	var records []record
	for _, p := range s.positions[known:] {
		records = append(records, j.at(p))
	}
	return records, nil
}

// at needs mu, and a position that is not trimmed.
func (j *Journal) at(position uint64) record { return j.records[position-j.front-1] }

func (r record) entry() (journal.Entry, error) {
	e := journal.Entry{Body: r.body, Tip: r.tip, Time: r.time, Stream: Stream}
	ev, err := event.Decode(r.body)
	if err != nil {
		return journal.Entry{}, err
	}
	e.Event = ev
	return e, nil
}

// End implements journal.Journal.
func (j *Journal) End(_ context.Context, partition int) (uint64, error) {
	if partition < 0 || partition >= journal.Partitions {
		return 0, fmt.Errorf("journal: end: no partition %d", partition)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.records) - 1; i >= 0; i-- {
		if r := j.records[i]; !r.gone && journal.PartitionOf(r.session) == partition {
			return r.tip.Position, nil
		}
	}
	return 0, nil
}

// Trim implements journal.Journal.
func (j *Journal) Trim(_ context.Context, through map[string]journal.Tip) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, tip := range through {
		if err := j.trim(id, tip); err != nil {
			return err
		}
	}
	for len(j.records) > 0 && j.records[0].gone {
		j.records = j.records[1:]
		j.front++
	}
	return nil
}

// trim needs mu.
func (j *Journal) trim(id string, tip journal.Tip) error {
	s, ok := j.sessions[id]
	if !ok || len(s.positions) == 0 || s.positions[0] > tip.Position {
		return nil
	}
	if tip.Count <= s.base.Count {
		return fmt.Errorf("%w: trim session %s: event %d is gone", journal.ErrGap, id, tip.Count)
	}
	known := tip.Count - s.base.Count
	if tip.Count > s.tip.Count || j.at(s.positions[known-1]).tip != tip {
		return fmt.Errorf("%w: trim session %s: no event %d at %d", journal.ErrGap, id, tip.Count, tip.Position)
	}
	for _, p := range s.positions[:known] {
		r := &j.records[p-j.front-1]
		j.bytes -= len(r.body)
		r.body, r.gone = nil, true
	}
	maps.DeleteFunc(s.ids, func(_ string, e stored) bool { return e.tip.Count <= tip.Count })
	s.base, s.positions = tip, s.positions[known:]
	if partition := journal.PartitionOf(id); tip.Position > j.trimmed[partition] {
		j.trimmed[partition] = tip.Position
	}
	if len(s.positions) == 0 {
		// Like a log that fences by what it holds: nothing left, nothing known.
		delete(j.sessions, id)
	}
	return nil
}
