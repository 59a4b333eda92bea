package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
)

// Archive is what was taken out of the log. It is safe for concurrent use, and
// sees what other processes add. For each session it keeps some hundred bytes in
// memory.
type Archive struct {
	store Store
	// Whoever reads manifests holds the slot; mu is never held meanwhile.
	reading chan struct{}

	mu     sync.Mutex
	last   int64              // the number of the last manifest that is known
	places map[string][]int64 // the manifests that have something of a session, oldest first
	reach  map[Log][]reach    // of manifest 1 on
	recent []*Manifest        // those read last, the newest first
}

// reach is the highest position that a manifest has of each partition in a
// stream.
type reach map[int]place

type place struct {
	stream string
	last   uint64
}

// recentManifests is how many manifests stay in memory.
const recentManifests = 8

// New returns the archive in a store. It touches nothing yet.
func New(s Store) *Archive {
	return &Archive{store: s, reading: make(chan struct{}, 1), places: map[string][]int64{}, reach: map[Log][]reach{}}
}

// Refresh takes note of manifests that are new. Other methods do so by
// themselves where it matters.
func (a *Archive) Refresh(ctx context.Context) error {
	select {
	case a.reading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.reading }()
	for {
		next := a.Last() + 1
		raw, err := read(ctx, a.store, manifestKey(next))
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("archive: manifest %d: %w", next, err)
		}
		m, err := parse(raw, next)
		if err != nil {
			return err
		}
		a.add(m)
	}
}

// Check is Refresh, and fails with ErrDamaged if a manifest is missing that was
// there: what comes after it would not be found, and its number would be given
// again. It asks for the list of all.
func (a *Archive) Check(ctx context.Context) error {
	known, listed, highest := a.Last(), int64(0), int64(0)
	for _, folder := range []string{manifests, done} {
		for key, err := range a.store.List(ctx, folder) {
			if err != nil {
				return fmt.Errorf("archive: %w", err)
			}
			n := numberOf(key, folder)
			highest = max(highest, n)
			if folder == manifests && n > 0 {
				listed++
			}
		}
	}
	if err := a.Refresh(ctx); err != nil {
		return err
	}
	if last := a.Last(); highest > last || listed < max(known, highest) {
		return fmt.Errorf("%w: it has manifests up to number %d at least, and not all of them: %d are there; nothing is archived until the others are back in %s",
			ErrDamaged, max(known, highest), listed, manifests)
	}
	return nil
}

func (a *Archive) add(m *Manifest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Number != a.last+1 {
		return
	}
	a.last = m.Number
	for _, l := range []Log{Turns, Trajectories} {
		r := reach{}
		for i := range m.Sessions {
			if p := m.Sessions[i].part(l); p != nil {
				partition := journal.PartitionOf(m.Sessions[i].Row.ID)
				r[partition] = place{p.Stream, max(r[partition].last, p.Through.Position)}
			}
		}
		a.reach[l] = append(a.reach[l], r)
	}
	for i := range m.Sessions {
		id := m.Sessions[i].Row.ID
		a.places[id] = append(a.places[id], m.Number)
	}
	a.keep(m)
}

// keep needs mu.
func (a *Archive) keep(m *Manifest) {
	a.recent = slices.Insert(a.recent, 0, m)
	a.recent = a.recent[:min(len(a.recent), recentManifests)]
}

// Last is the number of the last manifest that is known, 0 for none.
func (a *Archive) Last() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// Holds reports whether something of a session was archived.
func (a *Archive) Holds(ctx context.Context, session string) (bool, error) {
	if err := a.Refresh(ctx); err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.places[session]) > 0, nil
}

// Manifest reads the manifest of a number.
func (a *Archive) Manifest(ctx context.Context, number int64) (*Manifest, error) {
	a.mu.Lock()
	i := slices.IndexFunc(a.recent, func(m *Manifest) bool { return m.Number == number })
	if i >= 0 {
		m := a.recent[i]
		a.mu.Unlock()
		return m, nil
	}
	a.mu.Unlock()
	raw, err := read(ctx, a.store, manifestKey(number))
	if err != nil {
		return nil, fmt.Errorf("archive: manifest %d: %w", number, err)
	}
	m, err := parse(raw, number)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep(m)
	return m, nil
}

