// Package reference keeps the table of parity with the reference system: what
// it does well is done here too, and where it fails the right thing is done.
// Everything goes over HTTP on both sides, and each test ends with a comparison
// by ids of the log with what the engine says that it sampled.
package reference

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/llamacpp"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/vllm"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/hub"
	"turnlog.dev/tokenizer/prompt"
)

const (
	adminKey = "admin"
	chatPath = "/v1/chat/completions"
	messages = "/v1/messages"
)

// options change what a world is made of.
type options struct {
	// Wire is sglang (the default), vllm or llamacpp.
	Wire string
	// Of is the model; default the embedded one.
	Of *familytest.Checkpoint
	// MaxBody and PingEvery replace the surface's, Generate the gateway's
	// longest generation.
	MaxBody             int64
	PingEvery, Generate time.Duration
	// CacheBytes replaces the gateway's.
	CacheBytes int
	// Limits are the session's.
	Limits *event.Limits
	// NonCanonical is the share of tokens that are sampled in another split.
	NonCanonical float64
	// Blobs has the engine say which experts it chose, and keeps them.
	Blobs gateway.Blobs
	// Mock changes the engine's configuration.
	Mock func(*mock.Config)
	// Pool stands before the model's.
	Pool func(gateway.Pool) gateway.Pool
	// Concurrency is how many requests the engine is given at once.
	Concurrency int
	// Around stands before the surface, and Fault is called at its points.
	Around func(http.Handler) http.Handler
	Fault  func(point string)
}

// world is a gateway over a log in memory, a real adapter and the mock engine,
// with one open session.
type world struct {
	t       *testing.T
	opt     options
	log     journal.Journal
	engine  *mock.Server
	model   *gateway.Model
	pool    *pool.Pool
	gateway *gateway.Gateway
	// url is the gateway's, key the session's.
	url, key string

	mu    sync.Mutex
	asked []*http.Request // what reached the engine, without bodies
}

const session = "s1"

func newWorld(t *testing.T, script mock.Script, opt options) *world {
	t.Helper()
	w := &world{t: t, opt: opt, log: mem.New(mem.Options{})}
	var err error
	w.model = demoModel(t)
	if opt.Of != nil {
		w.model = checkpointModel(t, opt.Of)
	}
	cfg := mock.Config{Tokenizer: w.model.Tokenizer, Script: script, NonCanonical: opt.NonCanonical}
	if opt.Of != nil {
		// The last that the family names: <|call|> ends calls where there is one.
		stops := opt.Of.Family.Stops
		cfg.StopToken = stops[len(stops)-1]
	}
	if opt.Mock != nil {
		opt.Mock(&cfg)
	}
	w.engine, err = mock.New(cfg)
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, r.Clone(context.WithoutCancel(r.Context())))
		w.mu.Unlock()
		w.engine.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	w.model.RoutedExperts = opt.Blobs != nil
	w.pool = dial(t, srv.URL, opt, w.model.Tokenizer)
	w.model.Pool = w.pool
	if opt.Pool != nil {
		w.model.Pool = opt.Pool(w.pool)
	}
	w.gateway, w.url = w.serve()
	opened, err := w.gateway.Open(t.Context(), gateway.OpenRequest{Session: session, Opened: &event.SessionOpened{Limits: opt.Limits}})
	require.NoError(t, err)
	w.key = opened.Key
	t.Cleanup(w.check)
	return w
}

// dial returns a pool of one server behind its real adapter.
func dial(tb testing.TB, url string, opt options, tok tokenizer.Tokenizer) *pool.Pool {
	tb.Helper()
	var e engine.Engine
	var err error
	switch cfg := (wire.Config{URL: url}); opt.Wire {
	case "vllm":
		e, err = vllm.New(vllm.Config{Config: cfg})
	case "llamacpp":
		e, err = llamacpp.New(llamacpp.Config{Config: cfg})
	default:
		e, err = sglang.New(sglang.Config{Config: cfg})
	}
	require.NoError(tb, err)
	p, err := pool.New(pool.Config{Name: "demo", Tokenizer: tok, FailuresToRest: 1000, Concurrency: opt.Concurrency},
		pool.Replica{Name: "one", Kind: opt.Wire, Engine: e})
	require.NoError(tb, err)
	return p
}

