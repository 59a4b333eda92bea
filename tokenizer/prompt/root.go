package prompt

import (
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// Root makes the prompt of a conversation that continues no recorded call: all
// of it rendered and encoded. What assistants said in it is context, of
// provenance assistant_rerendered.
func (a *Assembler) Root(c message.Conversation, o Options) (Prompt, error) {
	messages, err := a.prepare(c.All(), len(c.Head.System), c.Deferred)
	if err != nil {
		return Prompt{}, fault("root", err)
	}
	text, err := a.render(messages, c.Head.Tools, true, o)
	if err != nil {
		return Prompt{}, fault("root", err)
	}
	parts := a.label(text, event.Provenance_PROVENANCE_SYSTEM, messages[len(c.Head.System):])
	return Prompt{Segments: segments(a.m.Tokenizer.EncodeSpans(text), parts)}, nil
}
