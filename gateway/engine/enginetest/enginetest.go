// Package enginetest holds the contract of engine.Engine as tests, run against
// the mock by every adapter.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
)

// Adapter is what the suite has to know of one.
type Adapter struct {
	Kind string
	New  func(wire.Config) (engine.Engine, error)
	// Mock changes the mock's configuration, for servers with other flags.
	Mock func(*mock.Config)
	// Proof is what it gives of the prompt.
	Proof event.PromptProof
	// Parses says that the answer comes with a message.
	Parses bool
	// Buffered adapters get the answer whole: nothing of a broken one.
	Buffered bool
	// Versions says that spans of weight versions come over the wire.
	Versions bool
	// Cut says that they are known even of an answer that was ended early.
	Cut bool
	// Experts is the type of the numbers that choices of experts come in; empty
	// where the wire has none.
	Experts string
	// CountsTokens says that the wire counts the completion besides listing it.
	CountsTokens bool
	// AbortPath is the path by which a generation is ended, or empty where
	// closing the connection is all there is.
	AbortPath string
	// Checked adapters know less before Check.
	Checked bool
	// Late adapters learn some logprobs when the answer is over: they are in the
	// report.
	Late bool
	// Text says that it takes text and streams text: ids it shows at the end, if at
	// all, and what is not about ids holds of it as well.
	Text bool
	// Router says that several models stand behind one address there, of which none
	// is the first: it has to be said which is meant.
	Router bool
	// Skip names faults that cannot be expressed on the wire.
	Skip []mock.FaultKind
}

// suite is one adapter under test.
type suite struct {
	Adapter
	tok tokenizer.Tokenizer
}

// Run tests an adapter.
func Run(t *testing.T, tok tokenizer.Tokenizer, a Adapter) {
	s := suite{a, tok}
	for name, test := range map[string]func(*testing.T){
		"what was sampled arrives bit by bit":                    s.exact,
		"an answer ends as the engine says":                      s.finish,
		"a prompt of many thousand ids arrives":                  s.long,
		"the prompt is proven":                                   s.proof,
		"a prompt with another id is not ours":                   s.otherPrompt,
		"an answer that contradicts itself is broken":            s.broken,
		"a cut answer is unreachable and what came is what was":  s.cut,
		"a failure in the middle of an answer is one":            s.failure,
		"an abort by the engine is a failure":                    s.abortedByEngine,
		"a canceled request ends at the engine":                  s.canceled,
		"an error of the receiver ends the request":              s.receiver,
		"it says when it waits":                                  s.idle,
		"a hanging connection is given up after the idle time":   s.hanging,
		"a slow first byte is no error":                          s.slow,
		"a status has a class":                                   s.status,
		"no server is unreachable":                               s.nobody,
		"a prompt beyond the context is too long":                s.tooLong,
		"versions tile the answer":                               s.versions,
		"the likeliest tokens come for who asks for them":        s.likeliest,
		"what was taken of an answer has its versions":           s.versionsOfEnough,
		"experts stand for each token from the start on":         s.experts,
		"cached tokens are reported":                             s.cached,
		"requests do not mix":                                    s.concurrent,
		"a check says what the engine is":                        s.check,
		"a check refuses another tokenizer and names both sides": s.otherTokenizer,
		"a check of no server or of another one says so":         s.checkNobody,
		"the engine's own key goes up":                           s.key,
		"a model is asked for by its name at the engine":         s.names,
	} {
		t.Run(name, test)
	}
}

// RunText tests an adapter that takes text: what holds of every engine, whatever it
// shows of its ids.
func RunText(t *testing.T, tok tokenizer.Tokenizer, a Adapter) {
	a.Text = true
	s := suite{a, tok}
	for name, test := range map[string]func(*testing.T){
		"a cut answer is unreachable and what came is what was": s.cut,
		"a failure in the middle of an answer is one":           s.failure,
		"an abort by the engine is a failure":                   s.abortedByEngine,
		"a canceled request ends at the engine":                 s.canceled,
		"an error of the receiver ends the request":             s.receiver,
		"it says when it waits":                                 s.idle,
		"a hanging connection is given up after the idle time":  s.hanging,
		"a slow first byte is no error":                         s.slow,
		"a status has a class":                                  s.status,
		"no server is unreachable":                              s.nobody,
		"a check of no server or of another one says so":        s.checkNobody,
		"the engine's own key goes up":                          s.key,
	} {
		t.Run(name, test)
	}
}

