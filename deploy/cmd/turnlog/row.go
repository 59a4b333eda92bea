package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// showRow shows one row token by token.
func showRow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [ROW]", Short: "Show a row: its columns, its turns, and its tokens as the model's files spell them",
		Long: "Shows the row with this id, or whose id begins so (turnlog shards rows lists them), or the first. On a terminal,\n" +
			"what is trained is green, what was sampled but is masked yellow, and context dim; elsewhere the three are\n" +
			"marked as [+...+], [-...-] and plain text.",
	}
	session := cmd.Flags().String("session", "", "the first row of this session")
	each := cmd.Flags().Bool("each", false, "one line a token: index, id, text, mask, logprob, weight version")
	at := pinned(cmd)
	cmd = configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		s, err := stack.OpenShards(cfg)
		if err != nil {
			return err
		}
		state, err := exporter.Manifests(s).LoadAt(cmd.Context(), *at)
		if err != nil {
			return err
		}
		r, err := findRow(cmd.Context(), s, state, cmd.Flags().Arg(0), *session)
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
	cmd.Args = cobra.MaximumNArgs(1)
	return cmd
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
	printColumns(&b, r)
	printRowTurns(&b, r)
	printText(&b, r, spell, colour)
	_, err := io.WriteString(out, b.String())
	return err
}

func printColumns(b *strings.Builder, r *rows.Row) {
	w := table(b)
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
	_ = w.Flush() // a strings.Builder takes everything
	b.WriteByte('\n')
}

func printRowTurns(b *strings.Builder, r *rows.Row) {
	w := table(b)
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
	_ = w.Flush()
	b.WriteByte('\n')
}

func printText(b *strings.Builder, r *rows.Row, spell func(ids ...uint32) string, colour bool) {
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
