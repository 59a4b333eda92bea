package vllm_test

import (
	"testing"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/vllm"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer/demo"
)

func TestTheContractOfAnEngine(t *testing.T) {
	enginetest.Run(t, demo.Tokenizer(), enginetest.Adapter{
		Kind: "vllm", Proof: event.PromptProof_PROMPT_PROOF_ECHO, Versions: true, CountsTokens: true,
		New: func(c wire.Config) (engine.Engine, error) { return vllm.New(vllm.Config{Config: c}) },
	})
}
