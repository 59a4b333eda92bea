// Package wire is what the engines' HTTP wires have in common: a client of its
// own for each engine, server-sent events without a limit on lines, numbers
// that are checked and not coerced, and what a failure means for the caller.
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
)

// DefaultIdle is the longest silence of an engine that is waited for. A slow
// generation is no error, so it is far above any prefill.
const DefaultIdle = 10 * time.Minute

const (
	dialTimeout = 5 * time.Second
	// Engines behind uvicorn close a connection that was idle for 5 s. Closing
	// it first avoids writing a request into a connection that is going away.
	keepIdle = 4 * time.Second
	// maxAnswer bounds an answer that is read whole.
	maxAnswer = 512 << 20
	maxError  = 64 << 10
)

// Config says where an engine is and how it is called.
type Config struct {
	// URL is the server's root, such as http://127.0.0.1:30000; a path in it
	// stands before every path of the wire.
	URL string
	// APIKey is the engine's own key; nothing that an agent sent goes there.
	APIKey string
	// Idle is the longest silence, from the request to the first byte and
	// between two; 0 is DefaultIdle.
	Idle time.Duration
	// Model is what the gateway calls the model. A server that lists it is asked
	// for it.
	Model string
	// Upstream is what the server calls the model, where that is another name: an
	// adapter's, for instance. It has to be there.
	Upstream string
	// HTTP replaces the client, for TLS settings and tests.
	HTTP *http.Client
}

// Client calls one engine. It is safe for concurrent use.
type Client struct {
	base string
	key  string
	idle time.Duration
	http *http.Client
	// model and upstream are names; see Config.
	model, upstream string
}

// New checks cfg and returns a client; it does not connect.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("engine: url %q is not of the form http://host:port", cfg.URL)
	}
	if u.User != nil {
		return nil, errors.New("engine: a key in an address would be shown wherever the address is: use api_key_file")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("engine: url %q has a query or fragment; give the server's root", cfg.URL)
	}
	c := &Client{
		base: strings.TrimRight(cfg.URL, "/"), key: cfg.APIKey, idle: cfg.Idle, http: cfg.HTTP,
		model: cfg.Model, upstream: cfg.Upstream,
	}
	if c.idle == 0 {
		c.idle = DefaultIdle
	}
	if c.http == nil {
		c.http = &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
				MaxIdleConnsPerHost: 1024,
				IdleConnTimeout:     keepIdle,
				DisableCompression:  true,
				ReadBufferSize:      16 << 10,
				WriteBufferSize:     16 << 10,
			},
			// A redirect would turn a generation into a GET somewhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, nil
}

// URL is the server's root as it is used.
func (c *Client) URL() string { return c.base }

// Response is an answer with status 200 that is still being read. Close it.
type Response struct {
	*Events
	header  http.Header
	sent    *parts
	body    io.ReadCloser
	caller  context.Context
	call    context.Context
	cancel  context.CancelCauseFunc
	silence *time.Timer
	idle    time.Duration
	waiting func() error
	// refused is what waiting returned.
	refused error
}

var errIdle = errors.New("the engine was silent for too long")

// Post sends body and returns when the head of the answer is here. The error
// is an *engine.Error, or ctx's error. A session, where it is not empty, is
// told to routers that keep the requests of a session together. A body in parts
// is sent as one; it is read until the response is closed, or Post fails, at most.
func (c *Client) Post(ctx context.Context, path, session string, body ...[]byte) (*Response, error) {
	return c.do(ctx, http.MethodPost, path, session, body...)
}

// routingKey is the header that sglang's model gateway routes by.
const routingKey = "X-Smg-Routing-Key"

