// Package httpapi is the gateway's HTTP surface: exactly the routes listed in
// New, and nothing that passes a path on to an engine.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/journal"
)

// Config is what an operator decides about the HTTP surface.
type Config struct {
	// MaxBody bounds a request body in bytes.
	MaxBody int64
	// PingEvery is the silence after which a waiting stream gets a ping.
	PingEvery time.Duration
}

// Default returns the configuration that is used for what is not said.
func Default() Config { return Config{MaxBody: 64 << 20, PingEvery: 10 * time.Second} }

// Validate reports all faults at once.
func (c Config) Validate() error {
	var faults []error
	if c.MaxBody <= 0 {
		faults = append(faults, errors.New("httpapi: max_body must be positive"))
	}
	if c.PingEvery <= 0 {
		faults = append(faults, errors.New("httpapi: ping_every must be positive"))
	}
	return errors.Join(faults...)
}

// Deps is what the surface works with.
type Deps struct {
	Gateway *gateway.Gateway
	// Ready says whether the gateway can serve; its error is shown.
	Ready func(context.Context) error
	// Sessions lists sessions; nil leaves the list out.
	Sessions Sessions
	// Parked lists and releases parked sessions; nil leaves both out.
	Parked Parked
	// Trajectories is the trajectory stream; nil leaves it out.
	Trajectories journal.Journal
	// Metrics serves /metrics; nil leaves the route out.
	Metrics http.Handler
	Log     *slog.Logger
	// Now and NewID are time.Now and random ids but in tests.
	Now   func() time.Time
	NewID func() string
	// Fault is called at named points; nil but in crash tests.
	Fault func(point string)
}

// Sessions is the registry that recorders keep.
type Sessions interface {
	// List yields the rows of sessions as JSON objects, in no order. Empty
	// filters select all.
	List(ctx context.Context, run, group, state string) iter.Seq2[[]byte, error]
}

// Parked are the sessions that recorders could not fold.
type Parked interface {
	// List yields the events for which sessions are parked as JSON objects, one
	// session's after another's. An empty run selects all.
	List(ctx context.Context, run string) iter.Seq2[[]byte, error]
	// Release orders recorders to fold a session again, should it be parked.
	// Each call is an order of its own.
	Release(ctx context.Context, session, detail string) error
}

type api struct {
	cfg  Config
	deps Deps
}

// New returns the handler of all routes.
func New(cfg Config, deps Deps) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.NewID == nil {
		deps.NewID = gateway.NewID
	}
	if deps.Ready == nil {
		deps.Ready = func(context.Context) error { return nil }
	}
	if deps.Fault == nil {
		deps.Fault = func(string) {}
	}
	a := &api{cfg, deps}
	e := echo.New()
	e.Logger = deps.Log
	e.HTTPErrorHandler = a.fail
	e.Use(a.named, a.recovered)

	// Claude Code asks for it before its first call.
	e.HEAD("/", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	e.HEAD("/sessions/:session", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	e.GET("/healthz", a.healthz)
	e.GET("/readyz", a.readyz)
	if deps.Metrics != nil {
		e.GET("/metrics", func(c *echo.Context) error {
			deps.Metrics.ServeHTTP(c.Response(), c.Request())
			return nil
		})
	}

	e.POST("/sessions", a.openSession, a.admin)
	e.GET("/sessions", a.listSessions, a.admin)
	e.GET("/sessions/:session", a.showSession, a.admin)
	e.GET("/sessions/:session/turns/:turn", a.showTurn, a.admin)
	e.GET("/sessions/:session/trajectory", a.trajectory, a.admin)
	e.DELETE("/sessions/:session", a.deleteSession, a.admin)
	e.POST("/sessions/:session/close", a.closeSession, a.admin)
	e.POST("/sessions/:session/reward", a.reward, a.admin)
	e.POST("/sessions/:session/annotations", a.annotate, a.admin)

	e.POST("/sessions/:session/release", a.releaseSession, a.admin)
	e.GET("/parked", a.listParked, a.admin)

	e.POST("/runs", a.openRun, a.admin)
	e.POST("/runs/:run/weights", a.updateWeights, a.admin)
	e.POST("/runs/:run/pause", a.pauseRun, a.admin)
	e.POST("/runs/:run/drain", a.drainRun, a.admin)
	e.POST("/runs/:run/resume", a.resumeRun, a.admin)

	e.GET("/pools", a.listPools, a.admin)
	e.POST("/pools/:model/backends", a.addBackend, a.admin)
	e.DELETE("/pools/:model/backends/:backend", a.removeBackend, a.admin)
	e.POST("/pools/:model/backends/:backend/drain", a.drainBackend, a.admin)
	e.POST("/pools/:model/backends/:backend/resume", a.resumeBackend, a.admin)

	// The same calls under a session's path and, with a session key, without.
	for _, prefix := range []string{"/v1", "/sessions/:session/v1"} {
		e.POST(prefix+"/chat/completions", a.chat)
		e.POST(prefix+"/responses", a.responses)
		e.POST(prefix+"/messages", a.messages)
		e.POST(prefix+"/messages/count_tokens", a.countTokens)
		e.GET(prefix+"/models", a.models)
		e.GET(prefix+"/models/*", a.model)
	}
	return e, nil
}

func (a *api) healthz(c *echo.Context) error {
	return c.JSONBlob(http.StatusOK, []byte(`{"status":"ok"}`))
}

func (a *api) readyz(c *echo.Context) error {
	if err := a.deps.Ready(c.Request().Context()); err != nil {
		return &gateway.Error{Kind: gateway.LogDown, Message: err.Error(), RetryAfter: time.Second}
	}
	return c.JSONBlob(http.StatusOK, []byte(`{"status":"ready"}`))
}

// admin lets only admin keys pass.
func (a *api) admin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		switch key := keyOf(c.Request()); {
		case key == "":
			return &gateway.Error{Kind: gateway.Unauthorized, Message: "no API key; send an admin key as a bearer token"}
		case !a.deps.Gateway.IsAdmin(key):
			return &gateway.Error{Kind: gateway.Unauthorized, Message: "this needs an admin key"}
		}
		return next(c)
	}
}

