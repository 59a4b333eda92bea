package tokenizer_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer"
)

// TestRepairReplacesEachMaximalInvalidPart holds what Python makes of the same
// bytes: bytes.decode("utf-8", "replace"), one U+FFFD for each part.
func TestRepairReplacesEachMaximalInvalidPart(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 日 😀":              "plain é 日 😀",
		"\xff":                     "?",
		"a\xc3":                    "a?",
		"a\xc3b":                   "a?b",
		"\xe4\xb8":                 "?",
		"\xe4\xb8x":                "?x",
		"\xf0\x9f\x98":             "?",
		"\xf0\x9f\x98\xff":         "??",
		"\xc0\x80":                 "??",
		"\xed\xa0\x80":             "???",
		"\xe0\x80\x80":             "???",
		"\xf5\x80":                 "??",
		"\xf4\x90\x80\x80":         "????",
		"\x80\x80":                 "??",
		"\xf0\x80\x80\x41":         "???A",
		"\xe1\x80\xe2\xf0\x91\x92": "???",
	} {
		got := tokenizer.Repair(in)
		require.True(t, utf8.ValidString(got))
		runes := []rune(got)
		for i, r := range runes {
			if r == utf8.RuneError {
				runes[i] = '?'
			}
		}
		require.Equal(t, want, string(runes), "%q", in)
	}
}

// bytesOnly is a tokenizer whose ids are bytes.
type bytesOnly struct{ tokenizer.Tokenizer }

func (bytesOnly) AppendBytes(dst []byte, id uint32) ([]byte, bool) {
	if id > 255 {
		return dst, false
	}
	return append(dst, byte(id)), true
}

func TestAStreamHoldsBackOnlyAnUnfinishedCharacter(t *testing.T) {
	s := tokenizer.NewStream(bytesOnly{})
	for _, step := range []struct {
		id   uint32
		text string
		held int
	}{
		{'a', "a", 0},
		{0xf0, "", 1},
		{0x9f, "", 2},
		{0x98, "", 3},
		{0x80, "😀", 0},
		{999, "", 0},
		{0xe4, "", 1},
		{'b', "\uFFFDb", 0},
		{0xff, "\uFFFD", 0},
		{0xc3, "", 1},
	} {
		require.Equal(t, step.text, string(s.Append(nil, step.id)), "%#x", step.id)
		require.Equal(t, step.held, s.Held())
	}
	require.Equal(t, "\uFFFD", string(s.Flush(nil)))
	require.Empty(t, s.Flush(nil))
}
