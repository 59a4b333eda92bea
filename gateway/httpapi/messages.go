package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/gateway/dialect/anthropic"
)

// messages serves a call of Anthropic's Messages API.
func (a *api) messages(c *echo.Context) error {
	req, opt, err := a.message(c)
	if err != nil {
		return err
	}
	if opt.Stream {
		return a.serve(c, req, func(write func([]byte) error) dialect.Stream { return anthropic.NewStream(opt, write) })
	}
	answer, err := a.deps.Gateway.Complete(c.Request().Context(), req, nil)
	if err != nil {
		return err
	}
	return a.release(c, req.Session, func(dst []byte) []byte {
		return anthropic.AppendResponse(dst, answer, opt)
	}, answer)
}

// countTokens counts the prompt tokens that a call would have.
func (a *api) countTokens(c *echo.Context) error {
	req, _, err := a.message(c)
	if err != nil {
		return err
	}
	n, err := a.deps.Gateway.Count(c.Request().Context(), req)
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, anthropic.AppendCount(nil, n))
}

func (a *api) message(c *echo.Context) (req gateway.Request, opt anthropic.Options, err error) {
	received := a.deps.Now()
	sess, err := a.session(c)
	if err != nil {
		return req, opt, err
	}
	body, err := a.body(c)
	if err != nil {
		return req, opt, err
	}
	if req, opt, err = anthropic.Decode(body); err != nil {
		return req, opt, err
	}
	req.Session, req.Received, opt.Request = sess, received, requestID(c)
	identify(&req, c.Request())
	return req, opt, nil
}
