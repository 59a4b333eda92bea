package httpapi

import (
	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway/dialect"
	"turnlog.dev/gateway/dialect/responses"
	"turnlog.dev/schema/message"
)

// responses serves a call of OpenAI's Responses API.
func (a *api) responses(c *echo.Context) error {
	received := a.deps.Now()
	sess, err := a.session(c)
	if err != nil {
		return err
	}
	body, err := a.body(c)
	if err != nil {
		return err
	}
	req, opt, err := responses.Decode(body, func(turn string) (message.Message, bool) {
		return a.deps.Gateway.Said(c.Request().Context(), sess, turn)
	})
	if err != nil {
		return err
	}
	req.Session, req.Received, opt.Created = sess, received, received.Unix()
	identify(&req, c.Request())
	if opt.Stream {
		return a.serve(c, req, func(write func([]byte) error) dialect.Stream { return responses.NewStream(opt, write) })
	}
	answer, err := a.deps.Gateway.Complete(c.Request().Context(), req, nil)
	if err != nil {
		return err
	}
	return a.release(c, sess, func(dst []byte) []byte {
		return responses.AppendResponse(dst, answer, opt)
	}, answer)
}
