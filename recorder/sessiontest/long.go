package sessiontest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"turnlog.dev/schema/event"
)

// Long writes a closed session of one line of turns, each with the given
// numbers of new prompt ids and sampled ids. Ids and logprobs are as spread as
// real ones, so that they compress as badly.
func Long(id string, turns, prompt, completion int) *Session {
	rng := rand.New(rand.NewPCG(uint64(turns), uint64(completion)))
	s := New(id)
	parent := ""
	for i := range turns {
		step := Step{ID: fmt.Sprintf("t%d", i), Parent: parent, New: spread(rng, prompt), Out: spread(rng, completion)}
		step.Edit = func(c *event.TurnCommitted) {
			logprobs := make([]float32, completion)
			for j := range logprobs {
				logprobs[j] = -float32(rng.ExpFloat64())
			}
			c.Completion.Logprobs = event.AppendFloats(nil, logprobs)
		}
		s.Commit(step)
		parent = step.ID
	}
	s.Close("completed")
	return s
}

// spread returns ids of a vocabulary of 150,000 as words are spread: few are
// frequent.
func spread(rng *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(math.Min(math.Exp(rng.Float64()*12), 149_999))
	}
	return out
}
