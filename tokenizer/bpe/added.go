package bpe

import "turnlog.dev/tokenizer"

// trie finds added tokens in text: at the leftmost place where one begins, the
// longest.
type trie struct {
	tokens []tokenizer.AddedToken
	root   [256]int32       // node after a first byte, 0 if none
	edges  map[uint64]int32 // node<<8 | byte -> node
	final  []int32          // by node: index of the token that ends here, or -1
	inner  []bool           // by node: some longer token goes on from here
}

func newTrie(tokens []tokenizer.AddedToken) *trie {
	t := &trie{tokens: tokens, edges: map[uint64]int32{}, final: []int32{-1}, inner: []bool{false}}
	for i, tok := range tokens {
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
func (t *trie) at(text string, i int) (tok *tokenizer.AddedToken, open bool) {
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

// next returns the first token at or after i and where it begins; nil and the
// length of text if there is none.
func (t *trie) next(text string, i int) (*tokenizer.AddedToken, int) {
	for ; i < len(text); i++ {
		if t.root[text[i]] == 0 {
			continue
		}
		if tok, _ := t.at(text, i); tok != nil {
			return tok, i
		}
	}
	return nil, len(text)
}
