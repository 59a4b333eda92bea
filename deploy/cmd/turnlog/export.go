package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
)

// exportCommand exports what is ready and ends.
func exportCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "export", Short: "Export what is ready and end"}
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		s, err := stack.New(cfg, stack.Roles{}, stack.Options{Log: logger(cfg, cmd.ErrOrStderr()), Version: version()})
		if err != nil {
			return err
		}
		sum, err := s.Export(cmd.Context())
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		for _, f := range sum.Files {
			fmt.Fprintf(out, "%s  %d rows, %d tokens, %d bytes\n", f.Path, f.Rows, f.Tokens, f.Bytes)
		}
		_, err = fmt.Fprintf(out, "%d rows exported; %d groups wait, %d sessions are open\n", sum.Counts.Rows, sum.Waiting, sum.Open)
		return err
	})
}
