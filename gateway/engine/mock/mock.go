// Package mock is a double of the engines' wires: sglang, vLLM, llama.cpp and
// OpenAI chat. What it says comes from a script or from its demo, a small
// imitation of a model that uses tools; what it samples are the ids that its
// tokenizer produces for the text, and now and then another split of the same
// text, as sampling does. It keeps a journal of everything that it sampled, so
// that a test compares ids and not impressions, and it can misbehave in every
// way that an engine was seen to.
package mock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"turnlog.dev/tokenizer"
)

// Config says what the model is and how the server behaves. Only Tokenizer is
// needed.
type Config struct {
	Tokenizer tokenizer.Tokenizer
	// Model is the served name; default "mock".
	Model string
	// Adapters are the names of adapters (LoRA) that are served beside it; on
	// llama.cpp's wire, which knows no such names, the server is a router and they
	// are models of their own.
	Adapters []string
	// Script says the answers; default Demo.
	Script Script
	// Seed decides everything random.
	Seed uint64
	// Version is the label of the weights; default "0". See SetVersion.
	Version string
	// StopToken ends an answer; default <|im_end|>.
	StopToken string
	// NonCanonical is the chance for each token to be sampled as two tokens
	// that spell the same; 0 never.
	NonCanonical float64
	// ContextLength in tokens; default 131072.
	ContextLength int
	// ChunkTokens is how many tokens a chunk of a stream holds; default 1.
	ChunkTokens int
	// Delay comes before the first token, Pace between two chunks; a reply's
	// own count instead where they are set.
	Delay, Pace time.Duration
	// Cumulative makes sglang's chunks repeat everything so far, as a server
	// without --incremental-streaming-output does.
	Cumulative bool
	// NoScaleOut leaves the generate, render and derender paths of vLLM out, as
	// a server without --enable-scale-out does.
	NoScaleOut bool
	// Reasons makes vLLM enforce constraints after the reasoning only, as a server
	// with --reasoning-parser does: here that is never.
	Reasons bool
	// Experts is what is chosen, and sent where it is asked for; default none.
	Experts Experts
	// Strict makes chat refuse what OpenAI's own servers do not know.
	Strict bool
	// Logprobs is the distribution that logprobs are taken from; default
	// Scaled.
	Logprobs Logprobs
	// Concurrency answers 503 to more requests than that; 0 is no bound.
	Concurrency int
	// APIKey, where set, is asked for.
	APIKey string
	// Journal gets every line of the journal; nil keeps it in memory only.
	Journal io.Writer
	Logger  *slog.Logger
}

// Logprobs says which distribution logprobs are taken from.
type Logprobs string

// The distributions: the model's own, the one after temperature as sglang has
// it, and the one that was sampled from.
const (
	Scaled    Logprobs = ""
	Raw       Logprobs = "raw"
	Processed Logprobs = "processed"
)

// Server is the double. It is an http.Handler and safe for concurrent use.
type Server struct {
	cfg     Config
	tok     tokenizer.Tokenizer
	stop    uint32
	mux     *http.ServeMux
	journal Journal
	log     *slog.Logger

	requests atomic.Int64
	running  atomic.Int64
	version  atomic.Pointer[string]

	mu      sync.Mutex
	flights map[string]context.CancelCauseFunc
	aborted []string
	recent  [][]uint32 // what the prefix cache holds, newest last
}

// errAborted ends a generation that another request aborted.
var errAborted = errors.New("mock: aborted by request")

// New returns a server; it does not listen.
func New(cfg Config) (*Server, error) {
	if cfg.Tokenizer == nil {
		return nil, errors.New("mock: no tokenizer; give one, such as the embedded demo's")
	}
	setDefault(&cfg.Model, "mock")
	setDefault(&cfg.Version, "0")
	setDefault(&cfg.StopToken, "<|im_end|>")
	setDefault(&cfg.ContextLength, 1<<17)
	setDefault(&cfg.ChunkTokens, 1)
	if cfg.Script == nil {
		cfg.Script = Demo()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	stop, ok := cfg.Tokenizer.TokenID(cfg.StopToken)
	if !ok {
		return nil, fmt.Errorf("mock: the tokenizer has no token %q; name the model's own stop token", cfg.StopToken)
	}
	s := &Server{
		cfg: cfg, tok: cfg.Tokenizer, stop: stop, log: cfg.Logger,
		mux: http.NewServeMux(), flights: map[string]context.CancelCauseFunc{},
		journal: Journal{out: cfg.Journal},
	}
	s.SetVersion(cfg.Version)
	s.routes()
	return s, nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (s *Server) routes() {
	s.mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	s.mux.HandleFunc("GET /version", s.reply(func([]byte) (int, []byte) {
		return http.StatusOK, []byte(`{"version":"` + vllmVersion + `"}`)
	}))
	s.mux.HandleFunc("GET /v1/models", s.reply(s.models))
	s.mux.HandleFunc("POST /tokenize", s.reply(s.tokenize))
	s.mux.HandleFunc("POST /detokenize", s.reply(s.detokenize))
	s.sglangRoutes()
	s.vllmRoutes()
	s.llamaRoutes()
	s.chatRoutes()
	s.scaleOutRoutes()
}

// reply wraps a path that answers at once.
func (s *Server) reply(f func(body []byte) (int, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		status, b := f(body)
		writeJSON(w, status, b)
	}
}

func writeJSON(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.cfg.APIKey != "" && r.Header.Get("Authorization") != "Bearer "+s.cfg.APIKey {
		writeJSON(w, http.StatusUnauthorized, []byte(`{"error":{"message":"wrong API key","type":"authentication_error","code":401}}`))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Journal is what was sampled.
func (s *Server) Journal() *Journal { return &s.journal }

// SetVersion loads other weights: what is sampled from now on has this label.
func (s *Server) SetVersion(label string) { s.version.Store(&label) }

// Requests is how many generations were asked for.
func (s *Server) Requests() int { return int(s.requests.Load()) }

// Running is how many generations are being computed.
func (s *Server) Running() int { return int(s.running.Load()) }

// Aborted lists the ids of the requests that were aborted by request.
func (s *Server) Aborted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.aborted...)
}

func (s *Server) abort(id string) {
	s.mu.Lock()
	s.aborted = append(s.aborted, id)
	cancel := s.flights[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errAborted)
	}
}

// Listen opens addr, such as 127.0.0.1:0, and says where.
func Listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("mock: %w; choose another address with --listen", err)
	}
	return ln, nil
}

// Run serves on ln until ctx ends.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stopped := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stopped()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("mock: serve: %w", err)
	}
	return nil
}
