package event_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/event"
)

// a is continued by b and d, b by c.
var parents = map[string]string{"a": "", "b": "a", "c": "b", "d": "a"}

func TestBothFormsOfABranchReadTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		old, leaf *event.BranchSealed
		want      event.Path
	}{
		"all of it trained": {
			&event.BranchSealed{Turns: []string{"a", "b", "c"}},
			&event.BranchSealed{Leaf: "c", TrainRuns: []uint32{0, 3}},
			event.Path{Turns: []string{"a", "b", "c"}, Trained: []bool{true, true, true}},
		},
		"the first shared": {
			&event.BranchSealed{Turns: []string{"a", "d"}, Shared: []string{"a"}},
			&event.BranchSealed{Leaf: "d", TrainRuns: []uint32{1, 1}},
			event.Path{Turns: []string{"a", "d"}, Trained: []bool{false, true}},
		},
		"the last shared": {
			&event.BranchSealed{Turns: []string{"a", "b", "c"}, Shared: []string{"c", "b"}},
			&event.BranchSealed{Leaf: "c", TrainRuns: []uint32{0, 1}},
			event.Path{Turns: []string{"a", "b", "c"}, Trained: []bool{true, false, false}},
		},
		"none of it trained": {
			&event.BranchSealed{Turns: []string{"a"}, Shared: []string{"a"}},
			&event.BranchSealed{Leaf: "a"},
			event.Path{Turns: []string{"a"}, Trained: []bool{false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, b := range []*event.BranchSealed{c.old, c.leaf} {
				got, err := b.Path(parents)
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				require.Equal(t, got.Turns[len(got.Turns)-1], b.End())
			}
			trained := make([]byte, len(c.want.Trained))
			for i, is := range c.want.Trained {
				if is {
					trained[i] = 1
				}
			}
			require.Equal(t, append([]uint32{}, c.leaf.TrainRuns...), append([]uint32{}, event.TrainRuns(trained)...))
		})
	}
}

func TestABranchThatIsNoPathIsMalformed(t *testing.T) {
	round := map[string]string{"a": "b", "b": "a"}
	for name, c := range map[string]struct {
		b       *event.BranchSealed
		parents map[string]string
	}{
		"no turn":                 {&event.BranchSealed{}, parents},
		"an unknown turn":         {&event.BranchSealed{Leaf: "z"}, parents},
		"an unknown parent":       {&event.BranchSealed{Leaf: "b"}, map[string]string{"b": "z"}},
		"a ring":                  {&event.BranchSealed{Leaf: "b"}, round},
		"runs of more than it":    {&event.BranchSealed{Leaf: "b", TrainRuns: []uint32{1, 2}}, parents},
		"runs that wrap around":   {&event.BranchSealed{Leaf: "b", TrainRuns: []uint32{1 << 31, 1 << 31}}, parents},
		"a hole, of old":          {&event.BranchSealed{Turns: []string{"a", "c"}}, parents},
		"no root, of old":         {&event.BranchSealed{Turns: []string{"b", "c"}}, parents},
		"a leaf and a list":       {&event.BranchSealed{Leaf: "b", Turns: []string{"a", "b"}}, parents},
		"runs and what is shared": {&event.BranchSealed{Leaf: "b", TrainRuns: []uint32{1, 1}, Shared: []string{"a"}}, parents},
		"a list and runs":         {&event.BranchSealed{Turns: []string{"a", "b"}, TrainRuns: []uint32{1, 1}}, parents},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.b.Path(c.parents)
			require.ErrorIs(t, err, event.ErrMalformed)
		})
	}
}
