//go:build hf

package hf_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/hf"
	"turnlog.dev/tokenizer/hub"
)

func demoFile(t testing.TB) []byte {
	data, err := fs.ReadFile(demo.Files(), "tokenizer.json")
	require.NoError(t, err)
	return data
}

func texts(t testing.TB) []string {
	data, err := os.ReadFile("../bpe/testdata/golden.json")
	require.NoError(t, err)
	var golden struct{ Texts []string }
	require.NoError(t, json.Unmarshal(data, &golden))
	return golden.Texts
}

// TestTheTwoBackendsAgree is the cross-check: Go and Rust on the same file.
func TestTheTwoBackendsAgree(t *testing.T) {
	rust, err := hf.Load(demoFile(t))
	require.NoError(t, err)
	pure := demo.Tokenizer()
	for _, text := range texts(t) {
		ids := pure.Encode([]uint32{}, text)
		require.Equal(t, ids, rust.Encode([]uint32{}, text), "%q", text)
		require.Equal(t, pure.EncodePlain([]uint32{}, text), rust.EncodePlain([]uint32{}, text), "%q", text)
		require.Equal(t, pure.Decode(ids), rust.Decode(ids), "%q", text)
	}
	require.Equal(t, pure.VocabSize(), rust.VocabSize())
	require.Equal(t, pure.Added(), rust.Added())
	for id := range uint32(pure.VocabSize()) {
		want, _ := pure.Token(id)
		got, _ := rust.Token(id)
		require.Equal(t, want, got)
	}
}

func TestTextWithNULIsEncodedWholeOrRefused(t *testing.T) {
	rust, err := hf.Load(demoFile(t))
	require.NoError(t, err)
	const text = "before\x00after\x00"
	spans, err := rust.Try(text, true)
	if err != nil { // linked to an upstream library
		require.ErrorIs(t, err, hf.ErrNUL)
		return
	}
	require.Equal(t, len(text), spans[len(spans)-1].End)
	ids := rust.Encode(nil, text)
	require.Equal(t, demo.Tokenizer().Encode(nil, text), ids)
	require.Equal(t, text, rust.Decode(ids))
}

func unigram() []byte {
	return []byte(`{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
		"added_tokens": [{"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
		"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
		"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
		"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["<unk>", 0.0], ["▁", -2.0], ["▁the", -1.0], ["c", -3.0], ["a", -3.0], ["t", -3.0], ["cat", -2.5]]}}`)
}

func TestUnigramIsOpenedThroughTheHub(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/tokenizer.json", unigram(), 0o600))
	m, err := hub.Hub{Fallback: hf.Open}.Open(t.Context(), dir)
	require.NoError(t, err)
	ids := m.Tokenizer.Encode(nil, "the cat")
	require.Equal(t, []uint32{2, 1, 6}, ids)
	require.Equal(t, "the cat", m.Tokenizer.Decode(ids))
	id, ok := m.Tokenizer.TokenID("▁the")
	require.True(t, ok)
	require.Equal(t, uint32(2), id)
	require.Equal(t, 0, m.Tokenizer.StableCut("the cat"))
}

func TestWhatTheLibraryCannotReadIsAnError(t *testing.T) {
	for _, file := range []string{"", "{}", `{"model": {"type": "Nothing", "vocab": {}}}`, strings.Replace(string(unigram()), "Metaspace", "Wordspace", 1)} {
		_, err := hf.Load([]byte(file))
		require.ErrorContains(t, err, "hf: load tokenizer.json: ")
	}
}
