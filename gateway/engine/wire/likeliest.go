package wire

import (
	"cmp"
	"slices"

	"turnlog.dev/gateway/engine"
)

// Likeliest is what a server lists for one place of an answer, in the order of
// engine.Chunk: no more than n, the likeliest first, none twice. Servers list the
// sampled token too, wherever it stands.
func Likeliest(list []engine.Candidate, n int) []engine.Candidate {
	slices.SortStableFunc(list, func(a, b engine.Candidate) int { return cmp.Compare(b.Logprob, a.Logprob) })
	list = slices.CompactFunc(list, func(a, b engine.Candidate) bool { return a.ID == b.ID })
	return list[:min(n, len(list))]
}