// start runs a mock that says what script says.
func (s *suite) start(t *testing.T, script mock.Script, change ...func(*mock.Config)) (*mock.Server, *httptest.Server) {
	t.Helper()
	cfg := mock.Config{Tokenizer: s.tok, Script: script, Seed: 7, NonCanonical: 0.2}
	if s.Mock != nil {
		s.Mock(&cfg)
	}
	for _, f := range change {
		f(&cfg)
	}
	m, err := mock.New(cfg)
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return m, srv
}

func (s *suite) dial(t *testing.T, url string, change ...func(*wire.Config)) engine.Engine {
	t.Helper()
	cfg := wire.Config{URL: url}
	for _, f := range change {
		f(&cfg)
	}
	e, err := s.New(cfg)
	require.NoError(t, err)
	if s.Checked {
		_, _ = e.Check(t.Context(), s.tok)
	}
	return e
}

const words = "The quick brown fox jumps over the lazy dog; naïve café, 你好 世界. Numbers: 12345 and 3.14159."

func (s *suite) request(text string) engine.Request {
	return engine.Request{
		ID: "req-1", Session: "s1", Model: "mock", RoutedFrom: -1,
		Prompt:   s.tok.Encode(nil, "<|im_start|>user\n"+text+"<|im_end|>\n<|im_start|>assistant\n"),
		Text:     []byte(`{"model":"asked","messages":[{"role":"user","content":"another text"}],"temperature":0.123,"stream":true}`),
		Sampling: engine.Sampling{MaxTokens: 4096},
	}
}

// got collects chunks.
type got struct {
	ids      []uint32
	logprobs []float32
	chunks   int
	text     strings.Builder
	// likeliest are those that came with their ids.
	likeliest [][]engine.Candidate
}

func (g *got) emit(c engine.Chunk) error {
	g.ids = append(g.ids, c.IDs...)
	g.logprobs = append(g.logprobs, c.Logprobs...)
	g.likeliest = append(g.likeliest, c.Likeliest...)
	for range len(c.IDs) - len(c.Logprobs) {
		g.logprobs = append(g.logprobs, later)
	}
	g.chunks++
	g.text.WriteString(c.Text)
	return nil
}

// later stands for a logprob that did not come with its id.
const later = 1

// generate collects a whole answer.
func (g *got) generate(t *testing.T, e engine.Engine, req engine.Request) (engine.Report, error) {
	report, err := e.Generate(t.Context(), req, g.emit)
	if report.Logprobs != nil {
		g.logprobs = report.Logprobs
	}
	if report.Likeliest != nil {
		g.likeliest = report.Likeliest
	}
	return report, err
}

func (s *suite) likeliest(t *testing.T) {
	if s.Parses {
		return // nobody asks with Text
	}
	for _, chunk := range []int{1, 5} {
		m, srv := s.start(t, func(mock.Request) mock.Reply { return mock.Say(words) },
			func(c *mock.Config) { c.ChunkTokens = chunk })
		e := s.dial(t, srv.URL)
		for i, n := range []int{0, 1, 3, 20} {
			var g got
			req := s.request("please" + strings.Repeat(" x", i))
			req.Likeliest = n
			_, err := g.generate(t, e, req)
			require.NoError(t, err)
			sampled := m.Journal().All()[i]
			require.Equal(t, sampled.Completion, g.ids)
			require.Equal(t, sampled.Logprobs, g.logprobs)
			if n == 0 {
				require.Empty(t, g.likeliest)
				continue
			}
			require.Len(t, g.likeliest, len(g.ids))
			for k, id := range g.ids {
				require.Equal(t, m.Likeliest(id, g.logprobs[k], n), g.likeliest[k])
			}
		}
	}
}

// isPrefix checks that what arrived is the beginning of what was sampled.
func (g *got) isPrefix(t *testing.T, sampled mock.Sampled) {
	t.Helper()
	require.Len(t, g.logprobs, len(g.ids))
	require.LessOrEqual(t, len(g.ids), len(sampled.Completion))
	require.True(t, slices.Equal(g.ids, sampled.Completion[:len(g.ids)]))
	for i, f := range g.logprobs {
		if f != later {
			require.Equal(t, sampled.Logprobs[i], f)
		}
	}
}