func (c *Client) do(ctx context.Context, method, path, session string, body ...[]byte) (*Response, error) {
	rctx, cancel := context.WithCancelCause(ctx)
	r := &Response{caller: ctx, call: rctx, cancel: cancel, idle: c.idle, sent: &parts{list: body}}
	r.silence = time.AfterFunc(c.idle, func() { cancel(errIdle) })
	req, err := http.NewRequestWithContext(rctx, method, c.base+path, http.NoBody)
	if err != nil {
		r.Close()
		return nil, &engine.Error{Class: engine.Refused, Err: err}
	}
	r.sent.setBody(req)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if session != "" {
		req.Header.Set(routingKey, session)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req) //nolint:bodyclose // Response.Close closes it
	if err != nil {
		err = r.fault(c.base, err)
		r.Close()
		return nil, err
	}
	r.body, r.header = resp.Body, resp.Header
	r.Events = NewEvents(r)
	if resp.StatusCode != http.StatusOK {
		defer r.Close()
		text, _ := io.ReadAll(io.LimitReader(r, maxError))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, StatusError(resp.StatusCode, resp.Header.Get("Retry-After"), text)
	}
	return r, nil
}

// parts are the body of a request. A transport may go on reading it after the
// answer has come, or the call was given up, but not beyond end: the memory is the
// caller's again.
type parts struct {
	mu   sync.Mutex
	list [][]byte
	over bool
}

func (p *parts) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list, p.over = nil, true
}

// setBody gives a request its body, which can be read again where a connection
// was gone already.
func (p *parts) setBody(req *http.Request) {
	for _, part := range p.list {
		req.ContentLength += int64(len(part))
	}
	if req.ContentLength == 0 {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) { return &reader{parts: p}, nil }
	req.Body = &reader{parts: p}
}

// reader reads parts one after the other.
type reader struct {
	parts    *parts
	part, at int
}

func (r *reader) Read(p []byte) (n int, err error) {
	r.parts.mu.Lock()
	defer r.parts.mu.Unlock()
	if r.parts.over {
		return 0, errOver
	}
	list := r.parts.list
	for r.part < len(list) && n < len(p) {
		k := copy(p[n:], list[r.part][r.at:])
		n, r.at = n+k, r.at+k
		if r.at == len(list[r.part]) {
			r.part, r.at = r.part+1, 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

var errOver = errors.New("the request is over")

func (r *reader) Close() error { return nil }

// Waiting has f called, unless it is nil, before each wait for more of the answer.
// Its error ends the answer, and is what Next returns.
func (r *Response) Waiting(f func() error) { r.waiting = f }

// Read reads the body; every byte ends a silence.
func (r *Response) Read(p []byte) (int, error) {
	if r.waiting != nil {
		if r.refused = r.waiting(); r.refused != nil {
			return 0, r.refused
		}
	}
	n, err := r.body.Read(p)
	if n > 0 {
		r.silence.Reset(r.idle)
	}
	return n, err
}

// Streamed reports whether the answer is a stream of events.
func (r *Response) Streamed() bool {
	return strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream")
}

// Next returns the data of the next event. The end of the stream is io.EOF;
// any other error is an *engine.Error or ctx's error.
func (r *Response) Next() ([]byte, error) {
	data, err := r.Events.Next()
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return data, err
	case errors.Is(err, ErrEventTooLong):
		return nil, Broken("%v", err)
	}
	return nil, r.fault("the stream", err)
}

// Each calls event with every event of a stream up to its end, or with the whole
// of an answer that is none. What event is given is valid until it returns.
func (r *Response) Each(event func(data []byte) error) error {
	if !r.Streamed() {
		data, err := r.All()
		if err != nil {
			return err
		}
		return event(data)
	}
	for {
		data, err := r.Next()
		if errors.Is(err, io.EOF) || string(data) == "[DONE]" {
			return nil
		}
		if err == nil {
			err = event(data)
		}
		if err != nil {
			return err
		}
	}
}

// All reads the whole answer.
func (r *Response) All() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return nil, r.fault("the answer", err)
	}
	if len(b) > maxAnswer {
		return nil, Broken("an answer of more than %d bytes", maxAnswer)
	}
	return b, nil
}

