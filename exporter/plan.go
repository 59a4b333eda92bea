package exporter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"turnlog.dev/exporter/manifest"
)

// plan decides what is ready now; nil when nothing is.
func (f *follower) plan() *manifest.Plan {
	now := f.deps.Now().UTC().Truncate(time.Millisecond)
	plan := &manifest.Plan{ID: f.state.ID + 1, Op: manifest.Add, Time: now, Config: f.cfg.planned()}
	settling := make(map[*group]bool)
	for _, g := range f.tracker.groups {
		outcome, reason, members, ok := g.decide(f.cfg, now)
		if !ok {
			continue
		}
		settling[g] = true
		plan.Groups = append(plan.Groups, planned(g, outcome, reason, members))
	}
	for _, r := range f.tracker.rewards {
		plan.Rewards = append(plan.Rewards, *r)
	}
	if len(plan.Groups) == 0 && len(plan.Rewards) == 0 {
		return nil
	}
	slices.SortFunc(plan.Groups, func(a, b manifest.Group) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(groupID(a), groupID(b)), cmp.Compare(a.Group, b.Group))
	})
	slices.SortFunc(plan.Rewards, func(a, b manifest.LateReward) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Session, b.Session))
	})
	plan.Cursor = f.tracker.cursor(settling)
	plan.ConfigHash = plan.Config.Hash()
	return plan
}

func planned(g *group, outcome manifest.Outcome, reason manifest.Reason, members []*session) manifest.Group {
	p := manifest.Group{Run: g.run, Group: g.group, Outcome: outcome, Reason: reason, Size: g.size}
	for _, s := range g.sessions {
		p.Sessions = append(p.Sessions, manifest.Session{
			Session: s.id, Partition: s.partition, Through: s.last, Counts: slices.Contains(members, s),
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

// add sums what is left out.
func add(sum, more map[string]int64) map[string]int64 {
	if len(more) > 0 && sum == nil {
		sum = maps.Clone(more)
		return sum
	}
	for reason, n := range more {
		sum[reason] += n
	}
	return sum
}
