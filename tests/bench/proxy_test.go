package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine/openai"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/gateway/httpapi"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/journal/jet"
)

// BenchmarkProxy sends chat completions through the gateway with the openai
// adapter and the embedded log, through httputil.ReverseProxy, through nginx
// where there is one, and directly. Each runs in a process of its own, so that
// its CPU is its own; the server behind them costs next to nothing.
//
//	cpu-µs/req    user and system time of the process in between
//	req/s-core    what one core does of it
//	p50-µs, p99-µs  latency of one client that asks one after the other
//
// Streams have 200 chunks of 20 bytes. Paced ones have one every 2 ms and tell
// how long a chunk took from the server to the client; bursts have none between
// them.
func BenchmarkProxy(b *testing.B) {
	upstream := role(b, "upstream", "")
	vias := map[string]via{"direct": {url: upstream.url}}
	vias["turnlog"] = role(b, "turnlog", upstream.url)
	vias["reverseproxy"] = role(b, "reverseproxy", upstream.url)
	if nginx, ok := startNginx(b, upstream.url); ok {
		vias["nginx"] = nginx
	}
	for _, size := range []int{2 << 10, 64 << 10, 200 << 10} {
		for _, name := range []string{"direct", "reverseproxy", "nginx", "turnlog"} {
			if v, ok := vias[name]; ok {
				b.Run(fmt.Sprintf("whole=%dKB/via=%s", size>>10, name), func(b *testing.B) { whole(b, v, size) })
			}
		}
	}
	for _, pace := range []time.Duration{2 * time.Millisecond, 0} {
		for _, name := range []string{"direct", "reverseproxy", "nginx", "turnlog"} {
			if v, ok := vias[name]; ok {
				b.Run(fmt.Sprintf("stream=%v/via=%s", pace, name), func(b *testing.B) { streamed(b, v, pace) })
			}
		}
	}
}

const (
	streamChunks = 200
	// proxyTurns is how many turns a session has.
	proxyTurns = 50
)

// via is a process to send requests through.
type via struct {
	url string
	pid int
	// key opens sessions; empty where there are none.
	key string
}

// cpu is what a process has used so far.
func (v via) cpu(tb testing.TB) time.Duration {
	if v.pid == 0 {
		return 0
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.pid))
	require.NoError(tb, err)
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+2:]))
	ticks := 0
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.Atoi(fields[i])
		require.NoError(tb, err)
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100)
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// agent sends requests, with a session where there are sessions.
type agent struct {
	via
	session string
	n       int
}

var asked atomic.Int64

func (a *agent) send(tb testing.TB, size int, query string, stream bool) *http.Response {
	if a.via.key != "" && a.n%proxyTurns == 0 {
		req, err := http.NewRequest(http.MethodPost, a.url+"/sessions", strings.NewReader("{}"))
		require.NoError(tb, err)
		req.Header.Set("Authorization", "Bearer "+a.via.key)
		res, err := client.Do(req)
		require.NoError(tb, err)
		var opened struct{ Key string }
		require.NoError(tb, json.NewDecoder(res.Body).Decode(&opened))
		res.Body.Close()
		a.session = opened.Key
	}
	a.n++
	text := fmt.Sprintf("Request %d. ", asked.Add(1))
	text += strings.Repeat("The quick brown fox. ", max(0, size-len(text))/21)
	body := fmt.Sprintf(`{"model":"any%s","messages":[{"role":"user","content":%q}],"stream":%v}`, query, text, stream)
	req, err := http.NewRequest(http.MethodPost, a.url+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+a.session)
	res, err := client.Do(req)
	require.NoError(tb, err)
	require.Equal(tb, http.StatusOK, res.StatusCode)
	return res
}