// demoModel is the embedded model without a pool; it takes every name.
func demoModel(tb testing.TB) *gateway.Model {
	tb.Helper()
	files, err := hub.Hub{}.OpenFS(demo.Files(), "demo")
	require.NoError(tb, err)
	fam := family.Detect(family.Evidence{Template: files.Template.Source("default"), Added: files.Tokenizer.Added()})
	assembler, err := prompt.New(prompt.Model{Renderer: files.Template, Tokenizer: files.Tokenizer, Family: fam, StopTokens: files.StopTokens})
	require.NoError(tb, err)
	return &gateway.Model{
		Name: "demo", Aliases: []string{"*"}, Tokenizer: files.Tokenizer, Prompts: assembler, Family: fam.Name,
		TokenizerID: files.Tokenizer.Fingerprint(), TemplateID: files.Template.Fingerprint(), ContextLength: 1 << 16,
	}
}

// checkpointModel is the stand-in of a checkpoint, without a pool.
func checkpointModel(tb testing.TB, c *familytest.Checkpoint) *gateway.Model {
	tb.Helper()
	m := c.Model()
	assembler, err := prompt.New(m)
	require.NoError(tb, err)
	return &gateway.Model{
		Name: c.Name, Aliases: []string{"*"}, Tokenizer: m.Tokenizer, Prompts: assembler, Family: m.Family.Name,
		TokenizerID: m.Tokenizer.Fingerprint(), TemplateID: "stand-in", ContextLength: 1 << 16,
	}
}

// serve starts a gateway on the world's log, in place of one that fell or next
// to it, and returns it with its URL.
func (w *world) serve() (*gateway.Gateway, string) {
	w.t.Helper()
	cfg := gateway.Default()
	if w.opt.Generate > 0 {
		cfg.GenerateTimeout = w.opt.Generate
	}
	if w.opt.CacheBytes > 0 {
		cfg.CacheBytes = w.opt.CacheBytes
	}
	g, err := gateway.New(cfg, gateway.Deps{
		Blobs: w.opt.Blobs, Journal: w.log, Models: gateway.NewModels(w.model), Keys: gateway.NewKeys([]byte("seed"), adminKey), Fault: w.opt.Fault,
	})
	require.NoError(w.t, err)
	surface := httpapi.Default()
	if w.opt.MaxBody > 0 {
		surface.MaxBody = w.opt.MaxBody
	}
	if w.opt.PingEvery > 0 {
		surface.PingEvery = w.opt.PingEvery
	}
	h, err := httpapi.New(surface, httpapi.Deps{Gateway: g, Fault: w.opt.Fault})
	require.NoError(w.t, err)
	if w.opt.Around != nil {
		h = w.opt.Around(h)
	}
	return g, listen(w.t, h)
}

// listen serves a handler until the test ends and returns its URL.
func listen(tb testing.TB, h http.Handler) string {
	srv := httptest.NewServer(h)
	tb.Cleanup(srv.Close)
	return srv.URL
}

// reached are the requests that reached the engine, checks included.
func (w *world) reached() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*http.Request(nil), w.asked...)
}

// reply is what a client got.
type reply struct {
	status int
	header http.Header
	body   string
}

