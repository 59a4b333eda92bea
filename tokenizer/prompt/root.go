package prompt

import (
	"strings"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// Root makes the prompt of a conversation that continues no recorded call: all
// of it rendered and encoded. What assistants said in it is context, of
// provenance assistant_rerendered.
func (a *Assembler) Root(c message.Conversation, o Options) (Prompt, error) {
	text, messages, from, err := a.whole(c, true, o)
	if err != nil {
		return Prompt{}, err
	}
	// The leading system messages belong to what stands before all messages.
	lead := 0
	for lead < len(messages) && from(lead) < len(c.Head.System) {
		lead++
	}
	parts, omits := a.label(text, event.Provenance_PROVENANCE_SYSTEM, messages[lead:])
	out := Prompt{Segments: segments(a.m.Tokenizer.EncodeSpans(text), parts)}
	search := seeker{text: text, budget: searchBudget}
	for i, m := range c.Head.System {
		if _, ok := search.content(0, strings.TrimSpace(m.Content.String())); !ok {
			out.Omits = append(out.Omits, i)
		}
	}
	for _, i := range omits {
		out.Omits = append(out.Omits, from(lead+i))
	}
	out.Omits = places(out.Omits)
	return out, nil
}

// Text renders a conversation as Root does, with or without the generation
// prompt, and does not encode it: for engines that take text, and for audits.
func (a *Assembler) Text(c message.Conversation, generate bool, o Options) (string, error) {
	text, _, _, err := a.whole(c, generate, o)
	return text, err
}

// whole renders a conversation, and returns its messages as the template got
// them.
func (a *Assembler) whole(c message.Conversation, generate bool, o Options) (text string, messages []message.Message, from func(int) int, err error) {
	messages, from, err = a.prepare(c.All(), len(c.Head.System), c.Deferred)
	if err == nil {
		text, err = a.render(messages, c.Head.Tools, generate, o)
	}
	if err != nil {
		return "", nil, nil, fault("render", err)
	}
	return text, messages, from, nil
}
