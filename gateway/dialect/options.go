package dialect

import (
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
)

// Effort reads how much thinking a client asks for. Words that models do not
// know become the nearest that they do; none turns thinking off.
func Effort(word string) gateway.Thinking {
	switch word {
	case "none":
		return gateway.Thinking{Mode: "off"}
	case "minimal", "low":
		return gateway.Thinking{Effort: "low"}
	case "medium":
		return gateway.Thinking{Effort: "medium"}
	case "high", "xhigh", "max":
		return gateway.Thinking{Effort: "high"}
	}
	return gateway.Thinking{}
}

// Schema is a grammar of answers that fit a JSON schema.
func Schema(param string, schema []byte) (*engine.Grammar, error) {
	if rawjson.KindOf(schema) != rawjson.Object {
		return nil, gateway.Invalidf(param, "%s must be an object", param)
	}
	return &engine.Grammar{Kind: "json_schema", Value: string(schema)}, nil
}

// The classes of requests, as they stand in the log.
const (
	Main       = "main"
	Subagent   = "subagent"
	Side       = "side"
	Compaction = "compaction"
	Probe      = "probe"
)