func (s *suite) exact(t *testing.T) {
	for _, chunk := range []int{1, 5, 1000} {
		m, srv := s.start(t, func(r mock.Request) mock.Reply { return mock.Say(words + r.Last("user")) },
			func(c *mock.Config) { c.ChunkTokens = chunk })
		e := s.dial(t, srv.URL)
		for i := range 20 {
			var g got
			req := s.request(strings.Repeat("x ", i) + "please")
			report, err := g.generate(t, e, req)
			require.NoError(t, err)
			if !s.Late {
				require.Nil(t, report.Logprobs)
			}
			sampled := m.Journal().All()[i]
			require.Equal(t, req.Prompt, sampled.Prompt)
			require.Equal(t, sampled.Completion, g.ids)
			require.Equal(t, sampled.Logprobs, g.logprobs)
			require.Equal(t, "stop", report.FinishReason)
			require.False(t, report.FirstToken.IsZero())
			if s.Parses {
				content, _ := rawjson.Get(report.Message, "content")
				require.Equal(t, words+strings.Repeat("x ", i)+"please", rawjson.Text(content))
			} else {
				require.Nil(t, report.Message)
			}
			if chunk == 1 && !s.Buffered {
				require.Greater(t, g.chunks, len(g.ids)/2, "streamed as it is sampled")
			}
		}
	}
}

func (s *suite) finish(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Say(words)))
	e := s.dial(t, srv.URL)

	req := s.request("x")
	req.Sampling.MaxTokens = 5
	var g got
	report, err := e.Generate(t.Context(), req, g.emit)
	require.NoError(t, err)
	require.Equal(t, "length", report.FinishReason)
	require.Len(t, g.ids, 5)

	req.Sampling.MaxTokens, req.Sampling.Stop = 4096, []string{"lazy"}
	g = got{}
	report, err = e.Generate(t.Context(), req, g.emit)
	require.NoError(t, err)
	require.Equal(t, "stop", report.FinishReason)
	require.Equal(t, "lazy", report.MatchedStop)
	require.Contains(t, s.tok.Decode(g.ids), "lazy", "the ids of the stop string were sampled")

	req.Sampling.Stop, req.Sampling.MaxTokens = nil, 0
	g = got{}
	report, err = e.Generate(t.Context(), req, g.emit)
	require.NoError(t, err)
	require.Equal(t, "stop", report.FinishReason)
	require.Greater(t, len(g.ids), 20, "no budget is up to the end of the context")
}

func (s *suite) long(t *testing.T) {
	m, srv := s.start(t, mock.Always(mock.Say(words)))
	var g got
	req := s.request(strings.Repeat("a long story about a fox ", 9000))
	require.Greater(t, len(req.Prompt), 9000)
	report, err := s.dial(t, srv.URL).Generate(t.Context(), req, g.emit)
	require.NoError(t, err)
	require.Equal(t, req.Prompt, m.Journal().All()[0].Prompt)
	require.Equal(t, s.Proof, report.Proof)
}

func (s *suite) proof(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Say(words)))
	req := s.request("x")
	report, err := s.dial(t, srv.URL).Generate(t.Context(), req, (&got{}).emit)
	require.NoError(t, err)
	require.Equal(t, s.Proof, report.Proof)
	require.Equal(t, len(req.Prompt), report.PromptTokens)
}

// promptIDs are those of a request, wherever a wire has them.
var promptIDs = regexp.MustCompile(`"(input_ids|prompt|token_ids)":\[[0-9]+`)

// otherPrompt has something between us and the engine change one id and leave their
// number as it is: an echo shows it.
func (s *suite) otherPrompt(t *testing.T) {
	if s.Proof != event.PromptProof_PROMPT_PROOF_ECHO {
		t.Skip("a count does not show it")
	}
	m, _ := s.start(t, mock.Always(mock.Say(words)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		body = promptIDs.ReplaceAll(body, []byte(`"$1":[7`))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		m.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), (&got{}).emit)
	require.Equal(t, engine.Broken, engine.ClassOf(err), err)
	require.ErrorContains(t, err, "other prompt ids")
}

