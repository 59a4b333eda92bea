package anthropic

import (
	"fmt"
	"net/http"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/rawjson"
)

// AppendError appends an error in Anthropic's shape and returns its HTTP
// status. The request's id is what the answer's header says too.
func AppendError(dst []byte, e *gateway.Error, request string) ([]byte, int) {
	status, typ := classify(e)
	text := dialect.ErrorText(e)
	if e.Kind == gateway.TooLong {
		// Claude Code compacts its history when it reads exactly this.
		text = "prompt is too long: " + e.Message
		if e.Window > 0 {
			text = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", e.Prompt, e.Window)
		}
	}
	dst = rawjson.AppendText(append(dst, `{"type":"error","error":{"type":`...), typ)
	dst = rawjson.AppendText(append(dst, `,"message":`...), text)
	dst = rawjson.AppendText(append(dst, `},"request_id":`...), request)
	return append(dst, '}'), status
}

func classify(e *gateway.Error) (status int, typ string) {
	switch e.Kind {
	case gateway.Invalid, gateway.TooLong:
		return http.StatusBadRequest, "invalid_request_error"
	case gateway.Unauthorized:
		return http.StatusUnauthorized, "authentication_error"
	case gateway.Forbidden:
		return http.StatusForbidden, "permission_error"
	case gateway.UnknownModel, gateway.UnknownThing, gateway.UnknownRoute:
		return http.StatusNotFound, "not_found_error"
	case gateway.Closed, gateway.Limited:
		return http.StatusGone, "invalid_request_error"
	case gateway.Conflict:
		return http.StatusConflict, "invalid_request_error"
	case gateway.TooLarge:
		return http.StatusRequestEntityTooLarge, "request_too_large"
	case gateway.Overloaded:
		return 529, "overloaded_error"
	case gateway.EngineDown, gateway.LogDown:
		return http.StatusServiceUnavailable, "api_error"
	case gateway.EngineFault:
		return http.StatusBadGateway, "api_error"
	case gateway.Deadline:
		return http.StatusGatewayTimeout, "timeout_error"
	case gateway.Interrupted:
		return 499, "api_error"
	default:
		return http.StatusInternalServerError, "api_error"
	}
}
