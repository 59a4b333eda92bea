package event

import (
	"fmt"
	"slices"
)

// Path is the turns of a sealed branch, root first.
type Path struct {
	Turns []string
	// Trained says which of them the branch trains, as far as their masks allow
	// it. The others are context on it.
	Trained []bool
}

// End is the turn in which a branch ends, whichever form it is written in.
func (b *BranchSealed) End() string {
	if n := len(b.GetTurns()); n > 0 && b.GetLeaf() == "" {
		return b.GetTurns()[n-1]
	}
	return b.GetLeaf()
}

// Path puts a branch together, whichever form it is written in. parents has the
// parent of each turn of the session, as its TurnSpans names it: "" for a root.
// The error wraps ErrMalformed.
func (b *BranchSealed) Path(parents map[string]string) (Path, error) {
	var p Path
	for id := b.End(); id != "" || len(p.Turns) == 0; {
		parent, known := parents[id]
		if !known {
			return Path{}, fmt.Errorf("%w: branch %s: turn %q is missing", ErrMalformed, b.GetBranch(), id)
		}
		if len(p.Turns) == len(parents) {
			return Path{}, fmt.Errorf("%w: branch %s: turn %s is its own ancestor", ErrMalformed, b.GetBranch(), id)
		}
		p.Turns = append(p.Turns, id)
		id = parent
	}
	slices.Reverse(p.Turns)
	if b.GetLeaf() == "" {
		return p, p.old(b)
	}
	if len(b.GetTurns())+len(b.GetShared()) > 0 {
		return Path{}, fmt.Errorf("%w: branch %s is written in two forms", ErrMalformed, b.GetBranch())
	}
	p.Trained = make([]bool, len(p.Turns))
	rest := p.Trained
	for i, run := range b.GetTrainRuns() {
		if uint64(run) > uint64(len(rest)) {
			return Path{}, fmt.Errorf("%w: branch %s: runs of more than its %d turns", ErrMalformed, b.GetBranch(), len(p.Turns))
		}
		fill(rest[:run], i%2 == 1)
		rest = rest[run:]
	}
	return p, nil
}

// old compares the path with the one that the older form lists, and takes over
// what it shares.
func (p *Path) old(b *BranchSealed) error {
	if len(b.GetTrainRuns()) > 0 {
		return fmt.Errorf("%w: branch %s is written in two forms", ErrMalformed, b.GetBranch())
	}
	if !slices.Equal(p.Turns, b.GetTurns()) {
		return fmt.Errorf("%w: branch %s is no path", ErrMalformed, b.GetBranch())
	}
	shared := make(map[string]bool, len(b.GetShared()))
	for _, id := range b.GetShared() {
		shared[id] = true
	}
	p.Trained = make([]bool, len(p.Turns))
	for i, id := range p.Turns {
		p.Trained[i] = !shared[id]
	}
	return nil
}

// TrainRuns returns which turns of a path a branch trains, a byte each and 1 for
// those, as BranchSealed.train_runs.
func TrainRuns(trained []byte) []uint32 {
	runs := MaskRuns(trained)
	return runs[:len(runs)&^1]
}
