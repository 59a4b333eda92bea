// Command stack makes shards as a user would, and beside them what the engine
// says that it sampled:
//
//	stack DIR    writes DIR/shards and DIR/expected.json
//
// It runs the all-in-one against a mock engine with a journal of its own, drives
// the demo's agents through it, and takes from the gateway only which turn
// belongs to which session. run.sh documents expected.json.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/demo"
	"turnlog.dev/deploy/stack"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/gateway/engine/mock"
	demomodel "turnlog.dev/tokenizer/demo"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: stack DIR")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "stack:", err)
		os.Exit(1)
	}
}

// Groups and sessions of each.
const groups, size = 3, 4

func run(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	engine, err := mock.New(mock.Config{Tokenizer: demomodel.Tokenizer(), Seed: 3, NonCanonical: 0.1})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- engine.Run(ctx, ln) }()

	cfg := config.Default()
	cfg.Data, cfg.Exporter.Dir = filepath.Join(dir, "data"), filepath.Join(dir, "shards")
	cfg.Listen, cfg.Exporter.Flush = "127.0.0.1:0", 200*time.Millisecond
	cfg.Models[0].Engine, cfg.Models[0].Backends = "vllm", []string{"http://" + ln.Addr().String()}
	s, err := stack.New(cfg, stack.All, stack.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended, <-served)
	}()
	select {
	case <-s.Ready():
	case err := <-ended:
		return errors.Join(err, errors.New("it did not start"))
	}
	key, err := stack.AdminKey(cfg.AdminFile())
	if err != nil {
		return err
	}
	agent := &demo.Agent{URL: "http://" + s.Addr().String(), AdminKey: key, HTTP: http.DefaultClient}
	var all []demo.Session
	for g := range groups {
		done, err := agent.Run(ctx, "readers", fmt.Sprintf("g%d", g), size)
		if err != nil {
			return err
		}
		all = append(all, done...)
	}
	if err := exported(ctx, cfg.Shards()); err != nil {
		return err
	}
	return write(ctx, filepath.Join(dir, "expected.json"), agent, all, engine.Journal().All())
}

// exported waits until all groups are in shards.
func exported(ctx context.Context, shards string) error {
	out, err := local.New(shards)
	if err != nil {
		return err
	}
	for {
		state, err := exporter.Manifests(out).Load(ctx)
		if err != nil || state.Totals.GroupsExported == groups {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type completion struct {
	IDs      []uint32 `json:"ids"`
	Logprobs []uint32 `json:"logprobs"`
}

// write says what the engine sampled for each session, in order.
func write(ctx context.Context, file string, a *demo.Agent, sessions []demo.Session, journal []mock.Sampled) error {
	byTurn := map[string]mock.Sampled{}
	for _, s := range journal {
		byTurn[s.Request] = s
	}
	var want struct {
		Sessions     map[string][]completion `json:"sessions"`
		MustHaveRows []string                `json:"must_have_rows"`
	}
	want.Sessions = map[string][]completion{}
	for _, s := range sessions {
		turns, err := turnsOf(ctx, a, s.ID)
		if err != nil {
			return err
		}
		for _, id := range turns {
			c := completion{IDs: byTurn[id].Completion}
			for _, f := range byTurn[id].Logprobs {
				c.Logprobs = append(c.Logprobs, math.Float32bits(f))
			}
			want.Sessions[s.ID] = append(want.Sessions[s.ID], c)
		}
		want.MustHaveRows = append(want.MustHaveRows, s.ID)
	}
	raw, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}

// turnsOf asks the gateway for the turns of a session.
func turnsOf(ctx context.Context, a *demo.Agent, session string) (ids []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL+"/sessions/"+session, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.AdminKey)
	res, err := a.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var shown struct {
		Turns []struct {
			Turn string `json:"turn"`
		} `json:"turns"`
	}
	if err := json.NewDecoder(res.Body).Decode(&shown); err != nil {
		return nil, err
	}
	for _, t := range shown.Turns {
		ids = append(ids, t.Turn)
	}
	return ids, nil
}
