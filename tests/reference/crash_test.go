package reference

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/demo"
)

// What a gateway in a process of its own is told by its environment.
const (
	logEnv    = "REFERENCE_LOG"    // the log server's URL; makes this process a gateway
	engineEnv = "REFERENCE_ENGINE" // the engine's URL
	pointEnv  = "REFERENCE_POINT"  // where it kills itself, on the second time
)

func TestMain(m *testing.M) {
	if os.Getenv(logEnv) != "" {
		if err := serveProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The way of a turn, step by step.
var steps = []string{
	"received", "engine.before", "engine.first", "engine.after", "turn.before_append", "append.before",
	"append.after", "turn.after_append", "chat.before_release", "released",
}

// killer ends the process on the second passing of a point.
type killer struct {
	point  string
	mu     sync.Mutex
	passed int
}

func (k *killer) pass(point string) {
	if point != k.point {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.passed++; k.passed == 2 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}

// killerPool passes the points around a generation.
type killerPool struct {
	gateway.Pool
	*killer
}

func (p killerPool) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error, restart func() bool) (pool.Result, error) {
	p.pass("engine.before")
	first := true
	res, err := p.Pool.Generate(ctx, req, func(c engine.Chunk) error {
		err := emit(c)
		if first {
			p.pass("engine.first")
		}
		first = false
		return err
	}, restart)
	p.pass("engine.after")
	return res, err
}

// killerLog passes the points around the append of a turn.
type killerLog struct {
	journal.Journal
	*killer
}

func (l killerLog) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	turn := ev.GetTurnCommitted() != nil
	if turn {
		l.pass("append.before")
	}
	next, err := l.Journal.Append(ctx, tip, ev)
	if turn {
		l.pass("append.after")
	}
	return next, err
}

// serveProcess is a gateway that lives until it is killed. It prints its URL.
func serveProcess() error {
	k := &killer{point: os.Getenv(pointEnv)}
	conn, err := jet.Dial(jet.Options{URL: os.Getenv(logEnv)})
	if err != nil {
		return err
	}
	log, err := conn.Open(context.Background(), logConfig())
	if err != nil {
		return err
	}
	var tb processTB
	model := demoModel(&tb)
	model.Pool = killerPool{dial(&tb, os.Getenv(engineEnv), options{Wire: "sglang"}, demo.Tokenizer()), k}
	g, err := gateway.New(gateway.Default(), gateway.Deps{
		Journal: killerLog{log, k}, Models: gateway.NewModels(model), Keys: gateway.NewKeys([]byte("seed"), adminKey), Fault: k.pass,
	})
	if err != nil {
		return err
	}
	h, err := httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: g, Fault: k.pass})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + ln.Addr().String())
	return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's
		if !strings.HasSuffix(r.URL.Path, chatPath) {
			h.ServeHTTP(w, r)
			return
		}
		k.pass("received")
		h.ServeHTTP(w, r)
		k.pass("released")
	}))
}

// processTB lets helpers of tests run where there is no test.
type processTB struct{ testing.TB }

func (*processTB) Helper()                   {}
func (*processTB) Errorf(f string, a ...any) { fmt.Fprintf(os.Stderr, f, a...) }
func (*processTB) FailNow()                  { os.Exit(1) }

func logConfig() jet.Config {
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 1 << 28
	return cfg
}

// spawn starts a gateway that kills itself at a point, or never if it is
// empty. dead is closed when it has ended.
func spawn(t *testing.T, logURL, engineURL, point string) (url string, dead <-chan struct{}) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), logEnv+"="+logURL, engineEnv+"="+engineURL, pointEnv+"="+point)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s := bufio.NewScanner(out)
	ok := s.Scan()
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	require.True(t, ok, "the gateway did not start")
	return s.Text(), ended
}