func (s *suite) broken(t *testing.T) {
	kinds := []mock.FaultKind{
		mock.WrongPromptCount, mock.IgnoreIDs, mock.NoPromptEcho, mock.NoIDs, mock.FloatIDs, mock.NaN, mock.Null,
		mock.Minus, mock.StringLogprob, mock.MissingLogprob, mock.NoLogprobs, mock.Extra, mock.Garbage,
	}
	if s.CountsTokens {
		kinds = append(kinds, mock.WrongCount)
	}
	for _, kind := range kinds {
		if slices.Contains(s.Skip, kind) {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			m, srv := s.start(t, mock.Always(mock.Reply{Text: words, Fault: mock.Fault{Kind: kind, After: 3}}))
			var g got
			req := s.request("x")
			if kind == mock.Extra {
				req.Sampling.MaxTokens = 6
			}
			_, err := s.dial(t, srv.URL).Generate(t.Context(), req, g.emit)
			require.Error(t, err)
			require.Equal(t, engine.Broken, engine.ClassOf(err), err)
			if all := m.Journal().All(); len(all) > 0 {
				g.isPrefix(t, all[0])
			}
		})
	}
}

func (s *suite) cut(t *testing.T) {
	for _, fault := range []mock.Fault{{Kind: mock.Cut}, {Kind: mock.Cut, After: 1}, {Kind: mock.Cut, After: 7}, {Kind: mock.Cut, After: 10_000}, {Kind: mock.NoEnd, After: 4}} {
		if slices.Contains(s.Skip, fault.Kind) {
			continue
		}
		m, srv := s.start(t, mock.Always(mock.Reply{Text: words, Fault: fault}))
		var g got
		_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), g.emit)
		require.Error(t, err)
		require.Equal(t, engine.Unreachable, engine.ClassOf(err), err)
		sampled := m.Journal().All()[0]
		g.isPrefix(t, sampled)
		if s.Text {
			require.Equal(t, strings.TrimSuffix(s.tok.Decode(sampled.Completion), "<|im_end|>"), g.text.String(), "all that was sent arrived")
		} else if !s.Buffered {
			require.Len(t, g.ids, len(sampled.Completion), "all that was sent arrived")
		}
	}
}

func (s *suite) failure(t *testing.T) {
	m, srv := s.start(t, mock.Always(mock.Reply{Text: words, Fault: mock.Fault{Kind: mock.ErrorEvent, After: 4, Message: "CUDA error: out of memory"}}))
	var g got
	_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), g.emit)
	require.Equal(t, engine.Failed, engine.ClassOf(err), err)
	if !s.Buffered {
		require.ErrorContains(t, err, "out of memory")
		require.True(t, s.Text || len(g.ids) == 4)
	}
	g.isPrefix(t, m.Journal().All()[0])
}

func (s *suite) abortedByEngine(t *testing.T) {
	if slices.Contains(s.Skip, mock.Abort) {
		t.Skip("the wire has no such finish reason")
	}
	m, srv := s.start(t, mock.Always(mock.Reply{Text: words, Fault: mock.Fault{Kind: mock.Abort, After: 4}}))
	var g got
	report, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), g.emit)
	require.Equal(t, engine.Failed, engine.ClassOf(err), err)
	require.Equal(t, "abort", report.FinishReason)
	g.isPrefix(t, m.Journal().All()[0])
}

func (s *suite) canceled(t *testing.T) {
	m, srv := s.start(t, mock.Always(mock.Reply{Text: words, Fault: mock.Fault{Kind: mock.Hang, After: 3}}))
	e := s.dial(t, srv.URL)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		var g got
		done := make(chan error, 1)
		arrived := make(chan struct{}, 1000)
		go func() {
			_, err := e.Generate(ctx, s.request("x"), func(c engine.Chunk) error { arrived <- struct{}{}; return g.emit(c) })
			done <- err
		}()
		if s.Buffered {
			require.Eventually(t, func() bool { return m.Running() == 1 }, 10*time.Second, time.Millisecond)
		} else {
			<-arrived
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Eventually(t, func() bool { return m.Running() == 0 }, 10*time.Second, time.Millisecond)
		if s.AbortPath != "" {
			require.Contains(t, m.Aborted(), "req-1")
		}
	}
}

