package enginetest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/tokenizer"
)

// replay answers every request with the same bytes, without a network.
type replay struct {
	header http.Header
	body   []byte
}

func (r replay) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: r.header, Request: req,
		Body: io.NopCloser(bytes.NewReader(r.body)),
	}, nil
}

// recording keeps the answer of a handler.
type recording struct {
	handler http.Handler
	replay  replay
}

func (r *recording) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	r.replay = replay{rec.Header(), rec.Body.Bytes()}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	_, _ = w.Write(rec.Body.Bytes())
}

// Bench measures what an adapter costs of one answer of 500 tokens to a prompt
// of 8,000, without the network: ns/token and allocations.
func Bench(b *testing.B, tok tokenizer.Tokenizer, a Adapter) {
	ids := make([]uint32, 500)
	for i := range ids {
		ids[i] = uint32(300 + i)
	}
	cfg := mock.Config{Tokenizer: tok, Script: mock.Always(mock.Reply{IDs: ids})}
	if a.Mock != nil {
		a.Mock(&cfg)
	}
	m, err := mock.New(cfg)
	require.NoError(b, err)
	rec := &recording{handler: m}
	srv := httptest.NewServer(rec)
	defer srv.Close()
	req := engine.Request{ID: "r", Prompt: make([]uint32, 8000), RoutedFrom: -1}
	for i := range req.Prompt {
		req.Prompt[i] = uint32(i % tok.VocabSize())
	}
	live, err := a.New(wire.Config{URL: srv.URL})
	require.NoError(b, err)
	_, err = live.Generate(b.Context(), req, func(engine.Chunk) error { return nil })
	require.NoError(b, err)

	e, err := a.New(wire.Config{URL: srv.URL, HTTP: &http.Client{Transport: rec.replay}})
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for b.Loop() {
		n = 0
		_, err := e.Generate(b.Context(), req, func(c engine.Chunk) error { n += len(c.IDs); return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/token")
}
