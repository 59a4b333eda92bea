package openaichat

import (
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// AppendResponse appends the whole answer as a chat completion.
func AppendResponse(dst []byte, a *gateway.Answer, opt Options, created int64) []byte {
	dst = appendHead(dst, "chat.completion", a.Turn, opt.Model, created)
	dst = append(dst, `,"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	dst = a.Message.Content.AppendJSON(dst)
	if a.Message.Reasoning != "" {
		dst = rawjson.AppendText(append(dst, `,"reasoning_content":`...), a.Message.Reasoning)
	}
	if len(a.Message.Calls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for i, c := range a.Message.Calls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendCall(append(dst, '{'), c), '}')
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `},"logprobs":`...)
	if opt.Logprobs {
		dst = appendLogprobs(dst, a)
	} else {
		dst = append(dst, "null"...)
	}
	dst = rawjson.AppendText(append(dst, `,"finish_reason":`...), a.FinishReason)
	return append(appendUsage(append(dst, `}],"usage":`...), a), '}')
}

func appendHead(dst []byte, object, turn, model string, created int64) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), "chatcmpl-"+turn)
	dst = rawjson.AppendText(append(dst, `,"object":`...), object)
	dst = strconv.AppendInt(append(dst, `,"created":`...), created, 10)
	return rawjson.AppendText(append(dst, `,"model":`...), model)
}

// appendCall appends the members of a tool call.
func appendCall(dst []byte, c message.Call) []byte {
	dst = rawjson.AppendText(append(dst, `"id":`...), c.ID)
	dst = rawjson.AppendText(append(dst, `,"type":"function","function":{"name":`...), c.Name)
	dst = rawjson.AppendText(append(dst, `,"arguments":`...), c.Arguments)
	return append(dst, '}')
}

func appendUsage(dst []byte, a *gateway.Answer) []byte {
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), int64(a.PromptTokens), 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(a.CompletionTokens), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(a.PromptTokens+a.CompletionTokens), 10)
	dst = strconv.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), int64(a.CachedTokens), 10)
	return append(dst, "}}"...)
}

// appendLogprobs appends the sampled tokens with their logprobs. A token's text
// is a view: bytes that are no character are shown as U+FFFD, and in full in
// "bytes".
func appendLogprobs(dst []byte, a *gateway.Answer) []byte {
	dst = append(dst, `{"content":[`...)
	for i := range min(len(a.IDs), len(a.Logprobs)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		b := a.Tokens(a.IDs[i])
		text := string(b)
		if !utf8.Valid(b) {
			text = string([]rune(text))
		}
		dst = rawjson.AppendText(append(dst, `{"token":`...), text)
		dst = appendFloat(append(dst, `,"logprob":`...), a.Logprobs[i])
		dst = append(dst, `,"bytes":[`...)
		for j, c := range b {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(c), 10)
		}
		dst = append(dst, `],"top_logprobs":[]}`...)
	}
	return append(dst, "]}"...)
}

// appendFloat appends a float32 so that reading it back gives the same bits.
func appendFloat(dst []byte, f float32) []byte {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, float64(f), 'g', -1, 32)
}

// AppendError appends an error in OpenAI's shape and returns its HTTP status.
func AppendError(dst []byte, e *gateway.Error) ([]byte, int) {
	status, typ, code := classify(e)
	dst = rawjson.AppendText(append(dst, `{"error":{"message":`...), e.Message)
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
		return http.StatusBadRequest, request, "context_length_exceeded"
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

// AppendModels appends the list of models.
func AppendModels(dst []byte, models *gateway.Models) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models.List() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(append(dst, `{"id":`...), m.Name)
		dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), m.Created, 10)
		dst = append(dst, `,"owned_by":"turnlog"`...)
		if m.ContextLength > 0 {
			dst = strconv.AppendInt(append(dst, `,"max_model_len":`...), int64(m.ContextLength), 10)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}
