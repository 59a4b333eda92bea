package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/anthropic"
	"turnlog.dev/gateway/dialect/openaichat"
)

// protocol is what differs between clients where the path does not say which
// protocol they speak.
type protocol struct {
	// requestID is the header that names a request.
	requestID string
	fail      func(dst []byte, e *gateway.Error, request string) ([]byte, int)
	models    func([]byte, *gateway.Models) []byte
	model     func([]byte, *gateway.Model) []byte
}

var (
	anthropics = protocol{"Request-Id", anthropic.AppendError, anthropic.AppendModels, anthropic.AppendModel}
	openais    = protocol{"X-Request-Id", openaiError, openaichat.AppendModels, openaichat.AppendModel}
)

func openaiError(dst []byte, e *gateway.Error, _ string) ([]byte, int) {
	return openaichat.AppendError(dst, e)
}

// protocolOf tells by the path, or by a header that every client of Anthropic's
// API sends. OpenAI's is for everybody else.
func protocolOf(r *http.Request) protocol {
	if strings.Contains(r.URL.Path, "/v1/messages") || r.Header.Get("Anthropic-Version") != "" {
		return anthropics
	}
	return openais
}

// named gives every response the id of its request where the client's protocol
// has it: the client's own, or one that is made here.
func (a *api) named(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		id := c.Request().Header.Get("X-Request-Id")
		if id == "" || len(id) > 128 {
			id = "req_" + a.deps.NewID()
		}
		c.Response().Header().Set(protocolOf(c.Request()).requestID, id)
		return next(c)
	}
}

// requestID is the id that named gave.
func requestID(c *echo.Context) string {
	return c.Response().Header().Get(protocolOf(c.Request()).requestID)
}
