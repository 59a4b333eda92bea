package main

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/schema/event"
)

// shardReport is what the shards were found to hold.
type shardReport struct {
	files, sessions, rows, beside int
	findings                      []verify.Finding
}

// rowOf is what a row says of itself, for what stands beside it.
type rowOf struct {
	session, run, group, branch string
	turns                       []int64
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
	written := map[string]rowOf{}
	for _, f := range state.Files {
		if f.Profile != manifest.Traj {
			continue
		}
		report.files++
		for group, err := range exporter.RowGroups(ctx, s, f) {
			if err != nil {
				return report, err
			}
			for _, r := range group {
				written[r.RowID] = rowOf{r.SessionID, r.RunID, r.GroupID, r.BranchID, r.TurnSeq}
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
	for _, f := range state.Files {
		for group, err := range exporter.BesideRows(ctx, s, f) {
			if err != nil {
				return report, err
			}
			notes := map[string][]verify.Note{}
			for _, b := range besides(group) {
				r, found := written[b.row]
				turn, place := b.place(r)
				switch {
				case !found || r.session != b.session || r.run != b.run || r.group != b.group || !place:
					if all || known[b.session] {
						report.findings = append(report.findings, verify.Finding{
							Session: b.session, Promise: verify.Exported, Detail: f.Path + " has something about row " + b.row + ", which is no such row",
						})
					}
				case known[r.session]:
					b.note.Row, b.note.Branch, b.note.Turn = b.row, r.branch, turn
					notes[r.session] = append(notes[r.session], b.note)
				}
			}
			for _, id := range slices.Sorted(maps.Keys(notes)) {
				report.beside += len(notes[id])
				found, err := verify.Beside(ctx, l.Turns, id, notes[id])
				if err != nil {
					return report, err
				}
				report.findings = append(report.findings, found...)
			}
		}
	}
	return report, nil
}

// aside is a row of an aux file.
type aside struct {
	row, session, run, group string
	turn                     int32
	note                     verify.Note
}

// place is where the turn that it is about stands in the turn stream, 0 for the row
// as a whole; false if the row has no such turn.
func (a aside) place(r rowOf) (uint64, bool) {
	if a.turn == -1 && a.note.Blob == nil {
		return 0, true
	}
	if a.turn < 0 || int(a.turn) >= len(r.turns) {
		return 0, false
	}
	return uint64(r.turns[a.turn]), true
}

// besides lists a row group of an aux file.
func besides(group rows.Beside) (list []aside) {
	for _, r := range group.Rewards {
		list = append(list, aside{r.RowID, r.SessionID, r.RunID, r.GroupID, r.TurnIndex, verify.Note{
			At:     r.AssignedAt,
			Reward: &event.RewardAssigned{Reward: float64(r.Reward), Components: []byte(r.RewardsJSON), Revision: r.Revision, Source: r.Source},
		}})
	}
	for _, r := range group.Annotations {
		list = append(list, aside{r.RowID, r.SessionID, r.RunID, r.GroupID, r.TurnIndex, verify.Note{
			At:         r.AnnotatedAt,
			Annotation: &event.Annotated{Name: r.Name, Value: []byte(r.ValueJSON), Revision: r.Revision, Source: r.Source},
		}})
	}
	for _, r := range group.Blobs {
		sum, _ := hex.DecodeString(r.SHA256) // what is no hash is no array's
		list = append(list, aside{r.RowID, r.SessionID, r.RunID, r.GroupID, r.TurnIndex, verify.Note{
			Blob: &event.Blob{
				Kind: r.Kind, Sha256: sum, Size: r.Bytes, Codec: r.Codec, Uri: r.URI,
				Dtype: r.DType, Shape: r.Shape, Start: int64(r.TokenStart),
			},
		}})
	}
	return list
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
