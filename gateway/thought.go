package gateway

import "bytes"

// ThoughtTokens is how many of the completion's tokens hold the answer's
// thinking. It is counted when somebody asks: most protocols never do.
func (a *Answer) ThoughtTokens() (n int) {
	if a.Message.Reasoning == "" {
		return 0
	}
	text, ends := make([]byte, 0, 4*len(a.IDs)), make([]int, len(a.IDs))
	for i, id := range a.IDs {
		text = append(text, a.Tokens(id)...)
		ends[i] = len(text)
	}
	// Thinking may stand in several places, and bytes that are no text are
	// U+FFFD in it: each time the longest beginning of what is left is looked
	// for. An answer that is mostly such bytes is not worth the search.
	at, counted, searches := 0, 0, 0
	for rest := range bytes.SplitSeq([]byte(a.Message.Reasoning), []byte("\uFFFD")) {
		for between := at > 0; len(rest) > 0; between = false {
			if searches++; searches > 256 {
				return n
			}
			size := longestPrefix(text[at:], rest)
			if size == 0 {
				break
			}
			begin := at + bytes.Index(text[at:], rest[:size])
			end := begin + size
			if between {
				begin = at // bytes that are no text hold thinking too
			}
			at, rest = end, rest[size:]
			for counted < len(ends) && (counted == 0 || ends[counted-1] < at) {
				if ends[counted] > begin {
					n++
				}
				counted++
			}
		}
	}
	return n
}

// longestPrefix is the length of the longest beginning of want that stands in
// text.
func longestPrefix(text, want []byte) int {
	if bytes.Contains(text, want) {
		return len(want)
	}
	low, high := 0, len(want)
	for high-low > 1 {
		if middle := (low + high) / 2; bytes.Contains(text, want[:middle]) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
