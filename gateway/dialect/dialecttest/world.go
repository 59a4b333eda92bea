// Package dialecttest is a whole gateway over a log in memory, with the demo
// model and an engine that says what a test tells it: what dialects are tested
// against. Ids and times are the same in every run.
package dialecttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/prompt"
)

// Session is the session that a World has open.
const Session = "s1"

// Options change what a World is made of.
type Options struct {
	// Template replaces the demo's.
	Template string
	// Window is the context length; 0 is unknown.
	Window int
	// PingEvery replaces the surface's, Deadline the gateway's longest
	// generation.
	PingEvery, Deadline time.Duration
	// Buffered is the session's policy.
	Buffered bool
	// NoHistories has the model keep its history, whoever asks for another policy.
	NoHistories bool
	// OneName has the model take no name but its own.
	OneName bool
	// LogDown says that the log takes no turns.
	LogDown bool
}

// World is a gateway with one open session.
type World struct {
	tb      testing.TB
	Handler http.Handler
	Gateway *gateway.Gateway
	Engine  *Engine
	// Key is the session's.
	Key string
}

// New returns a World; its model is called demo and takes every name.
func New(tb testing.TB, o Options) *World {
	source := o.Template
	if source == "" {
		source = demo.Template()
	}
	template, err := chat.New(source, chat.SpecialTokens{})
	require.NoError(tb, err)
	tok := demo.Tokenizer()
	histories := map[prompt.Policy]*prompt.Assembler{}
	for _, p := range []prompt.Policy{prompt.Keep, prompt.Vendor} {
		histories[p], err = prompt.New(prompt.Model{Renderer: template, Tokenizer: tok, Family: family.Qwen3, Policy: p})
		require.NoError(tb, err)
	}
	if o.NoHistories {
		delete(histories, prompt.Vendor)
	}
	w := &World{tb: tb, Engine: &Engine{tok: tok}}
	// Two replicas, so that there is one to turn to.
	p, err := pool.New(pool.Config{Name: "demo"},
		pool.Replica{Name: "one", Kind: "test", Engine: w.Engine}, pool.Replica{Name: "two", Kind: "test", Engine: w.Engine})
	require.NoError(tb, err)

	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := func() time.Time { return start }
	var ids atomic.Int64
	aliases := []string{"*"}
	if o.OneName {
		aliases = nil
	}
	gatewayCfg := gateway.Default()
	if o.Deadline > 0 {
		gatewayCfg.GenerateTimeout = o.Deadline
	}
	w.Gateway, err = gateway.New(gatewayCfg, gateway.Deps{
		Journal: mem.New(mem.Options{}),
		Models: gateway.NewModels(&gateway.Model{
			Name: "demo", Aliases: aliases, Tokenizer: tok, Prompts: histories[prompt.Keep], Histories: histories, Family: family.Qwen3.Name,
			TokenizerID: "demo", TemplateID: "demo", ContextLength: o.Window, Pool: p, Created: start.Unix(),
		}),
		Keys: gateway.NewKeys([]byte("seed"), "admin"),
		Healthy: func(context.Context) error {
			if o.LogDown {
				return errors.New("the disk is full")
			}
			return nil
		},
		Now: now, NewID: func() string { return fmt.Sprintf("%04d", ids.Add(1)) },
	})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nobody is left to wait for
		w.Gateway.Shutdown(ctx)
	})
	opened, err := w.Gateway.Open(tb.Context(), gateway.OpenRequest{Session: Session, Opened: &event.SessionOpened{
		ModelPolicy: &event.ModelPolicy{Buffered: o.Buffered},
	}})
	require.NoError(tb, err)
	w.Key = opened.Key
	cfg := httpapi.Default()
	if o.PingEvery > 0 {
		cfg.PingEvery = o.PingEvery
	}
	w.Handler, err = httpapi.New(cfg, httpapi.Deps{Gateway: w.Gateway, Now: now, NewID: func() string { return "0" }})
	require.NoError(tb, err)
	return w
}

// Response is what a client got.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Post sends a body with the session's key. Headers are "Name: value".
func (w *World) Post(path, body string, headers ...string) Response {
	return w.Do(w.tb.Context(), http.MethodPost, path, body, headers...)
}

// Do sends a request with the session's key.
func (w *World) Do(ctx context.Context, method, path, body string, headers ...string) Response {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.Key)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	w.Handler.ServeHTTP(rec, r)
	return Response{rec.Code, rec.Header(), rec.Body.String()}
}

// Tree runs fn with the session's tree.
func (w *World) Tree(fn func(*tree.Tree)) {
	require.NoError(w.tb, w.Gateway.View(context.WithoutCancel(w.tb.Context()), Session, func(t *tree.Tree, _ bool) error {
		fn(t)
		return nil
	}))
}

// Turn is a committed turn as tests look at it.
type Turn struct {
	ID, Parent, Decision, Reason string
	Class, Thread                string
	Tolerances                   []string
	Ambiguous, Rewritten         bool
	// Keep are the parent's ids that the prompt begins with.
	Keep, Prompt int
	Added        []message.Message
	Answer       message.Message
	Kwargs       string
}

// Turns are the committed turns in order.
func (w *World) Turns() (list []Turn) {
	w.Tree(func(t *tree.Tree) {
		for _, n := range t.Turns {
			c := n.Committed
			turn := Turn{
				ID: n.ID, Parent: c.GetParent(), Decision: c.GetMatch().GetDecision(), Reason: c.GetMatch().GetReason(),
				Class: c.GetRequest().GetClass(), Thread: c.GetRequest().GetThread(),
				Tolerances: c.GetMatch().GetTolerances(), Ambiguous: c.GetMatch().GetAmbiguous(), Rewritten: c.GetMatch().GetRewritten(),
				Keep: n.Keep, Prompt: n.PromptLen, Kwargs: string(c.GetConversation().GetTemplateKwargs()),
			}
			turn.Added, turn.Answer = n.Added, n.Answer
			list = append(list, turn)
		}
	})
	return list
}