func (s *suite) receiver(t *testing.T) {
	m, srv := s.start(t, mock.Always(mock.Reply{Text: strings.Repeat(words, 50), Pace: time.Millisecond}))
	stop := errors.New("the receiver had enough")
	n := 0
	_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), func(engine.Chunk) error {
		if n++; n > 2 || s.Buffered {
			return stop
		}
		return nil
	})
	require.ErrorIs(t, err, stop)
	require.Eventually(t, func() bool { return m.Running() == 0 }, 10*time.Second, time.Millisecond)
}

func (s *suite) idle(t *testing.T) {
	if s.Buffered {
		t.Skip("the answer comes whole: there is nothing to wait for in between")
	}
	m, srv := s.start(t, mock.Always(mock.Reply{Text: strings.Repeat(words, 20), Pace: time.Millisecond}))
	e := s.dial(t, srv.URL)
	var order []string
	req := s.request("x")
	req.Idle = func() error { order = append(order, "idle"); return nil }
	_, err := e.Generate(t.Context(), req, func(engine.Chunk) error { order = append(order, "chunk"); return nil })
	require.NoError(t, err)
	require.Equal(t, "idle", order[0], "before anything arrives")
	first := slices.Index(order, "chunk")
	require.Positive(t, first)
	require.Contains(t, order[first:], "idle", "between chunks")

	stop := errors.New("the receiver has gone")
	req.Idle = func() error {
		if slices.Contains(order, "chunk") {
			return stop
		}
		return nil
	}
	order = nil
	_, err = e.Generate(t.Context(), req, func(engine.Chunk) error { order = append(order, "chunk"); return nil })
	require.ErrorIs(t, err, stop)
	require.Empty(t, engine.ClassOf(err), "the engine is not at fault")
	require.Eventually(t, func() bool { return m.Running() == 0 }, 10*time.Second, time.Millisecond)
}

func (s *suite) hanging(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Reply{Text: words, Fault: mock.Fault{Kind: mock.Hang, After: 3}}))
	e := s.dial(t, srv.URL, func(c *wire.Config) { c.Idle = 50 * time.Millisecond })
	_, err := e.Generate(t.Context(), s.request("x"), (&got{}).emit)
	require.Equal(t, engine.Unreachable, engine.ClassOf(err), err)
	require.ErrorContains(t, err, "silent")
}

func (s *suite) slow(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Reply{Text: "short", Delay: 30 * time.Millisecond, Pace: 10 * time.Millisecond}))
	_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), (&got{}).emit)
	require.NoError(t, err)
}

func (s *suite) status(t *testing.T) {
	for status, class := range map[int]engine.Class{
		429: engine.Overloaded, 503: engine.Overloaded, 500: engine.Failed, 502: engine.Unreachable, 504: engine.Unreachable,
		400: engine.Refused, 401: engine.Refused, 404: engine.Refused, 422: engine.Refused, 413: engine.TooLong,
	} {
		_, srv := s.start(t, mock.Always(mock.Reply{Fault: mock.Fault{Kind: mock.Status, Status: status, RetryAfter: 7 * time.Second, Message: "because of it"}}))
		_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), (&got{}).emit)
		var failed *engine.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, class, failed.Class, status)
		require.Equal(t, status, failed.Status)
		require.Equal(t, 7*time.Second, failed.RetryAfter)
		require.ErrorContains(t, err, "because of it")
	}
}

func (s *suite) nobody(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), (&got{}).emit)
	require.Equal(t, engine.Unreachable, engine.ClassOf(err), err)
	require.ErrorContains(t, err, srv.URL)
}

func (s *suite) tooLong(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Say(words)), func(c *mock.Config) { c.ContextLength = 100 })
	_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request(strings.Repeat(words, 10)), (&got{}).emit)
	require.Equal(t, engine.TooLong, engine.ClassOf(err), err)
}

func (s *suite) versions(t *testing.T) {
	if !s.Versions {
		t.Skip("the wire has no weight versions")
	}
	m, srv := s.start(t, mock.Steps(mock.Say(words), mock.Reply{Text: words, Version: "13", VersionAt: 4}))
	m.SetVersion("12")
	e := s.dial(t, srv.URL)
	for _, want := range []int{1, 2} {
		var g got
		report, err := e.Generate(t.Context(), s.request("x"), g.emit)
		require.NoError(t, err)
		require.Len(t, report.Versions, want)
		total := 0
		for _, span := range report.Versions {
			total += int(span.Count)
		}
		require.Equal(t, len(g.ids), total)
		require.Equal(t, "12", report.Versions[0].Label)
		if want == 2 {
			require.EqualValues(t, 4, report.Versions[0].Count)
			require.Equal(t, "13", report.Versions[1].Label)
		}
	}
}