// session returns the session that a model call is for.
func (a *api) session(c *echo.Context) (string, error) {
	return a.deps.Gateway.Authorize(c.Request().Context(), keyOf(c.Request()), c.Param("session"))
}

// keyOf returns the key of a request, wherever the client's protocol puts it.
func keyOf(r *http.Request) string {
	scheme, key, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	for _, h := range []string{"x-api-key", "x-goog-api-key"} {
		if key := r.Header.Get(h); key != "" {
			return key
		}
	}
	return ""
}

// body reads a whole request body.
func (a *api) body(c *echo.Context) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > a.cfg.MaxBody {
		return nil, a.tooLarge()
	}
	buf := make([]byte, 0, max(512, r.ContentLength+1))
	lim := http.MaxBytesReader(c.Response(), r.Body, a.cfg.MaxBody)
	for {
		n, err := lim.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		var over *http.MaxBytesError
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case errors.As(err, &over):
			return nil, a.tooLarge()
		case err != nil:
			return nil, &gateway.Error{Kind: gateway.Interrupted, Message: "the body did not arrive", Err: err}
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

func (a *api) tooLarge() error {
	return &gateway.Error{Kind: gateway.TooLarge, Message: fmt.Sprintf("the body is over the limit of %d bytes", a.cfg.MaxBody)}
}

// fail writes the error of a handler that has written nothing yet.
func (a *api) fail(c *echo.Context, err error) {
	e := gateway.AsError(err)
	var he *echo.HTTPError
	var coder echo.HTTPStatusCoder
	if errors.As(err, &he) || errors.As(err, &coder) {
		e = routeError(c, err)
	}
	a.report(c, e)
	body, status := protocolOf(c.Request()).fail(nil, e, requestID(c))
	if errors.Is(err, echo.ErrMethodNotAllowed) {
		status = http.StatusMethodNotAllowed // the router has set Allow
	}
	if e.RetryAfter > 0 {
		c.Response().Header().Set("Retry-After", strconv.Itoa(int(max(1, e.RetryAfter.Round(time.Second)/time.Second))))
	}
	if err := c.JSONBlob(status, append(body, '\n')); err != nil {
		a.deps.Log.Debug("error not written", "error", err)
	}
}

// routeError is what the router found: no such path, or not with this method.
func routeError(c *echo.Context, err error) *gateway.Error {
	r := c.Request()
	if errors.Is(err, echo.ErrMethodNotAllowed) {
		return &gateway.Error{Kind: gateway.UnknownRoute, Message: fmt.Sprintf("%s is not allowed on %s", r.Method, r.URL.Path)}
	}
	return &gateway.Error{Kind: gateway.UnknownRoute, Message: fmt.Sprintf("no route for %s %s", r.Method, r.URL.Path)}
}

// report logs what is not the client's doing.
func (a *api) report(c *echo.Context, e *gateway.Error) {
	switch e.Kind {
	case gateway.InternalFault, gateway.Damaged, gateway.LogDown, gateway.EngineDown, gateway.EngineFault:
		a.deps.Log.ErrorContext(c.Request().Context(), "request failed", "request", requestID(c), "path", c.Path(), "kind", string(e.Kind), "error", e.Error())
	}
}

// recovered turns a panic into an error: one request must not end the process.
// A response that has begun is cut instead: it must not look complete.
func (a *api) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) (err error) {
		defer func() {
			r := recover()
			if r == nil {
				return
			}
			if r == http.ErrAbortHandler { //nolint:errorlint // net/http compares so too
				panic(r)
			}
			a.deps.Log.ErrorContext(c.Request().Context(), "panic in a request", "path", c.Path(), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			if w, ok := c.Response().(*echo.Response); ok && w.Committed {
				panic(http.ErrAbortHandler)
			}
			err = panicked(r)
		}()
		return next(c)
	}
}

func panicked(r any) error {
	return &gateway.Error{Kind: gateway.InternalFault, Message: "internal error; see the gateway's log", Err: fmt.Errorf("panic: %v", r)}
}
