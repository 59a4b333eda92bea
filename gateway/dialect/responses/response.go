package responses

import (
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/gateway/dialect/openaichat"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// item is one element of an answer's output.
type item struct {
	kind kind
	id   string
	text []byte // of reasoning and of a message
	call message.Call
	tool tool
}

// kind is what an item is.
type kind uint8

const (
	reasoning kind = iota
	spoken
	functionCall
	customCall
)

// AppendResponse appends a whole answer.
func AppendResponse(dst []byte, a *gateway.Answer, opt Options) []byte {
	var items []item
	if a.Message.Reasoning != "" {
		items = append(items, item{kind: reasoning, id: "rs_" + a.Turn, text: []byte(a.Message.Reasoning)})
	}
	if s := a.Message.Content.String(); s != "" {
		items = append(items, item{kind: spoken, id: "msg_" + a.Turn, text: []byte(s)})
	}
	said := len(items)
	for _, c := range a.Message.Calls {
		items = append(items, opt.call(c))
	}
	return appendFinal(dst, a, opt, items, said)
}

// call is the item of a call, under the client's names.
func (opt Options) call(c message.Call) item {
	t, ok := opt.tools.byName[c.Name]
	if !ok {
		t = tool{name: c.Name}
	}
	if t.custom {
		return item{kind: customCall, id: "ctc_" + c.ID, call: c, tool: t}
	}
	return item{kind: functionCall, id: "fc_" + c.ID, call: c, tool: t}
}

// status is how far an item is.
type status string

const (
	inProgress status = "in_progress"
	completed  status = "completed"
	cut        status = "incomplete"
)

// append appends an item: empty while in progress, else as it is in the end.
func (it item) append(dst []byte, turn string, is status) []byte {
	done := is != inProgress
	status := `","status":"` + string(is) + `"`
	switch it.kind {
	case reasoning:
		dst = append(append(append(dst, `{"type":"reasoning","id":"`...), it.id...), `","summary":[`...)
		if done {
			dst = append(rawjson.AppendText(append(dst, `{"type":"summary_text","text":`...), string(it.text)), '}')
		}
		return append(rawjson.AppendText(append(dst, `],"encrypted_content":`...), dialect.Signature(turn)), '}')
	case spoken:
		dst = append(append(append(append(dst, `{"type":"message","id":"`...), it.id...), status...), `,"role":"assistant","content":[`...)
		if done {
			dst = it.appendPart(dst)
		}
		return append(dst, "]}"...)
	case customCall:
		dst = append(append(append(dst, `{"type":"custom_tool_call","id":"`...), it.id...), status...)
	default:
		dst = append(append(append(dst, `{"type":"function_call","id":"`...), it.id...), status...)
	}
	dst = rawjson.AppendText(append(dst, `,"call_id":`...), it.call.ID)
	dst = rawjson.AppendText(append(dst, `,"name":`...), it.tool.name)
	if it.tool.namespace != "" {
		dst = rawjson.AppendText(append(dst, `,"namespace":`...), it.tool.namespace)
	}
	value := ""
	if done {
		value = it.value()
	}
	if it.kind == customCall {
		return append(rawjson.AppendText(append(dst, `,"input":`...), value), '}')
	}
	return append(rawjson.AppendText(append(dst, `,"arguments":`...), value), '}')
}

// value is what a call passes to its tool.
func (it item) value() string {
	if it.kind == customCall {
		return dialect.CustomInput(it.call.Arguments)
	}
	return it.call.Arguments
}

// appendPart appends the one part that reasoning and messages have.
func (it item) appendPart(dst []byte) []byte {
	if it.kind == reasoning {
		return append(rawjson.AppendText(append(dst, `{"type":"summary_text","text":`...), string(it.text)), '}')
	}
	return append(rawjson.AppendText(append(dst, `{"type":"output_text","text":`...), string(it.text)), `,"annotations":[],"logprobs":[]}`...)
}

// appendHead appends a response up to its status.
func appendHead(dst []byte, turn string, opt Options) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), "resp_"+turn)
	dst = strconv.AppendInt(append(dst, `,"object":"response","created_at":`...), opt.Created, 10)
	dst = rawjson.AppendText(append(dst, `,"model":`...), opt.Model)
	dst = append(dst, `,"instructions":null,"tools":[],"previous_response_id":null,"store":false`...)
	for _, e := range echoed {
		dst = append(append(append(dst, `,"`...), e.key...), `":`...)
		if value := opt.echo[e.key]; value != nil {
			dst = append(dst, value...)
		} else {
			dst = append(dst, e.missing...)
		}
	}
	return dst
}

// incomplete says why an answer is not whole, or "" if it is.
func incomplete(a *gateway.Answer) string {
	switch a.FinishReason {
	case "length":
		return "max_output_tokens"
	case "content_filter":
		return "content_filter"
	}
	return ""
}

// ended is the status of item i of an answer: of one that is not whole, the last
// of what it says, which are so many items, is not whole either. A call always
// is.
func ended(a *gateway.Answer, i, said int) status {
	if incomplete(a) != "" && i == said-1 {
		return cut
	}
	return completed
}

func appendFinal(dst []byte, a *gateway.Answer, opt Options, items []item, said int) []byte {
	dst = appendHead(dst, a.Turn, opt)
	if reason := incomplete(a); reason != "" {
		dst = rawjson.AppendText(append(dst, `,"status":"incomplete","error":null,"incomplete_details":{"reason":`...), reason)
		dst = append(dst, '}')
	} else {
		dst = append(dst, `,"status":"completed","error":null,"incomplete_details":null`...)
	}
	dst = append(dst, `,"output":[`...)
	for i, it := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = it.append(dst, a.Turn, ended(a, i, said))
	}
	dst = strconv.AppendInt(append(dst, `],"usage":{"input_tokens":`...), int64(a.PromptTokens), 10)
	dst = strconv.AppendInt(append(dst, `,"input_tokens_details":{"cached_tokens":`...), int64(a.CachedTokens), 10)
	dst = strconv.AppendInt(append(dst, `},"output_tokens":`...), int64(a.CompletionTokens), 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"reasoning_tokens":`...), int64(a.ThoughtTokens()), 10)
	dst = strconv.AppendInt(append(dst, `},"total_tokens":`...), int64(a.PromptTokens+a.CompletionTokens), 10)
	return append(dst, "}}"...)
}

// appendFailed appends a response that failed.
func appendFailed(dst []byte, turn string, opt Options, e *gateway.Error) []byte {
	code := "server_error"
	switch e.Kind {
	case gateway.TooLong:
		code = openaichat.ContextLength
	case gateway.Invalid:
		code = "invalid_prompt"
	}
	dst = appendHead(dst, turn, opt)
	dst = rawjson.AppendText(append(dst, `,"status":"failed","error":{"code":`...), code)
	dst = rawjson.AppendText(append(dst, `,"message":`...), dialect.ErrorText(e))
	return append(dst, `},"incomplete_details":null,"output":[],"usage":null}`...)
}
