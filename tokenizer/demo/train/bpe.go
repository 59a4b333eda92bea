package main

import (
	"cmp"
	"slices"
)

// A pair of neighbouring tokens, by their bytes.
type pair struct{ left, right string }

// word is a distinct pre-token of the corpus.
type word struct {
	tokens []string
	count  int
}

// train learns n merges from the counts of pre-tokens: always the pair that
// occurs most often, and of equal ones the first by its bytes, so that the
// result depends on nothing but the corpus.
func train(counts map[string]int, n int) []pair {
	var words []*word
	for text, count := range counts {
		w := &word{count: count}
		for i := range len(text) {
			w.tokens = append(w.tokens, text[i:i+1])
		}
		words = append(words, w)
	}
	pairs := map[pair]int{}
	where := map[pair]map[*word]bool{}
	note := func(w *word, sign int) {
		for i := 0; i+1 < len(w.tokens); i++ {
			p := pair{w.tokens[i], w.tokens[i+1]}
			pairs[p] += sign * w.count
			if where[p] == nil {
				where[p] = map[*word]bool{}
			}
			where[p][w] = true
		}
	}
	for _, w := range words {
		note(w, +1)
	}
	var merges []pair
	for len(merges) < n {
		best, found := pair{}, false
		for p, count := range pairs {
			if count > 0 && (!found || count > pairs[best] || count == pairs[best] && before(p, best)) {
				best, found = p, true
			}
		}
		if !found {
			break
		}
		merges = append(merges, best)
		for w := range where[best] {
			note(w, -1)
			w.merge(best)
			note(w, +1)
		}
		delete(pairs, best)
		delete(where, best)
	}
	return merges
}

func before(a, b pair) bool {
	return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right)) < 0
}

func (w *word) merge(p pair) {
	for i := 0; i+1 < len(w.tokens); i++ {
		if w.tokens[i] == p.left && w.tokens[i+1] == p.right {
			w.tokens = slices.Replace(w.tokens, i, i+2, p.left+p.right)
		}
	}
}
