package exporter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// tracker knows of every session that is not settled what readiness depends on.
// It belongs to one goroutine.
type tracker struct {
	cfg      Config
	sessions map[string]*session
	groups   map[groupKey]*group
	// ready are the groups that need no deadline, with their tokens.
	ready    map[*group]int64
	readySum int64
	parts    [journal.Partitions]partition

	// settled are sessions whose events can still be met.
	settled       map[string]settled
	settledGroups map[groupKey]bool
	// latecomers are open sessions of groups that are settled.
	latecomers map[string]bool
	// lates are what came late to each session.
	lates map[string]*manifest.Late
	// tooLate counts the sessions that were released after their group was
	// settled.
	tooLate int
}

// settled is the position up to which a session is done with. One without rows
// is so altogether, unless it is released.
type settled struct {
	through uint64
	noRows  bool
}

type groupKey struct {
	run, group string
	// session is set for a session that is in no group.
	session string
}

type group struct {
	groupKey
	size     int32
	sessions []*session
	// sealed is when its first session was.
	sealed time.Time
}

type session struct {
	id             string
	group          *group
	index, attempt int32
	partition      int
	// Positions of the first and last event.
	first, last uint64
	tokens      int64
	sealed      time.Time // zero while it is open
	// doubtful sessions were aborted or failed: they count if they are rewarded.
	doubtful bool
	// void sessions were deleted or parked.
	void     bool
	rewarded bool
	// unreadable is set for a trajectory that cannot be read.
	unreadable bool
}

// partition is where one partition stands.
type partition struct {
	stream string
	// after is the cursor, seen the last position that was observed.
	after, seen uint64
}

func newTracker(cfg Config, state *manifest.State) *tracker {
	t := &tracker{
		cfg:        cfg,
		sessions:   make(map[string]*session),
		groups:     make(map[groupKey]*group),
		ready:      make(map[*group]int64),
		latecomers: make(map[string]bool),
		lates:      make(map[string]*manifest.Late),
	}
	t.settle(state)
	return t
}

// observe takes an entry of a partition. The error wraps ErrForeignLog.
func (t *tracker) observe(number int, d journal.Delivery) error {
	p, at := &t.parts[number], d.Tip.Position
	if p.stream == "" {
		p.stream = d.Stream
	} else if p.stream != d.Stream {
		return fmt.Errorf("%w: partition %d was in stream %s, now in %s", ErrForeignLog, number, p.stream, d.Stream)
	}
	p.seen = max(p.seen, at)
	s := t.sessions[d.Session]
	known, settled := t.settled[d.Session]
	switch {
	case at <= p.after, settled && at <= known.through, s != nil && at <= s.last, journal.IsRunSession(d.Session):
		return nil // known already, or nothing to export
	case d.Err != nil:
		if s != nil {
			s.last, s.unreadable = at, true
		}
		return nil
	}
	for _, o := range d.Event.GetTrajectoryUpdate().GetOutputs() {
		if started := o.GetSessionStarted(); started != nil && s == nil {
			switch again := started.GetRestarted(); {
			case again.GetStarted():
				s = t.reopen(d, number, started)
			case !settled:
				s = t.open(d, number, started)
			}
		}
		switch {
		case s != nil:
			s.output(o, d.Time)
		case t.latecomers[d.Session]:
			if o.GetSessionSealed() != nil {
				delete(t.latecomers, d.Session)
			}
		case settled && known.noRows:
		case o.GetRewardRecorded() != nil, o.GetAnnotationRecorded() != nil:
			t.late(d, number, max(known.through, p.after))
		}
	}
	if s != nil {
		s.last = at
		t.consider(s.group)
	}
	return nil
}

// open begins a session, unless its group is settled.
func (t *tracker) open(d journal.Delivery, number int, started *event.SessionStarted) *session {
	key := groupKey{run: d.Event.Run, group: started.Group}
	size := started.GroupSize
	if key.group == "" {
		key.session, size = d.Session, 1
	}
	if t.settledGroups[key] {
		t.latecomers[d.Session] = true
		return nil
	}
	g := t.groups[key]
	if g == nil {
		g = &group{groupKey: key}
		t.groups[key] = g
	}
	g.size = max(g.size, size)
	s := &session{
		id: d.Session, group: g, index: started.Index, attempt: started.Attempt,
		partition: number, first: d.Tip.Position,
	}
	g.sessions = append(g.sessions, s)
	t.sessions[d.Session] = s
	return s
}

