package rows

import "math"

// Amendments are what came after rows were written, by row.
type Amendments struct {
	rewards     map[about]*RewardRow
	annotations map[about]*AnnotationRow
}

// about is what an amendment is about: name is of an annotation.
type about struct {
	row  string
	turn int32
	name string
}

// NewAmendments returns none.
func NewAmendments() *Amendments {
	return &Amendments{make(map[about]*RewardRow), make(map[about]*AnnotationRow)}
}

// Reward adds a reward; they come in the order of their files.
func (a *Amendments) Reward(r *RewardRow) {
	key := about{row: r.RowID, turn: r.TurnIndex}
	if old := a.rewards[key]; old == nil || r.Revision >= old.Revision {
		a.rewards[key] = r
	}
}

// Annotation adds an annotation; they come in the order of their files.
func (a *Amendments) Annotation(r *AnnotationRow) {
	key := about{r.RowID, r.TurnIndex, r.Name}
	if old := a.annotations[key]; old == nil || r.Revision >= old.Revision {
		a.annotations[key] = r
	}
}

// Apply changes a row's rewards, advantage and remove_sample to what counts now.
func (a *Amendments) Apply(r *Row) {
	if late := a.rewards[about{row: r.RowID, turn: -1}]; late != nil {
		r.Reward, r.RewardsJSON = &late.Reward, late.RewardsJSON
	}
	for i := range r.TurnStart {
		late := a.rewards[about{row: r.RowID, turn: int32(i)}]
		if late == nil {
			continue
		}
		if r.TurnReward == nil {
			for range r.TurnStart {
				r.TurnReward = append(r.TurnReward, float32(math.NaN()))
			}
		}
		r.TurnReward[i] = late.Reward
	}
	if late := a.annotations[about{r.RowID, -1, advantage}]; late != nil {
		r.Advantage = number([]byte(late.ValueJSON))
	}
	if late := a.annotations[about{r.RowID, -1, removeSample}]; late != nil {
		r.RemoveSample = r.Status == "aborted" || late.ValueJSON == "true"
	}
}
