package manifest

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// State is what the manifests up to ID come to.
type State struct {
	ID int64 `json:"id"`
	// Files in the order in which they were added.
	Files  []File `json:"files"`
	Cursor Cursor `json:"cursor"`
	// Settled groups that a follower can still meet: those with an event above
	// the cursor, and those settled since Horizon.
	Settled []SettledGroup `json:"settled"`
	// Totals sums the counts of all manifests.
	Totals Counts `json:"totals"`
}

// SettledGroup is a Group and when it was settled.
type SettledGroup struct {
	Group
	Time time.Time `json:"time"`
}

// Remember is how long a settled group is known after all its events lie below
// the cursor. A session that opens later under the group's name forms a group
// of its own.
const Remember = time.Hour

// Apply adds the next manifest to the state. The error wraps ErrGap or
// ErrMalformed; the state is then as before.
func (s *State) Apply(m *Manifest) error {
	if m.ID != s.ID+1 || m.Parent != s.ID {
		return fmt.Errorf("%w: manifest %d with parent %d after %d", ErrGap, m.ID, m.Parent, s.ID)
	}
	files := slices.Clone(s.Files)
	for _, path := range m.Removed {
		i := slices.IndexFunc(files, func(f File) bool { return f.Path == path })
		if i < 0 {
			return fmt.Errorf("%w: manifest %d removes %q, which is not there", ErrMalformed, m.ID, path)
		}
		files = slices.Delete(files, i, i+1)
	}
	s.ID, s.Files = m.ID, append(files, m.Files...)
	if len(m.Cursor) > 0 {
		s.Cursor = m.Cursor
	}
	for _, g := range m.Settled {
		s.Settled = append(s.Settled, SettledGroup{g, m.Time})
	}
	s.applyLate(m.Late)
	s.forget(m.Time.Add(-Remember))
	s.Totals.Add(m.Counts)
	return nil
}

// applyLate moves sessions forward of which something late was exported. A
// session that is known no longer comes back as a group without a name.
func (s *State) applyLate(late []Late) {
	if len(late) == 0 {
		return
	}
	at := make(map[string]*Session)
	for i := range s.Settled {
		for j := range s.Settled[i].Sessions {
			session := &s.Settled[i].Sessions[j]
			at[session.Session] = session
		}
	}
	for _, r := range late {
		if session := at[r.Session]; session != nil {
			session.Through = max(session.Through, r.Through)
			continue
		}
		s.Settled = append(s.Settled, SettledGroup{Group: Group{
			Run: r.Run, Outcome: Exported,
			Sessions: []Session{{Session: r.Session, Partition: r.Partition, Through: r.Through, Counts: true}},
		}})
	}
}

func (s *State) forget(before time.Time) {
	after := s.Cursor.positions()
	s.Settled = slices.DeleteFunc(s.Settled, func(g SettledGroup) bool {
		above := slices.ContainsFunc(g.Sessions, func(x Session) bool { return x.Through > after[x.Partition] })
		return !above && g.Time.Before(before)
	})
}

func (c Cursor) positions() map[int]uint64 {
	after := make(map[int]uint64, len(c))
	for _, p := range c {
		after[p.Partition] = p.After
	}
	return after
}

// Add sums two counts.
func (c *Counts) Add(o Counts) {
	c.GroupsExported += o.GroupsExported
	c.GroupsPartial += o.GroupsPartial
	c.GroupsDropped += o.GroupsDropped
	c.Rows += o.Rows
	c.Tokens += o.Tokens
	c.Trainable += o.Trainable
	c.SessionsMalformed += o.SessionsMalformed
	c.LateRewards += o.LateRewards
	c.Annotations += o.Annotations
	c.Blobs += o.Blobs
	c.RowsLeftOut = Sum(c.RowsLeftOut, o.RowsLeftOut)
	c.DroppedBy = Sum(c.DroppedBy, o.DroppedBy)
}

// Sum adds counts by reason. It changes neither.
func Sum(a, b map[string]int64) map[string]int64 {
	if len(b) == 0 {
		return a
	}
	both := maps.Clone(a)
	if both == nil {
		both = make(map[string]int64)
	}
	for reason, n := range b {
		both[reason] += n
	}
	return both
}
