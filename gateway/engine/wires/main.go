// Command wires has every adapter talk to the mock and prints what went over
// the wire, one JSON object a line: engine, path, request, and the response, or
// an event of it. With the word tags it prints the grammars of forced calls, and
// with the word read it reads what was sampled under them. check.sh holds all of it
// against the engines' own packages.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/llamacpp"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/vllm"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/parse"
)

func main() {
	work := func() error { return run(context.Background(), os.Stdout) }
	switch strings.Join(os.Args[1:], " ") {
	case "tags":
		work = func() error { return tags(os.Stdout) }
	case "read":
		work = func() error { return read(os.Stdin, os.Stdout) }
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "wires:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	for name, open := range map[string]func(wire.Config) (engine.Engine, error){
		"sglang":      func(c wire.Config) (engine.Engine, error) { return sglang.New(sglang.Config{Config: c}) },
		"sglang-chat": func(c wire.Config) (engine.Engine, error) { return sglang.New(sglang.Config{Config: c, Parser: true}) },
		"vllm":        func(c wire.Config) (engine.Engine, error) { return vllm.New(vllm.Config{Config: c}) },
		"vllm-parser": func(c wire.Config) (engine.Engine, error) { return vllm.New(vllm.Config{Config: c, Parser: true}) },
		"llamacpp":    func(c wire.Config) (engine.Engine, error) { return llamacpp.New(llamacpp.Config{Config: c}) },
	} {
		if err := exchange(ctx, out, name, open); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// exchange lets one adapter check the mock and generate with everything set.
func exchange(ctx context.Context, out io.Writer, name string, open func(wire.Config) (engine.Engine, error)) error {
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer(), Adapters: []string{"tuned"}, Experts: mock.SomeExperts, Script: mock.Steps(
		mock.Call("look", `{"at": 1}`), mock.Reply{Text: "two versions of one model", Version: "1", VersionAt: 3})})
	if err != nil {
		return err
	}
	srv := httptest.NewServer(&recorder{name: name, next: m, out: out})
	defer srv.Close()
	e, err := open(wire.Config{URL: srv.URL, Upstream: "tuned"})
	if err != nil {
		return err
	}
	if _, err := e.Check(ctx, demo.Tokenizer()); err != nil {
		return err
	}
	half, one, seed, k := 0.5, 1.0, int64(7), 20
	routed := -1
	grammar := &engine.Grammar{Kind: "json_schema", Value: `{"type":"object"}`}
	likeliest := 3
	if strings.Contains(name, "-") {
		likeliest = 0 // nobody asks an engine that parses for them
	}
	for range 2 {
		_, err = e.Generate(ctx, engine.Request{
			ID: "r1", Session: "s1", Model: "mock", Prompt: demo.Tokenizer().Encode(nil, "hello"), RoutedFrom: routed,
			Text: []byte(`{"messages":[{"role":"user","content":"hello"}],"tools":[{"type":"function","function":{"name":"look","parameters":{}}}]}`),
			Sampling: engine.Sampling{
				MaxTokens: 100, Temperature: &half, TopP: &half, TopK: &k, MinP: &half, FrequencyPenalty: &half, PresencePenalty: &half,
				RepetitionPenalty: &one, Seed: &seed, Stop: []string{"###"}, StopTokens: []uint32{5},
				LogitBias: []engine.Bias{{ID: 5, Value: -1}, {ID: 9, Value: 1.5}},
			},
			Grammar: grammar, Likeliest: likeliest,
		}, func(engine.Chunk) error { return nil })
		if err != nil {
			return err
		}
		// The second time with routed experts, and a pattern as a constraint.
		routed = 0
		if !strings.HasSuffix(name, "-chat") {
			grammar = &engine.Grammar{Kind: "tool_choice", Pattern: &parse.Pattern{Text: "yes"}}
		}
	}
	return nil
}

// recorder prints what passes.
type recorder struct {
	name string
	next http.Handler
	out  io.Writer
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	r.next.ServeHTTP(rec, req)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
	answers := []string{rec.Body.String()}
	if strings.HasPrefix(rec.Header().Get("Content-Type"), "text/event-stream") {
		answers = answers[:0]
		for event := range strings.SplitSeq(rec.Body.String(), "\n\n") {
			if data, ok := strings.CutPrefix(event, "data: {"); ok {
				answers = append(answers, "{"+data)
			}
		}
	}
	for _, a := range answers {
		o := wire.NewObject(nil)
		o.Text("engine", r.name)
		o.Text("path", req.URL.Path)
		o.Bool("streamed", len(answers) > 1)
		if rawjson.Valid(body) == nil {
			o.Raw("request", body)
		}
		if rawjson.Valid([]byte(a)) == nil {
			o.Raw("response", []byte(a))
		}
		_, _ = r.out.Write(append(o.End(), '\n'))
	}
}