// Close ends the call; what was not read is canceled at the engine. Nothing of the
// answer's events is valid any more, and nothing of the request is read.
func (r *Response) Close() {
	r.silence.Stop()
	r.cancel(nil)
	r.sent.end()
	if r.body != nil {
		_ = r.body.Close()
	}
	if r.Events != nil {
		r.Events.giveBack()
		r.Events = nil
	}
}

// fault turns a transport's error into ctx's error or an Unreachable one.
func (r *Response) fault(what string, err error) error {
	if r.refused != nil {
		return r.refused
	}
	if r.caller.Err() != nil {
		return r.caller.Err()
	}
	if errors.Is(context.Cause(r.call), errIdle) {
		err = fmt.Errorf("%w (%v)", errIdle, r.idle)
	}
	return &engine.Error{Class: engine.Unreachable, Message: what, Err: err}
}

// Call sends one request and returns the whole answer, which is valid JSON or
// empty.
func (c *Client) Call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := c.do(ctx, method, path, "", body)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := r.All()
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return nil, err
	}
	if err := Valid(b); err != nil {
		return nil, err
	}
	return b, nil
}

// Valid is rawjson.Valid as an engine's error.
func Valid(b []byte) error {
	if err := rawjson.Valid(b); err != nil {
		if bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Infinity")) {
			return Broken("the answer holds a number that is not finite: %v", err)
		}
		return Broken("the answer is not JSON: %v", err)
	}
	return nil
}

// Broken returns an error of class Broken.
func Broken(format string, args ...any) *engine.Error {
	return &engine.Error{Class: engine.Broken, Message: fmt.Sprintf(format, args...)}
}

// StatusError says what an HTTP status other than 200 means.
func StatusError(status int, retryAfter string, body []byte) *engine.Error {
	e := &engine.Error{Status: status, Message: Message(body)}
	if s, err := strconv.ParseFloat(retryAfter, 64); err == nil && s >= 0 && s < 1e6 {
		e.RetryAfter = time.Duration(s * float64(time.Second))
	} else if at, err := http.ParseTime(retryAfter); err == nil {
		e.RetryAfter = max(0, time.Until(at))
	}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		e.Class = engine.Overloaded
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		e.Class = engine.Unreachable
	case status >= 500:
		e.Class = engine.Failed
	case status == http.StatusRequestEntityTooLarge, tooLong(e.Message):
		e.Class = engine.TooLong
	default:
		e.Class = engine.Refused
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Message = strings.TrimSpace("the engine does not take our key; set api_key_file of the model: " + e.Message)
	case http.StatusNotFound:
		e.Message = strings.TrimSpace("the engine has no such path or model; is it the kind of server that the model's engine names? " + e.Message)
	}
	return e
}

// tooLong knows the words of sglang, vLLM, llama.cpp and OpenAI.
func tooLong(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "context length") || strings.Contains(m, "context_length") ||
		strings.Contains(m, "context size") || strings.Contains(m, "maximum model length")
}

// EventError turns the error object of a stream's event into an error.
func EventError(raw []byte) *engine.Error {
	status := 0
	for _, key := range []string{"code", "status_code"} {
		if v, ok := rawjson.Get(raw, key); ok {
			if n, err := Int(v); err == nil {
				status = n
			}
		}
	}
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	return StatusError(status, "", raw)
}

// Message finds the words for people in an error's body.
func Message(body []byte) string {
	const limit = 500
	if rawjson.Valid(body) == nil {
		if s := findMessage(body); s != "" {
			body = []byte(s)
		}
	}
	s := strings.ToValidUTF8(strings.TrimSpace(string(body)), "\ufffd")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

func findMessage(raw []byte) string {
	switch rawjson.KindOf(raw) {
	case rawjson.String:
		return rawjson.Text(raw)
	case rawjson.Object:
		for _, key := range []string{"error", "message", "detail"} {
			if v, ok := rawjson.Get(raw, key); ok {
				if s := findMessage(v); s != "" {
					return s
				}
			}
		}
	}
	return ""
}
