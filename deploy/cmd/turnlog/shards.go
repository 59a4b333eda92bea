package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/profile"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// shardsCommand looks at what was exported.
func shardsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "shards", Short: "Look at shards, check them, and write them in a trainer's form"}
	cmd.AddCommand(listShards(), showRow(), checkShards(), materialize())
	return cmd
}

// withShards runs do with the shards of the configuration.
func withShards(cmd *cobra.Command, do func(ctx context.Context, s sink.Sink, out io.Writer) error) *cobra.Command {
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		s, err := stack.OpenShards(cfg)
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, cmd.OutOrStdout())
	})
}

func listShards() *cobra.Command {
	return withShards(&cobra.Command{Use: "list", Short: "List the shards that the manifests name"}, func(ctx context.Context, s sink.Sink, out io.Writer) error {
		state, err := exporter.Manifests(s).Load(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "PATH\tROWS\tTOKENS\tTRAINABLE\tBYTES")
		for _, f := range state.Files {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", f.Path, f.Rows, f.Tokens, f.Trainable, f.Bytes)
		}
		fmt.Fprintf(w, "manifest %d\t%d\t%d\t%d\t\n", state.ID, state.Totals.Rows, state.Totals.Tokens, state.Totals.Trainable)
		return w.Flush()
	})
}

func checkShards() *cobra.Command {
	cmd := &cobra.Command{Use: "check", Short: "Read every shard and compare it with its manifest"}
	id := cmd.Flags().Int64("manifest", 0, "as of this manifest; 0 is the last")
	return withShards(cmd, func(ctx context.Context, s sink.Sink, out io.Writer) error {
		report, err := exporter.Check(ctx, s, *id, nil)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%+v\n", report)
		return err
	})
}

func materialize() *cobra.Command {
	cmd := &cobra.Command{Use: "materialize", Short: "Write the rows as files that a loader takes as they are"}
	name := cmd.Flags().String("profile", "pretok", "form: pretok, chat or prompts")
	dir := cmd.Flags().String("out", "", "folder to write")
	run := cmd.Flags().String("run", "", "rows of this run; empty is all")
	files := cmd.Flags().Int("files", 0, "number of files, a multiple of the ranks that read them; 0 is one a shard")
	id := cmd.Flags().Int64("manifest", 0, "as of this manifest; 0 is the last")
	return withShards(cmd, func(ctx context.Context, s sink.Sink, out io.Writer) error {
		if *dir == "" {
			return errors.New("--out: a folder to write is needed")
		}
		result, err := profile.Materialize(ctx, s, *dir, profile.Options{
			Profile: profile.Name(*name), Manifest: *id, Run: *run, Files: *files,
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s: %+v\n", *dir, result)
		return err
	})
}

// showRow shows one row token by token.
func showRow() *cobra.Command {
	cmd := &cobra.Command{Use: "show", Short: "Show a row: its columns, and its tokens as the model's files spell them"}
	id := cmd.Flags().String("row", "", "row id, or the beginning of one")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		if *id == "" {
			return errors.New("--row: a row id is needed")
		}
		s, err := stack.OpenShards(cfg)
		if err != nil {
			return err
		}
		state, err := exporter.Manifests(s).Load(cmd.Context())
		if err != nil {
			return err
		}
		r, err := findRow(cmd.Context(), s, state, *id)
		if err != nil {
			return err
		}
		spell, err := stack.Speller(cmd.Context(), cfg, r.TokenizerSHA256)
		if err != nil {
			return err
		}
		printRow(cmd.OutOrStdout(), r, spell, isTerminal(cmd.OutOrStdout()))
		return nil
	})
}

func findRow(ctx context.Context, s sink.Sink, state *manifest.State, id string) (*rows.Row, error) {
	for _, f := range state.Files {
		if f.Profile != manifest.Traj {
			continue
		}
		for group, err := range exporter.RowGroups(ctx, s, f) {
			if err != nil {
				return nil, err
			}
			for _, r := range group {
				if len(r.RowID) >= len(id) && r.RowID[:len(id)] == id {
					return r, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("no row %s in manifest %d", id, state.ID)
}

// Colours of a row's tokens on a terminal: context is dim, what is trained is
// green.
const (
	dim   = "\x1b[2m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

func printRow(out io.Writer, r *rows.Row, spell func(id uint32) string, colour bool) {
	fmt.Fprintf(out, "row %s  session %s  branch %s  grade %s %v\n", r.RowID, r.SessionID, r.BranchLabel, r.Grade, r.GradeReasons)
	fmt.Fprintf(out, "%d tokens, %d trained, %d turns, model %s, %s\n\n", r.Length, r.TrainableTokens, len(r.TurnStart), r.Model, r.Status)
	last := int8(-1)
	for i, id := range r.InputIDs {
		if colour && r.LossMask[i] != last {
			fmt.Fprint(out, plain, map[int8]string{0: dim, 1: green}[r.LossMask[i]])
		}
		last = r.LossMask[i]
		fmt.Fprint(out, spell(uint32(id)))
	}
	if colour {
		fmt.Fprint(out, plain)
	}
	fmt.Fprintln(out)
}
