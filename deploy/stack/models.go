package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"turnlog.dev/deploy/config"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/vllm"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/hub"
	"turnlog.dev/tokenizer/prompt"
)

// DemoFiles names the embedded demo model in a configuration.
const DemoFiles = "demo"

// models makes the models of the configuration, and runs the mock engines that
// it asks for.
func (s *Stack) models(ctx context.Context, g *group, m *metrics) (*gateway.Models, error) {
	var list []*gateway.Model
	for _, c := range s.cfg.Models {
		model, err := s.model(ctx, g, m, c)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", c.Name, err)
		}
		list = append(list, model)
	}
	return gateway.NewModels(list...), nil
}

func (s *Stack) model(ctx context.Context, g *group, m *metrics, c config.Model) (*gateway.Model, error) {
	files, err := openFiles(ctx, c)
	if err != nil {
		return nil, err
	}
	if files.Template == nil {
		return nil, fmt.Errorf("%s has no chat template; add a chat_template.jinja to its folder", c.Files)
	}
	fam := family.Detect(family.Evidence{
		Template: files.Template.Source("default"), Added: files.Tokenizer.Added(), ModelType: files.Config.ModelType,
	})
	if c.Family != "" {
		if fam, err = family.ByName(c.Family); err != nil {
			return nil, err
		}
	}
	assembler, err := prompt.New(prompt.Model{
		Renderer: files.Template, Tokenizer: files.Tokenizer, Family: fam, StopTokens: files.StopTokens,
	})
	if err != nil {
		return nil, err
	}
	replicas, err := s.replicas(ctx, g, c, files.Tokenizer)
	if err != nil {
		return nil, err
	}
	p, err := pool.New(pool.Config{
		Name: c.Name, Concurrency: c.Concurrency, Tokenizer: files.Tokenizer, Logger: s.opt.Log,
	}, replicas...)
	if err != nil {
		return nil, err
	}
	m.pool(c.Name, p.Stats)
	window, err := s.check(ctx, c, p)
	if err != nil {
		return nil, err
	}
	return &gateway.Model{
		Name: c.Name, Aliases: c.Aliases, Tokenizer: files.Tokenizer, Prompts: assembler, Family: fam.Name,
		TokenizerID: files.Tokenizer.Fingerprint(), TemplateID: files.Template.Fingerprint(),
		ContextLength: window, Pool: p,
		SamplingDefault: []byte(c.Sampling.Default), SamplingOverride: []byte(c.Sampling.Override),
	}, nil
}

func openFiles(ctx context.Context, c config.Model) (*hub.Model, error) {
	h := hub.FromEnv()
	if c.Files == DemoFiles {
		return h.OpenFS(demo.Files(), DemoFiles)
	}
	ref := c.Files
	if c.Revision != "" {
		ref += "@" + c.Revision
	}
	return h.Open(ctx, ref)
}

// check asks the engines what they are, as far as they answer, and returns the
// context length in force. An engine that is down is no reason not to start; one
// that contradicts the tokenizer is.
func (s *Stack) check(ctx context.Context, c config.Model, p *pool.Pool) (window int, err error) {
	info, err := p.Check(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return 0, err
	case engine.ClassOf(err) == engine.Unreachable:
		s.opt.Log.WarnContext(ctx, "no engine answers yet", "model", c.Name, "error", err)
	case err != nil:
		return 0, err
	}
	lengths := slices.DeleteFunc([]int{c.ContextLength, info.ContextLength}, func(n int) bool { return n == 0 })
	if len(lengths) == 0 {
		return 0, nil
	}
	return slices.Min(lengths), nil
}

func (s *Stack) replicas(ctx context.Context, g *group, c config.Model, tok tokenizer.Tokenizer) (list []pool.Replica, err error) {
	kind, backends := c.Engine, c.Backends
	if kind == "mock" {
		url, err := s.startMock(ctx, g, c, tok)
		if err != nil {
			return nil, err
		}
		kind, backends = "sglang", []string{url}
	}
	for _, url := range backends {
		e, err := newEngine(kind, url)
		if err != nil {
			return nil, err
		}
		_, name, _ := strings.Cut(url, "://")
		list = append(list, pool.Replica{Name: name, Engine: e})
	}
	return list, nil
}

func newEngine(kind, url string) (engine.Engine, error) {
	cfg := wire.Config{URL: url}
	switch kind {
	case "sglang":
		return sglang.New(sglang.Config{Config: cfg})
	case "vllm":
		return vllm.New(vllm.Config{Config: cfg})
	}
	return nil, fmt.Errorf("engine %q is none of %v", kind, config.Engines)
}

// nonCanonical is how often the mock engine samples a token as two that spell
// the same, as real sampling does now and then.
const nonCanonical = 0.02

// startMock runs a mock engine in this process, on a port of its own: it is
// reached as every engine is.
func (s *Stack) startMock(ctx context.Context, g *group, c config.Model, tok tokenizer.Tokenizer) (url string, err error) {
	srv, err := mock.New(mock.Config{Tokenizer: tok, Model: c.Name, Seed: 1, NonCanonical: nonCanonical, Logger: s.opt.Log})
	if err != nil {
		return "", err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	err = g.start(ctx, part{name: "mock engine", run: func(ctx context.Context) error { return srv.Run(ctx, ln) }})
	return "http://" + ln.Addr().String(), err
}
