package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/schema/journal"
)

// ahead is how many groups are read from the log while one is written.
const ahead = 2

// commit executes a plan: it publishes the files, then the manifest. Everything
// it writes is a function of the plan and of the log, so that it can be
// interrupted and repeated, by others at the same time too.
func (f *follower) commit(ctx context.Context, plan *manifest.Plan, hash string) (*manifest.Manifest, error) {
	f.deps.Fault("planned")
	m, err := f.execute(ctx, plan, hash, f.state.Files)
	if err != nil {
		return nil, err
	}
	f.deps.Fault("manifest")
	if err := f.log.PutManifest(ctx, m); err != nil {
		return nil, err
	}
	f.deps.Fault("committed")
	f.committed(plan, m)
	return m, nil
}

// execute publishes a plan's files and returns its manifest. files are those of
// the data set before it.
func (e *Exporter) execute(ctx context.Context, plan *manifest.Plan, hash string, files []manifest.File) (*manifest.Manifest, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.stats.update(func(s *Stats) {
		s.Plan = Progress{ID: plan.ID, Op: plan.Op, Groups: exported(plan), Began: e.deps.Now()}
	})
	x := execution{
		Exporter: e, plan: plan, hash: hash,
		manifest: &manifest.Manifest{
			ID: plan.ID, Parent: plan.ID - 1, Op: plan.Op, Schema: plan.Config.Schema, Time: plan.Time,
			PlanHash: hash, ConfigHash: plan.ConfigHash, Removed: plan.Replaces, Late: plan.Late, Cursor: plan.Cursor,
		},
		tokenizers: make(map[string]bool), templates: make(map[string]bool),
	}
	var err error
	switch plan.Op {
	case manifest.Add:
		err = x.add(ctx)
	case manifest.Replace:
		err = x.replace(ctx, files)
	case manifest.Drop:
	default:
		err = fmt.Errorf("%w: plan %d is to %q", manifest.ErrFormat, plan.ID, plan.Op)
	}
	if err != nil {
		return nil, err
	}
	return x.finish(), nil
}

// exported counts the groups that a plan exports.
func exported(plan *manifest.Plan) (n int) {
	for _, g := range plan.Groups {
		if g.Outcome == manifest.Exported {
			n++
		}
	}
	return n
}

func (f *follower) committed(plan *manifest.Plan, m *manifest.Manifest) {
	now, last := f.deps.Now(), f.tracker.lastSeal(plan)
	f.stats.update(func(s *Stats) {
		s.Counts.Add(m.Counts)
		s.Manifest, s.Exported = m.ID, now
		for _, file := range m.Files {
			s.Files++
			s.Bytes += file.Bytes
		}
		if !last.IsZero() {
			s.Lag = now.Sub(last)
		}
	})
	f.deps.Log.Info("manifest published", "manifest", m.ID, "files", len(m.Files), "rows", m.Counts.Rows,
		"tokens", m.Counts.Tokens, "trainable", m.Counts.Trainable,
		"groups_exported", m.Counts.GroupsExported, "groups_dropped", m.Counts.GroupsDropped)
}

// execution is one execution of a plan.
type execution struct {
	*Exporter
	plan     *manifest.Plan
	hash     string
	manifest *manifest.Manifest
	// Sets.
	tokenizers, templates map[string]bool
}

// loaded is a group read from the log.
type loaded struct {
	rows      []*rows.Row
	beside    rows.Beside
	sessions  int
	leftOut   map[string]int64
	malformed int64
	// short is true when a session that counts gives no row.
	short bool
	err   error
}

// add writes the rows of the plan's groups, and what stands beside them and
// beside rows that were written before.
func (x *execution) add(ctx context.Context) error {
	part, aside := partWriter{execution: x}, newBeside(x)
	defer part.discard()
	defer aside.discard()
	next := x.load(ctx)
	for _, g := range x.plan.Groups {
		if g.Outcome == manifest.Exported {
			l := next()
			if l.err != nil {
				return l.err
			}
			l = x.judge(&g, l)
			if err := part.add(ctx, g.Run, l.rows); err != nil {
				return err
			}
			if err := aside.add(ctx, g.Run, l.beside); err != nil {
				return err
			}
			x.stats.update(func(s *Stats) { s.Plan.add(l) })
		}
		x.settle(g)
	}
	if err := part.finish(ctx); err != nil {
		return err
	}
	if err := x.late(ctx, aside); err != nil {
		return err
	}
	return aside.finish(ctx)
}

