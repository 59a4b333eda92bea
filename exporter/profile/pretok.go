package profile

import (
	"slices"

	"turnlog.dev/exporter/rows"
)

// pretokRow is exactly what the loaders look for, by name.
type pretokRow struct {
	InputIDs      []int32 `col:"input_ids"`
	AttentionMask []int8  `col:"attention_mask"`
	Labels        []int32 `col:"labels"`
	LossMask      []int8  `col:"loss_mask"`
}

// ignored is the label of a token that is not trained.
const ignored = -100

func pretok(group []*rows.Row) (list []sized[pretokRow], skipped int64) {
	for _, r := range group {
		row := &pretokRow{
			InputIDs: r.InputIDs, LossMask: r.LossMask,
			AttentionMask: slices.Repeat([]int8{1}, len(r.InputIDs)),
			Labels:        slices.Clone(r.InputIDs),
		}
		for i, m := range r.LossMask {
			if m == 0 {
				row.Labels[i] = ignored
			}
		}
		list = append(list, sized[pretokRow]{row, int64(r.Length)})
	}
	return list, 0
}
