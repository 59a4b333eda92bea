package sessiontest

import (
	"maps"

	"turnlog.dev/schema/event"
)

// Old rewrites the updates of one session, in order, as recorders wrote them
// before runs.
type Old struct {
	parents, excluded map[string]string
	trainable         map[string]bool
}

// NewOld has seen nothing of its session.
func NewOld() *Old {
	return &Old{parents: map[string]string{}, excluded: map[string]string{}, trainable: map[string]bool{}}
}

// Rewrite changes an update in place.
func (r *Old) Rewrite(u *event.TrajectoryUpdate) {
	for _, o := range u.GetOutputs() {
		if t := o.GetTurnSpans(); t != nil {
			r.parents[t.GetTurn()], r.trainable[t.GetTurn()] = t.GetParent(), len(t.GetMaskRuns()) > 1
			InOldForm(t)
		}
		if b := o.GetBranchSealed(); b != nil {
			r.branch(b)
		}
	}
}

// branch lists the whole path, what is context on it, and why.
func (r *Old) branch(b *event.BranchSealed) {
	path, err := b.Path(r.parents)
	if err != nil {
		panic(err)
	}
	maps.Copy(r.excluded, b.GetExcluded())
	b.Leaf, b.TrainRuns, b.Excluded, b.Turns = "", nil, nil, path.Turns
	for i, turn := range path.Turns {
		if path.Trained[i] || !r.trainable[turn] {
			continue
		}
		b.Shared = append(b.Shared, turn)
		if why := r.excluded[turn]; why != "" {
			if b.Excluded == nil {
				b.Excluded = map[string]string{}
			}
			b.Excluded[turn] = why
		}
	}
}

// InOldForm rewrites a turn's spans as recorders wrote them before runs: with an
// element of mask, logprobs and versions for each id.
func InOldForm(t *event.TurnSpans) *event.TurnSpans {
	k, err := t.Tokens()
	if err != nil {
		panic(err)
	}
	for _, m := range k.AppendMask(nil) {
		t.Mask = append(t.Mask, byte(m))
	}
	if k.HasLogprobs() {
		t.Logprobs = event.AppendFloats(nil, k.AppendLogprobs(nil))
	}
	t.Versions = event.AppendInts(nil, k.AppendVersions(nil))
	t.Ids = event.AppendIDs(nil, k.AppendIDs(nil))
	t.IdVarints, t.MaskRuns, t.SampledLogprobs, t.VersionRuns = nil, nil, nil, nil
	return t
}