// Tombstones yields the registry's rows of all archived sessions.
func (a *Archive) Tombstones(ctx context.Context) iter.Seq2[registry.Session, error] {
	return func(yield func(registry.Session, error) bool) {
		if err := a.Refresh(ctx); err != nil {
			yield(registry.Session{}, err)
			return
		}
		for n := int64(1); n <= a.Last(); n++ {
			m, err := a.Manifest(ctx, n)
			if err != nil {
				yield(registry.Session{}, err)
				return
			}
			for i := range m.Sessions {
				if !yield(tombstone(m.Sessions[i].Row, n), nil) {
					return
				}
			}
		}
	}
}

// tombstone is the row of a session that is in the archive and no longer in the
// log.
func tombstone(row registry.Session, manifest int64) registry.Session {
	row.State, row.Archive = registry.Trimmed, manifest
	return row
}

// piece is a part and where to find it.
type piece struct {
	session string
	segment Segment
	part    *Part
}

// numbers are those of the manifests that have something of a session, oldest
// first.
func (a *Archive) numbers(session string) []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.places[session])
}

// pieces returns what the archive has of a session's log, oldest first.
func (a *Archive) pieces(ctx context.Context, l Log, session string) ([]piece, error) {
	var list []piece
	for _, n := range a.numbers(session) {
		m, err := a.Manifest(ctx, n)
		if err != nil {
			return nil, err
		}
		for i := range m.Sessions {
			if p := m.Sessions[i].part(l); m.Sessions[i].Row.ID == session && p != nil {
				list = append(list, piece{session, *m.segment(l), p})
			}
		}
	}
	return list, nil
}

// end returns where the archive's part of a session's log ends.
func (a *Archive) end(ctx context.Context, l Log, session string) (journal.Tip, error) {
	list, err := a.pieces(ctx, l, session)
	if err != nil || len(list) == 0 {
		return journal.Tip{}, err
	}
	return list[len(list)-1].part.Through.in(), nil
}

// session yields the events after a tip that the archive has of a session.
func (a *Archive) session(ctx context.Context, l Log, session string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		list, err := a.pieces(ctx, l, session)
		if err != nil {
			yield(journal.Entry{}, err)
			return
		}
		at := from
		for _, p := range list {
			if p.part.Through.Count <= at.Count {
				continue
			}
			for e, err := range a.piece(ctx, p) {
				switch {
				case err != nil:
					yield(journal.Entry{}, err)
					return
				case e.Tip.Count <= at.Count:
					if e.Tip.Count == at.Count && e.Tip.Chain != at.Chain {
						yield(journal.Entry{}, fmt.Errorf("%w: session %s has another history before event %d", journal.ErrGap, session, at.Count))
						return
					}
				default:
					if at = e.Tip; !yield(e, nil) {
						return
					}
				}
			}
		}
	}
}

func (a *Archive) piece(ctx context.Context, p piece) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		in, done, err := open(ctx, a.store, p.segment)
		if err != nil {
			yield(journal.Entry{}, err)
			return
		}
		defer func() { _ = done() }()
		for e, err := range entries(in, p.segment, p.session, p.part) {
			if ctx.Err() != nil {
				e, err = journal.Entry{}, ctx.Err()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// last is the highest position of a partition that was archived from a stream.
func (a *Archive) lastOf(l Log, partition int, stream string) (last uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reach[l] {
		if p := r[partition]; p.stream == stream {
			last = max(last, p.last)
		}
	}
	return last
}

// after returns what was archived of a partition of a stream and reaches beyond
// a position.
func (a *Archive) after(ctx context.Context, l Log, partition int, stream string, position uint64) ([]piece, error) {
	a.mu.Lock()
	var numbers []int64
	for i, r := range a.reach[l] {
		if p := r[partition]; p.stream == stream && p.last > position {
			numbers = append(numbers, int64(i)+1)
		}
	}
	a.mu.Unlock()
	var list []piece
	for _, n := range numbers {
		m, err := a.Manifest(ctx, n)
		if err != nil {
			return nil, err
		}
		for i := range m.Sessions {
			id := m.Sessions[i].Row.ID
			if p := m.Sessions[i].part(l); p != nil && p.Through.Position > position && p.Stream == stream && journal.PartitionOf(id) == partition {
				list = append(list, piece{id, *m.segment(l), p})
			}
		}
	}
	return list, nil
}
