package bpe

import (
	"strings"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe/internal/ucd"
)

// addedToken is an added token and the flags that decide how it is found.
type addedToken struct {
	tokenizer.AddedToken
	normalized bool // in normalized text, not in the text as it is
	// The white space on a side belongs to the token, however much there is.
	leftStrip, rightStrip bool
}

// trie finds added tokens in text: at the leftmost place where one begins, the
// longest.
type trie struct {
	tokens []addedToken
	// leftStrip: some token takes the white space before it.
	leftStrip bool
	root      [256]int32       // node after a first byte, 0 if none
	edges     map[uint64]int32 // node<<8 | byte -> node
	final     []int32          // by node: index of the token that ends here, or -1
	inner     []bool           // by node: some longer token goes on from here
}

func newTrie(tokens []addedToken) *trie {
	t := &trie{tokens: tokens, edges: map[uint64]int32{}, final: []int32{-1}, inner: []bool{false}}
	for i, tok := range tokens {
		t.leftStrip = t.leftStrip || tok.leftStrip
		node := int32(0)
		for k := range len(tok.Content) {
			b := tok.Content[k]
			next := t.step(node, b)
			if next == 0 {
				next = int32(len(t.final))
				t.final, t.inner = append(t.final, -1), append(t.inner, false)
				if node == 0 {
					t.root[b] = next
				} else {
					t.edges[uint64(node)<<8|uint64(b)] = next
				}
			}
			t.inner[node] = true
			node = next
		}
		if node != 0 { // an empty token matches nothing
			t.final[node] = int32(i)
		}
	}
	return t
}

func (t *trie) step(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	return t.edges[uint64(node)<<8|uint64(b)]
}

// at returns the longest token that begins at i, nil if none does. open says
// that text ends before it is certain that no longer one begins here.
func (t *trie) at(text string, i int) (tok *addedToken, open bool) {
	node := int32(0)
	for ; i < len(text); i++ {
		if node = t.step(node, text[i]); node == 0 {
			return tok, false
		}
		if f := t.final[node]; f >= 0 {
			tok = &t.tokens[f]
		}
		if !t.inner[node] {
			return tok, false
		}
	}
	return tok, node != 0
}

// next returns the first token that begins at or after from, and the part of
// text that it takes; nil and the end of text if there is none.
func (t *trie) next(text string, from int) (tok *addedToken, start, end int) {
	for i := from; i < len(text); i++ {
		if t.root[text[i]] == 0 {
			continue
		}
		if tok, _ := t.at(text, i); tok != nil {
			start, end := i, i+len(tok.Content)
			if tok.leftStrip {
				start = from + len(strings.TrimRightFunc(text[from:i], isWhite))
			}
			if tok.rightStrip {
				end = len(text) - len(strings.TrimLeftFunc(text[end:], isWhite))
			}
			return tok, start, end
		}
	}
	return nil, len(text), len(text)
}

// isWhite is \s of Rust's regex library, which finds white space to strip.
func isWhite(r rune) bool { return ucd.Of(r)&ucd.S != 0 }
