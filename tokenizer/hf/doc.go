// Package hf is a second tokenizer backend: the Rust library, through
// github.com/daulet/tokenizers and cgo. It is for definitions that tokenizer/bpe
// refuses (Unigram, WordPiece, unknown patterns), and for comparing the two.
//
// It is empty without the build tag hf. With it, a static library is needed:
// build.sh builds one from our own small crate, or takes an upstream release.
// Register it as hub.Hub.Fallback.
//
// What the C interface cannot carry never passes silently: see Tokenizer.
package hf