// at returns what stands in the body at a path such as choices.0.message, or
// nil.
func (r reply) at(path string) any {
	var v any
	if json.Unmarshal([]byte(r.body), &v) != nil {
		return nil
	}
	for key := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// text is at as a string, empty if it is none.
func (r reply) text(path string) string { s, _ := r.at(path).(string); return s }

// object is JSON by hand.
type object = map[string]any

func user(text string) object      { return object{"role": "user", "content": text} }
func assistant(text string) object { return object{"role": "assistant", "content": text} }
func system(text string) object    { return object{"role": "system", "content": text} }

func result(id, text string) object {
	return object{"role": "tool", "tool_call_id": id, "content": text}
}

// chat makes a chat completion with the session's key; sets are members of the
// body besides messages.
func (w *world) chat(history []object, sets ...object) reply {
	w.t.Helper()
	body := object{"model": "any", "messages": history}
	for _, s := range sets {
		for k, v := range s {
			body[k] = v
		}
	}
	return w.post(chatPath, body)
}

// served is chat that must be answered; it returns the history with the answer.
func (w *world) served(history []object, sets ...object) (reply, []object) {
	w.t.Helper()
	r := w.chat(history, sets...)
	require.Equal(w.t, http.StatusOK, r.status, r.body)
	m, ok := r.at("choices.0.message").(object)
	require.True(w.t, ok, r.body)
	return r, append(append([]object(nil), history...), m)
}

// post sends a body, an object or a text as it is, with the session's key.
// Headers are "Name: value".
func (w *world) post(path string, body any, headers ...string) reply {
	w.t.Helper()
	return w.do(w.t.Context(), http.MethodPost, w.url+path, body, headers...)
}

func (w *world) do(ctx context.Context, method, url string, body any, headers ...string) reply {
	w.t.Helper()
	res := w.open(ctx, method, url, body, headers...)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return reply{res.StatusCode, res.Header, string(raw)}
}

// open is do without reading the body.
func (w *world) open(ctx context.Context, method, url string, body any, headers ...string) *http.Response {
	w.t.Helper()
	raw, ok := body.(string)
	if !ok && body != nil {
		b, err := json.Marshal(body)
		require.NoError(w.t, err)
		raw = string(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(raw))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+w.key)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Del(name)
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	return res
}

// tree folds a session from the log: what it says, whoever asks.
func (w *world) tree(id string) *tree.Tree {
	w.t.Helper()
	t := tree.New(id)
	for e, err := range w.log.ReadSession(context.WithoutCancel(w.t.Context()), id, journal.Tip{}) {
		require.NoError(w.t, err)
		require.NoError(w.t, t.Apply(e))
	}
	return t
}

// turns are the committed turns of the world's session.
func (w *world) turns() []*tree.Turn { return w.tree(session).Turns }

// last is the turn committed last.
func (w *world) last() *tree.Turn {
	w.t.Helper()
	turns := w.turns()
	require.NotEmpty(w.t, turns)
	return turns[len(turns)-1]
}

// prompt is what the model read in a turn.
func promptOf(n *tree.Turn) string { return demo.Tokenizer().Decode(n.PromptIDs(nil)) }

// extends checks that a turn continues another to the id.
func extends(t *testing.T, n *tree.Turn, parent *tree.Turn) {
	t.Helper()
	require.Equal(t, "extend", n.Committed.GetMatch().GetDecision(), n.Committed.GetMatch().GetReason())
	require.Equal(t, parent.ID, n.Committed.GetParent())
	require.Equal(t, parent.Len, n.Keep)
	require.Equal(t, parent.IDs(nil, parent.Len), n.PromptIDs(nil)[:n.Keep])
}

// eventually polls until ok says yes.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, time.Millisecond, what)
}

func (w *world) check() {
	if !w.t.Failed() {
		w.checkSession(session)
	}
}

// checkSession compares the log with what the engine sampled.
func (w *world) checkSession(id string) {
	sampled := map[string]mock.Sampled{}
	read := func() {
		for _, s := range w.engine.Journal().All() {
			if s.Request == "" { // llama.cpp is told none
				s.Request = spelled(s.Prompt, s.Completion)
			}
			sampled[s.Request] = s
		}
	}
	read()
	for _, n := range w.tree(id).Turns {
		// An engine that was told to end writes into its journal when it has
		// heard of it, which may be after the turn is in the log.
		c := n.Committed.GetCompletion()
		request := n.ID
		if w.opt.Wire == "llamacpp" {
			request = spelled(n.PromptIDs(nil), event.IDs(nil, c.GetIds()))
		}
		eventually(w.t, func() bool {
			if _, ok := sampled[request]; !ok {
				read()
			}
			_, ok := sampled[request]
			return ok
		}, "turn "+n.ID+" was never sampled")
		s := sampled[request]
		if slices.Contains(c.GetFlags(), gateway.StopText) {
			// The engine was told to end, and may have been further by then.
			got := len(c.GetIds()) / 4
			require.LessOrEqual(w.t, got, len(s.Completion))
			s.Completion, s.Logprobs = s.Completion[:got], s.Logprobs[:got]
		}
		require.Equal(w.t, s.Completion, event.IDs(nil, c.GetIds()), "the ids of %s", n.ID)
		require.Equal(w.t, s.Prompt, n.PromptIDs(nil), "the prompt of %s", n.ID)
		logprobs := event.Floats(nil, c.GetLogprobs())
		require.Len(w.t, logprobs, len(s.Logprobs))
		for i, p := range logprobs {
			require.Equal(w.t, math.Float32bits(s.Logprobs[i]), math.Float32bits(p), "logprob %d of %s", i, n.ID)
		}
	}
}

// spelled is a key of an answer by its ids.
func spelled(prompt, completion []uint32) string { return fmt.Sprint(prompt, completion) }
