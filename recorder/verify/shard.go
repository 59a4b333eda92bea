package verify

import (
	"context"
	"fmt"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Row is a row of a shard, as far as the log says what it must be.
type Row struct {
	// Name is what a finding calls it.
	Name, Branch, Grade string

	IDs  []int32
	Mask []int8
	// Nil where the shard has none.
	Logprobs []float32
	Versions []int32
	Reward   *float32
}

// Rows compares the rows of one session, in the shards, with its trajectory:
// each is the beginning of a segment, with its logprobs, versions and grade;
// what it trains may be trained, and is trained by no other row; and of its
// segment nothing is left out that should be. What is left out by whole rows is
// the exporter's policy. A session whose log was parked after its rows were
// written cannot be compared, whether it was released since or not.
func Rows(ctx context.Context, turns, trajectories journal.Journal, id string, rows []Row) ([]Finding, error) {
	c := comparison{branches: map[string][]Segment{}, trained: map[place]string{}}
	named := func(branch string) bool {
		return slices.ContainsFunc(rows, func(r Row) bool { return r.Branch == branch })
	}
	c.session = session{id: id, report: new(Report), options: Options{Behind: true, Branch: named, Segment: func(g Segment) error {
		c.branches[g.Branch] = append(c.branches[g.Branch], g)
		return nil
	}}}
	if err := c.session.verify(ctx, turns, trajectories); err != nil {
		return nil, fmt.Errorf("verify: session %s: %w", id, err)
	}
	if c.session.parked || c.session.earlier {
		return nil, nil
	}
	c.session.report.Findings = nil // of the streams, which are not asked for here
	matched := make([]*Segment, len(rows))
	for i, r := range rows {
		matched[i] = c.row(r)
	}
	for i, r := range rows {
		if g := matched[i]; g != nil {
			c.complete(r, g)
		}
	}
	return c.session.report.Findings, nil
}

// place is one id of the session: a place of the sequence that its turn ends.
type place struct {
	turn string
	at   int
}

func (g *Segment) place(at int) place { return place{g.Turns[g.From[at]], at} }

type comparison struct {
	session  session
	branches map[string][]Segment
	// trained says by which row.
	trained map[place]string
}

// row finds the segment that a row is the beginning of, and compares them.
func (c *comparison) row(r Row) *Segment {
	var found *Segment
	fault := "is of a branch that the session does not have"
	list := c.branches[r.Branch]
	for i := range list {
		if why := list[i].differs(r); why == "" {
			found = &list[i]
			break
		} else if fault = why; len(list) > 1 {
			fault += ", or is no segment of its branch"
		}
	}
	if found == nil {
		c.session.find(Exported, "row %s %s", r.Name, fault)
		return nil
	}
	if r.Reward != nil && !c.rewarded(*r.Reward) {
		c.session.find(Exported, "row %s has reward %g, which nobody assigned", r.Name, *r.Reward)
	}
	for i, m := range r.Mask {
		if m == 0 {
			continue
		}
		at := found.place(i)
		if other, twice := c.trained[at]; twice {
			c.session.find(Exported, "row %s trains id %d of turn %s, as row %s does", r.Name, at.at, at.turn, other)
			break
		}
		c.trained[at] = r.Name
	}
	return found
}

// differs says why a row is not the beginning of the segment, or nothing.
func (g *Segment) differs(r Row) string {
	n := len(r.IDs)
	same := func(id int32, want uint32) bool { return uint32(id) == want }
	allowed := func(is, may int8) bool { return is == 0 || is == 1 && may == 1 }
	switch {
	case n > len(g.IDs) || !slices.EqualFunc(r.IDs, g.IDs[:n], same):
		return "has other ids than its branch"
	case len(r.Mask) != n || !slices.EqualFunc(r.Mask, g.Mask[:n], allowed):
		return "trains what is not to be trained"
	case r.Logprobs == nil && g.Bare >= n && slices.ContainsFunc(g.Logprobs[:n], func(f float32) bool { return f != 0 }):
		return "has no logprobs, and its turns have"
	case r.Logprobs != nil && (g.Bare < n || !slices.Equal(r.Logprobs, g.Logprobs[:n])):
		return "has other logprobs than its turns"
	case r.Versions == nil && slices.ContainsFunc(g.Versions[:n], func(v int32) bool { return v != event.NoVersion }):
		return "has no weight versions, and its turns have"
	case r.Versions != nil && !slices.Equal(r.Versions, g.Versions[:n]):
		return "has other weight versions than its turns"
	case "GRADE_"+r.Grade != g.Grade.String():
		return "has grade " + r.Grade + ", its branch " + g.Grade.String()
	}
	return ""
}

func (c *comparison) rewarded(reward float32) bool {
	return slices.ContainsFunc(c.session.events, func(e journal.Entry) bool {
		a := e.Event.GetRewardAssigned()
		return a != nil && a.GetTurn() == "" && float32(a.GetReward()) == reward
	})
}

// complete finds ids of a row's segment that should be trained and are by no
// row.
func (c *comparison) complete(r Row, g *Segment) {
	for i, m := range g.Mask {
		if m == 0 {
			continue
		}
		if at := g.place(i); c.trained[at] == "" {
			c.session.find(Exported, "row %s leaves out id %d of turn %s, which is to be trained", r.Name, at.at, at.turn)
			return
		}
	}
}
