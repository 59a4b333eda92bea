package prompt

import (
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// Root makes the prompt of a conversation that continues no recorded call: all
// of it rendered and encoded. What assistants said in it is context, of
// provenance assistant_rerendered.
func (a *Assembler) Root(c message.Conversation, o Options) (Prompt, error) {
	text, err := a.Text(c, true, o)
	if err != nil {
		return Prompt{}, err
	}
	parts := a.label(text, event.Provenance_PROVENANCE_SYSTEM, c.Messages)
	return Prompt{Segments: segments(a.m.Tokenizer.EncodeSpans(text), parts)}, nil
}

// Text renders a conversation as Root does, with or without the generation
// prompt, and does not encode it: for engines that take text, and for audits.
func (a *Assembler) Text(c message.Conversation, generate bool, o Options) (string, error) {
	messages, err := a.prepare(c.All(), len(c.Head.System), c.Deferred)
	if err != nil {
		return "", fault("render", err)
	}
	text, err := a.render(messages, c.Head.Tools, generate, o)
	if err != nil {
		return "", fault("render", err)
	}
	return text, nil
}
