package rows

import (
	"fmt"
	"slices"
)

// Check reports a row whose columns contradict each other. The error wraps
// ErrMalformed.
func (r *Row) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: row %s: %s", ErrMalformed, r.RowID, fmt.Sprintf(format, args...))
	}
	n := int(r.Length)
	switch {
	case r.RowID == "" || r.SessionID == "" || r.GroupID == "":
		return bad("no id, session or group")
	case len(r.InputIDs) != n || len(r.LossMask) != n:
		return bad("length %d with %d ids and a mask of %d", n, len(r.InputIDs), len(r.LossMask))
	case r.Logprobs != nil && len(r.Logprobs) != n || r.Versions != nil && len(r.Versions) != n:
		return bad("length %d with %d logprobs and %d versions", n, len(r.Logprobs), len(r.Versions))
	case slices.Index(r.LossMask, 1) != int(r.PromptLength) || r.PromptLength+r.ResponseLength != r.Length:
		return bad("the response does not begin with the first trained token")
	case len(r.TurnStart) != len(r.TurnEnd):
		return bad("%d turns begin, %d end", len(r.TurnStart), len(r.TurnEnd))
	}
	trainable, at := int32(0), int32(0)
	for i, start := range r.TurnStart {
		end := r.TurnEnd[i]
		if start < at || end <= start || int(end) > n {
			return bad("turn %d is %d to %d, after %d", i, start, end, at)
		}
		for _, m := range r.LossMask[start:end] {
			trainable += int32(m)
		}
		at = end
	}
	total := int32(0)
	for _, m := range r.LossMask {
		if m != 0 && m != 1 {
			return bad("a mask of %d", m)
		}
		total += int32(m)
	}
	if total != r.TrainableTokens || trainable != total {
		return bad("%d trainable tokens, %d in turns, %d said", total, trainable, r.TrainableTokens)
	}
	return nil
}
