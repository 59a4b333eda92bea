package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/gateway/dialect/openaichat"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/parse"
)

// chat serves a chat completion: as many turns as choices are asked for.
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
	answers, err := a.sample(c, req, opt.N, nil)
	if err != nil {
		return err
	}
	return a.release(c, sess, func(dst []byte) []byte {
		return openaichat.AppendResponse(dst, answers, opt, received.Unix())
	}, answers...)
}

func (a *api) chatStream(c *echo.Context, req gateway.Request, opt openaichat.Options) error {
	w := newEventWriter(c.Response())
	s := openaichat.NewStream(opt, req.Received.Unix(), w.write)
	if opt.N == 1 {
		req.Begun = func(turn string, _ int) { w.begin(turn, func() { s.Begin(turn) }) }
	} else {
		s.Begin(a.deps.Gateway.NewTurn()) // one name for several turns: any
	}
	req.Pause = w.pause
	stop := w.pingEvery(a.cfg.PingEvery, s.Ping)
	answers, err := a.sample(c, req, opt.N, func(i int, d parse.Delta) error {
		return w.keep(func() error { return s.Delta(i, d) })
	})
	stop()
	if err != nil {
		return a.failStream(c, s, err)
	}
	a.deliver(c, req.Session, func() error { return w.together(func() error { return s.Finish(answers) }) }, answers...)
	return nil
}

// sample makes n turns of one request, siblings in the tree. The first error
// ends them all; turns that were committed by then are recorded as not
// delivered.
func (a *api) sample(c *echo.Context, req gateway.Request, n int, early func(int, parse.Delta) error) ([]*gateway.Answer, error) {
	ctx, cancel := context.WithCancelCause(c.Request().Context())
	defer cancel(nil)
	answers := make([]*gateway.Answer, n)
	one := func(i int) {
		var emit func(parse.Delta) error
		if early != nil {
			emit = func(d parse.Delta) error { return early(i, d) }
		}
		var err error
		if answers[i], err = a.complete(ctx, choice(req, i), emit); err != nil {
			cancel(err)
		}
	}
	var others sync.WaitGroup
	for i := range n - 1 {
		others.Go(func() { one(i + 1) })
	}
	one(0) // by itself, as nearly always, it needs no goroutine
	others.Wait()
	err := context.Cause(ctx)
	if err == nil {
		return answers, nil
	}
	for _, answer := range answers {
		if answer != nil {
			a.deps.Gateway.DeliveryFailed(ctx, req.Session, answer.Turn, err)
		}
	}
	return nil, err
}

// complete is Gateway.Complete; a panic in it is an error of this request, also
// outside of the goroutine that serves it.
func (a *api) complete(ctx context.Context, req gateway.Request, early func(parse.Delta) error) (_ *gateway.Answer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	return a.deps.Gateway.Complete(ctx, req, early)
}

// choice is the request for one of several answers. A repeat of it is a repeat
// of the same choice; a seed is another one for each, or all would be equal.
func choice(req gateway.Request, i int) gateway.Request {
	if i > 0 {
		req.Turn = ""
		if seed, ok := rawjson.Get(req.Sampling, "seed"); ok {
			own := dialect.Int(seed)
			next := own + int64(i)
			if next < own {
				next = own - int64(i) // there is none above it
			}
			req.Sampling = rawjson.Splice(nil, req.Sampling, rawjson.Set{Key: "seed", Value: strconv.AppendInt(nil, next, 10)})
		}
		for _, id := range []*string{&req.IdempotencyKey, &req.RequestID} {
			if *id != "" {
				*id += fmt.Sprintf("#%d", i)
			}
		}
	}
	return req
}

// models lists the models in the shape of the client's protocol.
func (a *api) models(c *echo.Context) error {
	if _, err := a.session(c); err != nil && gateway.AsError(err).Kind != gateway.Invalid {
		return err
	}
	return c.JSONBlob(http.StatusOK, protocolOf(c.Request()).models(nil, a.deps.Gateway.Models()))
}

// model shows one model.
func (a *api) model(c *echo.Context) error {
	if _, err := a.session(c); err != nil && gateway.AsError(err).Kind != gateway.Invalid {
		return err
	}
	m, err := a.deps.Gateway.Models().Resolve(c.Param("*"), "")
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, protocolOf(c.Request()).model(nil, m))
}
