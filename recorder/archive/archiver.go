package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal"
)

// Config is how an archiver runs.
type Config struct {
	// Every is the pause between two rounds.
	Every time.Duration
	// After is the window: how long a session is kept in the log after its last
	// event. Until then it can be rewarded.
	After time.Duration
	// KeepTrajectories leaves the trajectory log as it is, and asks nobody
	// whether it was exported.
	KeepTrajectories bool
	// SegmentBytes and SegmentSessions bound what is archived at once, and held
	// in memory for it: bytes of bodies as they travel, and sessions. The last
	// session may go beyond.
	SegmentBytes    int64
	SegmentSessions int
}

// MinAfter is the shortest window. Followers of a log rely on it: who is not so
// far behind need not look into the archive.
const MinAfter = 10 * time.Second

// DefaultConfig looks every ten minutes, and keeps sessions for three days.
func DefaultConfig() Config {
	return Config{Every: 10 * time.Minute, After: 72 * time.Hour, SegmentBytes: 64 << 20, SegmentSessions: 512}
}

// Validate reports all faults of the configuration at once.
func (c Config) Validate() error {
	var faults []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			faults = append(faults, fmt.Errorf("archive: "+format, args...))
		}
	}
	bad(c.Every <= 0, "every is not positive")
	bad(c.After < MinAfter, "after is %s, less than %s", c.After, MinAfter)
	bad(c.SegmentBytes <= 0 || c.SegmentSessions <= 0, "a segment must have room")
	return errors.Join(faults...)
}

// Registry has the rows of sessions. registry.Stored and registry.Memory
// implement it.
type Registry interface {
	Put(ctx context.Context, s registry.Session) error
	Get(ctx context.Context, id string) (registry.Session, bool, error)
	List(ctx context.Context, f registry.Filter) iter.Seq2[registry.Session, error]
}

// Exported reports whether an exporter is done with a session's updates: with
// those up to a position of its partition in a stream.
type Exported func(session string, partition int, stream string, position uint64) bool

// Deps are what an archiver works with.
type Deps struct {
	Archive *Archive
	// Turns and Trajectories are the logs together with the archive; see
	// Archive.Wrap.
	Turns, Trajectories journal.Journal
	Registry            Registry
	// Exported is asked at the begin of each round how far exporters are. Nil
	// only if the trajectory log is kept.
	Exported func(ctx context.Context) (Exported, error)
	// Now is the log server's clock; nil is this process's, which only a log in
	// this process may use.
	Now    func(ctx context.Context) (time.Time, error)
	Logger *slog.Logger
	// Fault is called at the points where a crash is interesting; nil in
	// production.
	Fault func(point Point)
}

// Point is a place where a test may kill an archiver.
type Point string

// The points, in the order in which a batch of sessions passes them.
const (
	PointSegment      Point = "segment"
	PointVerified     Point = "verified"
	PointManifest     Point = "manifest"
	PointTombstone    Point = "tombstone"
	PointTurns        Point = "turns"
	PointTrajectories Point = "trajectories"
	PointDone         Point = "done"
)

// Points lists all points.
var Points = []Point{PointSegment, PointVerified, PointManifest, PointTombstone, PointTurns, PointTrajectories, PointDone}

// Archiver moves sessions from the log to the archive. Any number of them may
// run on one log and one archive; Run and Once are called one at a time.
type Archiver struct {
	cfg  Config
	deps Deps
	// settled is the last manifest whose sessions this process has trimmed, or
	// found trimmed.
	settled int64
	cleaned bool

	mu    sync.Mutex
	stats Stats
}

// Stats are what an archiver has done so far, and what it saw in its last round.
type Stats struct {
	Sessions, Events uint64
	// Bytes are those of the events' bodies as they travel, SegmentBytes those
	// of segments.
	Bytes, SegmentBytes uint64
	// Trimmed counts the sessions that left the log, TrimmedBytes is what the
	// bodies of their events took there.
	Trimmed, TrimmedBytes uint64
	// Failed counts rounds that ended early.
	Failed uint64
	// Oldest is when the oldest session that is still in the log was opened;
	// zero is none.
	Oldest time.Time
}

