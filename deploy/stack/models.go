package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"turnlog.dev/deploy/config"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/llamacpp"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/openai"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/vllm"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/recorder/render"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/hub"
	"turnlog.dev/tokenizer/prompt"
)

// DemoFiles names the embedded demo model in a configuration.
const DemoFiles = "demo"

// engines is a model that is served: its pool, what the replicas are made of, and
// the parts that run for it alone: a mock engine, and what looks names up.
type engines struct {
	config config.Model
	model  *gateway.Model
	pool   *pool.Pool
	source source
	open   func(url string) (pool.Replica, error)
	// key is what the backends were sent as theirs when open was made.
	key   string
	parts *group
	// uncounted takes its metrics out again.
	uncounted func()
}

// start makes a model and runs what it needs. Where it cannot be served nothing is
// left behind.
func (s *Stack) start(ctx context.Context, g *group, c config.Model) (*engines, error) {
	e := &engines{config: c, parts: g.within()}
	if err := s.model(ctx, e); err != nil {
		return nil, errors.Join(fmt.Errorf("model %s: %w", c.Name, err), e.parts.stop())
	}
	return e, nil
}

func (s *Stack) model(ctx context.Context, e *engines) error {
	c := e.config
	out := &gateway.Model{
		Name: c.Name, Aliases: c.Aliases, Created: time.Now().Unix(),
		SamplingDefault: []byte(c.Sampling.Default), SamplingOverride: []byte(c.Sampling.Override),
		RoutedExperts: c.RoutedExperts,
	}
	switch {
	case c.Engine == "openai":
		out.Wire = gateway.Text
	case c.Parser == "engine":
		out.Wire = gateway.Parsed
	}
	if c.Files != "" {
		f, err := s.files(ctx, c)
		if err != nil {
			return err
		}
		if out.Wire == gateway.Text {
			out.Counter = &gateway.Counter{Tokenizer: f.Tokenizer, Prompts: f.prompts}
		} else {
			out.Tokenizer, out.Prompts, out.Histories, out.Family = f.Tokenizer, f.prompts, f.histories, f.family
			out.TokenizerID, out.TemplateID = f.Tokenizer.Fingerprint(), f.Template.Fingerprint()
		}
	}
	kind, src := c.Engine, listed(c)
	if c.Engine == "mock" {
		url, err := s.startMock(ctx, e.parts, c, out.Tokenizer)
		if err != nil {
			return err
		}
		kind, src = "sglang", pool.List{url}
	}
	var err error
	if e.key, err = apiKey(c); err != nil {
		return err
	}
	open := opener(kind, c, e.key)
	p, err := pool.New(pool.Config{
		Name: c.Name, Policy: pool.Policy(c.Policy), Concurrency: c.Concurrency, Tokenizer: out.Tokenizer, Check: true, Logger: s.opt.Log,
	})
	if err != nil {
		return err
	}
	e.model, e.pool, e.source, e.open = out, p, newSource(src), open
	if err := s.fill(ctx, e); err != nil {
		return err
	}
	out.Backends, out.Pool = backends{p, open}, p
	out.ContextLength, err = s.check(ctx, c, p)
	return err
}

// files are a model's files, opened, and what prompts are made with: under the
// model's own history policy, and under each that its family allows.
type files struct {
	*hub.Model
	prompts   *prompt.Assembler
	histories map[prompt.Policy]*prompt.Assembler
	family    string
}

// files opens a model's files, once for all parts of the process.
func (s *Stack) files(ctx context.Context, c config.Model) (files, error) {
	key := fmt.Sprint(c.Name, c.Files, c.Revision, c.Family, c.History, c.Engine)
	if f, ok := s.opened[key]; ok {
		return f, nil
	}
	opened, err := openFiles(ctx, c, s.opt)
	if err != nil {
		return files{}, err
	}
	if opened.Template == nil {
		return files{}, fmt.Errorf("%s has no chat template; add a chat_template.jinja to its folder", c.Files)
	}
	fam := family.Detect(family.Evidence{
		Template: opened.Template.Source(chat.Default), Added: opened.Tokenizer.Added(), ModelType: opened.ModelType,
	})
	if c.Family != "" {
		if fam, err = family.ByName(c.Family); err != nil {
			return files{}, err
		}
	}
	f := files{Model: opened, family: fam.Name}
	if f.prompts, f.histories, err = assemblers(opened, fam, history(c)); err == nil {
		s.opened[key] = f
	}
	return f, err
}

// history is a model's own history policy. An engine that takes text does what
// the vendor's template says.
func history(c config.Model) prompt.Policy {
	switch {
	case c.History != "":
		return prompt.Policy(c.History)
	case c.Engine == "openai":
		return prompt.Vendor
	}
	return prompt.Keep
}

// assemblers are what prompts are made with under a model's own history policy,
// which its family must allow, and under each that it allows.
func assemblers(opened *hub.Model, fam family.Family, own prompt.Policy) (*prompt.Assembler, map[prompt.Policy]*prompt.Assembler, error) {
	all := map[prompt.Policy]*prompt.Assembler{}
	for _, p := range []prompt.Policy{prompt.Keep, prompt.Vendor} {
		if p != own && !fam.Allows(p) {
			continue
		}
		a, err := prompt.New(prompt.Model{
			Renderer: opened.Template, Tokenizer: opened.Tokenizer, Family: fam, Policy: p, StopTokens: opened.StopTokens,
		})
		if err != nil {
			return nil, nil, err
		}
		all[p] = a
	}
	return all[own], all, nil
}