func (s *suite) versionsOfEnough(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Reply{Text: words, Version: "1", VersionAt: 3}))
	e := s.dial(t, srv.URL)
	for _, n := range []int{2, 5} {
		var g got
		report, err := e.Generate(t.Context(), s.request("x"), func(c engine.Chunk) error {
			if err := g.emit(c); err != nil || len(g.ids) < n {
				return err
			}
			return engine.ErrEnough
		})
		require.ErrorIs(t, err, engine.ErrEnough)
		var labels []string
		for _, span := range report.Versions {
			for range span.Count {
				labels = append(labels, span.Label)
			}
		}
		if s.Cut {
			require.Len(t, labels, len(g.ids))
		}
		for i, label := range labels {
			require.Equal(t, map[bool]string{false: "0", true: "1"}[i >= 3], label, "token %d", i)
		}
	}
}

func (s *suite) experts(t *testing.T) {
	mixture := mock.Experts{Layers: 3, TopK: 2}
	with := func(c *mock.Config) { c.Experts = mixture }
	req := s.request("x")
	req.RoutedFrom = 5
	_, without := s.start(t, mock.Always(mock.Say(words)))
	report, err := (&got{}).generate(t, s.dial(t, without.URL), req)
	require.NoError(t, err)
	require.Nil(t, report.Routed, "what is not sent is absent")

	m, srv := s.start(t, mock.Always(mock.Say(words)), with)
	e := s.dial(t, srv.URL)
	report, err = (&got{}).generate(t, e, s.request("x"))
	require.NoError(t, err)
	require.Nil(t, report.Routed, "nobody asked")
	if s.Experts == "" {
		return
	}
	report, err = (&got{}).generate(t, e, req)
	require.NoError(t, err)
	r := report.Routed
	require.NotNil(t, r)
	require.Equal(t, s.Experts, r.DType)
	require.Equal(t, req.RoutedFrom, r.Start)
	sampled := m.Journal().All()[1]
	sequence := append(slices.Clone(sampled.Prompt), sampled.Completion...)
	require.Equal(t, int64(len(sequence)-1-req.RoutedFrom), r.Shape[0], "the last token has not been through the model")
	width := map[string]int{"uint8": 1, "int32": 4}[r.DType]
	for at := req.RoutedFrom; at < len(sequence)-1; at++ {
		for i, want := range mixture.Choose(at, sequence[at]) {
			n := (at-req.RoutedFrom)*mixture.Layers*mixture.TopK + i
			require.Equal(t, want, r.Data[n*width], "position %d, number %d", at, i)
		}
	}

	_, srv = s.start(t, mock.Always(mock.Reply{Text: words, Fault: mock.Fault{Kind: mock.LostRows}}), with)
	_, err = (&got{}).generate(t, s.dial(t, srv.URL), req)
	require.Equal(t, engine.Broken, engine.ClassOf(err), err)
}

func (s *suite) cached(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Say(words)))
	e := s.dial(t, srv.URL)
	var g got
	req := s.request("x")
	_, err := e.Generate(t.Context(), req, g.emit)
	require.NoError(t, err)
	known := len(req.Prompt) + len(g.ids)
	req.Prompt = s.tok.Encode(append(slices.Clone(req.Prompt), g.ids...), "\n<|im_start|>user\nmore")
	report, err := e.Generate(t.Context(), req, g.emit)
	require.NoError(t, err)
	require.Equal(t, known, report.CachedTokens)
}

