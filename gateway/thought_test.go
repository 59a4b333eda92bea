package gateway

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
)

func TestTokensOfThinkingAreThoseThatHoldIt(t *testing.T) {
	for name, c := range map[string]struct {
		tokens   []string
		thinking string
		count    int
	}{
		"none":                   {[]string{"yes"}, "", 0},
		"between marks":          {[]string{"<think>", "\n", "hm", " so", "\n", "</think>", "yes"}, "hm so", 2},
		"a part of a token":      {[]string{"<think>", "\nhm", " so\n", "</think>", "hm"}, "hm so", 2},
		"in two places":          {[]string{"<a>", "one", " two", "<end>", "text", "<a>", "three", "<end>"}, "one twothree", 3},
		"the same text later":    {[]string{"hm", "</think>", "hm"}, "hm", 1},
		"bytes that are no text": {[]string{"<think>", "a", "\xff", "b", "</think>"}, "a\uFFFDb", 3},
		"not in the tokens":      {[]string{"x", "y"}, "other", 0},
	} {
		a := &Answer{Message: message.Message{Reasoning: c.thinking}, Tokens: func(id uint32) []byte { return []byte(c.tokens[id]) }}
		for i := range c.tokens {
			a.IDs = append(a.IDs, uint32(i))
		}
		require.Equal(t, c.count, a.ThoughtTokens(), name)
	}
	// An answer that says nothing of its thinking ends the search soon.
	a := &Answer{Message: message.Message{Reasoning: strings.Repeat("x\uFFFD", 50_000)}, IDs: make([]uint32, 50_000), Tokens: func(uint32) []byte { return []byte("y") }}
	require.Zero(t, a.ThoughtTokens())
}