// reopen begins a session that was released after it was settled. A settled
// group stays as it is, and so do rows that were written, or may have been. What
// is left is a session on its own of which nothing was exported because it was
// parked.
func (t *tracker) reopen(d journal.Delivery, number int, started *event.SessionStarted) *session {
	if started.Group != "" || started.GetRestarted().GetSealed() {
		t.latecomers[d.Session] = true
		t.tooLate++
		return nil
	}
	return t.open(d, number, started)
}

func (s *session) output(o *event.Output, at time.Time) {
	switch o := o.Output.(type) {
	case *event.Output_BranchSealed:
		if o.BranchSealed.Trainable > 0 { // the others give no rows
			s.tokens += int64(o.BranchSealed.Tokens)
		}
	case *event.Output_SessionSealed:
		s.sealed = at
		s.void = s.void || o.SessionSealed.Reason == "deleted"
		s.doubtful = o.SessionSealed.Status == "aborted" || o.SessionSealed.Status == "failed"
		if s.group.sealed.IsZero() {
			s.group.sealed = at
		}
	case *event.Output_RewardRecorded:
		s.rewarded = s.rewarded || o.RewardRecorded.Turn == ""
	case *event.Output_Fault:
		s.void = true
	case *event.Output_SessionRestarted:
		s.tokens, s.sealed, s.doubtful, s.void, s.rewarded = 0, time.Time{}, false, false, false
		if s.group.group == "" {
			s.group.sealed = time.Time{} // it waits for the new seal
		}
	}
}

// late notes a reward or annotation of a session whose rows are settled.
func (t *tracker) late(d journal.Delivery, number int, after uint64) {
	r := t.lates[d.Session]
	if r == nil {
		r = &manifest.Late{Run: d.Event.Run, Session: d.Session, Partition: number, After: after}
		t.lates[d.Session] = r
	}
	r.Through = d.Tip.Position
}

// consider updates whether a group needs no deadline.
func (t *tracker) consider(g *group) {
	t.readySum -= t.ready[g]
	delete(t.ready, g)
	if members := g.counting(); g.size > 0 && len(members) >= int(g.size) &&
		!slices.ContainsFunc(members, func(s *session) bool { return !s.rewarded }) {
		for _, s := range members {
			t.ready[g] += s.tokens
		}
		t.readySum += t.ready[g]
	}
}

func (t *tracker) readyTokens() int64 { return t.readySum }

// counts reports whether the session can be its index's attempt.
func (s *session) counts() bool {
	return !s.sealed.IsZero() && !s.void && !s.unreadable && (!s.doubtful || s.rewarded)
}

// counting returns the latest attempt that counts of each index.
func (g *group) counting() []*session {
	var list []*session
	for _, s := range g.sessions {
		if !s.counts() {
			continue
		}
		i, found := slices.BinarySearchFunc(list, s.index, func(o *session, index int32) int { return cmp.Compare(o.index, index) })
		if !found {
			list = slices.Insert(list, i, s)
		} else if s.attempt >= list[i].attempt {
			list[i] = s
		}
	}
	return list
}

// decision is what becomes of a group, or what it waits for.
type decision struct {
	outcome manifest.Outcome
	reason  manifest.Reason
	members []*session
	// wait is empty when it waits for nothing; until is its deadline, if there
	// is one.
	wait  wait
	until time.Time
}

// wait is what a group that is not ready waits for.
type wait string

const (
	// forSeal: none of its sessions is sealed.
	forSeal wait = "seal"
	// forReward: a session that counts has no reward yet.
	forReward wait = "reward"
	// forSessions: indexes are missing, or nobody knows how many there are.
	forSessions wait = "sessions"
)

