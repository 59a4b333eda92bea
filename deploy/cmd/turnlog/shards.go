package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

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
	return group("shards", "Look at shards, check them, and write them in a trainer's form",
		listShards(), listRows(), showRow(), checkShards(), materialize(), compactShards(), dropRun(), collectBlobs())
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

// pinned is the flag that names a manifest.
func pinned(cmd *cobra.Command) *int64 {
	return cmd.Flags().Int64("manifest", 0, "as of this manifest; 0 is the last")
}

func listShards() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the files that the manifests name"}
	run := cmd.Flags().String("run", "", "files of this run; empty is all")
	asJSON := cmd.Flags().Bool("json", false, "print each file as its manifest describes it, a JSON object")
	id := pinned(cmd)
	return withShards(cmd, func(ctx context.Context, s sink.Sink, out io.Writer) error {
		state, err := exporter.Manifests(s).LoadAt(ctx, *id)
		if err != nil {
			return err
		}
		w := table(out)
		if !*asJSON {
			fmt.Fprintln(w, "FILE\tROWS\tTOKENS\tTO TRAIN\tGRADES\tSIZE")
		}
		if state.ID == 0 && !*asJSON {
			_, err := fmt.Fprintln(out, "no shards yet; "+whenRowsCome)
			return err
		}
		var sum manifest.File
		files := 0
		for _, f := range state.Files {
			if *run != "" && f.Run != *run {
				continue
			}
			files++
			sum.Rows, sum.Tokens, sum.Trainable, sum.Bytes = sum.Rows+f.Rows, sum.Tokens+f.Tokens, sum.Trainable+f.Trainable, sum.Bytes+f.Bytes
			if *asJSON {
				if err := json.NewEncoder(out).Encode(f); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Path, count(f.Rows), count(f.Tokens), count(f.Trainable), grades(f.Grades), size(f.Bytes))
		}
		if *asJSON {
			return nil
		}
		fmt.Fprintf(w, "manifest %d, %d files\t%s\t%s\t%s\t\t%s\n", state.ID, files,
			count(sum.Rows), count(sum.Tokens), count(sum.Trainable), size(sum.Bytes))
		return w.Flush()
	})
}

// whenRowsCome is for those who look for rows where there are none yet.
const whenRowsCome = "a session's rows come when it is closed, its reward is there and its group is complete, or their deadlines have passed"

func grades(of map[string]int64) string {
	var list []string
	for _, g := range slices.Sorted(maps.Keys(of)) {
		list = append(list, fmt.Sprintf("%s:%d", g, of[g]))
	}
	return strings.Join(list, " ")
}

// rowsOf yields the rows of a data set, file by file, with what came later.
func rowsOf(ctx context.Context, s sink.Sink, state *manifest.State) func(func(*rows.Row, error) bool) {
	return func(yield func(*rows.Row, error) bool) {
		late, err := exporter.Amendments(ctx, s, state)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, f := range state.Files {
			if f.Profile != manifest.Traj {
				continue
			}
			for group, err := range exporter.RowGroups(ctx, s, f) {
				if err != nil {
					yield(nil, err)
					return
				}
				for _, r := range group {
					late.Apply(r)
					if !yield(r, nil) {
						return
					}
				}
			}
		}
	}
}

func listRows() *cobra.Command {
	cmd := &cobra.Command{Use: "rows", Short: "List rows"}
	run := cmd.Flags().String("run", "", "rows of this run; empty is all")
	group := cmd.Flags().String("group", "", "rows of this group; empty is all")
	session := cmd.Flags().String("session", "", "rows of this session; empty is all")
	most := cmd.Flags().Int("limit", 50, "rows to list; 0 is all")
	id := pinned(cmd)
	return withShards(cmd, func(ctx context.Context, s sink.Sink, out io.Writer) error {
		state, err := exporter.Manifests(s).LoadAt(ctx, *id)
		if err != nil {
			return err
		}
		w := table(out)
		listed := 0
		for r, err := range rowsOf(ctx, s, state) {
			if err != nil {
				return err
			}
			if *run != "" && r.RunID != *run || *group != "" && r.GroupID != *group || *session != "" && r.SessionID != *session {
				continue
			}
			if *most > 0 && listed == *most {
				fmt.Fprintln(w, "more: --limit")
				break
			}
			if listed == 0 {
				fmt.Fprintln(w, "ROW\tSESSION\tGROUP\tBRANCH\tTURNS\tTOKENS\tTO TRAIN\tREWARD\tGRADE\tSTATUS")
			}
			listed++
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.RowID, r.SessionID, r.GroupID, r.BranchLabel,
				len(r.TurnStart), count(int64(r.Length)), count(int64(r.TrainableTokens)), number(r.Reward), r.Grade, r.Status)
		}
		if listed == 0 {
			fmt.Fprintf(w, "manifest %d has no such rows; %s\n", state.ID, whenRowsCome)
		}
		return w.Flush()
	})
}

