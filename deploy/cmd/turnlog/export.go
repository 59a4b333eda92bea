package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
)

// exportCommand exports what is ready and ends.
func exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "export", Short: "Export what is ready and end",
		Long: "Reads the trajectory stream up to the end that it has now, writes what is ready as shards, and ends.\n" +
			"What is not ready (no reward yet, a group that lacks sessions) stays for later; --dry-run says how much that is.",
	}
	dry := cmd.Flags().Bool("dry-run", false, "write nothing; say what would be written, left out and held back")
	compact := cmd.Flags().Bool("compact", false, "then merge small shards into large ones")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		s, err := stack.New(cfg, stack.Roles{}, stack.Options{Log: quiet(cmd, cfg), Version: version()})
		if err != nil {
			return err
		}
		return withExporter(cmd, s, func(e *exporter.Exporter) error {
			began := time.Now()
			stop := watch(cmd.ErrOrStderr(), e.Stats)
			sum, err := export(cmd, e, *dry, *compact)
			stop()
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), sum, *dry, time.Since(began), stack.ShardsAt(cfg))
		})
	})
}

// withExporter lets do use an exporter, unless the log is in use.
func withExporter(cmd *cobra.Command, s *stack.Stack, do func(*exporter.Exporter) error) error {
	err := s.WithExporter(cmd.Context(), do)
	if errors.Is(err, natsd.ErrLocked) {
		err = fmt.Errorf("%w: a turnlog that runs there exports by itself; stop it first", err)
	}
	return err
}

func export(cmd *cobra.Command, e *exporter.Exporter, dry, compact bool) (exporter.Summary, error) {
	if dry {
		return e.DryRun(cmd.Context())
	}
	sum, err := e.Once(cmd.Context())
	if err != nil || !compact {
		return sum, err
	}
	merged, err := e.Compact(cmd.Context())
	sum.Written, sum.Last = sum.Written+merged.Written, merged.Last
	sum.Files = append(sum.Files, merged.Files...)
	return sum, err
}

// report says what was done.
func report(out io.Writer, sum exporter.Summary, dry bool, took time.Duration, where string) error {
	var b strings.Builder
	did, were := "wrote", "were"
	if dry {
		did, were = "would write", "would be"
	}
	var bytes int64
	for _, f := range sum.Files {
		bytes += f.Bytes
		fmt.Fprintf(&b, "%s  %s rows, %s\n", f.Path, count(f.Rows), size(f.Bytes))
	}
	c := sum.Counts
	if sum.Written == 0 {
		fmt.Fprintln(&b, "nothing is ready that was not exported before")
	} else {
		fmt.Fprintf(&b, "%s %s rows of %s groups, %s tokens (%s to train), in %d files, %s, in %s\n", did, count(c.Rows), count(c.GroupsExported),
			count(c.Tokens), count(c.Trainable), len(sum.Files), size(bytes), where)
	}
	if c.Rows > 0 {
		fmt.Fprintf(&b, "in %s: %s rows/s, %s tokens/s\n", took.Round(time.Millisecond),
			count(int64(float64(c.Rows)/took.Seconds())), count(int64(float64(c.Tokens)/took.Seconds())))
	}
	if c.LateRewards+c.Annotations+c.Blobs > 0 {
		fmt.Fprintf(&b, "beside the rows: %s late rewards, %s annotations, %s blobs\n", count(c.LateRewards), count(c.Annotations), count(c.Blobs))
	}
	if len(c.RowsLeftOut) > 0 {
		fmt.Fprintf(&b, "rows that %s left out, by reason: %s\n", were, reasons(c.RowsLeftOut))
	}
	if len(c.DroppedBy) > 0 {
		fmt.Fprintf(&b, "groups that %s dropped, by reason: %s\n", were, reasons(c.DroppedBy))
	}
	if c.GroupsPartial > 0 {
		fmt.Fprintf(&b, "%s groups lack sessions\n", count(c.GroupsPartial))
	}
	if c.SessionsMalformed > 0 {
		fmt.Fprintf(&b, "%s sessions contradict themselves: see the log, and turnlog verify\n", count(c.SessionsMalformed))
	}
	held := sum.Held
	if held.Groups() > 0 {
		fmt.Fprintf(&b, "held back: %s groups: %d wait for a reward, %d for sessions", count(int64(held.Groups())), held.Reward, held.Sessions)
		if !held.Until.IsZero() {
			fmt.Fprintf(&b, "; the first deadline is %s", held.Until.Local().Format(time.DateTime))
		}
		fmt.Fprintln(&b)
	}
	if held.Open > 0 {
		fmt.Fprintf(&b, "%s sessions are open\n", count(int64(held.Open)))
	}
	fmt.Fprintf(&b, "manifest %d\n", sum.Last)
	_, err := io.WriteString(out, b.String())
	return err
}

// watch shows how far an exporter is, on a terminal only, until stop is called.
func watch(out io.Writer, stats func() exporter.Stats) (stop func()) {
	if !isTerminal(out) {
		return func() {}
	}
	line, erase := progressLine(out)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				erase()
				return
			case now := <-tick.C:
				line(progress(stats(), now))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// progress is one line about what an exporter does.
func progress(s exporter.Stats, now time.Time) string {
	p := s.Plan
	switch {
	case p.ID == 0:
		return fmt.Sprintf("reading the log: %s entries", count(s.Observed))
	case p.Op == manifest.Replace:
		return fmt.Sprintf("plan %d: merging shards", p.ID)
	}
	share := 1.0
	if p.Groups > 0 {
		share = float64(p.Done) / float64(p.Groups)
	}
	rate := float64(p.Rows) / max(now.Sub(p.Began).Seconds(), 0.001)
	return fmt.Sprintf("plan %d %s %d/%d groups  %s sessions  %s rows  %s tokens  %s  %s rows/s", p.ID,
		bar(share), p.Done, p.Groups,
		count(p.Sessions), count(p.Rows), count(p.Tokens), size(p.Bytes), count(int64(rate)))
}
