package httpapi

import (
	"net/http"
	"strings"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/anthropic"
	"turnlog.dev/gateway/dialect/openaichat"
)

// protocol is what differs between clients where the path does not say which
// protocol they speak.
type protocol struct {
	fail   func([]byte, *gateway.Error) ([]byte, int)
	models func([]byte, *gateway.Models) []byte
	model  func([]byte, *gateway.Model) []byte
}

// protocolOf tells by the path, or by a header that every client of Anthropic's
// API sends. OpenAI's is for everybody else.
func protocolOf(r *http.Request) protocol {
	if strings.Contains(r.URL.Path, "/v1/messages") || r.Header.Get("anthropic-version") != "" {
		return protocol{anthropic.AppendError, anthropic.AppendModels, anthropic.AppendModel}
	}
	return protocol{openaichat.AppendError, openaichat.AppendModels, openaichat.AppendModel}
}
