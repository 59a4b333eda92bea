package bpe_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
	"turnlog.dev/tokenizer/demo"
)

// goldenFile is what testdata/generate.py writes.
type goldenFile struct {
	Texts   []string
	Decode  [][]uint32
	Patched []struct {
		Name    string
		Patch   map[string]json.RawMessage
		IDs     [][]uint32
		Decoded []string
	}
	Whole []struct {
		Name       string
		Definition json.RawMessage
		IDs        [][]uint32
		Decode     [][]uint32
		Decoded    []string
	}
	Tiktoken struct {
		Pattern string
		Added   map[string]uint32
		IDs     [][]uint32
	}
	Tekken struct {
		Special []string
		IDs     [][]uint32
	}
}

func golden(t testing.TB) goldenFile {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var g goldenFile
	require.NoError(t, json.Unmarshal(data, &g))
	return g
}

func demoFile(t testing.TB) []byte {
	data, err := fs.ReadFile(demo.Files(), "tokenizer.json")
	require.NoError(t, err)
	return data
}

// patched is the demo's tokenizer.json with members replaced.
func patched(t testing.TB, patch map[string]json.RawMessage) []byte {
	var file map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(demoFile(t), &file))
	for key, value := range patch {
		switch key {
		case "ignore_merges", "merges":
			var model map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(file["model"], &model))
			if key == "merges" { // the first n
				var n int
				var merges []json.RawMessage
				require.NoError(t, json.Unmarshal(value, &n))
				require.NoError(t, json.Unmarshal(model[key], &merges))
				value = encode(t, merges[:n])
			}
			model[key] = value
			file["model"] = encode(t, model)
		default:
			file[key] = value
		}
	}
	return encode(t, file)
}

func encode(t testing.TB, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(v))
	return b.Bytes()
}

// tokenizers are one of each kind, with what the original library makes of the
// golden texts.
func tokenizers(t testing.TB, g goldenFile) map[string]tokenizer.Tokenizer {
	all := map[string]tokenizer.Tokenizer{}
	for _, c := range g.Patched {
		tok, err := bpe.Load(patched(t, c.Patch))
		require.NoError(t, err, c.Name)
		all[c.Name] = tok
	}
	for _, c := range g.Whole {
		tok, err := bpe.Load(c.Definition)
		require.NoError(t, err, c.Name)
		all[c.Name] = tok
	}
	all["tiktoken"], all["tekken"] = tiktoken(t, g), tekken(t)
	return all
}

// modelTokens are the demo's tokens by id, without the added ones.
func modelTokens(t testing.TB) [][]byte {
	tok := demo.Tokenizer()
	var tokens [][]byte
	for id := range uint32(tok.VocabSize() - len(tok.Added())) {
		b, ok := tok.AppendBytes(nil, id)
		require.True(t, ok)
		tokens = append(tokens, b)
	}
	return tokens
}

func tiktoken(t testing.TB, g goldenFile) *bpe.Tokenizer {
	require.Equal(t, bpe.PatternKimi, g.Tiktoken.Pattern)
	var file bytes.Buffer
	for id, b := range modelTokens(t) {
		fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString(b), id)
	}
	var added []tokenizer.AddedToken
	for content, id := range g.Tiktoken.Added {
		added = append(added, tokenizer.AddedToken{ID: id, Content: content, Special: true})
	}
	tok, err := bpe.LoadTiktoken(file.Bytes(), bpe.PatternKimi, added)
	require.NoError(t, err)
	return tok
}

func tekken(t testing.TB) *bpe.Tokenizer {
	tokens := modelTokens(t)
	slices.SortStableFunc(tokens, func(a, b []byte) int { // single bytes first, in order
		switch {
		case len(a) == 1 && len(b) == 1:
			return int(a[0]) - int(b[0])
		case len(a) == 1:
			return -1
		case len(b) == 1:
			return 1
		}
		return 0
	})
	type entry struct {
		Rank  int    `json:"rank"`
		Bytes []byte `json:"token_bytes"`
	}
	var vocab []entry
	for i, b := range tokens {
		vocab = append(vocab, entry{i, b})
	}
	tok, err := bpe.LoadTekken(encode(t, map[string]any{
		"config": map[string]any{
			"pattern": bpe.PatternTekken, "version": "v3", "num_vocab_tokens": len(vocab),
			"default_vocab_size": len(vocab) + 80, "default_num_special_tokens": 100,
		},
		"vocab": vocab,
	}))
	require.NoError(t, err)
	return tok
}

// TestEncodesAndDecodesAsTheOriginalLibraries compares with Hugging Face
// tokenizers 0.22.2, tiktoken and mistral-common.
func TestEncodesAndDecodesAsTheOriginalLibraries(t *testing.T) {
	g := golden(t)
	all := tokenizers(t, g)
	check := func(name string, want [][]uint32, encode func([]uint32, string) []uint32) {
		for i, text := range g.Texts {
			require.Equal(t, want[i], append([]uint32{}, encode(nil, text)...), "%s: %q", name, text)
		}
	}
	for _, c := range g.Patched {
		check(c.Name, c.IDs, all[c.Name].Encode)
		for i, ids := range g.Decode {
			require.Equal(t, c.Decoded[i], all[c.Name].Decode(ids), "%s: %v", c.Name, ids)
		}
	}
	for _, c := range g.Whole {
		check(c.Name, c.IDs, all[c.Name].Encode)
		for i, ids := range c.Decode {
			require.Equal(t, c.Decoded[i], all[c.Name].Decode(ids), "%s: %v", c.Name, ids)
		}
	}
	check("tiktoken", g.Tiktoken.IDs, all["tiktoken"].Encode)
	check("tekken", g.Tekken.IDs, all["tekken"].EncodePlain) // mistral-common never reads control tokens from text
	for id, content := range g.Tekken.Special {
		got, ok := all["tekken"].Token(uint32(id))
		require.True(t, ok)
		require.Equal(t, content, got)
	}
}