// Report is what one round did, or would do.
type Report struct {
	// Sessions were archived; Moved are those of them that something was said of
	// meanwhile: they stay for the next round.
	Sessions, Moved int
	Events          int
	// Bytes are those of the events' bodies as they travel.
	Bytes int64
	// Kept counts the closed sessions that stay, by the reason.
	Kept map[Reason]int
	// Manifests that were published.
	Manifests []int64
}

// NewArchiver returns an archiver that does nothing until Run or Once.
func NewArchiver(cfg Config, deps Deps) (*Archiver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Archive == nil || deps.Turns == nil || deps.Trajectories == nil || deps.Registry == nil {
		return nil, errors.New("archive: needs an archive, both logs and a registry")
	}
	if deps.Exported == nil && !cfg.KeepTrajectories {
		return nil, errors.New("archive: nobody says what was exported, and the trajectory log is not kept")
	}
	if deps.Now == nil {
		deps.Now = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Fault == nil {
		deps.Fault = func(Point) {}
	}
	return &Archiver{cfg: cfg, deps: deps}, nil
}

// Stats returns what the archiver has done so far.
func (a *Archiver) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

func (a *Archiver) count(f func(*Stats)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.stats)
}

// Run makes a round every now and then until ctx is done.
func (a *Archiver) Run(ctx context.Context) error {
	tick := time.NewTicker(a.cfg.Every)
	defer tick.Stop()
	for {
		report, err := a.Once(ctx)
		switch {
		case errors.Is(err, ErrExists):
			a.deps.Logger.Info("another archiver is at work")
		case err != nil && ctx.Err() == nil:
			a.count(func(s *Stats) { s.Failed++ })
			a.deps.Logger.Error("archiving stopped until the next round", "error", err)
		case err == nil && report.Sessions > 0:
			a.deps.Logger.Info("sessions archived", "sessions", report.Sessions, "events", report.Events, "bytes", report.Bytes)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Once finishes what another round, or another process, has begun, and archives
// all that may go now.
func (a *Archiver) Once(ctx context.Context) (Report, error) {
	r := Report{Kept: map[Reason]int{}}
	if err := a.finish(ctx); err != nil {
		return r, err
	}
	w, err := a.look(ctx)
	if err != nil {
		return r, err
	}
	for batch, err := range a.batches(ctx, w, &r) {
		if err == nil {
			err = a.archive(ctx, batch, &r)
		}
		if err != nil {
			return r, err
		}
	}
	return r, errors.Join(a.again(ctx, w), a.prune(ctx))
}

// DryRun returns what Once would do now, and changes nothing.
func (a *Archiver) DryRun(ctx context.Context) (Report, error) {
	r := Report{Kept: map[Reason]int{}}
	if err := a.deps.Archive.Refresh(ctx); err != nil {
		return r, err
	}
	w, err := a.look(ctx)
	if err != nil {
		return r, err
	}
	for batch, err := range a.batches(ctx, w, &r) {
		if err != nil {
			return r, err
		}
		r.add(batch)
	}
	return r, nil
}

// world is what a round goes by.
type world struct {
	now      time.Time
	exported Exported
	floors   map[int]uint64
	rows     []registry.Session // candidates, oldest first
	// gone are those of them that the archive has already, all of it: the log has
	// them back, or the registry has lost a tombstone.
	gone []registry.Session
}

// look takes note of the time, of the sessions that are closed, and of how far
// everybody is. Positions are asked for first: what comes later only makes them
// too low.
func (a *Archiver) look(ctx context.Context) (*world, error) {
	w := &world{floors: map[int]uint64{}, exported: func(string, int, string, uint64) bool { return true }}
	var err error
	if w.now, err = a.deps.Now(ctx); err != nil {
		return nil, fmt.Errorf("archive: the server's clock: %w", err)
	}
	if !a.cfg.KeepTrajectories {
		if w.exported, err = a.deps.Exported(ctx); err != nil {
			return nil, fmt.Errorf("archive: how far exporters are: %w", err)
		}
	}
	var oldest time.Time
	for s, err := range a.deps.Registry.List(ctx, registry.Filter{}) {
		if err != nil {
			return nil, fmt.Errorf("archive: %w", err)
		}
		if s.State != registry.Trimmed && !s.OpenedAt.IsZero() && (oldest.IsZero() || s.OpenedAt.Before(oldest)) {
			oldest = s.OpenedAt
		}
		if s.State == registry.Closed {
			w.rows = append(w.rows, s)
		}
	}
	a.count(func(s *Stats) { s.Oldest = oldest })
	slices.SortFunc(w.rows, func(x, y registry.Session) int { return x.LastAt.Compare(y.LastAt) })
	return w, nil
}

func (a *Archiver) floor(ctx context.Context, w *world, partition int) (uint64, error) {
	if at, ok := w.floors[partition]; ok {
		return at, nil
	}
	at, err := a.deps.Turns.Floor(ctx, partition)
	if err == nil {
		w.floors[partition] = at
	}
	return at, err
}

// leaver is a session that may go, with what the archive does not have of it.
type leaver struct {
	row                 registry.Session
	turns, trajectories *piled
	bytes               int64
}

// piled is what comes after a tip of one of the session's logs, ready for a
// segment.
type piled struct {
	from, through journal.Tip
	rows          []row
}

// pile fails if the list does not go on from the tip: a log that has lost its
// end, or has another history than the archive.
func pile(from journal.Tip, list []journal.Entry) (*piled, error) {
	if n := from.Count; n > uint64(len(list)) || n > 0 && list[n-1].Tip != from {
		return nil, fmt.Errorf("%w: the archive has %d events of it, of another history than the log's %d", ErrDamaged, n, len(list))
	}
	p := &piled{from: from, through: from}
	for _, e := range list[from.Count:] {
		p.rows = append(p.rows, rowOf(e, p.through.Chain))
		p.through = e.Tip
	}
	return p, nil
}

// batches yields sessions that may go, as many at once as a segment holds.
func (a *Archiver) batches(ctx context.Context, w *world, r *Report) iter.Seq2[[]leaver, error] {
	return func(yield func([]leaver, error) bool) {
		var batch []leaver
		size := int64(0)
		for _, row := range w.rows {
			l, reason, err := a.consider(ctx, w, row)
			switch {
			case err != nil:
				yield(nil, fmt.Errorf("archive: session %s: %w", row.ID, err))
				return
			case reason != Go:
				r.Kept[reason]++
				continue
			case len(l.turns.rows)+len(l.trajectories.rows) == 0:
				w.gone = append(w.gone, row)
				continue
			}
			batch, size = append(batch, l), size+l.bytes
			if size >= a.cfg.SegmentBytes || len(batch) >= a.cfg.SegmentSessions {
				if !yield(batch, nil) {
					return
				}
				batch, size = nil, 0
			}
		}
		if len(batch) > 0 {
			yield(batch, nil)
		}
	}
}

// consider reads a session and judges it. A session that cannot be read stays.
func (a *Archiver) consider(ctx context.Context, w *world, row registry.Session) (l leaver, reason Reason, err error) {
	if w.now.Sub(row.LastAt) < a.cfg.After {
		return l, Recent, nil // without a look at the log
	}
	partition := journal.PartitionOf(row.ID)
	f := Facts{State: row.State}
	if f.Floor, err = a.floor(ctx, w, partition); err != nil {
		return l, "", err
	}
	if f.Turns, err = entriesOf(ctx, a.deps.Turns, row.ID); err == nil {
		f.Updates, err = entriesOf(ctx, a.deps.Trajectories, row.ID)
	}
	if errors.Is(err, ErrDamaged) || err != nil && !errors.Is(err, journal.ErrUnavailable) && ctx.Err() == nil {
		return l, a.unreadable(row, err), nil
	}
	if err != nil {
		return l, "", err
	}
	if n := len(f.Updates); n > 0 {
		last := f.Updates[n-1]
		f.Exported = w.exported(row.ID, partition, last.Stream, last.Tip.Position)
	}
	if reason := Judge(f, w.now, a.cfg.After); reason != Go {
		return l, reason, nil
	}
	l.row, l.turns, l.trajectories = row, new(piled), new(piled)
	from, err := a.deps.Archive.end(ctx, Turns, row.ID)
	if err != nil {
		return l, "", err
	}
	if l.turns, err = pile(from, f.Turns); err != nil {
		return l, a.unreadable(row, err), nil
	}
	if !a.cfg.KeepTrajectories {
		if from, err = a.deps.Archive.end(ctx, Trajectories, row.ID); err != nil {
			return l, "", err
		}
		if l.trajectories, err = pile(from, f.Updates); err != nil {
			return l, a.unreadable(row, err), nil
		}
	}
	for _, r := range slices.Concat(l.turns.rows, l.trajectories.rows) {
		l.bytes += int64(len(r.Body))
	}
	return l, Go, nil
}

func (a *Archiver) unreadable(row registry.Session, err error) Reason {
	a.deps.Logger.Error("session stays in the log: it cannot be read", "session", row.ID, "error", err)
	return NotRecorded
}

func entriesOf(ctx context.Context, j journal.Journal, session string) (list []journal.Entry, err error) {
	for e, err := range j.ReadSession(ctx, session, journal.Tip{}) {
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func (r *Report) add(batch []leaver) {
	r.Sessions += len(batch)
	for _, l := range batch {
		r.Events += len(l.turns.rows) + len(l.trajectories.rows)
		r.Bytes += l.bytes
	}
}

// archive writes a batch, makes it count, and trims it.
func (a *Archiver) archive(ctx context.Context, batch []leaver, r *Report) error {
	// The number after those that were settled before the sessions were looked at:
	// what another archiver has published since may hold the same sessions.
	m := &Manifest{Format: Format, Number: a.settled + 1, Time: time.Now().UTC()}
	if a.deps.Archive.Last() >= m.Number {
		return fmt.Errorf("archive: another archiver is at work: manifest %d: %w", m.Number, ErrExists)
	}
	rows := map[Log][]row{}
	for _, l := range batch {
		s := Session{Row: l.row}
		s.Turns = l.turns.part(rows, Turns)
		s.Trajectories = l.trajectories.part(rows, Trajectories)
		m.Sessions = append(m.Sessions, s)
	}
	segmentBytes := int64(0)
	for _, l := range []Log{Turns, Trajectories} {
		if len(rows[l]) == 0 {
			continue
		}
		seg, err := publish(ctx, a.deps.Archive.store, m.Number, l, rows[l])
		if err != nil {
			return err
		}
		m.Segments = append(m.Segments, seg)
		segmentBytes += seg.Bytes
		a.deps.Fault(PointSegment)
	}
	if err := a.same(ctx, m, rows); err != nil {
		return err
	}
	a.deps.Fault(PointVerified)
	err := put(ctx, a.deps.Archive.store, m)
	if errors.Is(err, ErrExists) {
		// Another archiver was first: its segments count, and ours are nobody's.
		for _, seg := range m.Segments {
			if err := a.discard(ctx, seg.Key); err != nil {
				return err
			}
		}
		return fmt.Errorf("archive: another archiver is at work: %w", err)
	}
	if err != nil {
		return err
	}
	a.deps.Fault(PointManifest)
	if err := a.deps.Archive.Refresh(ctx); err != nil {
		return err
	}
	r.add(batch)
	r.Manifests = append(r.Manifests, m.Number)
	a.count(func(s *Stats) {
		s.Sessions += uint64(len(batch))
		s.SegmentBytes += uint64(segmentBytes)
		for _, l := range batch {
			s.Events += uint64(len(l.turns.rows) + len(l.trajectories.rows))
			s.Bytes += uint64(l.bytes)
		}
	})
	moved, err := a.settle(ctx, m)
	r.Moved += moved
	return err
}

// part adds the rows to those of a segment, and says where they are.
func (p *piled) part(rows map[Log][]row, l Log) *Part {
	if len(p.rows) == 0 {
		return nil
	}
	part := &Part{
		Stream: p.rows[0].Stream, Row: int64(len(rows[l])), Events: int64(len(p.rows)), First: p.rows[0].Sequence,
		From: tipOf(p.from), Through: tipOf(p.through),
	}
	for _, r := range p.rows {
		part.Bytes += int64(len(r.Body))
	}
	rows[l] = append(rows[l], p.rows...)
	return part
}

// same reads segments back, checks their chains, and compares the rest with what
// the log has said.
func (a *Archiver) same(ctx context.Context, m *Manifest, rows map[Log][]row) error {
	if err := verify(ctx, a.deps.Archive.store, m); err != nil {
		return err
	}
	for _, seg := range m.Segments {
		in, done, err := open(ctx, a.deps.Archive.store, seg)
		if err != nil {
			return err
		}
		i := 0
		for r, err := range rowsOf(in, seg, 0, seg.Events) {
			w := rows[seg.Log][i]
			if err == nil && (r.Stream != w.Stream || r.Sequence != w.Sequence || r.Time != w.Time) {
				err = fmt.Errorf("%w: %s, row %d is not what was written", ErrDamaged, seg.Key, i)
			}
			if err != nil {
				return errors.Join(err, done())
			}
			i++
		}
		if err := done(); err != nil {
			return err
		}
	}
	return nil
}

// finish trims what others, or we in an earlier life, have archived only. The
// last manifest is looked at in every life: a server that lost its latest writes
// may have the sessions back.
func (a *Archiver) finish(ctx context.Context) error {
	if err := a.deps.Archive.Check(ctx); err != nil {
		return err
	}
	if err := a.clean(ctx); err != nil {
		return err
	}
	if a.settled == 0 {
		last := int64(1)
		for key, err := range a.deps.Archive.store.List(ctx, done) {
			if err != nil {
				return fmt.Errorf("archive: %w", err)
			}
			last = max(last, numberOf(key, done))
		}
		a.settled = last - 1
	}
	for a.settled < a.deps.Archive.Last() {
		m, err := a.deps.Archive.Manifest(ctx, a.settled+1)
		if err != nil {
			return err
		}
		// Whoever published it may have died before it was there for good.
		if err := put(ctx, a.deps.Archive.store, m); err != nil && !errors.Is(err, ErrExists) {
			return err
		}
		if err := verify(ctx, a.deps.Archive.store, m); err != nil {
			return err
		}
		if _, err := a.settle(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// settle gives the sessions of a manifest their tombstones and trims them. The
// segments were verified. It returns how many stay since something was said of
// them after they were read.
func (a *Archiver) settle(ctx context.Context, m *Manifest) (moved int, err error) {
	for some := range slices.Chunk(m.Sessions, trimAtOnce) {
		var list []departure
		for i := range some {
			d, stays, err := a.departure(ctx, &some[i], m.Number)
			if err != nil {
				return moved, fmt.Errorf("archive: session %s: %w", some[i].Row.ID, err)
			}
			if stays {
				moved++
				continue
			}
			list = append(list, d)
		}
		if err := a.trim(ctx, list); err != nil {
			return moved, err
		}
	}
	key, sign := doneKey(m.Number), "{}\n"
	err = a.deps.Archive.store.PutExclusive(ctx, key, strings.NewReader(sign), int64(len(sign)))
	if err != nil && !errors.Is(err, ErrExists) {
		return moved, fmt.Errorf("archive: manifest %d: %w", m.Number, err)
	}
	a.settled = m.Number
	a.deps.Fault(PointDone)
	return moved, nil
}

// trimAtOnce is how many sessions are trimmed together: little time passes
// between the last look at a session and its end.
const trimAtOnce = 64

// departure is a session that leaves the log, and how far: a zero tip takes
// nothing.
type departure struct {
	tombstone           registry.Session
	turns, trajectories journal.Tip
	bytes               int64 // of bodies
}

// departure looks at a session of a manifest once more. It stays if its logs go
// on after what the archive has; another manifest will have the rest.
func (a *Archiver) departure(ctx context.Context, s *Session, manifest int64) (d departure, stays bool, err error) {
	d.tombstone = tombstone(s.Row, manifest)
	for _, l := range []struct {
		log  Log
		in   journal.Journal
		part *Part
		tip  *journal.Tip
	}{{Turns, a.deps.Turns, s.Turns, &d.turns}, {Trajectories, a.deps.Trajectories, s.Trajectories, &d.trajectories}} {
		if *l.tip, err = a.deps.Archive.end(ctx, l.log, s.Row.ID); err != nil {
			return d, false, err
		}
		if l.part != nil && *l.tip != l.part.Through.in() {
			return d, true, nil // a later manifest's
		}
		if l.tip.Count == 0 {
			continue
		}
		if l.part != nil {
			d.bytes += l.part.Bytes
		}
		for _, err := range l.in.ReadSession(ctx, s.Row.ID, *l.tip) {
			if errors.Is(err, journal.ErrGap) { // nor can it be trimmed by this tip; others need not wait
				a.unreadable(s.Row, err)
				err = nil
			}
			return d, err == nil, err
		}
	}
	return d, false, nil
}

// trim puts up tombstones and removes what they stand for. The turns go first:
// nobody can say more of a session without them.
func (a *Archiver) trim(ctx context.Context, list []departure) error {
	turns, trajectories := map[string]journal.Tip{}, map[string]journal.Tip{}
	for _, d := range list {
		if err := a.deps.Registry.Put(ctx, d.tombstone); err != nil {
			return fmt.Errorf("archive: tombstone of %s: %w", d.tombstone.ID, err)
		}
		if d.turns.Count > 0 {
			turns[d.tombstone.ID] = d.turns
		}
		if d.trajectories.Count > 0 {
			trajectories[d.tombstone.ID] = d.trajectories
		}
	}
	a.deps.Fault(PointTombstone)
	if err := a.deps.Turns.Trim(ctx, turns); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	a.deps.Fault(PointTurns)
	if err := a.deps.Trajectories.Trim(ctx, trajectories); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	a.deps.Fault(PointTrajectories)
	a.count(func(s *Stats) {
		s.Trimmed += uint64(len(list))
		for _, d := range list {
			s.TrimmedBytes += uint64(d.bytes)
		}
	})
	return nil
}

// Pruner is what a registry of limited room offers besides. registry.Stored
// implements it.
type Pruner interface {
	// Used returns how many bytes the rows take, and how many they may.
	Used(ctx context.Context) (bytes, room int64, err error)
	Remove(ctx context.Context, id string) error
}

// prune removes the oldest tombstones of a registry that is more than half full,
// half of them: the archive knows its sessions without them, and a registry
// without room would stop the recorders.
func (a *Archiver) prune(ctx context.Context) error {
	p, ok := a.deps.Registry.(Pruner)
	if !ok {
		return nil
	}
	bytes, room, err := p.Used(ctx)
	if err != nil || room <= 0 || bytes <= room/2 {
		return err
	}
	var stones []registry.Session
	for s, err := range a.deps.Registry.List(ctx, registry.Filter{State: registry.Trimmed}) {
		if err != nil {
			return fmt.Errorf("archive: %w", err)
		}
		stones = append(stones, s)
	}
	slices.SortFunc(stones, func(x, y registry.Session) int { return x.LastAt.Compare(y.LastAt) })
	for _, s := range stones[:(len(stones)+1)/2] {
		if err := p.Remove(ctx, s.ID); err != nil {
			return fmt.Errorf("archive: prune: %w", err)
		}
	}
	a.deps.Logger.Info("registry pruned", "tombstones", (len(stones)+1)/2, "bytes", bytes, "room", room)
	return nil
}

// again trims sessions that the archive has and that are in the log all the
// same, after it has read what the archive has.
func (a *Archiver) again(ctx context.Context, w *world) error {
	var list []departure
	for _, row := range w.gone {
		numbers := a.deps.Archive.numbers(row.ID)
		d, stays, err := a.departure(ctx, &Session{Row: row}, numbers[len(numbers)-1])
		if err != nil {
			return fmt.Errorf("archive: session %s: %w", row.ID, err)
		}
		if stays {
			continue
		}
		for _, l := range []Log{Turns, Trajectories} {
			for _, err := range a.deps.Archive.session(ctx, l, row.ID, journal.Tip{}) {
				if err != nil {
					return err
				}
			}
		}
		list = append(list, d)
	}
	for some := range slices.Chunk(list, trimAtOnce) {
		if err := a.trim(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// clean removes, once, segments that no manifest names and none will: those of
// archivers that died before they published theirs.
func (a *Archiver) clean(ctx context.Context) error {
	if a.cleaned {
		return nil
	}
	for key, err := range a.deps.Archive.store.List(ctx, segments) {
		if err == nil && numberOf(key, segments) <= a.deps.Archive.Last() {
			err = a.discard(ctx, key)
		}
		if err != nil {
			return fmt.Errorf("archive: clean: %w", err)
		}
	}
	a.cleaned = true
	return nil
}

// discard removes a segment unless the manifest of its number names it.
func (a *Archiver) discard(ctx context.Context, key string) error {
	if err := a.deps.Archive.Refresh(ctx); err != nil {
		return err
	}
	number := numberOf(key, segments)
	if number == 0 {
		return nil // somebody else's
	}
	m, err := a.deps.Archive.Manifest(ctx, number)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(m.Segments, func(s Segment) bool { return s.Key == key }) {
		return nil
	}
	a.deps.Logger.Info("segment without a manifest deleted", "segment", key)
	return a.deps.Archive.store.Delete(ctx, key)
}