func checkShards() *cobra.Command {
	cmd := &cobra.Command{Use: "check", Short: "Read every file and compare it with its manifest"}
	id := pinned(cmd)
	return withShards(cmd, func(ctx context.Context, s sink.Sink, out io.Writer) error {
		var progress func(done, of int)
		shown := isTerminal(out)
		if shown {
			progress = func(done, of int) { fmt.Fprintf(out, "\r%d/%d files", done, of) }
		}
		report, err := exporter.Check(ctx, s, *id, progress)
		if shown {
			fmt.Fprint(out, "\r\x1b[K")
		}
		if err != nil {
			return err
		}
		for _, fault := range report.Faults {
			fmt.Fprintln(out, fault)
		}
		fmt.Fprintf(out, "manifest %d: %d files, %s rows, %s tokens: %d faults\n",
			report.Manifest, report.Files, count(report.Rows), count(report.Tokens), len(report.Faults))
		if len(report.Faults) > 0 {
			return errors.New("shards are not what their manifests say: export what the log still holds into another folder (--exporter.dir)")
		}
		return nil
	})
}

func materialize() *cobra.Command {
	cmd := &cobra.Command{Use: "materialize", Short: "Write the rows as files that a loader takes as they are"}
	name := cmd.Flags().String("profile", "pretok", "form: pretok, chat or prompts")
	dir := cmd.Flags().String("out", "", "folder to write")
	run := cmd.Flags().String("run", "", "rows of this run; empty is all")
	files := cmd.Flags().Int("files", 0, "number of files, a multiple of the ranks that read them; 0 is one a shard")
	id := pinned(cmd)
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
		fmt.Fprintf(out, "%s: %s rows in %d files, profile %s, from manifest %d\n", *dir, count(result.Rows), result.Files, result.Profile, result.Manifest)
		if result.Removed > 0 {
			fmt.Fprintf(out, "%s rows are to be left out of the loss (remove_sample) and are not in it\n", count(result.Removed))
		}
		if result.Skipped > 0 {
			fmt.Fprintf(out, "%s rows or groups have no conversation and were left out\n", count(result.Skipped))
		}
		return nil
	})
}

// rewrite is a command that changes which files the data set has. An
// interrupted plan is executed first, which needs the log.
func rewrite(cmd *cobra.Command, do func(ctx context.Context, e *exporter.Exporter) (exporter.Summary, error)) *cobra.Command {
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		s, err := stack.New(cfg, stack.Roles{}, stack.Options{Log: quiet(cmd, cfg), Version: version()})
		if err != nil {
			return err
		}
		return withExporter(cmd, s, func(e *exporter.Exporter) error {
			stop := watch(cmd.ErrOrStderr(), e.Stats)
			sum, err := do(cmd.Context(), e)
			stop()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d manifests written, %d files added; the last one is manifest %d\n", sum.Written, len(sum.Files), sum.Last)
			return err
		})
	})
}

func compactShards() *cobra.Command {
	cmd := &cobra.Command{Use: "compact", Short: "Merge small shards into large ones now; an exporter does it by itself where there are many"}
	return rewrite(cmd, func(ctx context.Context, e *exporter.Exporter) (exporter.Summary, error) { return e.Compact(ctx) })
}

func dropRun() *cobra.Command {
	cmd := &cobra.Command{Use: "drop", Short: "Take a run out of the data set; its files are deleted after exporter.collect_after"}
	run := cmd.Flags().String("run", "", "run to drop")
	return rewrite(cmd, func(ctx context.Context, e *exporter.Exporter) (exporter.Summary, error) {
		if *run == "" {
			return exporter.Summary{}, errors.New("--run: a run is needed")
		}
		return e.Drop(ctx, *run)
	})
}

func collectBlobs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "collect", Short: "Remove blobs, such as routed experts, that no event and no row names",
		Long: "Removes blobs that were stored for a turn which never came to be, and those of sessions that are nowhere any more.\n" +
			"The whole log is read for what it names. An exporter collects files of rows by itself.",
	}
	grace := cmd.Flags().Duration("older-than", 24*time.Hour, "leave younger blobs alone: their turn may be on its way")
	dry := cmd.Flags().Bool("dry-run", false, "only say what would be removed")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		if *grace < minGrace {
			return fmt.Errorf("--older-than: %s is less than %s, and a turn that is under way may take that long", *grace, minGrace)
		}
		s, err := stack.OpenShards(cfg)
		if err != nil {
			return err
		}
		return stack.WithLogs(cmd.Context(), cfg, quiet(cmd, cfg), func(l stack.Logs) error {
			swept, err := exporter.Sweep(cmd.Context(), s, time.Now().Add(-*grace), func(ctx context.Context, sums map[string]bool) error {
				return stack.NamedBlobs(ctx, l, sums)
			}, *dry)
			if err != nil {
				return err
			}
			did := "removed"
			if *dry {
				did = "would be removed"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d blobs, %s, %s; %d, %s, stay\n", swept.Removed, size(swept.RemovedBytes), did, swept.Kept, size(swept.KeptBytes))
			return err
		})
	})
}

// minGrace is longer than a log that is away, or full, can hold up a turn.
const minGrace = 10 * time.Minute
