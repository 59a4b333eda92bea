package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/registry"
)

// parkedCommand lists what could not be folded, and why.
func parkedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "parked", Short: "List the sessions that could not be folded, and the events for which",
		Long: "A parked session is recorded up to the event that could not be folded, and trained no further.\n" +
			"After a repair, with a recorder that can fold it, turnlog replay --parked shows what becomes of it, and\n" +
			"turnlog replay --parked --into FOLDER --shards exports it.",
	}
	run := cmd.Flags().String("run", "", "of this run")
	asJSON := cmd.Flags().Bool("json", false, "print each event as a JSON object, with the message itself where it could not be read")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		return stack.WithLogs(cmd.Context(), cfg, logger(cfg, cmd.ErrOrStderr()), func(l stack.Logs) error {
			box := deadletter.New(l.DeadLetters)
			out := cmd.OutOrStdout()
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			sessions, events := 0, 0
			for s, err := range l.Registry.List(cmd.Context(), registry.Filter{Run: *run, State: registry.Parked}) {
				if err != nil {
					return err
				}
				letters, err := box.Read(cmd.Context(), s.ID)
				if err != nil {
					return err
				}
				sessions, events = sessions+1, events+len(letters)
				for _, d := range letters {
					if *asJSON {
						if err := json.NewEncoder(out).Encode(d); err != nil {
							return err
						}
						continue
					}
					if events == len(letters) && d.Position == letters[0].Position {
						fmt.Fprintln(w, "SESSION\tRUN\tEVENT\tKIND\tPOSITION\tREASON\tDETAIL")
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", s.ID, s.Run, d.Event, d.Kind, d.Position, d.Reason, d.Detail)
				}
			}
			if *asJSON {
				return nil
			}
			if err := w.Flush(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(out, "%d sessions are parked, for %d events\n", sessions, events)
			return err
		})
	})
}
