package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/verify"
)

// selection are the flags that choose sessions.
type selection struct {
	run      *string
	sessions *[]string
	from, to *string
}

func selectSessions(cmd *cobra.Command) selection {
	return selection{
		run:      cmd.Flags().String("run", "", "sessions of this run"),
		sessions: cmd.Flags().StringSlice("session", nil, "these sessions"),
		from:     cmd.Flags().String("from", "", "sessions with an event at or after this time (RFC 3339)"),
		to:       cmd.Flags().String("to", "", "sessions with an event before this time (RFC 3339)"),
	}
}

// list returns the chosen sessions; nothing chosen is all that the log holds.
func (s selection) list(cmd *cobra.Command, l stack.Logs) (iter.Seq2[string, error], error) {
	if len(*s.sessions) > 0 {
		return replay.These(*s.sessions...), nil
	}
	r := replay.Range{Run: *s.run}
	for _, t := range []struct {
		text string
		into *time.Time
		flag string
	}{{*s.from, &r.From, "from"}, {*s.to, &r.To, "to"}} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.into, err = time.Parse(time.RFC3339, t.text); err != nil {
			return nil, fmt.Errorf("--%s: %w", t.flag, err)
		}
	}
	return replay.Logged(cmd.Context(), l.Turns, r), nil
}

// verifyCommand reads both streams back and checks every promise.
func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "verify", Short: "Read the log back and check every promise"}
	sel := selectSessions(cmd)
	behind := cmd.Flags().Bool("behind", false, "a recorder may still be at work: events without an update are no finding")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		return stack.WithLogs(cmd.Context(), cfg, logger(cfg, cmd.ErrOrStderr()), func(l stack.Logs) error {
			sessions, err := sel.list(cmd, l)
			if err != nil {
				return err
			}
			report, err := verify.Run(cmd.Context(), l.Turns, l.Trajectories, sessions, verify.Options{Behind: *behind})
			if err != nil {
				return err
			}
			if len(*sel.sessions) > 0 && report.Events == 0 {
				return fmt.Errorf("verify: the log holds no event of %v", *sel.sessions)
			}
			out := cmd.OutOrStdout()
			for _, f := range report.Findings {
				fmt.Fprintln(out, f)
			}
			fmt.Fprintf(out, "%d sessions, %d events, %d turns, %d tokens: %d findings; %d sessions parked, %d events behind\n",
				report.Sessions, report.Events, report.Turns, report.Tokens, len(report.Findings), report.Parked, report.Behind)
			if len(report.Findings) > 0 {
				return errors.New("verify: promises were broken")
			}
			return nil
		})
	})
}

// replayCommand folds sessions again and says what would change.
func replayCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "replay", Short: "Fold recorded sessions again, perhaps under another policy, and say what changes"}
	sel := selectSessions(cmd)
	policy := cmd.Flags().String("policy", "", "changes to the default mask policy, a JSON object such as {\"abandoned\":\"train\"}")
	asJSON := cmd.Flags().Bool("json", false, "print each change as a JSON object")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		p := fold.DefaultPolicy()
		if *policy != "" {
			if err := json.Unmarshal([]byte(*policy), &p); err != nil {
				return fmt.Errorf("--policy: %w", err)
			}
		}
		return stack.WithLogs(cmd.Context(), cfg, logger(cfg, cmd.ErrOrStderr()), func(l stack.Logs) error {
			sessions, err := sel.list(cmd, l)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			report, err := replay.Run(cmd.Context(), l.Turns, sessions, replay.Options{
				Policy: p, Against: l.Trajectories,
				Change: func(c replay.Change) { printChange(out, c, *asJSON) },
			})
			if err != nil {
				return err
			}
			for _, f := range report.Failures {
				fmt.Fprintln(out, f)
			}
			_, err = fmt.Fprintf(out, "%d sessions, %d turns, %.0f turns/s: %d sessions changed, rows +%d -%d ~%d, %d failed\n",
				report.Sessions, report.Turns, report.Rate(), report.Changed,
				report.RowsAdded, report.RowsRemoved, report.RowsChanged, report.Failed)
			return err
		})
	})
}
