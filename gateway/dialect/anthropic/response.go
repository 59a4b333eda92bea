package anthropic

import (
	"slices"
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// AppendResponse appends a whole answer.
func AppendResponse(dst []byte, a *gateway.Answer, opt Options) []byte {
	dst = appendHead(dst, a.Turn, opt.Model)
	dst = append(dst, `,"content":[`...)
	open := len(dst)
	next := func() {
		if len(dst) > open {
			dst = append(dst, ',')
		}
	}
	if a.Message.Reasoning != "" {
		dst = rawjson.AppendText(append(dst, `{"type":"thinking","thinking":`...), a.Message.Reasoning)
		dst = rawjson.AppendText(append(dst, `,"signature":`...), dialect.Signature(a.Turn))
		dst = append(dst, '}')
	}
	if s := a.Message.Content.String(); s != "" {
		next()
		dst = append(rawjson.AppendText(append(dst, `{"type":"text","text":`...), s), '}')
	}
	for _, c := range a.Message.Calls {
		next()
		dst = append(appendCall(append(dst, '{'), c), `,"input":`...)
		dst = append(appendInput(dst, c.Arguments), '}')
	}
	dst = append(appendStop(append(dst, `],`...), a, opt), `,"usage":`...)
	return append(appendUsage(dst, a), '}')
}

// appendHead appends the beginning of a message: all that comes before its
// content.
func appendHead(dst []byte, turn, model string) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), "msg_"+turn)
	return rawjson.AppendText(append(dst, `,"type":"message","role":"assistant","model":`...), model)
}

// appendCall appends the members of a tool_use but for its input.
func appendCall(dst []byte, c message.Call) []byte {
	dst = rawjson.AppendText(append(dst, `"type":"tool_use","id":`...), c.ID)
	return rawjson.AppendText(append(dst, `,"name":`...), c.Name)
}

// appendInput appends arguments as the object that input has to be. Those that
// are none are wrapped as Claude Code wraps what it cannot read.
func appendInput(dst []byte, arguments string) []byte {
	raw := []byte(arguments)
	switch {
	case arguments == "":
		return append(dst, "{}"...)
	case rawjson.KindOf(raw) == rawjson.Object && rawjson.Valid(raw) == nil:
		return append(dst, raw...)
	}
	dst = rawjson.AppendText(append(dst, `{"__unparsedToolInput":{"raw":`...), arguments)
	return append(strconv.AppendInt(append(dst, `,"len":`...), int64(len(arguments)), 10), "}}"...)
}

// appendStop appends stop_reason and stop_sequence.
func appendStop(dst []byte, a *gateway.Answer, opt Options) []byte {
	reason, sequence := "end_turn", ""
	switch {
	case a.FinishReason == "length":
		reason = "max_tokens"
	case a.FinishReason == "content_filter":
		reason = "refusal"
	case len(a.Message.Calls) > 0:
		reason = "tool_use"
	case a.MatchedStop != "" && slices.Contains(opt.Stops, a.MatchedStop):
		reason, sequence = "stop_sequence", a.MatchedStop
	}
	dst = rawjson.AppendText(append(dst, `"stop_reason":`...), reason)
	dst = append(dst, `,"stop_sequence":`...)
	if sequence == "" {
		return append(dst, "null"...)
	}
	return rawjson.AppendText(dst, sequence)
}

// appendUsage appends counts of which the three of the input add up to the
// prompt.
func appendUsage(dst []byte, a *gateway.Answer) []byte {
	return appendCounts(dst, a.PromptTokens-a.CachedTokens, a.CachedTokens, a.CompletionTokens)
}

func appendCounts(dst []byte, input, cached, output int) []byte {
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(input), 10)
	dst = strconv.AppendInt(append(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...), int64(cached), 10)
	return append(strconv.AppendInt(append(dst, `,"output_tokens":`...), int64(output), 10), '}')
}

// AppendCount appends the answer to a token count.
func AppendCount(dst []byte, tokens int) []byte {
	return append(strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(tokens), 10), '}')
}
