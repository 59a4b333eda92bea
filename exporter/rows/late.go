package rows

import (
	"slices"
	"time"
)

// RewardsSchema names the columns of RewardRow.
const RewardsSchema = "turnlog.rewards.v1"

// RewardRow is a reward that came after its rows were exported. Of several for
// one row and turn the highest revision counts, and of equal ones the latest.
type RewardRow struct {
	// RowID is the row in the shards.
	RowID     string `col:"row_id"`
	RunID     string `col:"run_id"`
	SessionID string `col:"session_id"`
	GroupID   string `col:"group_id"`
	// TurnIndex is the place of a turn's reward in the row's turn table; -1 is
	// a reward of the session.
	TurnIndex   int32     `col:"turn_index"`
	Reward      float32   `col:"reward"`
	RewardsJSON string    `col:"rewards_json,null"`
	Revision    int64     `col:"revision"`
	Source      string    `col:"source,null"`
	AssignedAt  time.Time `col:"assigned_at,null"`
}

// LateRewards returns a row per reward that updates after one position and up
// to another brought, and row of the session that it is about.
func (s *Session) LateRewards(p Policy, after, through uint64) ([]*RewardRow, error) {
	res, err := s.Rows(p)
	if err != nil {
		return nil, err
	}
	var list []*RewardRow
	for _, reward := range s.rewards {
		if reward.position <= after || reward.position > through {
			continue
		}
		for _, row := range res.Rows {
			index := -1
			if reward.Turn != "" {
				if index = s.turnIndex(row, reward.Turn); index < 0 {
					continue
				}
			}
			late := &RewardRow{
				RowID: row.RowID, RunID: row.RunID, SessionID: row.SessionID, GroupID: row.GroupID,
				TurnIndex: int32(index), Reward: float32(reward.Reward), RewardsJSON: string(reward.Components),
				Revision: reward.Revision, Source: reward.Source,
			}
			if reward.timeUS > 0 {
				late.AssignedAt = time.UnixMicro(reward.timeUS).UTC()
			}
			list = append(list, late)
		}
	}
	return list, nil
}

// turnIndex finds a turn in a row's turn table by its place in the turn stream.
func (s *Session) turnIndex(row *Row, name string) int {
	t := s.turns[name]
	if t == nil {
		return -1
	}
	return slices.Index(row.TurnSeq, int64(t.sequence))
}
