package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/parse"
)

func TestNoPieceOfAStopTextLeaves(t *testing.T) {
	const content = "a EN b END c"
	for size := 1; size <= len(content); size++ {
		s := stops{texts: []string{"END", "STOP"}}
		var out string
		for i := 0; i < len(content); i += size {
			out += s.pass(parse.Delta{Kind: parse.Content, Text: content[i:min(len(content), i+size)]}).Text
		}
		require.Equal(t, "a EN b ", out, "in pieces of %d", size)
	}
	whole, matched := (&stops{texts: []string{"STOP", "END"}}).cut(content)
	require.Equal(t, "END", matched)
	require.Equal(t, "a EN b ", whole)
}

func TestWhatOnlyLooksLikeAStopTextIsNotLost(t *testing.T) {
	s := stops{texts: []string{"END"}}
	require.Equal(t, "a ", s.pass(parse.Delta{Kind: parse.Content, Text: "a EN"}).Text)
	require.Equal(t, "ENT", s.pass(parse.Delta{Kind: parse.Content, Text: "T"}).Text)
	require.Equal(t, "EN", s.pass(parse.Delta{Kind: parse.Reasoning, Text: "EN"}).Text)
}
