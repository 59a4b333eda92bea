package exporter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"turnlog.dev/exporter/manifest"
)

// planGroups bounds a plan, so that a backlog is committed piece by piece.
const planGroups = 4096

// plan decides what is ready now, at most so many groups, the longest ready
// first; nil when nothing is.
func (f *follower) plan(most int) *manifest.Plan {
	now := f.deps.Now().UTC().Truncate(time.Millisecond)
	plan := &manifest.Plan{Format: manifest.PlanFormat, ID: f.state.ID + 1, Op: manifest.Add, Time: now, Config: f.cfg.planned()}
	ready := make(map[*group]decision)
	for _, g := range f.tracker.groups {
		if d := g.decide(f.cfg, now); d.wait == "" {
			ready[g] = d
		}
	}
	settling := make(map[*group]bool)
	for _, g := range slices.SortedFunc(maps.Keys(ready), (*group).compare) {
		if len(settling) == most {
			break
		}
		settling[g] = true
		plan.Groups = append(plan.Groups, planned(g, ready[g]))
	}
	for _, r := range f.tracker.lates {
		plan.Late = append(plan.Late, *r)
	}
	if len(plan.Groups) == 0 && len(plan.Late) == 0 {
		return nil
	}
	slices.SortFunc(plan.Groups, func(a, b manifest.Group) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(groupID(a), groupID(b)), cmp.Compare(a.Group, b.Group))
	})
	slices.SortFunc(plan.Late, func(a, b manifest.Late) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Session, b.Session))
	})
	plan.Cursor = f.tracker.cursor(settling)
	plan.ConfigHash = plan.Config.Hash()
	return plan
}

// compare orders groups by when their first session was sealed.
func (g *group) compare(o *group) int {
	return cmp.Or(g.sealed.Compare(o.sealed), cmp.Compare(g.run, o.run), cmp.Compare(g.group, o.group), cmp.Compare(g.session, o.session))
}

func planned(g *group, d decision) manifest.Group {
	p := manifest.Group{Run: g.run, Group: g.group, Outcome: d.outcome, Reason: d.reason, Size: g.size}
	for _, s := range g.sessions {
		p.Sessions = append(p.Sessions, manifest.Session{
			Session: s.id, Partition: s.partition, Through: s.last, Counts: slices.Contains(d.members, s),
		})
	}
	slices.SortFunc(p.Sessions, func(a, b manifest.Session) int { return cmp.Compare(a.Session, b.Session) })
	return p
}

// groupID is what column group_id holds.
func groupID(g manifest.Group) string {
	if g.Group == "" {
		return g.Sessions[0].Session
	}
	return g.Group
}

// lastSeal is when the last session of the plan's groups was sealed.
func (t *tracker) lastSeal(plan *manifest.Plan) (last time.Time) {
	for _, g := range plan.Groups {
		for _, s := range g.Sessions {
			if known := t.sessions[s.Session]; known != nil && s.Counts && known.sealed.After(last) {
				last = known.sealed
			}
		}
	}
	return last
}
