package stack

import (
	"context"
	"fmt"
	"net"
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
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

// models makes the models of the configuration, and runs the mock engines that
// it asks for.
func (s *Stack) models(ctx context.Context, g *group, m *metrics) (*gateway.Models, error) {
	var list []*gateway.Model
	for _, c := range s.cfg.Models {
		model, err := s.model(ctx, g, c)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", c.Name, err)
		}
		list = append(list, model)
	}
	return gateway.NewModels(list...), nil
}

func (s *Stack) model(ctx context.Context, g *group, c config.Model) (*gateway.Model, error) {
	var tok tokenizer.Tokenizer = demo.Tokenizer()
	var check familytest.Checkpoint
	for _, k := range familytest.Checkpoints() {
		if k.Name == "qwen3-hybrid" {
			check = k
		}
	}
	assembler, err := prompt.New(prompt.Model{Renderer: check.Renderer(), Tokenizer: tok, Family: family.Qwen3})
	if err != nil {
		return nil, err
	}
	backends := c.Backends
	wireKind := c.Engine
	if c.Engine == "mock" {
		url, err := s.startMock(ctx, g, c, tok)
		if err != nil {
			return nil, err
		}
		backends, wireKind = []string{url}, "sglang"
	}
	var replicas []pool.Replica
	for _, url := range backends {
		e, err := newEngine(wireKind, url)
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, pool.Replica{Name: strings.TrimPrefix(url, "http://"), Engine: e})
	}
	p, err := pool.New(pool.Config{Name: c.Name, Concurrency: c.Concurrency, Tokenizer: tok, Logger: s.opt.Log}, replicas...)
	if err != nil {
		return nil, err
	}
	return &gateway.Model{
		Name: c.Name, Aliases: c.Aliases, Tokenizer: tok, Prompts: assembler, Family: family.Qwen3.Name,
		TokenizerID: tok.Fingerprint(), TemplateID: "x", ContextLength: c.ContextLength, Pool: p,
		SamplingDefault: []byte(c.Sampling.Default), SamplingOverride: []byte(c.Sampling.Override),
	}, nil
}

func newEngine(kind, url string) (engine.Engine, error) {
	cfg := wire.Config{URL: url}
	switch kind {
	case "sglang":
		return sglang.New(sglang.Config{Config: cfg})
	case "vllm":
		return vllm.New(vllm.Config{Config: cfg})
	}
	return nil, fmt.Errorf("engine %q is not known", kind)
}

// startMock runs a mock engine in this process, on a port of its own: it is
// reached as every engine is.
func (s *Stack) startMock(ctx context.Context, g *group, c config.Model, tok tokenizer.Tokenizer) (string, error) {
	srv, err := mock.New(mock.Config{Tokenizer: tok, Model: c.Name, Seed: 1, NonCanonical: 0.02, Logger: s.opt.Log})
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
