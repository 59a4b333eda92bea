package chat

import (
	"fmt"
	"strings"

	"turnlog.dev/tokenizer/jinja"
)

// tag marks the end of the message to continue. Its space tells whether the
// template trims the message. This is how transformers 5 does it; older
// versions search for the message itself.
const tag = "CONTINUE_FINAL_MESSAGE_TAG "

// tagFinal returns messages with the tag behind the last one's text, and that
// text.
func tagFinal(messages *jinja.List, source string) (tagged *jinja.List, final string, err error) {
	if messages.Len() == 0 {
		return nil, "", fmt.Errorf("%w: there is none", ErrContinue)
	}
	if !strings.Contains(source, "content") {
		return nil, "", fmt.Errorf("%w: the template does not read content", ErrContinue)
	}
	items := make([]jinja.Value, messages.Len())
	for i := range items {
		items[i] = messages.At(i)
	}
	last, ok := items[len(items)-1].(*jinja.Dict)
	if !ok {
		return nil, "", fmt.Errorf("%w: it is not a message", ErrContinue)
	}
	last = last.Clone()
	content, _ := last.Get("content")
	switch c := content.(type) {
	case string:
		final = c
		last.Set("content", c+tag)
	case *jinja.List:
		parts, text, err := tagParts(c)
		if err != nil {
			return nil, "", err
		}
		final = text
		last.Set("content", parts)
	default:
		return nil, "", fmt.Errorf("%w: it has no content", ErrContinue)
	}
	items[len(items)-1] = last
	return jinja.NewList(items...), final, nil
}

// tagParts puts the tag behind the last part that has a text.
func tagParts(parts *jinja.List) (*jinja.List, string, error) {
	items := make([]jinja.Value, parts.Len())
	for i := range items {
		items[i] = parts.At(i)
	}
	for i := len(items) - 1; i >= 0; i-- {
		part, ok := items[i].(*jinja.Dict)
		if !ok {
			continue
		}
		value, ok := part.Get("text")
		if !ok {
			continue
		}
		text, ok := value.(string)
		if !ok {
			break
		}
		part = part.Clone()
		part.Set("text", text+tag)
		items[i] = part
		return jinja.NewList(items...), text, nil
	}
	return nil, "", fmt.Errorf("%w: it has no text", ErrContinue)
}

// cutAtTag ends text where the final message ended.
func cutAtTag(text, final string) (string, error) {
	bare := strings.TrimSpace(tag)
	at := strings.LastIndex(text, bare)
	if at < 0 || !strings.Contains(text, strings.TrimFunc(final, jinja.IsSpace)) {
		return "", fmt.Errorf("%w: the template drops or changes it", ErrContinue)
	}
	if strings.HasPrefix(text[at:], tag) {
		return text[:at], nil
	}
	// The template trims messages, so the space before the tag goes, too.
	return strings.TrimRightFunc(text[:at], jinja.IsSpace), nil
}
