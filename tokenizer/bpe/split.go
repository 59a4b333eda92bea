package bpe

import "iter"

// Split yields the pre-tokens that a pattern cuts text into, for training and
// for tests. It yields nothing for a pattern that is not one of this package's
// constants.
func Split(pattern, text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		split, ok := splitters[pattern]
		if !ok {
			return
		}
		more := true
		split(&scan{text: text, emit: func(start, end int) {
			more = more && yield(text[start:end])
		}})
	}
}

// VisibleForm spells bytes in the byte alphabet of tokenizer.json, where every
// byte is one visible character: " the" is "Ġthe".
func VisibleForm(bytes string) string { return visibleForm(bytes) }
