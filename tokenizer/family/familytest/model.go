package familytest

import (
	"fmt"

	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/prompt"
)

// Model returns the checkpoint as an assembler takes it.
func (c Checkpoint) Model() prompt.Model {
	t, err := chat.New(c.Template(), c.Names)
	if err != nil {
		panic(fmt.Sprintf("familytest: %s: %v", c.Name, err))
	}
	return prompt.Model{Renderer: t, Tokenizer: c.Tokenizer(), Family: c.Family, StopTokens: c.StopTokens}
}
