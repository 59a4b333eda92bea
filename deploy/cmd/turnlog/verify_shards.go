package main

import (
	"context"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/recorder/verify"
)

// shardReport is what the shards were found to hold.
type shardReport struct {
	files, sessions, rows int
	findings              []verify.Finding
}

// verifyShards compares the rows of the given sessions with their trajectories.
// Where these are all that the log holds, rows of others are a finding.
func verifyShards(ctx context.Context, cfg config.Config, l stack.Logs, sessions []string, all bool) (shardReport, error) {
	var report shardReport
	s, err := stack.OpenShards(cfg)
	if err != nil {
		return report, err
	}
	state, err := exporter.Manifests(s).Load(ctx)
	if err != nil {
		return report, err
	}
	known := map[string]bool{}
	for _, id := range sessions {
		known[id] = true
	}
	for _, f := range state.Files {
		if f.Profile != manifest.Traj {
			continue
		}
		report.files++
		for group, err := range exporter.RowGroups(ctx, s, f) {
			if err != nil {
				return report, err
			}
			order, of := bySession(group)
			for _, id := range order {
				if !known[id] {
					if all {
						report.findings = append(report.findings, verify.Finding{
							Session: id, Promise: verify.Exported, Detail: f.Path + " has rows of it, and the log does not hold it",
						})
					}
					continue
				}
				report.sessions++
				report.rows += len(of[id])
				found, err := verify.Rows(ctx, l.Turns, l.Trajectories, id, of[id])
				if err != nil {
					return report, err
				}
				report.findings = append(report.findings, found...)
			}
		}
	}
	return report, nil
}

// bySession sorts rows by their sessions, and names these in order. A session's
// rows stand in one row group.
func bySession(group []*rows.Row) (order []string, of map[string][]verify.Row) {
	of = map[string][]verify.Row{}
	for _, r := range group {
		if of[r.SessionID] == nil {
			order = append(order, r.SessionID)
		}
		of[r.SessionID] = append(of[r.SessionID], verify.Row{
			Name: r.RowID, Branch: r.BranchID, Grade: r.Grade,
			IDs: r.InputIDs, Mask: r.LossMask, Logprobs: r.Logprobs, Versions: r.Versions, Reward: r.Reward,
		})
	}
	return order, of
}
