package openaichat

import (
	"net/http"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/rawjson"
)

// ContextLength is the code of an error that says that a prompt is too long.
const ContextLength = "context_length_exceeded"

// AppendError appends an error in OpenAI's shape and returns its HTTP status.
func AppendError(dst []byte, e *gateway.Error) ([]byte, int) {
	status, typ, code := classify(e)
	dst = rawjson.AppendText(append(dst, `{"error":{"message":`...), dialect.ErrorText(e))
	dst = rawjson.AppendText(append(dst, `,"type":`...), typ)
	dst = append(dst, `,"param":`...)
	if e.Param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = rawjson.AppendText(dst, e.Param)
	}
	dst = append(dst, `,"code":`...)
	if code == "" {
		dst = append(dst, "null"...)
	} else {
		dst = rawjson.AppendText(dst, code)
	}
	return append(dst, "}}"...), status
}

func classify(e *gateway.Error) (status int, typ, code string) {
	const request, server = "invalid_request_error", "server_error"
	switch e.Kind {
	case gateway.Invalid:
		return http.StatusBadRequest, request, ""
	case gateway.Unauthorized:
		return http.StatusUnauthorized, "authentication_error", "invalid_api_key"
	case gateway.Forbidden:
		return http.StatusForbidden, "permission_error", ""
	case gateway.UnknownModel:
		return http.StatusNotFound, request, "model_not_found"
	case gateway.UnknownThing, gateway.UnknownRoute:
		return http.StatusNotFound, request, "not_found"
	case gateway.Closed:
		return http.StatusGone, request, "session_closed"
	case gateway.Limited:
		return http.StatusGone, request, "session_limit"
	case gateway.Conflict:
		return http.StatusConflict, request, "conflict"
	case gateway.TooLarge:
		return http.StatusRequestEntityTooLarge, request, "request_too_large"
	case gateway.TooLong:
		return http.StatusBadRequest, request, ContextLength
	case gateway.Overloaded:
		return http.StatusServiceUnavailable, server, "overloaded"
	case gateway.EngineDown:
		return http.StatusServiceUnavailable, server, "engine_down"
	case gateway.EngineFault:
		return http.StatusBadGateway, server, "engine_error"
	case gateway.Deadline:
		return http.StatusGatewayTimeout, server, "timeout"
	case gateway.LogDown:
		return http.StatusServiceUnavailable, server, "log_unavailable"
	case gateway.Interrupted:
		return 499, server, "client_gone"
	default:
		return http.StatusInternalServerError, server, string(e.Kind)
	}
}
