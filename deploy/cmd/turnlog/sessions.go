package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/recorder/registry"
)

// sessionsCommand looks at sessions through a running gateway.
func sessionsCommand() *cobra.Command {
	return group("sessions", "Look at the sessions of a running gateway", listCommand(), showCommand(), tailCommand())
}

func (c client) list(ctx context.Context, run, group, state string) (all []registry.Session, err error) {
	query := url.Values{"run": {run}, "group": {group}, "state": {state}}
	all, err = listed[registry.Session](ctx, c, "/sessions?"+query.Encode())
	slices.SortFunc(all, func(a, b registry.Session) int { return a.OpenedAt.Compare(b.OpenedAt) })
	return all, err
}

func listCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List sessions, oldest first"}
	run := cmd.Flags().String("run", "", "of this run")
	group := cmd.Flags().String("group", "", "of this group")
	state := cmd.Flags().String("state", "", "in this state: open, closed, parked or trimmed")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		c, err := newClient(cfg)
		if err != nil {
			return err
		}
		all, err := c.list(cmd.Context(), *run, *group, *state)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "no sessions; one appears here a moment after it was opened")
			return nil
		}
		sessionTable{out: cmd.OutOrStdout()}.print(all)
		return nil
	})
}

// sessionTable prints sessions in columns.
type sessionTable struct {
	out    io.Writer
	widths []int
}

// print prints rows below what it has printed; a column never gets narrower.
func (t sessionTable) print(rows []registry.Session) sessionTable {
	cells := make([][]string, 0, 1+len(rows))
	if t.widths == nil {
		cells = append(cells, []string{"SESSION", "RUN", "GROUP", "STATE", "TURNS", "GENERATED", "TRAINABLE", "REWARD", "OPENED"})
		t.widths = make([]int, len(cells[0]))
	}
	for _, s := range rows {
		reward := "-"
		if s.Reward != nil {
			reward = fmt.Sprintf("%.3g", *s.Reward)
		}
		cells = append(cells, []string{
			s.ID, s.Run, cmp.Or(s.Group, "-"), state(s), strconv.Itoa(s.Turns), strconv.FormatUint(s.Generated, 10),
			strconv.FormatUint(s.Trainable, 10), reward, s.OpenedAt.Local().Format(time.DateTime),
		})
	}
	for _, row := range cells {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], len(cell))
		}
	}
	for _, row := range cells {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", t.widths[i], cell)
		}
		fmt.Fprintln(t.out, strings.TrimRight(line, " "))
	}
	return t
}

// state is a session's, and where it is once it has left the log.
func state(s registry.Session) string {
	if s.State == registry.Trimmed {
		return fmt.Sprintf("trimmed (archive %d)", s.Archive)
	}
	return string(s.State)
}

// shownTurn is a turn as GET /sessions/{id} has it.
type shownTurn struct {
	Turn       string `json:"turn"`
	Parent     string `json:"parent"`
	Decision   string `json:"decision"`
	Reason     string `json:"reason"`
	Class      string `json:"class"`
	Finish     string `json:"finish_reason"`
	Prompt     int    `json:"prompt_tokens"`
	Keep       int    `json:"parent_keep"`
	Completion int    `json:"completion_tokens"`
}

// shownSession is a session as GET /sessions/{id} has it.
type shownSession struct {
	Session string      `json:"session"`
	Run     string      `json:"run"`
	State   string      `json:"state"`
	Reason  string      `json:"reason"`
	Group   string      `json:"group"`
	Index   int         `json:"index"`
	Attempt int         `json:"attempt"`
	Task    string      `json:"task"`
	Reward  *float64    `json:"reward"`
	Aborted int         `json:"aborted"`
	Turns   []shownTurn `json:"turns"`
}

// print writes a line about the session and its tree below.
func (s shownSession) print(out io.Writer) {
	about := []string{"run " + s.Run}
	if s.Group != "" {
		about = append(about, fmt.Sprintf("group %s #%d", s.Group, s.Index))
	}
	if s.Attempt > 0 {
		about = append(about, fmt.Sprintf("attempt %d", s.Attempt))
	}
	if s.Task != "" {
		about = append(about, "task "+s.Task)
	}
	if s.Reason != "" {
		s.State += " (" + s.Reason + ")"
	}
	about = append(about, s.State, several(len(s.Turns), "turn"))
	if s.Aborted > 0 {
		about = append(about, fmt.Sprintf("%d aborted", s.Aborted))
	}
	if s.Reward != nil {
		about = append(about, fmt.Sprintf("reward %.3g", *s.Reward))
	}
	fmt.Fprintf(out, "%s  %s\n", s.Session, strings.Join(about, ", "))
	children := map[string][]shownTurn{}
	for _, t := range s.Turns {
		children[t.Parent] = append(children[t.Parent], t)
	}
	printTurns(out, children, "", "")
}

func showCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show SESSION", Short: "Show a session as a tree of turns"}
	out := configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		id := cmd.Flags().Arg(0)
		c, err := newClient(cfg)
		if err != nil {
			return err
		}
		body, err := c.get(cmd.Context(), "/sessions/"+url.PathEscape(id))
		if errors.Is(err, errNotFound) {
			return fmt.Errorf("the gateway at %s has no session %q; turnlog sessions list shows those it has", c.base, id)
		}
		if err != nil && !errors.Is(err, errNoGateway) && !errors.Is(err, errOtherGateway) {
			_ = c.showParked(cmd, id) // which may be why the gateway cannot show it
		}
		if err != nil {
			return err
		}
		defer body.Close()
		var s shownSession
		if err := json.NewDecoder(body).Decode(&s); err != nil {
			return err
		}
		s.print(cmd.OutOrStdout())
		return c.showParked(cmd, id)
	})
	out.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("name one session: turnlog sessions show SESSION; turnlog sessions list shows which there are")
		}
		return nil
	}
	return out
}

// showParked says why a session is parked, if it is.
func (c client) showParked(cmd *cobra.Command, id string) error {
	events, err := c.parked().list(cmd.Context(), "")
	if errors.Is(err, errNotFound) {
		return nil // a gateway that does not look after them
	}
	for _, e := range events {
		if e.Session == id {
			fmt.Fprintf(cmd.OutOrStdout(), "parked since %s for event %s (%s): %s; turnlog parked --release %s after a repair\n",
				e.Time.Local().Format(time.DateTime), dash(e.Event), e.Reason, e.Detail, id)
		}
	}
	return err
}

// printTurns draws what continues a turn: a line of turns stays at one depth,
// branches are drawn below it.
func printTurns(out io.Writer, children map[string][]shownTurn, parent, indent string) {
	for {
		list := children[parent]
		for i, t := range list {
			mark, below := "", indent
			switch {
			case len(list) > 1 && i < len(list)-1:
				mark, below = "├ ", indent+"│ "
			case len(list) > 1:
				mark, below = "└ ", indent+"  "
			}
			fmt.Fprintf(out, "%s%s%s  +%d prompt, %d sampled, %s%s\n", indent, mark, t.Turn, t.Prompt-t.Keep, t.Completion, t.Finish, note(t))
			if len(list) > 1 {
				printTurns(out, children, t.Turn, below)
			}
		}
		if len(list) != 1 {
			return
		}
		parent = list[0].Turn
	}
}

func note(t shownTurn) (s string) {
	if t.Reason != "" {
		s += "  (" + t.Decision + ": " + t.Reason + ")"
	}
	if t.Class != "main" {
		s += "  [" + t.Class + "]"
	}
	return s
}

func tailCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tail", Short: "Print sessions as they change, until interrupted"}
	run := cmd.Flags().String("run", "", "of this run")
	every := cmd.Flags().Duration("every", time.Second, "how often to look")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		c, err := newClient(cfg)
		if err != nil {
			return err
		}
		if *every <= 0 {
			return errors.New("--every must be positive")
		}
		seen := map[string]uint64{}
		out, away := sessionTable{out: cmd.OutOrStdout()}, false
		for first := true; ; first = false {
			all, err := c.list(cmd.Context(), *run, "", "")
			switch {
			case cmd.Context().Err() != nil:
				return nil
			case err != nil && first:
				return err
			case err != nil && !away: // it may be starting again
				fmt.Fprintln(cmd.ErrOrStderr(), "turnlog:", err)
			}
			away = err != nil
			changed := slices.DeleteFunc(all, func(s registry.Session) bool { return seen[s.ID] == s.Events })
			for _, s := range changed {
				seen[s.ID] = s.Events
			}
			if len(changed) > 0 {
				out = out.print(changed)
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(*every):
			}
		}
	})
}
