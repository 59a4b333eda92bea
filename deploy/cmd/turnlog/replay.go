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
	"turnlog.dev/schema/journal/jet"
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
			"(models) of this configuration, and compares with what was recorded. The log is only read.\n\n" +
			"--into says where the new trajectory stream goes:\n" +
			"  FOLDER         a data folder of its own, which turnlog export and turnlog shards take with --data\n" +
			"  stream:NAME    a stream of that name on the same server (log.url), which turnlog export, verify and replay take\n" +
			"                 with --log.trajectories NAME; turnlog replay list shows them, turnlog replay remove NAME deletes one\n" +
			"  shards:FOLDER  nowhere: only its shards are kept, in that folder\n" +
			"With --shards it is exported at once, without waiting for rewards or for the rest of a group: what is not replayed\n" +
			"will not come. A replay that was interrupted goes on when it is started again.",
	}
	f := replayFlags{
		selection: selectSessions(cmd),
		into:      cmd.Flags().String("into", "", "where the new trajectory stream goes: FOLDER, stream:NAME or shards:FOLDER"),
		with:      cmd.Flags().String("with", "", "model of the configuration whose files render and tokenize, whatever turns name"),
		shards:    cmd.Flags().Bool("shards", false, "export the new stream to shards, in the folder of --into; for stream:NAME in exporter.dir, or DATA/shards-NAME"),
		json:      cmd.Flags().Bool("json", false, "print each change as a JSON object"),
		all:       cmd.Flags().Bool("summary", false, "print no single changes"),
	}
	cmd = configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		into, err := f.target(cfg)
		if err != nil {
			return err
		}
		if err := f.fold(cmd, cfg, into); err != nil || into == nil || !into.shards {
			return err
		}
		return into.export(cmd)
	})
	cmd.AddCommand(replayListCommand(), replayRemoveCommand())
	return cmd
}

// target is where a new trajectory stream goes.
type target struct {
	config.Config
	shards bool
	// passing streams are removed when they have been exported.
	passing bool
}

// target returns nil if nothing is to be written.
func (f replayFlags) target(cfg config.Config) (*target, error) {
	if *f.into == "" {
		if *f.shards {
			return nil, errors.New("--shards needs a place: name it with --into")
		}
		return nil, nil
	}
	t := &target{shards: *f.shards}
	if name, ok := strings.CutPrefix(*f.into, "stream:"); ok {
		switch {
		case cfg.Log.URL == "":
			return nil, errors.New("--into stream:NAME needs a server that runs: name it with --log.url; with an embedded log, name a folder")
		case name == "" || name == cfg.Log.Trajectories:
			return nil, fmt.Errorf("--into: %q is the stream of this configuration; a replay needs one of its own, stream:NAME", name)
		}
		t.Config = cfg
		t.Log.Trajectories = name
		return t, t.Validate()
	}
	folder, passing := strings.CutPrefix(*f.into, "shards:")
	data := folder
	if passing {
		data, t.shards, t.passing = folder+".replay", true, true
	}
	if folder == "" || same(data, cfg.Data) || same(folder, cfg.Data) {
		return nil, fmt.Errorf("--into: %q is the folder of this configuration; a replay needs one of its own", folder)
	}
	t.Config = stack.Folder(cfg, data)
	if passing {
		t.Exporter.Dir = folder
	}
	return t, nil
}

// export writes the shards of a stream that holds all that will come.
func (t *target) export(cmd *cobra.Command) error {
	cfg := t.Config
	cfg.Exporter.RewardDeadline, cfg.Exporter.GroupDeadline, cfg.Exporter.Partial = 0, 0, "export"
	s, err := stack.New(cfg, stack.Roles{}, stack.Options{Log: quiet(cmd, cfg), Version: version()})
	if err != nil {
		return err
	}
	err = s.WithExporter(cmd.Context(), func(e *exporter.Exporter) error {
		began := time.Now()
		sum, err := e.Once(cmd.Context())
		if err != nil {
			return err
		}
		return report(cmd.OutOrStdout(), sum, false, time.Since(began), stack.ShardsAt(cfg))
	})
	if err == nil && t.passing {
		return stack.RemoveFolder(cfg.Data)
	}
	return err
}

// replayListCommand lists the streams that replays made.
func replayListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the trajectory streams that replays made on the log's server"}
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		return stack.WithConn(cmd.Context(), cfg, quiet(cmd, cfg), func(c *jet.Conn) error {
			all, err := c.ListNamed(cmd.Context(), cfg.Tenant)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no streams; turnlog replay --into stream:NAME makes one")
				return nil
			}
			w := table(cmd.OutOrStdout())
			fmt.Fprintln(w, "STREAM\tEVENTS\tBYTES")
			for _, n := range all {
				fmt.Fprintf(w, "%s\t%d\t%d\n", n.Name, n.Events, n.Bytes)
			}
			return w.Flush()
		})
	})
}

// replayRemoveCommand deletes a stream that a replay made.
func replayRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Delete a trajectory stream that a replay made",
		Long: "Deletes a trajectory stream that turnlog replay --into stream:NAME made, with all that it holds. Shards that were\n" +
			"exported from it stay. The recorder's own stream cannot be removed.",
	}
	cmd = configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		name := cmd.Flags().Arg(0)
		return stack.WithConn(cmd.Context(), cfg, quiet(cmd, cfg), func(c *jet.Conn) error {
			if err := c.RemoveNamed(cmd.Context(), cfg.Tenant, name); err != nil {
				return fmt.Errorf("%w; turnlog replay list shows which there are", err)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "removed trajectory stream %s\n", name)
			return err
		})
	})
	cmd.Args = cobra.ExactArgs(1)
	return cmd
}

// same reports whether two names are of one folder.
func same(a, b string) bool {
	x, err1 := filepath.Abs(a)
	y, err2 := filepath.Abs(b)
	return err1 == nil && err2 == nil && x == y
}

// fold runs the replay.
func (f replayFlags) fold(cmd *cobra.Command, cfg config.Config, into *target) error {
	policy, err := stack.Policy(cfg)
	if err != nil {
		return err
	}
	log := quiet(cmd, cfg)
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
		if into == nil {
			return f.run(cmd, l, o)
		}
		return stack.WithNewTrajectories(cmd.Context(), into.Config, log, func(fresh journal.Journal) error {
			o.Into = fresh
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

// printChange says what a replay found to be different.
func printChange(out io.Writer, c replay.Change, asJSON bool) {
	if asJSON {
		if raw, err := json.Marshal(c); err == nil {
			fmt.Fprintf(out, "%s\n", raw)
		}
		return
	}
	fmt.Fprintf(out, "%s %s %s %s\n", c.Session, c.What, c.ID, c.Row)
	for _, f := range c.Fields {
		fmt.Fprintf(out, "  %s: %s -> %s\n", f.Name, f.Before, f.After)
	}
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
	return fmt.Sprintf("%s %.0f%%  %s sessions  %s turns  %s turns/s  %s left", bar(share), 100*share,
		count(int64(p.Sessions+p.Failed)), count(int64(p.Turns)), count(int64(p.Rate())), p.Left(share).Round(time.Second))
}