// recorderModels are the files that a recorder audits prompts and tokenizes
// text turns with.
func (s *Stack) recorderModels(ctx context.Context, models []config.Model) (list []render.Model, err error) {
	for _, c := range models {
		if c.Files == "" {
			continue
		}
		f, err := s.files(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", c.Name, err)
		}
		list = append(list, render.Model{
			Name: c.Name, TokenizerID: f.Tokenizer.Fingerprint(), TemplateID: f.Template.Fingerprint(),
			Tokenizer: f.Tokenizer, Prompts: f.prompts, Histories: byName(f.histories),
		})
	}
	return list, nil
}

// byName is histories as turn events name them.
func byName(histories map[prompt.Policy]*prompt.Assembler) map[string]render.Prompts {
	out := map[string]render.Prompts{}
	for p, a := range histories {
		out[string(p)] = a
	}
	return out
}

// otherTokenizers opens what tokenizer/bpe refuses: nil but in a build with the
// tag hf.
var otherTokenizers func(definition []byte) (tokenizer.Tokenizer, error)

func openFiles(ctx context.Context, c config.Model, opt Options) (*hub.Model, error) {
	h := hub.FromEnv()
	h.Fallback, h.Progress, h.Log = otherTokenizers, opt.Download, opt.Log
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
		s.opt.Log.WarnContext(ctx, "no engine answers yet; turns fail until one does: is it running at this address?", "model", c.Name, "error", err)
	case err != nil:
		return 0, err
	}
	lengths := slices.DeleteFunc([]int{c.ContextLength, info.ContextLength}, func(n int) bool { return n == 0 })
	if len(lengths) == 0 {
		return 0, nil
	}
	return slices.Min(lengths), nil
}

// listed is where a model's engines are listed.
func listed(c config.Model) pool.Source {
	switch c.Discover {
	case "env":
		return pool.Env{Names: c.Backends, Lookup: os.LookupEnv}
	case "dns":
		var all pool.Sources
		for _, url := range c.Backends {
			all = append(all, pool.DNS{URL: url})
		}
		return all
	}
	return pool.List(c.Backends)
}

// lookEvery is how often names of engines are looked up again.
const lookEvery = 10 * time.Second

// fill puts the engines that are listed now into a pool, and keeps it in step
// with a source that changes. A name that nothing stands behind yet is no reason
// not to start.
func (s *Stack) fill(ctx context.Context, e *engines) error {
	urls, err := e.source.Backends(ctx)
	switch dns := e.config.Discover == "dns"; {
	case err != nil && !dns:
		return err
	case err != nil:
		s.opt.Log.WarnContext(ctx, "no engine is found yet; the names are looked up again every ten seconds", "model", e.config.Name, "error", err)
	default:
		if err := e.pool.Sync(urls, e.open); err != nil {
			return err
		}
	}
	if e.config.Discover != "dns" {
		return nil
	}
	return e.parts.start(ctx, part{name: "engines of " + e.config.Name, run: func(ctx context.Context) error {
		return e.pool.Follow(ctx, e.source, lookEvery, e.open)
	}})
}

// apiKey is the key that a model's backends ask for; empty is none.
func apiKey(c config.Model) (string, error) {
	if c.APIKeyFile == "" {
		return "", nil
	}
	key, err := os.ReadFile(c.APIKeyFile)
	if err != nil {
		return "", fmt.Errorf("api_key_file: %w", err)
	}
	return strings.TrimSpace(string(key)), nil
}

// opener makes replicas of one model's kind of engine.
func opener(kind string, c config.Model, key string) func(url string) (pool.Replica, error) {
	cfg := wire.Config{APIKey: key, Model: c.Name, Upstream: c.UpstreamModel}
	return func(url string) (pool.Replica, error) {
		cfg := cfg
		cfg.URL = url
		e, err := newEngine(kind, c, cfg)
		r := pool.Replica{Name: pool.NameOf(url), Engine: e}
		if c.Engine == "mock" { // it says that it is the engine whose wire it speaks
			r.Kind = "mock"
		}
		return r, err
	}
}

// backends is a pool that can be given more engines.
type backends struct {
	*pool.Pool
	open func(url string) (pool.Replica, error)
}

// Open implements gateway.Backends.
func (b backends) Open(url string) error {
	r, err := b.open(url)
	if err != nil {
		return err
	}
	return b.Add(r)
}

func newEngine(kind string, c config.Model, cfg wire.Config) (engine.Engine, error) {
	parses := c.Parser == "engine"
	switch kind {
	case "sglang":
		return sglang.New(sglang.Config{Config: cfg, Parser: parses, RoutedLayers: c.RoutedLayers, RoutedTopK: c.RoutedTopK})
	case "vllm":
		return vllm.New(vllm.Config{Config: cfg, Parser: parses})
	case "llamacpp":
		return llamacpp.New(llamacpp.Config{Config: cfg})
	case "openai":
		return openai.New(openai.Config{Config: cfg})
	}
	return nil, fmt.Errorf("engine %q is none of %v", kind, config.Engines)
}

// nonCanonical is how often the mock engine samples a token as two that spell
// the same, as real sampling does now and then.
const nonCanonical = 0.02

// startMock runs a mock engine in this process, on a port of its own: it is
// reached as every engine is.
func (s *Stack) startMock(ctx context.Context, g *group, c config.Model, tok tokenizer.Tokenizer) (url string, err error) {
	cfg := mock.Config{Tokenizer: tok, Model: cmp.Or(c.UpstreamModel, c.Name), Seed: 1, NonCanonical: nonCanonical, Logger: s.opt.Log}
	if c.RoutedExperts {
		cfg.Experts = mock.SomeExperts
	}
	srv, err := mock.New(cfg)
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
