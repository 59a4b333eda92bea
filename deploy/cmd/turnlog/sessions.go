package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/replay"
)

// sessionsCommand looks at sessions through a running gateway.
func sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sessions", Short: "Look at the sessions of a running gateway"}
	cmd.AddCommand(listCommand(), showCommand(), tailCommand())
	return cmd
}

// client asks a gateway with the admin key.
type client struct {
	base, key string
}

func newClient(cfg config.Config) (client, error) {
	key, err := stack.AdminKey(cfg.AdminFile())
	return client{"http://" + cfg.Listen, key}, err
}

func (c client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w; is the gateway running there? (--listen)", err)
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		return nil, fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	return res.Body, nil
}

func (c client) list(ctx context.Context, run, group, state string) (all []registry.Session, err error) {
	query := url.Values{"run": {run}, "group": {group}, "state": {state}}
	body, err := c.get(ctx, "/sessions?"+query.Encode())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	s := bufio.NewScanner(body)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var row registry.Session
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b registry.Session) int { return a.OpenedAt.Compare(b.OpenedAt) })
	return all, s.Err()
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
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "SESSION\tRUN\tGROUP\tSTATE\tTURNS\tGENERATED\tTRAINABLE\tREWARD\tOPENED")
		for _, s := range all {
			fmt.Fprintln(w, sessionLine(s))
		}
		return w.Flush()
	})
}

func sessionLine(s registry.Session) string {
	reward := "-"
	if s.Reward != nil {
		reward = fmt.Sprintf("%.3g", *s.Reward)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s", s.ID, s.Run, s.Group, s.State, s.Turns, s.Generated, s.Trainable,
		reward, s.OpenedAt.Local().Format(time.DateTime))
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

func showCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show SESSION", Short: "Show a session as a tree of turns"}
	out := configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		id := cmd.Flags().Arg(0)
		c, err := newClient(cfg)
		if err != nil {
			return err
		}
		body, err := c.get(cmd.Context(), "/sessions/"+url.PathEscape(id))
		if err != nil {
			return err
		}
		defer body.Close()
		var s struct {
			Session string      `json:"session"`
			Run     string      `json:"run"`
			State   string      `json:"state"`
			Reason  string      `json:"reason"`
			Reward  *float64    `json:"reward"`
			Turns   []shownTurn `json:"turns"`
		}
		if err := json.NewDecoder(body).Decode(&s); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%s  run %s, %s %s", s.Session, s.Run, s.State, s.Reason)
		if s.Reward != nil {
			fmt.Fprintf(out, ", reward %.3g", *s.Reward)
		}
		fmt.Fprintln(out)
		children := map[string][]shownTurn{}
		for _, t := range s.Turns {
			children[t.Parent] = append(children[t.Parent], t)
		}
		printTurns(out, children, "", "")
		return nil
	})
	out.Args = cobra.ExactArgs(1)
	return out
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
		seen := map[string]uint64{}
		for {
			all, err := c.list(cmd.Context(), *run, "", "")
			if err != nil {
				return err
			}
			for _, s := range all {
				if seen[s.ID] != s.Events {
					seen[s.ID] = s.Events
					fmt.Fprintln(cmd.OutOrStdout(), sessionLine(s))
				}
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(*every):
			}
		}
	})
}

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
