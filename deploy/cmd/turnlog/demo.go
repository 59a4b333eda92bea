package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// demoTimeout bounds the whole demo, demoRun is the run of its sessions.
const (
	demoTimeout = 2 * time.Minute
	demoRun     = "demo"
)

// demoCommand drives a gateway with the bundled agent and shows the rows that
// come of it. It uses the stack that runs, or starts one for itself.
func demoCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "demo", Short: "Drive a small agent through the gateway and show the rows"}
	sessions := cmd.Flags().Int("sessions", 4, "sessions of the group")
	return configured(cmd, func(cmd *cobra.Command, cfg config.Config) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), demoTimeout)
		defer cancel()
		out := cmd.OutOrStdout()
		url := "http://" + cfg.Listen
		if running(ctx, url) {
			fmt.Fprintf(out, "using the gateway at %s\n", url)
			return runDemo(ctx, cfg, url, *sessions, out)
		}
		fmt.Fprintf(out, "no gateway at %s: starting a stack for the demo in %s\n", url, cfg.Data)
		cfg.Listen = "127.0.0.1:0"
		cfg.Exporter.Flush = time.Second
		return withStack(ctx, cmd, cfg, func(url string) error { return runDemo(ctx, cfg, url, *sessions, out) })
	})
}

// running reports whether a turnlog gateway is ready at a URL.
func running(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// withStack runs a stack for as long as do takes.
func withStack(ctx context.Context, cmd *cobra.Command, cfg config.Config, do func(url string) error) error {
	cfg.Logging.Level = "warn"
	s, err := stack.New(cfg, stack.All, stack.Options{Log: logger(cfg, cmd.ErrOrStderr()), Version: version()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-s.Ready():
	}
	err = do("http://" + s.Addr().String())
	cancel()
	return errors.Join(err, <-ended)
}

func runDemo(ctx context.Context, cfg config.Config, url string, n int, out io.Writer) error {
	key, err := stack.AdminKey(cfg.AdminFile())
	if err != nil {
		return err
	}
	agent := &demo.Agent{URL: url, AdminKey: key, HTTP: &http.Client{Timeout: demoTimeout}}
	group := "demo-" + time.Now().UTC().Format("20060102-150405.000")
	group = group[:len(group)-4] + group[len(group)-3:] // no dot in a name
	start := time.Now()
	sessions, err := agent.Run(ctx, demoRun, group, n)
	if err != nil {
		return err
	}
	turns, calls := 0, 0
	for _, s := range sessions {
		turns, calls = turns+s.Turns, calls+s.Calls
	}
	fmt.Fprintf(out, "%d sessions of group %s: %d turns, %d tool calls in %s; waiting for the shard\n",
		n, group, turns, calls, time.Since(start).Round(time.Millisecond))
	shards, err := stack.OpenShards(cfg)
	if err != nil {
		return err
	}
	found, path, err := await(ctx, shards, group)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "session\tturns\ttokens\ttrainable\treward\tgrade\t")
	for _, r := range found {
		reward := "-"
		if r.Reward != nil {
			reward = fmt.Sprintf("%.2f", *r.Reward)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t\n", r.SessionID, len(r.TurnStart), r.Length, r.TrainableTokens, reward, r.Grade)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "file %s in %s\n", path, stack.ShardsAt(cfg))
	return err
}

// await waits until the rows of a group are in a shard that a manifest lists.
func await(ctx context.Context, shards sink.Sink, group string) (found []*rows.Row, path string, err error) {
	log := exporter.Manifests(shards)
	seen := map[string]bool{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		state, err := log.Load(ctx)
		if err != nil {
			return nil, "", err
		}
		for _, f := range state.Files {
			if f.Run != demoRun || seen[f.Path] {
				continue
			}
			seen[f.Path] = true
			for batch, err := range exporter.RowGroups(ctx, shards, f) {
				if err != nil {
					return nil, "", err
				}
				found = append(found, slices.DeleteFunc(batch, func(r *rows.Row) bool { return r.GroupID != group })...)
			}
			if len(found) > 0 {
				return found, f.Path, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, "", fmt.Errorf("demo: no shard with group %s: %w", group, ctx.Err())
		case <-tick.C:
		}
	}
}
