package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/schema/journal"
)

// rewards writes the plan's late rewards, one file a run.
func (x *execution) rewards(ctx context.Context) error {
	number := 0
	for len(x.plan.Rewards) > number {
		run := x.plan.Rewards[number].Run
		var list []*rows.RewardRow
		for ; number < len(x.plan.Rewards) && x.plan.Rewards[number].Run == run; number++ {
			more, err := x.late(ctx, x.plan.Rewards[number])
			if err != nil {
				return err
			}
			list = append(list, more...)
		}
		if err := x.publishRewards(ctx, run, number, list); err != nil {
			return err
		}
	}
	return nil
}

// late reads the rewards of one session. A session that was trimmed from the
// log, or gives no rows, has none.
func (x *execution) late(ctx context.Context, r manifest.LateReward) ([]*rows.RewardRow, error) {
	session, err := x.readSession(ctx, r.Session, r.Through)
	var list []*rows.RewardRow
	if err == nil {
		list, err = session.LateRewards(policy(x.plan.Config), r.After, r.Through)
	}
	if errors.Is(err, rows.ErrMalformed) || errors.Is(err, journal.ErrGap) {
		x.deps.Log.Warn("late reward is not exported", "session", r.Session, "error", err)
		return nil, nil
	}
	return list, err
}

func (x *execution) publishRewards(ctx context.Context, run string, number int, list []*rows.RewardRow) error {
	if len(list) == 0 {
		return nil
	}
	s, err := stage[rows.RewardRow](x.cfg.Temp, x.plan.Config.Compression)
	if err != nil {
		return err
	}
	defer s.discard()
	if err := s.writer.Write(list); err != nil {
		return err
	}
	file := manifest.File{Profile: manifest.Rewards, Run: run, Path: fmt.Sprintf("%s/run=%s/dt=%s/rewards-%012d-%03d-%s.parquet",
		RewardsFolder, url.PathEscape(run), x.plan.Time.Format(time.DateOnly), x.plan.ID, number, x.hash[:8])}
	if err := publish(ctx, x.Exporter, s, &file, x.metadata(rows.RewardsSchema, manifest.Rewards)); err != nil {
		return err
	}
	x.manifest.Files = append(x.manifest.Files, file)
	x.manifest.Counts.LateRewards += int64(len(list))
	return nil
}
