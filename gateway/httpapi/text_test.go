package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine/openai"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/racetest"
)

// textWorld is a gateway in front of a server that speaks chat completions, a
// session of it, with its key, and the log.
type textWorld struct {
	http.Handler
	session, key string
	log          journal.Journal
}

func newTextWorld(t *testing.T, upstream http.HandlerFunc) textWorld {
	srv := httptest.NewServer(upstream)
	t.Cleanup(srv.Close)
	e, err := openai.New(openai.Config{Config: wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	p, err := pool.New(pool.Config{Name: "any"}, pool.Replica{Name: "up", Kind: "openai", Engine: e})
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	g, err := gateway.New(gateway.Default(), gateway.Deps{
		Journal: log, Keys: gateway.NewKeys([]byte("seed"), "admin"),
		Models: gateway.NewModels(&gateway.Model{Name: "any", Wire: gateway.Text, Pool: p}),
	})
	require.NoError(t, err)
	opened, err := g.Open(t.Context(), gateway.OpenRequest{Opened: &event.SessionOpened{}})
	require.NoError(t, err)
	h, err := httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: g})
	require.NoError(t, err)
	return textWorld{h, opened.Session, opened.Key, log}
}

// ask is a request for a chat completion.
func (w textWorld) ask(body string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+w.key)
	return req
}

func delta(content, finish string) string {
	return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]}`+"\n\n", content, finish)
}

// flushes counts how often an answer was sent on.
type flushes struct {
	http.ResponseWriter
	n *atomic.Int32
}

func (f flushes) FlushError() error {
	f.n.Add(1)
	return http.NewResponseController(f.ResponseWriter).Flush()
}

func TestWhatComesTogetherLeavesTogetherAndAtOnce(t *testing.T) {
	bursts := [][]string{{"one ", "two ", "three "}, {"four "}, {"five ", "six "}}
	arrived := make(chan struct{})
	world := newTextWorld(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i, burst := range bursts {
			all := ""
			for _, text := range burst {
				all += delta(text, "null")
			}
			if i == len(bursts)-1 {
				all += delta("", `"stop"`) + "data: [DONE]\n\n"
			}
			_, _ = io.WriteString(w, all)
			_ = http.NewResponseController(w).Flush()
			// The server says no more before the client has all that it said.
			for range burst {
				<-arrived
			}
		}
	})
	var sent atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		world.ServeHTTP(flushes{w, &sent}, r)
	}))
	defer srv.Close()
	req, err := http.NewRequest(http.MethodPost, srv.URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"any","messages":[{"role":"user","content":"Count."}],"stream":true,"stream_options":{"include_usage":true}}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+world.key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, last := "", ""
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		_, rest, ok := strings.Cut(s.Text(), `"content":"`)
		if ok {
			word, _, _ := strings.Cut(rest, `"`)
			text += word
			arrived <- struct{}{}
		}
		if s.Text() != "" {
			last = s.Text()
		}
	}
	require.Equal(t, "one two three four five six ", text)
	require.Equal(t, "data: [DONE]", last)
	require.EqualValues(t, len(bursts)+1, sent.Load(), "each burst, and what may leave only when the turn is in the log")
}

// sink takes an answer and keeps nothing of it.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) Write(b []byte) (int, error) { return len(b), nil }
func (s sink) WriteHeader(int)             {}
func (s sink) Flush()                      {}

// TestATextTurnTakesItsTextsInMemoryAFewTimes: reading a text, sending it on,
// writing it down and giving it back are no more copies than that. The log in
// memory, which keeps its own, counts as well.
func TestATextTurnTakesItsTextsInMemoryAFewTimes(t *testing.T) {
	// Every third byte of the second text is escaped.
	for line, limit := range map[string]float64{"The quick brown fox. ": 4.8, "\treturn \"a\"\n": 8} {
		const size = 64 << 10
		text := strings.Repeat(line, size/len(line))
		var answer strings.Builder
		for at := 0; at < len(text); at += 4096 {
			answer.WriteString(delta(text[at:min(len(text), at+4096)], "null"))
		}
		answer.WriteString(delta("", `"stop"`) + "data: [DONE]\n\n")
		said := answer.String()
		world := newTextWorld(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, said)
		})
		body := fmt.Sprintf(`{"model":"any","messages":[{"role":"user","content":%q}]}`, text)
		once := func() {
			world.ServeHTTP(sink{http.Header{}}, world.ask(body))
		}
		once()
		const turns = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range turns {
			once()
		}
		runtime.ReadMemStats(&after)
		times := float64(after.TotalAlloc-before.TotalAlloc) / turns / (2 * float64(len(text)))
		t.Logf("%.1f times question and answer", times)
		if !racetest.On {
			require.Less(t, times, limit)
		}
	}
}

func TestTheLogHasEachTextOfATextTurnOnce(t *testing.T) {
	for name, c := range map[string]struct{ wrote, answer, apart string }{
		"as it was written":  {"All is well in here.", "All is well in here.", ""},
		"behind a stop text": {"All is well END in here.", "All is well ", "All is well END in here."},
	} {
		world := newTextWorld(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, delta(c.wrote, "null")+delta("", `"stop"`)+"data: [DONE]\n\n")
		})
		world.ServeHTTP(sink{http.Header{}}, world.ask(`{"model":"any","stop":"END","messages":[{"role":"user","content":"What is in here?"}]}`))
		turns := 0
		for e, err := range world.log.ReadSession(t.Context(), world.session, journal.Tip{}) {
			require.NoError(t, err)
			if committed := e.Event.GetTurnCommitted(); committed != nil {
				turns++
				require.Equal(t, 1, bytes.Count(e.Body, []byte("What is in here?")), name)
				require.Equal(t, c.apart, committed.GetCompletion().GetText(), name)
				answer, err := message.Parse(committed.GetConversation().GetAnswer())
				require.NoError(t, err)
				require.Equal(t, c.answer, answer.Content.String(), name)
			}
		}
		require.Equal(t, 1, turns, name)
	}
}

// TestABlockThatTheLogReadsAsTextIsOneFromTheStart: a foreign block of such a type
// could be written down, but not be read again.
func TestABlockThatTheLogReadsAsTextIsOneFromTheStart(t *testing.T) {
	for _, kind := range []string{"text", "input_text", "output_text"} {
		given := ""
		world := newTextWorld(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			given = string(b)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, delta("Good.", `"stop"`)+"data: [DONE]\n\n")
		})
		for block, want := range map[string]int{
			`{"type":"` + kind + `"}`: http.StatusBadRequest, `{"type":"` + kind + `","text":"How are you?"}`: http.StatusOK,
		} {
			req := httptest.NewRequest(http.MethodPost, "/v1/messages",
				strings.NewReader(`{"model":"any","max_tokens":9,"messages":[{"role":"user","content":[`+block+`]}]}`))
			req.Header.Set("X-Api-Key", world.key)
			rec := httptest.NewRecorder()
			world.ServeHTTP(rec, req)
			require.Equal(t, want, rec.Code, rec.Body.String())
		}
		require.Contains(t, given, `{"role":"user","content":"How are you?"}`, kind)
	}
}
