package openaichat

import (
	"math"
	"strconv"
	"unicode/utf8"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// AppendResponse appends whole answers as one chat completion, a choice each.
func AppendResponse(dst []byte, answers []*gateway.Answer, opt Options, created int64) []byte {
	dst = appendHead(dst, "chat.completion", "chatcmpl-"+answers[0].Turn, opt.Model, created)
	dst = append(dst, `,"choices":[`...)
	for i, a := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendChoice(dst, i, a, opt)
	}
	return append(appendUsage(append(dst, `],"usage":`...), answers), '}')
}

func appendChoice(dst []byte, index int, a *gateway.Answer, opt Options) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = append(dst, `,"message":{"role":"assistant","content":`...)
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
			dst = append(opt.appendCall(append(dst, '{'), c), '}')
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `},"logprobs":`...)
	if opt.Logprobs {
		dst = appendLogprobs(dst, a)
	} else {
		dst = append(dst, "null"...)
	}
	return append(appendFinish(dst, a, opt), '}')
}

// appendFinish appends how an answer ended. One of several says which turn it
// is: the header can name but one, and has left when the others end.
func appendFinish(dst []byte, a *gateway.Answer, opt Options) []byte {
	dst = rawjson.AppendText(append(dst, `,"finish_reason":`...), a.FinishReason)
	if opt.N > 1 {
		dst = rawjson.AppendText(append(dst, `,"turnlog_turn":`...), a.Turn)
	}
	return dst
}

func appendHead(dst []byte, object, id, model string, created int64) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), id)
	dst = rawjson.AppendText(append(dst, `,"object":`...), object)
	dst = strconv.AppendInt(append(dst, `,"created":`...), created, 10)
	return rawjson.AppendText(append(dst, `,"model":`...), model)
}

// appendCall appends the members of a tool call.
func (opt Options) appendCall(dst []byte, c message.Call) []byte {
	kind, member, value := "function", `,"arguments":`, c.Arguments
	if opt.custom[c.Name] {
		kind, member, value = "custom", `,"input":`, dialect.CustomInput(c.Arguments)
	}
	dst = rawjson.AppendText(append(dst, `"id":`...), c.ID)
	dst = append(append(append(append(dst, `,"type":"`...), kind...), `","`...), kind...)
	dst = rawjson.AppendText(append(dst, `":{"name":`...), c.Name)
	dst = rawjson.AppendText(append(dst, member...), value)
	return append(dst, '}')
}

// appendUsage appends what all answers cost together: they have one prompt.
func appendUsage(dst []byte, answers []*gateway.Answer) []byte {
	prompt, cached, completion, thought := answers[0].PromptTokens, answers[0].CachedTokens, 0, 0
	for _, a := range answers {
		completion += a.CompletionTokens
		thought += a.ThoughtTokens()
	}
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), int64(prompt), 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(completion), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(prompt+completion), 10)
	dst = strconv.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), int64(cached), 10)
	dst = strconv.AppendInt(append(dst, `},"completion_tokens_details":{"reasoning_tokens":`...), int64(thought), 10)
	return append(dst, "}}"...)
}

// appendLogprobs appends the sampled tokens with their logprobs, and the likeliest
// ones where they were asked for; null where no logprob is known.
func appendLogprobs(dst []byte, a *gateway.Answer) []byte {
	if len(a.Logprobs) == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i := range min(len(a.IDs), len(a.Logprobs)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendToken(append(dst, '{'), a, a.IDs[i], a.Logprobs[i])
		dst = append(dst, `,"top_logprobs":[`...)
		if i < len(a.Likeliest) {
			for j, c := range a.Likeliest[i] {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = append(appendToken(append(dst, '{'), a, c.ID, c.Logprob), '}')
			}
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, "]}"...)
}

// appendToken appends the members of a token. Its text is a view: bytes that are
// no character are shown as U+FFFD, and in full in "bytes".
func appendToken(dst []byte, a *gateway.Answer, id uint32, logprob float32) []byte {
	b := a.Tokens(id)
	text := string(b)
	if !utf8.Valid(b) {
		text = string([]rune(text))
	}
	dst = rawjson.AppendText(append(dst, `"token":`...), text)
	dst = appendFloat(append(dst, `,"logprob":`...), logprob)
	dst = append(dst, `,"bytes":[`...)
	for j, c := range b {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return append(dst, ']')
}

// appendFloat appends a float32 so that reading it back gives the same bits.
func appendFloat(dst []byte, f float32) []byte {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, float64(f), 'g', -1, 32)
}