// TestAKilledGatewayLosesNothingAndDoublesNothing: SIGKILL at each step of the
// way of a turn, with one gateway that is started again and with a second one
// that was there before; streamed or not. The agent repeats its request with
// its key. Then: one line of turns, the ids that were sampled, nothing twice,
// nothing lost.
func TestAKilledGatewayLosesNothingAndDoublesNothing(t *testing.T) {
	srv := natsdtest.Serve(t, natsd.Config{Listen: "127.0.0.1:0"})
	log, err := natsdtest.Dial(t, srv).Open(t.Context(), logConfig())
	require.NoError(t, err)
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), NonCanonical: 0.2})
	require.NoError(t, err)
	engineServer := httptest.NewServer(m)
	t.Cleanup(engineServer.Close)

	for _, gateways := range []int{1, 2} {
		for i := range 2 * len(steps) {
			step, stream := steps[i/2], i%2 == 1
			t.Run(fmt.Sprintf("gateways=%d/%s/stream=%t", gateways, step, stream), func(t *testing.T) {
				w := &world{t: t, log: log, engine: m}
				a := &killedAgent{world: w, id: fmt.Sprintf("s-%d-%d", gateways, i), stream: stream}
				asked := m.Requests()
				w.key = gateway.NewKeys([]byte("seed")).Session("default", a.id)
				start := func(point string) (string, <-chan struct{}) { return spawn(t, srv.URL(), engineServer.URL, point) }
				dying, dead := start(step)
				order := []string{dying, dying, "", ""}
				if gateways == 2 {
					a.living, _ = start("")
					order = []string{dying, "", dying, "", dying}
				}
				a.start = func() string { url, _ := start(""); return url }
				r := w.do(t.Context(), http.MethodPost, dying+"/sessions", object{"session": a.id}, "Authorization: Bearer "+adminKey)
				require.Equal(t, http.StatusCreated, r.status, r.body)
				for _, url := range order {
					a.turn(url)
				}
				select {
				case <-dead:
				case <-time.After(20 * time.Second):
					require.Fail(t, "the process never came to the step")
				}
				a.check(step)
				if i/2 >= slices.Index(steps, "append.after") {
					require.Equal(t, len(a.given), m.Requests()-asked, "what is in the log is not sampled again")
				}
			})
		}
	}
}

// killedAgent goes on with its session, whoever serves it.
type killedAgent struct {
	*world
	id      string
	stream  bool
	living  string        // a gateway that does not die; empty while there is none
	start   func() string // makes one
	history []object
	given   []given
	repeats int
}

// given is an answer that arrived whole.
type given struct{ turn, content string }

// turn makes one call, at the given gateway or, if that is none or does not
// answer, at the living one.
func (a *killedAgent) turn(url string) {
	a.t.Helper()
	a.history = append(a.history, user(fmt.Sprintf("Step %d, please.", len(a.given))))
	for range 3 {
		if url == "" {
			if a.living == "" {
				a.living = a.start()
			}
			url = a.living
		}
		if g, ok := a.ask(url); ok {
			a.given = append(a.given, g)
			a.history = append(a.history, assistant(g.content))
			return
		}
		url = ""
		a.repeats++
	}
	require.Fail(a.t, "no gateway answers")
}

// ask returns the answer if all of it arrived.
func (a *killedAgent) ask(url string) (g given, whole bool) {
	body, err := json.Marshal(object{"model": "any", "messages": a.history, "stream": a.stream})
	require.NoError(a.t, err)
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, url+chatPath, strings.NewReader(string(body)))
	require.NoError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+a.key)
	req.Header.Set("Idempotency-Key", fmt.Sprint("step-", len(a.given)))
	req.GetBody = nil // the client must not repeat what we repeat
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return g, false
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if !a.stream {
		r := reply{body: string(raw)}
		if err == nil {
			require.Equal(a.t, http.StatusOK, res.StatusCode, r.body)
		}
		return given{strings.TrimPrefix(r.text("id"), "chatcmpl-"), r.text("choices.0.message.content")}, err == nil
	}
	for line := range strings.Lines(string(raw)) {
		data, _ := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		whole = whole || data == "[DONE]"
		r := reply{body: data}
		if id := r.text("id"); id != "" {
			g.turn = strings.TrimPrefix(id, "chatcmpl-")
		}
		g.content += r.text("choices.0.delta.content")
	}
	return g, whole
}

// check compares the log with what the agent was given.
func (a *killedAgent) check(step string) {
	a.checkSession(a.id)
	turns := a.tree(a.id).Turns
	require.Len(a.t, turns, len(a.given), "nothing twice, nothing lost")
	for i, n := range turns {
		require.Equal(a.t, n.ID, a.given[i].turn)
		answer, err := message.Parse(n.Committed.GetConversation().GetAnswer())
		require.NoError(a.t, err)
		require.Equal(a.t, answer.Content.String(), a.given[i].content)
		if i > 0 {
			extends(a.t, n, turns[i-1])
		}
	}
	if step != "released" { // by then the answer may have arrived
		require.Positive(a.t, a.repeats)
	}
}
