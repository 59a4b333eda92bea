package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/schema/journal"
)

// selection are the flags that choose sessions.
type selection struct {
	run         *string
	sessions    *[]string
	from, to    *string
	partition   *int
	after, upTo *uint64
	parked      *bool
}

func selectSessions(cmd *cobra.Command) selection {
	return selection{
		run:      cmd.Flags().String("run", "", "sessions of this run"),
		sessions: cmd.Flags().StringSlice("session", nil, "these sessions"),
		from:     cmd.Flags().String("from", "", "sessions with an event at or after this time (RFC 3339)"),
		to:       cmd.Flags().String("to", "", "sessions with an event before this time (RFC 3339)"),

		parked:    cmd.Flags().Bool("parked", false, "sessions that are parked: see turnlog parked"),
		partition: cmd.Flags().Int("partition", -1, "sessions of this partition"),
		after:     cmd.Flags().Uint64("after", 0, "sessions with an event after this position of the partition"),
		upTo:      cmd.Flags().Uint64("up-to", 0, "sessions with an event up to this position of the partition"),
	}
}

// list returns the chosen sessions; nothing chosen is all that the log holds.
func (s selection) list(cmd *cobra.Command, l stack.Logs) ([]string, error) {
	if len(*s.sessions) > 0 {
		return *s.sessions, s.known(cmd, l)
	}
	r, err := s.bounds()
	if err != nil {
		return nil, err
	}
	source := replay.Logged(cmd.Context(), l.Turns, r)
	if *s.parked {
		source = replay.Listed(cmd.Context(), l.Registry, registry.Filter{Run: *s.run, State: registry.Parked})
	}
	var ids []string
	for id, err := range source {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// known fails if the log does not hold a session that is named.
func (s selection) known(cmd *cobra.Command, l stack.Logs) error {
	var missing []string
	for _, id := range *s.sessions {
		found := false
		for _, err := range l.Turns.ReadSession(cmd.Context(), id, journal.Tip{}) {
			_, found = err, true // one that cannot be read is there, too: whoever reads it says why
			break
		}
		if !found {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("--session: the log holds no event of %s", strings.Join(missing, ", "))
	}
	return nil
}

// all reports that no flag chooses.
func (s selection) all() bool {
	return len(*s.sessions) == 0 && *s.run == "" && *s.from == "" && *s.to == "" && *s.partition < 0 && !*s.parked
}

func (s selection) bounds() (replay.Range, error) {
	r := replay.Range{Run: *s.run, After: *s.after, UpTo: *s.upTo}
	if *s.partition >= journal.Partitions {
		return r, fmt.Errorf("--partition: %d is not from 0 to %d", *s.partition, journal.Partitions-1)
	}
	if *s.partition >= 0 {
		r.Partitions = []int{*s.partition}
	} else if r.After > 0 || r.UpTo > 0 {
		return r, errors.New("--after and --up-to are positions in one partition: name it with --partition")
	}
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
			return r, fmt.Errorf("--%s: %w", t.flag, err)
		}
	}
	return r, nil
}
