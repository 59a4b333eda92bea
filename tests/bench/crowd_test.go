package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// slow is a still pool that takes its time, and remembers how long it really
// took for each session.
type slow struct {
	still
	pause time.Duration
	took  *sync.Map // by session
}

func (s slow) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error, restart func() bool) (pool.Result, error) {
	began := time.Now()
	select {
	case <-time.After(s.pause):
	case <-ctx.Done():
		return pool.Result{}, ctx.Err()
	}
	s.took.Store(req.Session, time.Since(began))
	return s.still.Generate(ctx, req, emit, restart)
}

// BenchmarkCrowd is 200 sessions at work over HTTP with an engine that takes
// 250 ms, on the embedded log, while 10,000 idle ones have been evicted. An
// operation is one turn of each of the 200. What a turn takes beyond the
// engine's time, the client's own part included, is the added latency; direct
// is that of the same request to a server that does nothing but wait, in the
// same run.
func BenchmarkCrowd(b *testing.B) {
	const idle, busy, cache = 10_000, 200, 16 << 20
	ids, text := answer(100)
	p := slow{still{ids}, 0, new(sync.Map)}
	j := embedded(b)
	files, goroutines, before := descriptors(), runtime.NumGoroutine(), live()
	cfg := gateway.Default()
	cfg.CacheBytes = cache
	model := demoModel(b, &p)
	g, err := gateway.New(cfg, gateway.Deps{Journal: j, Models: gateway.NewModels(model), Keys: gateway.NewKeys([]byte("seed"), "admin")})
	require.NoError(b, err)
	open := func(id string) {
		_, err := g.Open(b.Context(), gateway.OpenRequest{Session: id, Opened: &event.SessionOpened{}})
		require.NoError(b, err)
	}
	for i := range idle {
		id := fmt.Sprintf("idle%d", i)
		open(id)
		history := []message.Message{textOf(message.System, "You help."), textOf(message.User, "Begin.")}
		_, err := g.Complete(b.Context(), gateway.Request{Session: id, Conversation: message.Split(history, nil)}, nil)
		require.NoError(b, err)
	}
	perIdle := (live() - before - g.Stats().CachedBytes) / idle
	newFiles, newGoroutines := descriptors()-files, runtime.NumGoroutine()-goroutines

	h, err := httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: g})
	require.NoError(b, err)
	srv := httptest.NewServer(h)
	defer srv.Close()
	direct := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began := time.Now()
		time.Sleep(p.pause)
		p.took.Store(r.Header.Get("Session"), time.Since(began))
		_, _ = io.WriteString(w, text)
	}))
	defer direct.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: busy}}
	p.pause = 250 * time.Millisecond
	history := make([][]byte, busy)
	for i := range history {
		open(fmt.Sprintf("busy%d", i))
		history[i] = []byte(`{"role":"system","content":"You help."}`)
	}
	question := string(bytes.Repeat([]byte("What is in the next file, and why? "), 55)) // 2 KB
	// ask sends the history of a session and returns what it took beyond the
	// engine's time.
	ask := func(i int, url string) (time.Duration, error) {
		id := fmt.Sprintf("busy%d", i)
		body := append(append([]byte(`{"model":"demo","messages":[`), history[i]...), "]}"...)
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url+"/sessions/"+id+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer admin")
		req.Header.Set("Session", id)
		began := time.Now()
		res, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		said, err := io.ReadAll(res.Body)
		took := time.Since(began)
		if err != nil || res.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s: %s: %w", res.Status, said, err)
		}
		engine, _ := p.took.Load(id)
		return took - engine.(time.Duration), nil
	}
	var mu sync.Mutex
	added := map[string][]time.Duration{}
	round := func(url string) (cpu time.Duration) {
		began := cpuTime()
		var all sync.WaitGroup
		for i := range busy {
			all.Go(func() {
				// Agents do not all ask at the same instant.
				time.Sleep(time.Duration(i) * p.pause / busy)
				d, err := ask(i, url)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					b.Error(err)
				}
				added[url] = append(added[url], d)
			})
		}
		all.Wait()
		return cpuTime() - began
	}
	var spent time.Duration
	for b.Loop() {
		for i := range history {
			history[i] = append(rawjson.AppendText(append(history[i], `,{"role":"user","content":`...), question), '}')
		}
		round(direct.URL)
		spent += round(srv.URL)
		for i := range history {
			history[i] = append(rawjson.AppendText(append(history[i], `,{"role":"assistant","content":`...), text), '}')
		}
	}
	for name, url := range map[string]string{"direct": direct.URL, "added": srv.URL} {
		list := added[url]
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds()), name+"-p50-µs")
		b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), name+"-p99-µs")
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(len(added[srv.URL])), "cpu-µs/turn")
	b.ReportMetric(float64(perIdle), "B/idle-session")
	b.ReportMetric(float64(newFiles), "files")
	b.ReportMetric(float64(newGoroutines), "goroutines")
}

// live is what the heap holds.
func live() int {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// descriptors counts open files, where the system tells.
func descriptors() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}
