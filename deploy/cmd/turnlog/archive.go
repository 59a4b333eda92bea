package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/archive"
)

// archiveCommand moves sessions that are over to the archive, once.
func archiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "archive", Short: "Move sessions that are over from the log to the archive, once",
		Long: "Does what a recorder does every recorder.archive.every: sessions that are closed, recorded and exported, and of\n" +
			"which nothing was said for recorder.archive.after, are written to the archive, read back, and trimmed from the\n" +
			"log. replay, verify and sessions show read both. Nothing can be said of such a session any more.",
	}
	dry := cmd.Flags().Bool("dry-run", false, "say what would be moved, and change nothing")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		opt := stack.Options{Log: quiet(cmd, cfg), Fault: faults()}
		return stack.WithArchiver(cmd.Context(), cfg, opt, *dry, func(a *archive.Archiver) error {
			var r archive.Report
			var err error
			did := "archived and trimmed"
			if *dry {
				did = "would be archived and trimmed"
				r, err = a.DryRun(cmd.Context())
			} else {
				r, err = a.Once(cmd.Context())
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%d sessions %s: %d events, %d bytes\n", r.Sessions-r.Moved, did, r.Events, r.Bytes)
			if r.Moved > 0 {
				fmt.Fprintf(out, "%d sessions stay for the next time: something was said of them meanwhile\n", r.Moved)
			}
			if len(r.Kept) > 0 {
				stay := map[string]int64{}
				for reason, n := range r.Kept {
					stay[string(reason)] = int64(n)
				}
				fmt.Fprintf(out, "closed sessions that stay: %s\n", reasons(stay))
			}
			if errors.Is(err, archive.ErrExists) {
				return fmt.Errorf("%w; what it leaves can be archived later", err)
			}
			return err
		})
	})
}
