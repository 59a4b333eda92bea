package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/parked"
)

// parkedCommand lists what could not be folded, and why, and releases it.
func parkedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "parked [--release [SESSION...]]", Short: "List the sessions that could not be folded and the events for which, or release them",
		Long: "A parked session is recorded up to the event that could not be folded, and trained no further.\n" +
			"After a repair (a newer turnlog, a larger limit, files that were missing) turnlog replay --parked shows what would\n" +
			"become of it, and turnlog parked --release lets the recorder fold it again, from its first event: the sessions\n" +
			"that are named, or all that are listed. What was recorded of it before is void then. A session that still cannot\n" +
			"be folded is parked again, with its reason.\n" +
			"Asks the gateway that runs (--listen); if none does, looks into the log itself.",
	}
	run := cmd.Flags().String("run", "", "of this run")
	asJSON := cmd.Flags().Bool("json", false, "print each event as a JSON object, with the message itself where it could not be read")
	release := cmd.Flags().Bool("release", false, "let the recorder fold the sessions again")
	wait := cmd.Flags().Duration("wait", 10*time.Second, "how long to wait for what becomes of released sessions; 0 for not at all")
	detail := cmd.Flags().String("detail", "", "why they are released, for people who read the log")
	cmd = configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		return withParked(cmd, cfg, func(p parkedSessions) error {
			events, err := p.list(cmd.Context(), *run)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if !*release {
				return printParked(out, events, *asJSON)
			}
			chosen := cmd.Flags().Args()
			if len(chosen) == 0 {
				chosen = slices.Sorted(maps.Keys(why(events)))
			}
			// One that cannot be released does not keep the others.
			var released []string
			var refused []error
			for _, id := range chosen {
				if err := p.release(cmd.Context(), id, *detail); err != nil {
					refused = append(refused, err)
					continue
				}
				released = append(released, id)
			}
			return errors.Join(errors.Join(refused...), afterRelease(cmd.Context(), out, p, released, why(events), *wait))
		})
	})
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && !*release {
			return errors.New("turnlog parked lists all sessions; with --release it lets go those that are named")
		}
		return nil
	}
	return cmd
}

// parkedSessions are those of a gateway that runs, or of a log.
type parkedSessions struct {
	list    func(ctx context.Context, run string) ([]parked.Event, error)
	release func(ctx context.Context, session, detail string) error
	// recorded is false when no recorder is at work that we know of.
	recorded bool
}

// withParked finds the parked sessions: through the gateway that runs, or else
// in the log itself.
func withParked(cmd *cobra.Command, cfg config.Config, do func(parkedSessions) error) error {
	ctx := cmd.Context()
	c, away := newClient(cfg)
	if away == nil {
		p := c.parked()
		if _, away = p.list(ctx, "none"); away == nil {
			return do(p)
		}
		if !errors.Is(away, errNoGateway) && !errors.Is(away, errOtherGateway) {
			return away
		}
	}
	inside := false
	err := stack.WithLogs(ctx, cfg, quiet(cmd, cfg), func(l stack.Logs) error {
		inside = true
		box := deadletter.New(l.DeadLetters)
		return do(parkedSessions{
			list: func(ctx context.Context, run string) (all []parked.Event, err error) {
				for e, err := range parked.List(ctx, l.Registry, box, run) {
					if err != nil {
						return nil, err
					}
					all = append(all, e)
				}
				return all, nil
			},
			release: func(ctx context.Context, session, detail string) error {
				return parked.Release(ctx, l.Turns, session, detail, time.Now())
			},
			recorded: cfg.Log.URL != "",
		})
	})
	if errors.Is(err, natsd.ErrLocked) && !inside {
		return fmt.Errorf("%w\n%w", away, err)
	}
	return err
}

func (c client) parked() parkedSessions {
	return parkedSessions{
		list: func(ctx context.Context, run string) ([]parked.Event, error) {
			return listed[parked.Event](ctx, c, "/parked?"+url.Values{"run": {run}}.Encode())
		},
		release: func(ctx context.Context, session, detail string) error {
			body, err := json.Marshal(map[string]string{"detail": detail})
			if err != nil {
				return err
			}
			answer, err := c.do(ctx, "POST", "/sessions/"+url.PathEscape(session)+"/release", string(body))
			if err != nil {
				return fmt.Errorf("release %s: %w", session, err)
			}
			return answer.Close()
		},
		recorded: true,
	}
}

func printParked(out io.Writer, events []parked.Event, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(out)
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		return nil
	}
	if len(events) == 0 {
		_, err := fmt.Fprintln(out, "no session is parked")
		return err
	}
	w := table(out)
	for i, e := range events {
		if i == 0 {
			fmt.Fprintln(w, "SESSION\tRUN\tEVENT\tKIND\tPOSITION\tAT\tREASON\tDETAIL")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", e.Session, e.Run, dash(e.Event), dash(e.Kind), e.Position,
			e.Time.Local().Format(time.DateTime), e.Reason, e.Detail)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d sessions are parked, for %d events\n", len(why(events)), len(events))
	return err
}

// why says for each session why it is parked, in a way that changes when it
// is parked again.
func why(events []parked.Event) map[string]string {
	found := map[string]string{}
	for _, e := range events {
		found[e.Session] += fmt.Sprintf("%d %s %d;", e.Round, e.Event, e.Position)
	}
	return found
}

// afterRelease waits for what becomes of released sessions, and says it.
func afterRelease(ctx context.Context, out io.Writer, p parkedSessions, released []string, before map[string]string, wait time.Duration) error {
	fmt.Fprintf(out, "%d sessions are released\n", len(released))
	if len(released) == 0 {
		return nil
	}
	if !p.recorded {
		fmt.Fprintln(out, "nothing runs here: they are folded again when turnlog up does")
		return nil
	}
	if wait <= 0 {
		return nil
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		events, err := p.list(ctx, "")
		if err != nil {
			return err
		}
		now := why(events)
		waiting := slices.DeleteFunc(slices.Clone(released), func(id string) bool { return now[id] != before[id] || now[id] == "" })
		again := slices.DeleteFunc(events, func(e parked.Event) bool { return !slices.Contains(released, e.Session) })
		switch {
		case len(waiting) > 0:
		case len(again) > 0:
			if err := printParked(out, again, false); err != nil {
				return err
			}
			return errors.New("some sessions could not be folded again: repair what their reasons name and release them once more")
		default:
			_, err := fmt.Fprintln(out, "none of them is parked any more")
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("the recorder has not come to %s within %s: look again with turnlog parked", strings.Join(waiting, ", "), wait)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