// whole sends requests of a size that get answers of that size.
func whole(b *testing.B, v via, size int) {
	one := func(a *agent) {
		res := a.send(b, size, fmt.Sprintf("-%d-0-0", size), false)
		n, err := io.Copy(io.Discard, res.Body)
		require.NoError(b, err)
		require.Greater(b, n, int64(size/2))
		res.Body.Close()
	}
	var times []time.Duration
	lone := &agent{via: v}
	one(lone)
	for range 200 {
		start := time.Now()
		one(lone)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	load(b, v, one)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// load has four clients ask b.N times and measures the process's CPU.
func load(b *testing.B, v via, one func(*agent)) {
	before := v.cpu(b)
	var left atomic.Int64
	n := 0
	for b.Loop() {
		n++
	}
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			a := &agent{via: v}
			for left.Add(-1) >= 0 {
				one(a)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(0, "ns/op")
	if cost := v.cpu(b) - before; v.pid != 0 {
		perRequest := float64(cost.Microseconds()) / float64(n)
		b.ReportMetric(perRequest, "cpu-µs/req")
		if perRequest > 0 {
			b.ReportMetric(1e6/perRequest, "req/s-core")
		}
	}
}

// streamed sends small requests that are answered in many chunks.
func streamed(b *testing.B, v via, pace time.Duration) {
	var mu sync.Mutex
	var delays []time.Duration
	one := func(a *agent) {
		res := a.send(b, 200, fmt.Sprintf("-0-%d-%d", streamChunks, pace), true)
		defer res.Body.Close()
		var own []time.Duration
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			_, rest, ok := strings.Cut(s.Text(), `"content":"@`)
			if !ok {
				continue
			}
			sent, _, _ := strings.Cut(rest, ";")
			nanos, err := strconv.ParseInt(sent, 10, 64)
			require.NoError(b, err)
			own = append(own, time.Since(time.Unix(0, nanos)))
		}
		require.Len(b, own, streamChunks)
		mu.Lock()
		delays = append(delays, own...)
		mu.Unlock()
	}
	one(&agent{via: v})
	delays = nil
	before := v.cpu(b)
	load(b, v, one)
	if cost := v.cpu(b) - before; v.pid != 0 {
		b.ReportMetric(float64(cost.Microseconds())/float64(len(delays)), "cpu-µs/chunk")
	}
	slices.Sort(delays)
	if pace > 0 {
		b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "delay-p50-µs")
	}
}

// The roles of this binary, when it is started again as a process of its own.
const roleVariable = "TURNLOG_BENCH_ROLE"

func TestMain(m *testing.M) {
	roles := map[string]func(upstream string) http.Handler{"upstream": upstreamRole, "turnlog": turnlogRole, "reverseproxy": reverseRole}
	make, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	h := make(os.Getenv("TURNLOG_BENCH_UPSTREAM"))
	fmt.Printf("http://%s\n", ln.Addr())
	panic((&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve(ln))
}

func role(b *testing.B, name, upstream string) via {
	self, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+name, "TURNLOG_BENCH_UPSTREAM="+upstream, "TURNLOG_BENCH_DIR="+b.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	v := via{url: strings.TrimSpace(line), pid: cmd.Process.Pid}
	if name == "turnlog" {
		v.key = "admin"
	}
	return v
}

// upstreamRole answers as the model's name says: any-SIZE-CHUNKS-PACE. A request
// for a stream of a whole answer gets it in pieces of 4 KB.
func upstreamRole(string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var size, chunks int
		var pace time.Duration
		_, after, _ := bytes.Cut(body, []byte(`"model":"any-`))
		_, _ = fmt.Sscanf(string(after[:min(len(after), 60)]), "%d-%d-%d", &size, &chunks, &pace)
		text := strings.Repeat("All is well in here. ", size/21)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}`, text)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		send := func(content, finish string) {
			fmt.Fprintf(w, `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}`+"\n\n", content, finish)
			_ = flush.Flush()
		}
		for i := 0; i < len(text); i += 4096 {
			send(text[i:min(len(text), i+4096)], "null")
		}
		for range chunks {
			send(fmt.Sprintf("@%d;", time.Now().UnixNano()), "null")
			if pace > 0 {
				time.Sleep(pace)
			}
		}
		send("", `"stop"`)
		_, _ = io.WriteString(w, `data: {"id":"x","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}`+"\n\ndata: [DONE]\n\n")
	})
}

func reverseRole(upstream string) http.Handler {
	u, err := url.Parse(upstream)
	if err != nil {
		panic(err)
	}
	p := httputil.NewSingleHostReverseProxy(u)
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	p.FlushInterval = -1
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise the server may close a body of which the end was not read yet,
		// and the proxy gives its connection up.
		_ = http.NewResponseController(w).EnableFullDuplex()
		p.ServeHTTP(w, r)
	})
}

// turnlogRole is a gateway over an embedded log, mode dev.
func turnlogRole(upstream string) http.Handler {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	quiet := slog.New(slog.DiscardHandler)
	srv, err := natsd.New(natsd.Config{Mode: natsd.Dev, Dir: os.Getenv("TURNLOG_BENCH_DIR"), MaxBytes: 8 << 30}, quiet)
	check(err)
	go func() { check(srv.Run(ctx)) }()
	check(srv.Ready(ctx))
	conn, err := jet.Dial(jet.Options{InProcess: srv})
	check(err)
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 7 << 30
	log, err := conn.Open(ctx, cfg)
	check(err)
	e, err := openai.New(openai.Config{Config: wire.Config{URL: upstream}})
	check(err)
	p, err := pool.New(pool.Config{Name: "any"}, pool.Replica{Name: "up", Kind: "openai", Engine: e})
	check(err)
	// The name that the client asks for is the one that the server gets: it says
	// what to answer.
	g, err := gateway.New(gateway.Default(), gateway.Deps{
		Journal: log, Models: gateway.NewModels(namedModels(p)...), Keys: gateway.NewKeys([]byte("seed"), "admin"),
	})
	check(err)
	h, err := httpapi.New(httpapi.Default(), httpapi.Deps{Gateway: g})
	check(err)
	return h
}

func namedModels(p gateway.Pool) (list []*gateway.Model) {
	for _, name := range []string{
		fmt.Sprintf("any-%d-0-0", 2<<10), fmt.Sprintf("any-%d-0-0", 64<<10), fmt.Sprintf("any-%d-0-0", 200<<10),
		fmt.Sprintf("any-0-%d-%d", streamChunks, 2*time.Millisecond), fmt.Sprintf("any-0-%d-0", streamChunks),
	} {
		list = append(list, &gateway.Model{Name: name, Wire: gateway.Text, Pool: p})
	}
	return list
}

// startNginx runs nginx as a proxy, where it is installed.
func startNginx(b *testing.B, upstream string) (via, bool) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		b.Log("nginx is not installed (Debian: nginx-light); its rows are left out")
		return via{}, false
	}
	dir := b.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	address := ln.Addr().String()
	ln.Close()
	u, err := url.Parse(upstream)
	require.NoError(b, err)
	config := fmt.Sprintf(`daemon off; master_process off; worker_processes 1; pid %[1]s/pid; error_log /dev/null;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 1000000;
  upstream up { server %[2]s; keepalive 64; }
  server { listen %[3]s; location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } }
}`, dir, u.Host, address)
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(b, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(path, "-p", dir, "-c", file)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(b, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	return via{url: "http://" + address, pid: cmd.Process.Pid}, true
}
