package sglang_test

import (
	"testing"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer/demo"
)

func TestTheContractOfAnEngine(t *testing.T) {
	for name, a := range map[string]enginetest.Adapter{
		"incremental": {Proof: event.PromptProof_PROMPT_PROOF_ECHO},
		"cumulative": {
			Proof: event.PromptProof_PROMPT_PROOF_ECHO,
			Mock:  func(c *mock.Config) { c.Cumulative = true },
		},
		"count only": {Proof: event.PromptProof_PROMPT_PROOF_COUNT},
		"parser": {
			Proof: event.PromptProof_PROMPT_PROOF_ECHO, Buffered: true, Parses: true,
			// The ids come only with their logprobs.
			Skip: []mock.FaultKind{mock.NoEnd, mock.NoIDs},
		},
	} {
		a.Kind, a.Versions, a.CountsTokens, a.AbortPath = "sglang", true, true, "/abort_request"
		a.New = func(c wire.Config) (engine.Engine, error) {
			return sglang.New(sglang.Config{Config: c, CountOnly: name == "count only", Parser: name == "parser"})
		}
		t.Run(name, func(t *testing.T) { enginetest.Run(t, demo.Tokenizer(), a) })
	}
}