func (s *suite) concurrent(t *testing.T) {
	m, srv := s.start(t, func(r mock.Request) mock.Reply { return mock.Say(strings.Repeat(r.Last("user")+" ", 5)) })
	e := s.dial(t, srv.URL)
	var wg sync.WaitGroup
	answers := make([]got, 24)
	for i := range answers {
		wg.Go(func() {
			req := s.request("number " + strings.Repeat("I", i))
			req.ID = "req-" + strings.Repeat("I", i)
			_, err := answers[i].generate(t, e, req)
			require.NoError(t, err)
		})
	}
	wg.Wait()
	for _, sampled := range m.Journal().All() {
		i := strings.Count(s.tok.Decode(sampled.Prompt), "I")
		require.Equal(t, sampled.Completion, answers[i].ids)
		require.Equal(t, sampled.Logprobs, answers[i].logprobs)
	}
}

func (s *suite) check(t *testing.T) {
	m, srv := s.start(t, nil, func(c *mock.Config) { c.Model = "the-model"; c.ContextLength = 4321 })
	info, err := s.dial(t, srv.URL).Check(t.Context(), s.tok)
	require.NoError(t, err)
	require.Equal(t, s.Kind, info.Kind)
	require.Equal(t, "the-model", info.Model)
	require.Equal(t, 4321, info.ContextLength)
	require.NotEmpty(t, info.Version)
	require.False(t, info.TextOnly)
	require.Empty(t, m.Journal().All(), "a check is no turn")
}

func (s *suite) otherTokenizer(t *testing.T) {
	_, srv := s.start(t, nil)
	_, err := s.dial(t, srv.URL).Check(t.Context(), shifted{s.tok})
	require.Equal(t, engine.Refused, engine.ClassOf(err), err)
	require.ErrorContains(t, err, "here and")
	require.ErrorContains(t, err, "tokenizer")
}

func (s *suite) checkNobody(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, err := s.dial(t, gone.URL).Check(t.Context(), s.tok)
	require.Equal(t, engine.Unreachable, engine.ClassOf(err), err)

	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, err = s.dial(t, other.URL).Check(t.Context(), s.tok)
	require.Equal(t, engine.Refused, engine.ClassOf(err), err)
	require.ErrorContains(t, err, "the kind of server")
}

func (s *suite) names(t *testing.T) {
	asked := make(chan string, 1)
	_, srv := s.start(t, func(r mock.Request) mock.Reply { asked <- r.Model; return mock.Say("yes") },
		func(c *mock.Config) { c.Model, c.Adapters = "base", []string{"tuned", "other"} })
	for name, c := range map[string]struct {
		named, upstream, want, fault string
	}{
		"its own":         {"mine", "other", "other", ""},
		"the same":        {"tuned", "", "tuned", ""},
		"the base itself": {"tuned", "base", "base", ""},
		"none of these":   {"mine", "", "base", ""},
		"not served":      {"tuned", "gone", "", `the engine serves base, tuned, other, not the model "gone"; set upstream_model`},
	} {
		if s.Router && c.upstream == "" {
			c.fault = "the engine is a router of several models; set upstream_model"
		}
		e, err := s.New(wire.Config{URL: srv.URL, Model: c.named, Upstream: c.upstream})
		require.NoError(t, err)
		info, err := e.Check(t.Context(), s.tok)
		if c.fault != "" {
			require.Equal(t, engine.Refused, engine.ClassOf(err), name)
			require.ErrorContains(t, err, c.fault, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, info.Model, name)
		_, err = e.Generate(t.Context(), s.request("x"), (&got{}).emit)
		require.NoError(t, err, name)
		require.Equal(t, c.want, <-asked, name)
	}
}

func (s *suite) key(t *testing.T) {
	_, srv := s.start(t, mock.Always(mock.Say("yes")), func(c *mock.Config) { c.APIKey = "sesame" })
	_, err := s.dial(t, srv.URL).Generate(t.Context(), s.request("x"), (&got{}).emit)
	require.Equal(t, engine.Refused, engine.ClassOf(err), err)
	require.ErrorContains(t, err, "api_key")
	_, err = s.dial(t, srv.URL, func(c *wire.Config) { c.APIKey = "sesame" }).Generate(t.Context(), s.request("x"), (&got{}).emit)
	require.NoError(t, err)
}

// shifted is a tokenizer of another model: one id is different.
type shifted struct{ tokenizer.Tokenizer }

func (s shifted) Encode(dst []uint32, text string) []uint32 {
	at := len(dst)
	dst = s.Tokenizer.Encode(dst, text)
	if len(dst) > at+3 {
		dst[at+3]++
	}
	return dst
}
