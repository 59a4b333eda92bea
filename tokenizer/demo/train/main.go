// Command train makes the files of the demo model: it composes a corpus,
// learns a byte-level BPE from it, and writes tokenizer.json and
// tokenizer_config.json. Every run gives the same bytes.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"turnlog.dev/tokenizer/bpe"
)

// vocabulary is the number of tokens without the added ones.
const vocabulary = 8000

// added are the added tokens. Special ones are dropped by decoders that skip
// special tokens.
var added = []struct {
	Content string
	Special bool
}{
	{"<|endoftext|>", true},
	{"<|im_start|>", true},
	{"<|im_end|>", true},
	{"<think>", false},
	{"</think>", false},
	{"<tool_call>", false},
	{"</tool_call>", false},
	{"<tool_response>", false},
	{"</tool_response>", false},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: train CHAT_TEMPLATE OUT_DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run(template, out string) error {
	source, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for token := range bpe.Split(bpe.PatternQwen, corpus()) {
		counts[token]++
	}
	merges := train(counts, vocabulary-256)
	for name, value := range map[string]any{
		"tokenizer.json":        tokenizerJSON(merges),
		"tokenizer_config.json": configJSON(string(source)),
	} {
		if err := write(filepath.Join(out, name), value); err != nil {
			return err
		}
	}
	fmt.Printf("%d pre-tokens, %d distinct, %d merges\n", sum(counts), len(counts), len(merges))
	return nil
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func write(file string, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// vocab writes its tokens in the order of their ids, which a map would lose.
type vocab []string

func (v vocab) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for id, token := range v {
		if id > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(token)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, "%s:%d", name, id)
	}
	return append(b, '}'), nil
}

// The structure of tokenizer.json is that of Qwen3's: NFC, the same pattern,
// byte-level.
func tokenizerJSON(merges []pair) any {
	type object = map[string]any
	tokens := vocab{}
	for b := range 256 {
		tokens = append(tokens, bpe.VisibleForm(string([]byte{byte(b)})))
	}
	slices.Sort(tokens) // as the Rust trainer does: by character
	var pairs []string
	seen := map[string]bool{}
	for _, m := range merges {
		left, right := bpe.VisibleForm(m.left), bpe.VisibleForm(m.right)
		pairs = append(pairs, left+" "+right)
		if !seen[left+right] { // two merges may make the same token
			seen[left+right] = true
			tokens = append(tokens, left+right)
		}
	}
	var list []object
	for i, a := range added {
		list = append(list, object{
			"id": len(tokens) + i, "content": a.Content, "special": a.Special,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": list,
		"normalizer": object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []any{
			object{"type": "Split", "pattern": object{"Regex": bpe.PatternQwen}, "behavior": "Isolated", "invert": false}, byteLevel,
		}},
		"post_processor": byteLevel, "decoder": byteLevel,
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": tokens, "merges": pairs,
		},
	}
}

func configJSON(template string) any {
	return map[string]any{
		"tokenizer_class":  "PreTrainedTokenizerFast",
		"model_max_length": 131072,
		"eos_token":        "<|im_end|>",
		"pad_token":        "<|endoftext|>",
		"chat_template":    strings.TrimSuffix(template, "\n"),
	}
}
