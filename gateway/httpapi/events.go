package httpapi

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/tokenizer/parse"
)

// serve streams one turn in any protocol.
func (a *api) serve(c *echo.Context, req gateway.Request, open func(write func([]byte) error) dialect.Stream) error {
	w := newEventWriter(c.Response())
	s := open(w.write)
	req.Begun = func(turn string, promptTokens int) { w.begin(turn, func() { s.Begin(turn, promptTokens) }) }
	req.Pause = w.pause
	stop := w.pingEvery(a.cfg.PingEvery, s.Ping)
	defer stop()
	answer, err := a.complete(c.Request().Context(), req, func(d parse.Delta) error {
		return w.keep(func() error { return s.Delta(d) })
	})
	stop()
	if err != nil {
		return a.failStream(c, s, err)
	}
	a.deliver(c, req.Session, func() error { return w.together(func() error { return s.Finish(answer) }) }, answer)
	return nil
}

// failStream ends a stream with an error: as a status while nothing was
// written.
func (a *api) failStream(c *echo.Context, s interface {
	Begun() bool
	Fail(*gateway.Error) error
}, err error,
) error {
	if !s.Begun() {
		return err
	}
	e := gateway.AsError(err)
	a.report(c, e)
	_ = s.Fail(e) // the connection is lost either way
	return nil
}

// bodies are the memory of answers that have left.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// bodyLimit is what a body may take and still be kept, in bytes.
const bodyLimit = 1 << 20

// release writes committed answers as the one body that appendBody makes of them.
func (a *api) release(c *echo.Context, sess string, appendBody func(dst []byte) []byte, answers ...*gateway.Answer) error {
	for _, answer := range answers {
		c.Response().Header().Add("Turnlog-Turn", answer.Turn)
	}
	a.deliver(c, sess, func() error {
		body := bodies.Get().(*[]byte)
		*body = appendBody((*body)[:0])
		defer func() {
			if cap(*body) <= bodyLimit {
				bodies.Put(body)
			}
		}()
		// A body of known length needs no chunks.
		c.Response().Header().Set("Content-Length", strconv.Itoa(len(*body)))
		if err := c.JSONBlob(http.StatusOK, *body); err != nil {
			return err
		}
		return http.NewResponseController(c.Response()).Flush()
	}, answers...)
	return nil
}

// deliver gives committed answers to the client, and records those that it
// could not give: the client had gone before, or the write failed. A client
// that leaves after the write, as many do that have read the last event, has
// got its answer.
func (a *api) deliver(c *echo.Context, sess string, write func() error, answers ...*gateway.Answer) {
	a.deps.Fault("chat.before_release")
	ctx := c.Request().Context()
	err := ctx.Err()
	if err == nil {
		err = write()
	}
	if err == nil {
		return
	}
	for _, answer := range answers {
		a.deps.Gateway.DeliveryFailed(ctx, sess, answer.Turn, err)
	}
}

// eventWriter writes server-sent events. The response's header leaves with the
// first byte, so that an error before it can still be a status.
type eventWriter struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	mu    sync.Mutex
	wrote bool
	last  time.Time
	// keeps: what is written may stay here until pause. kept: something did.
	keeps, kept bool
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	return &eventWriter{w: w, flush: http.NewResponseController(w), last: time.Now()}
}

// write sends bytes, at once unless keeps is set. The caller holds the lock or is
// alone.
func (e *eventWriter) write(b []byte) error {
	if !e.wrote {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
		e.wrote = true
	}
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	if e.kept = true; e.keeps {
		return nil
	}
	return e.send()
}

// send sends what was kept.
func (e *eventWriter) send() error {
	if !e.kept {
		return nil
	}
	e.kept, e.last = false, time.Now()
	return e.flush.Flush()
}

// keep runs fn, which writes what may wait for a pause.
func (e *eventWriter) keep(fn func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keeps = true
	defer func() { e.keeps = false }()
	return fn()
}

// pause sends what was kept so far.
func (e *eventWriter) pause() error { return e.locked(e.send) }

// together runs fn, and sends all that it writes as one.
func (e *eventWriter) together(fn func() error) error {
	if err := e.keep(fn); err != nil {
		return err
	}
	return e.pause()
}

// begin names the turn in the response's header, if that has not left, and to
// the stream.
func (e *eventWriter) begin(turn string, tell func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.wrote {
		e.w.Header().Set("Turnlog-Turn", turn)
	}
	tell()
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
		t := time.NewTimer(d)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
			}
			left := time.Duration(0)
			err := e.locked(func() error {
				if left = d - time.Since(e.last); left > 0 {
					return nil
				}
				left = d
				return ping()
			})
			if err != nil {
				return // the request's context says so too
			}
			t.Reset(left)
		}
	}()
	return sync.OnceFunc(func() { close(done); <-ended })
}
