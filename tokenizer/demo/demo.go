// Package demo is a small model's tokenizer and chat template, made for this
// project, for tests, examples and the mock engine: everything that real model
// files exercise, without having any.
//
// The tokenizer is a byte-level BPE with about 8,000 tokens, set up like Qwen3's
// (NFC, the same pattern). The template is of the same kind: turns in
// <|im_start|> and <|im_end|>, tools as JSON lines in the system turn, calls in
// <tool_call>, results in <tool_response>, thinking in <think>. It is
// append-only: a longer conversation renders to a longer text with the same
// beginning.
//
// go generate makes the files anew, with the same bytes.
package demo

import (
	"embed"
	"io/fs"
	"sync"

	"turnlog.dev/tokenizer/bpe"
)

//go:generate go run ./train chat_template.jinja files

//go:embed files
var files embed.FS

//go:embed chat_template.jinja
var template string

// Files returns the model's files: tokenizer.json and tokenizer_config.json.
func Files() fs.FS {
	sub, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Template returns the source of the chat template.
func Template() string { return template }

// Tokenizer returns the tokenizer, which is loaded once.
func Tokenizer() *bpe.Tokenizer { return load() }

var load = sync.OnceValue(func() *bpe.Tokenizer {
	data, err := fs.ReadFile(Files(), "tokenizer.json")
	if err != nil {
		panic(err)
	}
	t, err := bpe.Load(data)
	if err != nil {
		panic(err) // a test loads it
	}
	return t
})