// decide says what becomes of the group at now.
func (g *group) decide(cfg Config, now time.Time) decision {
	if g.sealed.IsZero() {
		return decision{wait: forSeal}
	}
	d := decision{members: g.counting()}
	for _, s := range d.members {
		if until := s.sealed.Add(cfg.RewardDeadline); !s.rewarded && now.Before(until) && until.After(d.until) {
			d.wait, d.until = forReward, until
		}
	}
	if d.wait != "" {
		return d
	}
	until := g.sealed.Add(cfg.GroupDeadline)
	switch whole := g.size > 0 && len(d.members) >= int(g.size); {
	case !whole && now.Before(until):
		d.wait, d.until = forSessions, until
	case !whole && len(d.members) == 0:
		d.outcome, d.reason = manifest.Dropped, manifest.Void
	case !whole && g.size > 0 && cfg.Partial == PartialDrop:
		d.outcome, d.reason, d.members = manifest.Dropped, manifest.Partial, nil
	default:
		d.outcome = manifest.Exported
	}
	return d
}

// Held counts what is not exported yet.
type Held struct {
	// Groups with a sealed session that wait, by what for: a reward, or the
	// rest of their sessions. A session without a group is a group of one.
	Reward, Sessions int
	// Until is the first of their deadlines; zero is none.
	Until time.Time
	// Open are sessions that are not sealed.
	Open int
}

// Groups is the number of groups that wait.
func (h Held) Groups() int { return h.Reward + h.Sessions }

func (t *tracker) held(now time.Time) (h Held) {
	for _, g := range t.groups {
		d := g.decide(t.cfg, now)
		switch d.wait {
		case forReward:
			h.Reward++
		case forSessions:
			h.Sessions++
		}
		if !d.until.IsZero() && (h.Until.IsZero() || d.until.Before(h.Until)) {
			h.Until = d.until
		}
	}
	for _, s := range t.sessions {
		if s.sealed.IsZero() {
			h.Open++
		}
	}
	return h
}

// settle forgets what a state has settled.
func (t *tracker) settle(state *manifest.State) {
	t.settled = make(map[string]settled)
	t.settledGroups = make(map[groupKey]bool)
	for _, p := range state.Cursor {
		t.parts[p.Partition] = partition{p.Stream, p.After, max(t.parts[p.Partition].seen, p.After)}
	}
	for _, g := range state.Settled {
		for _, s := range g.Sessions {
			if again := t.sessions[s.Session]; again != nil && again.first > s.Through {
				continue // it was released since
			}
			t.settled[s.Session] = settled{s.Through, g.Outcome == manifest.Dropped || !s.Counts}
			if g.Group.Group == "" {
				t.forget(groupKey{run: g.Run, session: s.Session})
			}
		}
		if key := (groupKey{run: g.Run, group: g.Group.Group}); key.group != "" {
			t.settledGroups[key] = true
			t.forget(key)
		}
	}
	for id, r := range t.lates {
		known := t.settled[id]
		r.After = max(r.After, known.through, t.parts[r.Partition].after)
		if r.Through <= r.After || known.noRows {
			delete(t.lates, id)
		}
	}
}

// forget drops a group that is settled. Sessions that came to it too late are
// not exported.
func (t *tracker) forget(key groupKey) {
	g := t.groups[key]
	if g == nil {
		return
	}
	for _, s := range g.sessions {
		delete(t.sessions, s.id)
		if _, known := t.settled[s.id]; !known && s.sealed.IsZero() {
			t.latecomers[s.id] = true
		}
	}
	t.readySum -= t.ready[g]
	delete(t.ready, g)
	delete(t.groups, key)
}

// cursor returns where to go on if the given groups, and all that came late, are
// settled.
func (t *tracker) cursor(settling map[*group]bool) manifest.Cursor {
	var after [journal.Partitions]uint64
	for i, p := range t.parts {
		after[i] = p.seen
	}
	for _, s := range t.sessions {
		if !settling[s.group] {
			after[s.partition] = min(after[s.partition], s.first-1)
		}
	}
	var cursor manifest.Cursor
	for i, p := range t.parts {
		if p.stream != "" {
			cursor = append(cursor, manifest.Position{Partition: i, Stream: p.stream, After: after[i]})
		}
	}
	return cursor
}
