package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/verify"
)

// verifyCommand reads both streams and the shards back and checks every promise.
func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "verify", Short: "Read the log and the shards back and check every promise"}
	sel := selectSessions(cmd)
	behind := cmd.Flags().Bool("behind", false, "a recorder may still be at work: events without an update are no finding")
	policy := cmd.Flags().Bool("policy", false, "hold masks against recorder.policy: everything was recorded under this configuration's")
	noShards := cmd.Flags().Bool("no-shards", false, "leave the shards alone: they are of another log")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		return stack.WithLogs(cmd.Context(), cfg, quiet(cmd, cfg), func(l stack.Logs) error {
			sessions, err := sel.list(cmd, l)
			if err != nil {
				return err
			}
			var held *verify.Policy
			if *policy {
				if held, err = heldPolicy(cfg); err != nil {
					return err
				}
			}
			line, done := progressLine(cmd.ErrOrStderr())
			defer done()
			began := time.Now()
			report, err := verify.Run(cmd.Context(), l.Turns, l.Trajectories, replay.These(sessions...), verify.Options{
				Behind: *behind, Policy: held,
				Progress: func(r verify.Report) {
					p := replay.Progress{Sessions: r.Sessions, Turns: r.Turns, Elapsed: time.Since(began)}
					line(replayProgress(p, float64(r.Sessions)/float64(len(sessions))))
				},
			})
			done()
			if err != nil {
				return err
			}
			var shards shardReport
			if !*noShards {
				if shards, err = verifyShards(cmd.Context(), cfg, l, sessions, sel.all()); err != nil {
					return err
				}
				report.Findings = append(report.Findings, shards.findings...)
			}
			out := cmd.OutOrStdout()
			for _, f := range report.Findings {
				fmt.Fprintln(out, f)
			}
			if !*noShards {
				fmt.Fprintf(out, "%d rows of %d sessions in %d shards, %d rows beside them\n", shards.rows, shards.sessions, shards.files, shards.beside)
			}
			fmt.Fprintf(out, "%d sessions, %d events, %d turns, %d tokens: %d findings; %d sessions parked, %d behind, %d released\n",
				report.Sessions, report.Events, report.Turns, report.Tokens, len(report.Findings), report.Parked, report.Behind, report.Released)
			if len(report.Findings) > 0 && report.Behind > 0 && !*behind {
				return errors.New("verify: promises were broken, or a recorder is still at work: then say --behind")
			}
			if len(report.Findings) > 0 {
				return errors.New("verify: promises were broken")
			}
			return nil
		})
	})
}

// heldPolicy is the recorder's policy as verify takes it.
func heldPolicy(cfg config.Config) (*verify.Policy, error) {
	p, err := stack.Policy(cfg)
	if err != nil {
		return nil, err
	}
	held := &verify.Policy{
		MaskCutOff: p.CutOff == fold.Mask, MaskReasoning: p.Reasoning == fold.Mask, MaskAbandoned: p.Abandoned == fold.Mask,
		MaskUndelivered: p.Undelivered == fold.Mask, MaskRewrittenCalls: p.RewrittenCalls == fold.Mask,
		MaskFlags: p.MaskFlags,
	}
	for class, use := range p.Classes {
		if use == fold.Train {
			held.Train = append(held.Train, class)
		}
	}
	return held, nil
}
