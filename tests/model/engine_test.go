package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/tokenizer"
)

// sampled is what the engine says about one request.
type sampled struct {
	prompt, ids []uint32
	logprobs    []float32
}

// fakeEngine samples answers from a random source and keeps a journal.
type fakeEngine struct {
	tok  tokenizer.Tokenizer
	stop uint32

	mu      sync.Mutex
	rng     *rand.Rand
	journal map[string]sampled
}

var errEngine = errors.New("the engine fell over")

// vocabulary is small, so that equal answers are common.
var sentences = []string{"Yes.", "No.", "I will look.", "It is done.\n", " maybe", "<think>\nhm\n</think>\n\nSure.", "日本 é"}

func (f *fakeEngine) answer() (ids []uint32, cutAt int, fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := sentences[f.rng.IntN(len(sentences))]
	switch f.rng.IntN(4) {
	case 0:
		text = call("read", `{"path": "a"}`)
	case 1:
		text += "\n" + call("read", `{"n": 1.0}`) + "\n" + call("list", `{}`)
	}
	ids = f.tok.Encode(nil, text)
	if f.rng.IntN(4) == 0 {
		ids = f.split(ids)
	}
	switch f.rng.IntN(10) {
	case 0: // cut by the limit
		return ids[:1+f.rng.IntN(len(ids))], -1, false
	case 1: // fails in the middle
		return append(ids, f.stop), f.rng.IntN(len(ids) + 1), true
	}
	return append(ids, f.stop), -1, false
}

// split spells one token as two, as sampling can.
func (f *fakeEngine) split(ids []uint32) []uint32 {
	for range 8 {
		i := f.rng.IntN(len(ids))
		b, _ := f.tok.AppendBytes(nil, ids[i])
		if len(b) < 2 {
			continue
		}
		n := 1 + f.rng.IntN(len(b)-1)
		left, right := f.tok.EncodePlain(nil, string(b[:n])), f.tok.EncodePlain(nil, string(b[n:]))
		if f.tok.Decode(append(slices.Clone(left), right...)) == string(b) {
			return slices.Concat(ids[:i], left, right, ids[i+1:])
		}
	}
	return ids
}

func call(name, arguments string) string {
	return fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", name, arguments)
}

// Generate implements gateway.Pool.
func (f *fakeEngine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error, _ func() bool) (pool.Result, error) {
	ids, cut, fails := f.answer()
	s := sampled{prompt: slices.Clone(req.Prompt)}
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.journal[req.ID] = s
	}()
	report := engine.Report{
		FinishReason: "stop", Proof: event.PromptProof_PROMPT_PROOF_ECHO, PromptTokens: len(req.Prompt),
		LogprobKind: event.LogprobKind_LOGPROB_KIND_RAW,
	}
	if ids[len(ids)-1] != f.stop {
		report.FinishReason = "length"
	}
	out := pool.Result{Report: report, Backend: "fake", Engine: "fake"}
	for i, id := range ids {
		if fails && i == cut {
			return out, &engine.Error{Class: engine.Failed, Err: errEngine}
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(time.Millisecond):
		}
		lp := -float32(i+1) / 8
		s.ids, s.logprobs = append(s.ids, id), append(s.logprobs, lp)
		if err := emit(engine.Chunk{IDs: []uint32{id}, Logprobs: []float32{lp}}); err != nil {
			return out, err
		}
	}
	if fails {
		return out, &engine.Error{Class: engine.Failed, Err: errEngine}
	}
	return out, nil
}