// load begins to read the groups that are exported; each call of next returns
// one, in order.
func (x *execution) load(ctx context.Context) (next func() loaded) {
	queue := make(chan chan loaded, ahead)
	go func() {
		for _, g := range x.plan.Groups {
			if g.Outcome != manifest.Exported {
				continue
			}
			result := make(chan loaded, 1)
			select {
			case queue <- result:
			case <-ctx.Done():
				return
			}
			go func() { result <- x.group(ctx, g) }()
		}
	}()
	return func() loaded {
		select {
		case result := <-queue:
			return <-result
		case <-ctx.Done():
			return loaded{err: ctx.Err()}
		}
	}
}

// group reads the rows of a group's sessions.
func (x *execution) group(ctx context.Context, g manifest.Group) (l loaded) {
	for _, s := range g.Sessions {
		if !s.Counts {
			continue
		}
		var res rows.Result
		session, err := x.readSession(ctx, s.Session, s.Through)
		if err == nil {
			res, err = session.Rows(policy(x.plan.Config))
		}
		if errors.Is(err, rows.ErrMalformed) {
			x.deps.Log.Error("session is not exported", "session", s.Session, "error", err)
			l.malformed++
		} else if err != nil {
			return loaded{err: err}
		}
		l.sessions++
		l.short = l.short || len(res.Rows) == 0
		l.rows = append(l.rows, res.Rows...)
		l.leftOut = manifest.Sum(l.leftOut, res.LeftOut)
		if len(res.Rows) > 0 {
			l.beside.Add(session.Beside(res.Rows))
		}
	}
	slices.SortFunc(l.rows, func(a, b *rows.Row) int {
		return cmp.Or(cmp.Compare(a.RolloutIndex, b.RolloutIndex), cmp.Compare(a.SessionID, b.SessionID),
			cmp.Compare(a.SegmentIndex, b.SegmentIndex))
	})
	return l
}

// whole reads a session to its end, wherever that is.
const whole = math.MaxUint64

// readSession reads a session up to a position. The error wraps
// rows.ErrMalformed, or journal.ErrGap when the log does not hold all of it.
func (e *Exporter) readSession(ctx context.Context, id string, through uint64) (*rows.Session, error) {
	s := rows.NewSession(id)
	var last uint64
	for entry, err := range e.deps.Journal.ReadSession(ctx, id, journal.Tip{}) {
		if err != nil {
			return nil, fmt.Errorf("exporter: read session %s: %w", id, err)
		}
		if entry.Tip.Position > through {
			break
		}
		last = entry.Tip.Position
		if err := s.Add(entry.Event, last); err != nil {
			return nil, err
		}
	}
	if last == 0 || through != whole && last != through {
		return nil, fmt.Errorf("exporter: read session %s: %w: it ends at %d, planned was %d", id, journal.ErrGap, last, through)
	}
	return s, nil
}

// judge drops a group of which a session is missing after all, unless partial
// groups are wanted, and counts.
func (x *execution) judge(g *manifest.Group, l loaded) loaded {
	c := &x.manifest.Counts
	c.SessionsMalformed += l.malformed
	if len(l.rows) == 0 || l.short && g.Size > 1 && x.plan.Config.Partial == PartialDrop {
		g.Outcome, g.Reason = manifest.Dropped, manifest.Filtered
		if l.malformed > 0 {
			g.Reason = manifest.Malformed
		}
		if len(l.rows) > 0 {
			l.leftOut = manifest.Sum(l.leftOut, map[string]int64{"group": int64(len(l.rows))})
		}
		l.rows, l.beside = nil, rows.Beside{}
	}
	c.RowsLeftOut = manifest.Sum(c.RowsLeftOut, l.leftOut)
	for _, r := range l.rows {
		c.Rows++
		c.Tokens += int64(r.Length)
		c.Trainable += int64(r.TrainableTokens)
		x.note(r)
	}
	members := 0
	for _, s := range g.Sessions {
		if s.Counts {
			members++
		}
	}
	if g.Outcome == manifest.Exported && (l.short || members < int(g.Size)) {
		c.GroupsPartial++
	}
	return l
}

// note remembers what a row was made with.
func (x *execution) note(r *rows.Row) {
	x.tokenizers[r.TokenizerSHA256], x.templates[r.TemplateSHA256] = true, true
}

func (x *execution) settle(g manifest.Group) {
	if g.Outcome == manifest.Exported {
		x.manifest.Counts.GroupsExported++
	} else {
		x.manifest.Counts.GroupsDropped++
		x.manifest.Counts.DroppedBy = manifest.Sum(x.manifest.Counts.DroppedBy, map[string]int64{string(g.Reason): 1})
	}
	x.manifest.Settled = append(x.manifest.Settled, g)
}

func (x *execution) finish() *manifest.Manifest {
	m := x.manifest
	m.Tokenizers, m.Templates = slices.Sorted(maps.Keys(x.tokenizers)), slices.Sorted(maps.Keys(x.templates))
	return m
}
