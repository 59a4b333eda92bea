package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

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
	cmd.AddCommand(listShards(), listRows(), showRow(), checkShards(), materialize(), compactShards(), dropRun(), collectBlobs())
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

// table aligns columns for people.
func table(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

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
		var sum manifest.File
		for _, f := range state.Files {
			if *run != "" && f.Run != *run {
				continue
			}
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
		fmt.Fprintf(w, "manifest %d, %d files\t%s\t%s\t%s\t\t%s\n", state.ID, len(state.Files),
			count(sum.Rows), count(sum.Tokens), count(sum.Trainable), size(sum.Bytes))
		return w.Flush()
	})
}

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
		fmt.Fprintln(w, "ROW\tSESSION\tGROUP\tBRANCH\tTURNS\tTOKENS\tTO TRAIN\tREWARD\tGRADE\tSTATUS")
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
			listed++
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.RowID, r.SessionID, r.GroupID, r.BranchLabel,
				len(r.TurnStart), count(int64(r.Length)), count(int64(r.TrainableTokens)), number(r.Reward), r.Grade, r.Status)
		}
		return w.Flush()
	})
}

func number(v *float32) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%g", *v)
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
		s, err := stack.New(cfg, stack.Roles{}, stack.Options{Log: logger(quiet(cfg, cmd.ErrOrStderr()), cmd.ErrOrStderr()), Version: version()})
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
		return stack.WithLogs(cmd.Context(), cfg, logger(quiet(cfg, cmd.ErrOrStderr()), cmd.ErrOrStderr()), func(l stack.Logs) error {
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

// showRow shows one row token by token.
func showRow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Show a row: its columns, its turns, and its tokens as the model's files spell them",
		Long: "Shows one row. On a terminal, what is trained is green, what was sampled but is masked yellow, and context dim;\n" +
			"elsewhere the three are marked as [+...+], [-...-] and plain text.",
	}
	id := cmd.Flags().String("row", "", "row id, or the beginning of one (turnlog shards rows lists them); empty is the first row")
	session := cmd.Flags().String("session", "", "the first row of this session")
	each := cmd.Flags().Bool("each", false, "one line a token: index, id, text, mask, logprob, weight version")
	at := pinned(cmd)
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		s, err := stack.OpenShards(cfg)
		if err != nil {
			return err
		}
		state, err := exporter.Manifests(s).LoadAt(cmd.Context(), *at)
		if err != nil {
			return err
		}
		r, err := findRow(cmd.Context(), s, state, *id, *session)
		if err != nil {
			return err
		}
		spell, err := stack.Speller(cmd.Context(), cfg, r.TokenizerSHA256)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if *each {
			return printTokens(out, r, spell)
		}
		return printRow(out, r, spell, isTerminal(out))
	})
}

func findRow(ctx context.Context, s sink.Sink, state *manifest.State, id, session string) (*rows.Row, error) {
	for r, err := range rowsOf(ctx, s, state) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(r.RowID, id) && (session == "" || r.SessionID == session) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("no such row in manifest %d; turnlog shards rows lists what there is", state.ID)
}

// ink is how a token is shown, on a terminal and elsewhere.
type ink struct{ colour, open, close string }

var (
	asContext = ink{colour: "\x1b[2m"}
	trained   = ink{colour: "\x1b[32m", open: "[+", close: "+]"}
	masked    = ink{colour: "\x1b[33m", open: "[-", close: "-]"}
)

// inks says of every token of a row how it is shown.
func inks(r *rows.Row) []*ink {
	list := make([]*ink, r.Length)
	for i := range list {
		list[i] = &asContext
	}
	for t, start := range r.TurnStart {
		for i := start; i < r.TurnEnd[t]; i++ {
			list[i] = &masked
			if r.LossMask[i] == 1 {
				list[i] = &trained
			}
		}
	}
	return list
}

func printRow(out io.Writer, r *rows.Row, spell func(ids ...uint32) string, colour bool) error {
	var b strings.Builder
	w := table(&b)
	field := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	field("row", "%s", r.RowID)
	field("session", "%s  run %s  group %s  index %d  attempt %d", r.SessionID, r.RunID, r.GroupID, r.RolloutIndex, r.Attempt)
	field("branch", "%s (%s)  row %d of %d of its rollout", r.BranchLabel, r.Class, r.SegmentIndex+1, r.SegmentCount)
	field("tokens", "%s, %s to train, from %d on", count(int64(r.Length)), count(int64(r.TrainableTokens)), r.PromptLength)
	field("reward", "%s  advantage %s", number(r.Reward), number(r.Advantage))
	field("status", "%s (%s)  grade %s %s", r.Status, r.StopReason, r.Grade, strings.Join(r.GradeReasons, " "))
	field("model", "%s on %s  logprobs %s", r.Model, r.Engine, cmp.Or(map[bool]string{true: "absent"}[r.Logprobs == nil], r.LogprobKind))
	if r.VersionMin != nil {
		field("weights", "%d to %d", *r.VersionMin, *r.VersionMax)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b)
	fmt.Fprintln(w, "TURN\tTOKENS\tTO TRAIN\tMEAN LOGPROB\tFINISH")
	for t, start := range r.TurnStart {
		end, train, sum := r.TurnEnd[t], int64(0), 0.0
		for i := start; i < end; i++ {
			train += int64(r.LossMask[i])
			if r.Logprobs != nil {
				sum += float64(r.Logprobs[i])
			}
		}
		mean := "-"
		if r.Logprobs != nil {
			mean = fmt.Sprintf("%.3f", sum/float64(end-start))
		}
		fmt.Fprintf(w, "%d\t%d to %d\t%d\t%s\t%s\n", t, start, end, train, mean, r.TurnFinish[t])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b)
	var now *ink
	change := func(to *ink) {
		switch {
		case to == now:
		case colour:
			b.WriteString("\x1b[0m")
			if to != nil {
				b.WriteString(to.colour)
			}
		default:
			if now != nil {
				b.WriteString(now.close)
			}
			if to != nil {
				b.WriteString(to.open)
			}
		}
		now = to
	}
	var run []uint32 // is spelt together: a character may be several tokens
	for i, to := range inks(r) {
		if to != now {
			b.WriteString(visible(spell(run...)))
			run = run[:0]
		}
		change(to)
		run = append(run, uint32(r.InputIDs[i]))
	}
	b.WriteString(visible(spell(run...)))
	change(nil)
	b.WriteByte('\n')
	_, err := io.WriteString(out, b.String())
	return err
}

// visible shows control characters, which a model may write and a terminal
// would obey.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func printTokens(out io.Writer, r *rows.Row, spell func(ids ...uint32) string) error {
	w := table(out)
	fmt.Fprintln(w, "INDEX\tID\tTEXT\tMASK\tLOGPROB\tVERSION")
	for i, id := range r.InputIDs {
		logprob, version := "-", "-"
		if r.Logprobs != nil {
			logprob = fmt.Sprintf("%.4f", r.Logprobs[i])
		}
		if r.Versions != nil {
			version = fmt.Sprint(r.Versions[i])
		}
		fmt.Fprintf(w, "%d\t%d\t%q\t%d\t%s\t%s\n", i, id, spell(uint32(id)), r.LossMask[i], logprob, version)
	}
	return w.Flush()
}
