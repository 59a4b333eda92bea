package profile

import (
	"slices"

	"turnlog.dev/exporter/rows"
	"turnlog.dev/schema/rawjson"
)

// promptRow is one group's task, in the columns that verl, slime, miles and
// SkyRL name.
type promptRow struct {
	DataSource  string          `col:"data_source"`
	Prompt      []promptMessage `col:"prompt"`
	RewardModel rewardModel     `col:"reward_model"`
	ExtraInfo   extraInfo       `col:"extra_info"`
	Label       string          `col:"label,null"`
	Metadata    string          `col:"metadata,null"`
	Tools       string          `col:"tools,null"`
	EnvClass    string          `col:"env_class,null"`
}

type promptMessage struct {
	Role    string `col:"role"`
	Content string `col:"content"`
}

type rewardModel struct {
	Style       string `col:"style"`
	GroundTruth string `col:"ground_truth"`
}

type extraInfo struct {
	Index   int64  `col:"index"`
	Split   string `col:"split"`
	GroupID string `col:"group_id"`
}

// prompter numbers the rows of a folder.
type prompter struct{ index int64 }

// prompts gives a row a group: what its first session's main branch was asked
// before the model first spoke. The session's metadata may say label or
// ground_truth, and env_class.
func (p *prompter) prompts(group []*rows.Row) (list []sized[promptRow], skipped int64) {
	for len(group) > 0 {
		n := slices.IndexFunc(group, func(r *rows.Row) bool { return r.GroupID != group[0].GroupID })
		if n < 0 {
			n = len(group)
		}
		if row := prompt(group[:n]); row != nil {
			row.ExtraInfo.Index = p.index
			p.index++
			list = append(list, sized[promptRow]{row, 1})
		} else {
			skipped++
		}
		group = group[n:]
	}
	return list, skipped
}

func prompt(group []*rows.Row) *promptRow {
	r := group[max(0, slices.IndexFunc(group, func(r *rows.Row) bool { return r.BranchLabel == "main" }))]
	row := &promptRow{
		DataSource: r.DataSource, Metadata: r.MetadataJSON, Tools: r.ToolsJSON,
		ExtraInfo: extraInfo{Split: r.Split, GroupID: r.GroupID},
	}
	if row.DataSource == "" {
		row.DataSource = r.RunID
	}
	for _, m := range conversation(r.MessagesJSON) {
		if m.Role == "assistant" {
			break
		}
		row.Prompt = append(row.Prompt, promptMessage{m.Role, m.Content})
	}
	if len(row.Prompt) == 0 {
		return nil
	}
	metadata := []byte(r.MetadataJSON)
	row.Label = text(metadata, "label", "ground_truth")
	row.EnvClass = text(metadata, "env_class")
	row.RewardModel = rewardModel{Style: "rule", GroundTruth: text(metadata, "ground_truth", "label")}
	return row
}

// text returns the first of an object's values that is there: strings as they
// are, others as JSON.
func text(object []byte, keys ...string) string {
	if rawjson.KindOf(object) != rawjson.Object || rawjson.Valid(object) != nil {
		return ""
	}
	for _, key := range keys {
		switch raw, ok := rawjson.Get(object, key); {
		case !ok:
			continue
		case rawjson.KindOf(raw) == rawjson.String:
			return rawjson.Text(raw)
		default:
			return string(raw)
		}
	}
	return ""
}
