package familytest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"sync"

	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
	"turnlog.dev/tokenizer/demo"
)

var loaded sync.Map // of tokenizers, by the checkpoint's name

// Tokenizer returns the demo tokenizer with the checkpoint's special tokens in
// place of its own.
func (c Checkpoint) Tokenizer() tokenizer.Tokenizer {
	if c.Own != nil {
		return c.Own
	}
	if t, ok := loaded.Load(c.Name); ok {
		return t.(tokenizer.Tokenizer)
	}
	t, err := bpe.Load(c.tokenizerJSON())
	if err != nil {
		panic(fmt.Sprintf("familytest: %s: %v", c.Name, err))
	}
	loaded.Store(c.Name, t)
	return t
}

type token struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

func (c Checkpoint) tokenizerJSON() []byte {
	base, err := fs.ReadFile(demo.Files(), "tokenizer.json")
	if err != nil {
		panic(err)
	}
	model, _ := rawjson.Get(base, "model")
	vocab, _ := rawjson.Get(model, "vocab")
	next := 0
	for range rawjson.Members(vocab) {
		next++
	}
	var added []token
	for i, t := range tokens(c.Special, c.Marks) {
		added = append(added, token{ID: next + i, Content: t, Special: i < len(c.Special)})
	}
	list, err := json.Marshal(added)
	if err != nil {
		panic(err)
	}
	return rawjson.Splice(nil, base, rawjson.Set{Key: "added_tokens", Value: list})
}
