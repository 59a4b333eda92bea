package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// identify takes what headers say about a call beyond its content: who calls, in
// which of the client's conversations, and what for. What the dialect found in
// the body stands unless a header knows better. What nobody
// says stays empty; clients without any such mark exist.
func identify(req *gateway.Request, r *http.Request) {
	h := r.Header
	req.RequestID = h.Get("X-Request-Id")
	req.IdempotencyKey = h.Get("Idempotency-Key")
	req.Client = h.Get("User-Agent")
	thread, class := conversation(h)
	if thread != "" {
		req.Thread = thread
	}
	if class != "" {
		req.Class = class
	}
	if req.Class == "" {
		req.Class = beside(req, h)
	}
}

// beside tells the requests that clients make beside the work itself, in its
// name.
func beside(req *gateway.Request, h http.Header) (class string) {
	tools := len(req.Conversation.Head.Tools) > 0
	switch {
	case compacts(req):
		return dialect.Compaction
	case h.Get("X-Claude-Code-Session-Id") != "" && !tools && req.Thinking.Mode == "off":
		// Claude Code asks so for a title, beside the first turn, and what its
		// tools want to know of a model.
		return dialect.Side
	case h.Get("X-Session-Affinity") != "" && !tools:
		// opencode, for titles and summaries.
		return dialect.Side
	case strings.HasPrefix(req.Client, "QwenCode/"):
		return qwen(req)
	}
	return ""
}

// qwen tells the requests of Qwen Code, which sends no mark of any kind, by its
// system texts and tools: those about its memory, after the work; its summaries;
// and sub-agents, which cannot start others as the agent itself can.
func qwen(req *gateway.Request) (class string) {
	system := ""
	if list := req.Conversation.Head.System; len(list) > 0 {
		system = list[0].Content.String()
	}
	says := func(words string) bool { return strings.Contains(system, words) }
	tools := req.Conversation.Head.Tools
	agent := slices.ContainsFunc(tools, func(d message.Definition) bool { return d.Name == "agent" })
	switch {
	case says("managed memory"), says("extract reusable skills"), says("selecting memories"):
		return dialect.Side
	case says("summarizes internal chat history"):
		return dialect.Compaction
	case len(tools) > 0 && !agent && !strings.HasPrefix(system, "You are Qwen Code"):
		return dialect.Subagent
	}
	return ""
}

// conversation reads the names that clients give to their conversations: a
// session, and within it the part that an agent or a thread of its own has.
func conversation(h http.Header) (thread, class string) {
	switch {
	case h.Get("X-Claude-Code-Session-Id") != "":
		if agent := h.Get("X-Claude-Code-Agent-Id"); agent != "" {
			return h.Get("X-Claude-Code-Session-Id") + "/" + agent, dialect.Subagent
		}
		return h.Get("X-Claude-Code-Session-Id"), ""
	case h.Get("Thread-Id") != "" || h.Get("X-Codex-Turn-Metadata") != "":
		return codex(h)
	case h.Get("X-Session-Id") != "":
		if h.Get("X-Parent-Session-Id") != "" {
			return h.Get("X-Session-Id"), dialect.Subagent
		}
		return h.Get("X-Session-Id"), ""
	case h.Get("Session_id") != "":
		return h.Get("Session_id"), ""
	}
	return "", ""
}

// codex names a thread by the session that it is part of, and says what a
// request is for in a JSON header.
func codex(h http.Header) (thread, class string) {
	if thread = h.Get("Session-Id"); h.Get("Thread-Id") != thread {
		thread = strings.TrimPrefix(thread+"/"+h.Get("Thread-Id"), "/")
	}
	metadata := []byte(h.Get("X-Codex-Turn-Metadata"))
	if rawjson.Valid(metadata) == nil {
		if kind, _ := rawjson.Get(metadata, "request_kind"); rawjson.Text(kind) == "compaction" {
			return thread, dialect.Compaction
		}
	}
	if h.Get("X-Codex-Parent-Thread-Id") != "" || h.Get("X-Openai-Subagent") != "" {
		return thread, dialect.Subagent
	}
	return thread, ""
}

// compacts reports whether Claude Code asks for a summary of the conversation:
// it says so behind the last answer of a history, in words of its own.
func compacts(req *gateway.Request) bool {
	list := req.Conversation.Messages
	if !strings.HasPrefix(req.Client, "claude-cli/") || len(list) < 2 {
		return false
	}
	for i := len(list) - 1; i >= 0 && list[i].Role != message.Assistant; i-- {
		if list[i].Role == message.User && strings.Contains(list[i].Content.String(), "detailed summary of the conversation") {
			return true
		}
	}
	return false
}
