package httpapi

import (
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/openaichat"
	"turnlog.dev/tokenizer/parse"
)

// chat serves a chat completion.
func (a *api) chat(c *echo.Context) error {
	received := a.deps.Now()
	sess, err := a.session(c)
	if err != nil {
		return err
	}
	body, err := a.body(c)
	if err != nil {
		return err
	}
	req, opt, err := openaichat.Decode(body)
	if err != nil {
		return err
	}
	req.Session, req.Received = sess, received
	identify(&req, c.Request())
	if opt.Stream {
		return a.chatStream(c, req, opt)
	}
	answer, err := a.deps.Gateway.Complete(c.Request().Context(), req, nil)
	if err != nil {
		return err
	}
	a.deps.Fault("chat.before_release")
	out := openaichat.AppendResponse(nil, answer, opt, received.Unix())
	c.Response().Header().Set("Turnlog-Turn", answer.Turn)
	err = c.JSONBlob(http.StatusOK, out)
	if err == nil {
		err = http.NewResponseController(c.Response()).Flush()
	}
	a.delivered(c, sess, answer.Turn, err)
	return nil
}

// identify takes what the headers say about a call.
func identify(req *gateway.Request, r *http.Request) {
	h := r.Header
	req.RequestID = h.Get("x-request-id")
	req.IdempotencyKey = h.Get("idempotency-key")
	req.Thread = h.Get("x-session-id")
	req.Client = h.Get("user-agent")
}

// delivered records a committed answer that did not reach the client.
func (a *api) delivered(c *echo.Context, sess, turn string, err error) {
	ctx := c.Request().Context()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		a.deps.Gateway.DeliveryFailed(ctx, sess, turn, err)
	}
}

func (a *api) chatStream(c *echo.Context, req gateway.Request, opt openaichat.Options) error {
	w := newEventWriter(c.Response())
	req.Turn = a.deps.Gateway.NewTurn()
	stream := openaichat.NewStream("chatcmpl-"+req.Turn, opt, req.Received.Unix(), w.write)
	stop := w.pingEvery(a.cfg.PingEvery, stream.Ping)
	answer, err := a.deps.Gateway.Complete(c.Request().Context(), req, func(d parse.Delta) error {
		return w.locked(func() error { return stream.Delta(d) })
	})
	stop()
	switch {
	case err != nil && !stream.Begun():
		return err
	case err != nil:
		e := gateway.AsError(err)
		a.report(c, e)
		_ = stream.Fail(e) // the connection is lost either way
		return nil
	}
	a.deps.Fault("chat.before_release")
	a.delivered(c, req.Session, answer.Turn, stream.Finish(answer))
	return nil
}

// eventWriter writes server-sent events. The response's header leaves with the
// first byte, so that an error before it can still be a status.
type eventWriter struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	mu    sync.Mutex
	wrote bool
	last  time.Time
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	return &eventWriter{w: w, flush: http.NewResponseController(w), last: time.Now()}
}

// write sends bytes at once. The caller holds the lock or is alone.
func (e *eventWriter) write(b []byte) error {
	if !e.wrote {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
		e.wrote = true
	}
	e.last = time.Now()
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.flush.Flush()
}

func (e *eventWriter) locked(fn func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fn()
}

// pingEvery calls ping after each silence of d until stop is called; stop
// returns when no ping is under way.
func (e *eventWriter) pingEvery(d time.Duration, ping func() error) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
			}
			err := e.locked(func() error {
				if time.Since(e.last) < d {
					return nil
				}
				return ping()
			})
			if err != nil {
				return // the request's context says so too
			}
		}
	}()
	return func() { close(done); <-ended }
}
