package llamacpp

import (
	"context"
	"fmt"
	"net/http"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

const (
	// maxRescored bounds how many logprobs are asked for one by one. An answer
	// that lacks more has none, which lowers its grade.
	maxRescored = 256
	// topFirst is how many of the most likely tokens are asked for before the
	// whole vocabulary is.
	topFirst = 64
)

// complete returns one logprob for each token of the answer, or none at all; and
// the likeliest tokens, where they were asked for.
func (e *Engine) complete(ctx context.Context, req *engine.Request, a *answer) (logprobs []float32, likeliest [][]engine.Candidate, err error) {
	out := make([]score, len(a.ids))
	missing := align(out, a.ids, a.scored)
	if len(missing) > 0 {
		if len(a.scored) == 0 || len(a.scored) > len(a.ids) {
			return nil, nil, wire.Broken("%d logprobs came with %d tokens", len(a.scored), len(a.ids))
		}
		if len(missing) > maxRescored || e.vocab.Load() == 0 {
			return nil, nil, nil
		}
	}
	sequence := append(append(make([]uint32, 0, len(req.Prompt)+len(a.ids)), req.Prompt...), a.ids...)
	for _, i := range missing {
		at := len(req.Prompt) + i
		if out[i], err = e.rescore(ctx, sequence[:at], sequence[at]); err != nil {
			return nil, nil, err
		}
	}
	for _, s := range out {
		logprobs = append(logprobs, s.logprob)
		if req.Likeliest > 0 {
			likeliest = append(likeliest, wire.Likeliest(s.likeliest, req.Likeliest))
		}
	}
	return logprobs, likeliest, nil
}

// align lays the logprobs that came on the tokens, in order, and returns the
// positions that none is certain of. A logprob is certain where the leftmost
// and the rightmost way to fit all of them agree.
func align(out []score, ids []uint32, scored []score) (missing []int) {
	left, ok := fit(ids, scored)
	if !ok {
		left = nil
	}
	right := make([]int, len(left))
	for i, j := len(ids)-1, len(left)-1; j >= 0; i-- {
		if ids[i] == scored[j].id {
			right[j] = i
			j--
		}
	}
	at := 0
	for i := range ids {
		for at < len(left) && left[at] < i {
			at++
		}
		if at < len(left) && left[at] == i && right[at] == i {
			out[i] = scored[at]
			continue
		}
		missing = append(missing, i)
	}
	return missing
}

// fit finds the leftmost position of every logprob's token.
func fit(ids []uint32, scored []score) ([]int, bool) {
	var at []int
	for i, id := range ids {
		if len(at) < len(scored) && scored[len(at)].id == id {
			at = append(at, i)
		}
	}
	return at, len(at) == len(scored)
}

// rescore asks for the logprob of id after prefix. A bias forces the end token,
// which does not change the logprobs that are listed.
func (e *Engine) rescore(ctx context.Context, prefix []uint32, id uint32) (score, error) {
	for _, top := range []int64{topFirst, e.vocab.Load()} {
		o := e.object(0)
		o.IDs("prompt", prefix)
		o.Int("n_predict", 1)
		o.Int("n_probs", top)
		o.Bool("cache_prompt", true)
		o.Raw("logit_bias", fmt.Appendf(nil, "[[%d,1e4]]", e.eos.Load()))
		data, err := e.wire.Call(ctx, http.MethodPost, "/completion", o.End())
		if err != nil {
			return score{}, err
		}
		list, _ := rawjson.Get(data, "completion_probabilities")
		for entry := range rawjson.Elements(list) {
			tops, _ := rawjson.Get(entry, "top_logprobs")
			listed, err := candidates(tops)
			if err != nil {
				return score{}, wire.Broken("a logprob that was asked for again: %v", err)
			}
			for _, c := range listed {
				if c.ID == id {
					return score{id: id, logprob: c.Logprob, likeliest: listed}, nil
				}
			}
		}
	}
	return score{}, wire.Broken("the server does not list the logprob of token %d", id)
}
