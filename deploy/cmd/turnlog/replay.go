package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/schema/journal"
)

// replayFlags are what a replay is told besides the configuration.
type replayFlags struct {
	selection
	into, with        *string
	shards, json, all *bool
}

// replayCommand folds sessions again and says what changes.
func replayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay", Short: "Fold recorded sessions again, perhaps under another policy, and say what changes",
		Long: "Folds what the turn stream holds again, under the policy (recorder.policy.*) and with the model files\n" +
			"(models) of this configuration, and compares with what was recorded. The log is only read.\n" +
			"--into FOLDER writes the new trajectory stream into a data folder of its own, which turnlog export and\n" +
			"turnlog shards take with --data; with --shards it is exported at once, without waiting for rewards or for the\n" +
			"rest of a group: what is not replayed will not come. A replay that was interrupted goes on when it is started\n" +
			"again.",
	}
	f := replayFlags{
		selection: selectSessions(cmd),
		into:      cmd.Flags().String("into", "", "data folder that gets the new trajectory stream"),
		with:      cmd.Flags().String("with", "", "model of the configuration whose files render and tokenize, whatever turns name"),
		shards:    cmd.Flags().Bool("shards", false, "export the new stream to shards in the folder of --into"),
		json:      cmd.Flags().Bool("json", false, "print each change as a JSON object"),
		all:       cmd.Flags().Bool("summary", false, "print no single changes"),
	}
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		if *f.shards && *f.into == "" {
			return errors.New("--shards needs a folder: name it with --into")
		}
		if *f.into != "" && same(*f.into, cfg.Data) {
			return fmt.Errorf("--into: %s is the folder of this configuration; a replay needs one of its own", *f.into)
		}
		if err := f.fold(cmd, cfg); err != nil || !*f.shards {
			return err
		}
		into := stack.Folder(cfg, *f.into)
		into.Exporter.RewardDeadline, into.Exporter.GroupDeadline, into.Exporter.Partial = 0, 0, "export"
		s, err := stack.New(into, stack.Roles{}, stack.Options{Log: logger(quiet(cfg, cmd.ErrOrStderr()), cmd.ErrOrStderr()), Version: version()})
		if err != nil {
			return err
		}
		return s.WithExporter(cmd.Context(), func(e *exporter.Exporter) error {
			began := time.Now()
			sum, err := e.Once(cmd.Context())
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), sum, false, time.Since(began), stack.ShardsAt(into))
		})
	})
}

// same reports whether two names are of one folder.
func same(a, b string) bool {
	x, err1 := filepath.Abs(a)
	y, err2 := filepath.Abs(b)
	return err1 == nil && err2 == nil && x == y
}

// fold runs the replay.
func (f replayFlags) fold(cmd *cobra.Command, cfg config.Config) error {
	policy, err := stack.Policy(cfg)
	if err != nil {
		return err
	}
	log := logger(quiet(cfg, cmd.ErrOrStderr()), cmd.ErrOrStderr())
	models, err := stack.RecorderModels(cmd.Context(), cfg, log)
	if err != nil {
		return err
	}
	o := replay.Options{Policy: policy, Models: models}
	if *f.with != "" {
		if o.Models, err = models.Only(*f.with); err != nil {
			return fmt.Errorf("--with: %w", err)
		}
	}
	return stack.WithLogs(cmd.Context(), cfg, log, func(l stack.Logs) error {
		if *f.into == "" {
			return f.run(cmd, l, o)
		}
		return stack.WithNewTrajectories(cmd.Context(), stack.Folder(cfg, *f.into), log, func(into journal.Journal) error {
			o.Into = into
			return f.run(cmd, l, o)
		})
	})
}

func (f replayFlags) run(cmd *cobra.Command, l stack.Logs, o replay.Options) error {
	out := cmd.OutOrStdout()
	line, done := progressLine(cmd.ErrOrStderr())
	defer done()
	o.Against = l.Trajectories
	o.Change = func(c replay.Change) {
		if !*f.all {
			printChange(out, c, *f.json)
		}
	}
	report, err := f.replay(cmd, l, o, func(p replay.Progress, share float64) { line(replayProgress(p, share)) })
	done()
	if err != nil {
		return err
	}
	for _, failure := range report.Failures {
		fmt.Fprintln(out, failure)
	}
	if *f.json {
		return json.NewEncoder(out).Encode(map[string]any{
			"sessions": report.Sessions, "turns": report.Turns, "turns_per_second": report.Rate(), "changed": report.Changed,
			"rows_added": report.RowsAdded, "rows_removed": report.RowsRemoved, "rows_changed": report.RowsChanged,
			"failed": report.Failed, "why": report.Why, "audited": audited(report),
		})
	}
	fmt.Fprintf(out, "%d sessions, %d turns, %.0f turns/s: %d sessions changed, rows +%d -%d ~%d, %d failed\n",
		report.Sessions, report.Turns, report.Rate(), report.Changed,
		report.RowsAdded, report.RowsRemoved, report.RowsChanged, report.Failed)
	if len(report.Why) > 0 {
		fmt.Fprintf(out, "turns that changed, by what: %s\n", reasons(report.Why))
	}
	if a := audited(report); len(a) > 0 {
		fmt.Fprintf(out, "turns audited, by how a fresh render differs: %s\n", reasons(a))
	}
	if report.Failed > 0 {
		return fmt.Errorf("replay: %d sessions failed", report.Failed)
	}
	return nil
}

// replay folds the chosen sessions: those that are named one by one, all others
// in one pass.
func (f replayFlags) replay(cmd *cobra.Command, l stack.Logs, o replay.Options, show func(replay.Progress, float64)) (replay.Report, error) {
	if len(*f.sessions) == 0 && !*f.parked {
		r, err := f.bounds()
		if err != nil {
			return replay.Report{}, err
		}
		o.Progress = func(p replay.Progress) { show(p, p.Share) }
		return replay.RunRange(cmd.Context(), l.Turns, r, o)
	}
	sessions, err := f.list(cmd, l)
	if err != nil {
		return replay.Report{}, err
	}
	o.Progress = func(p replay.Progress) { show(p, float64(p.Sessions+p.Failed)/float64(len(sessions))) }
	return replay.Run(cmd.Context(), l.Turns, replay.These(sessions...), o)
}

// audited names the kinds of drift.
func audited(r replay.Report) map[string]int64 {
	out := map[string]int64{}
	for drift, n := range r.Audited {
		out[cmp.Or(string(drift), "none")] = n
	}
	return out
}

// replayProgress is one line about a replay or a verification of which a share
// is done.
func replayProgress(p replay.Progress, share float64) string {
	full := min(int(barWidth*share), barWidth)
	return fmt.Sprintf("[%s%s] %.0f%%  %s sessions  %s turns  %s turns/s  %s left", strings.Repeat("#", full), strings.Repeat("-", barWidth-full),
		100*share, count(int64(p.Sessions+p.Failed)), count(int64(p.Turns)), count(int64(p.Rate())), p.Left(share).Round(time.Second))
}

// progressLine returns what shows a line on a terminal, at most ten times a
// second, and what removes it.
func progressLine(out io.Writer) (show func(string), done func()) {
	if !isTerminal(out) {
		return func(string) {}, func() {}
	}
	var last time.Time
	return func(line string) {
			if now := time.Now(); now.Sub(last) >= 100*time.Millisecond {
				last = now
				fmt.Fprint(out, "\r\x1b[K", line)
			}
		}, func() {
			if !last.IsZero() {
				fmt.Fprint(out, "\r\x1b[K")
				last = time.Time{}
			}
		}
}
