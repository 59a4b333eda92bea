package bpe_test

import (
	"fmt"
	"io/fs"

	"turnlog.dev/tokenizer/bpe"
	"turnlog.dev/tokenizer/demo"
)

// Any tokenizer.json of byte pair encoding; here the one of the demo model.
func ExampleLoad() {
	definition, err := fs.ReadFile(demo.Files(), "tokenizer.json")
	if err != nil {
		panic(err)
	}
	t, err := bpe.Load(definition)
	if err != nil {
		panic(err) // errors.Is(err, bpe.ErrUnsupported): it needs what this package does not have
	}
	ids := t.Encode(nil, "two words<|im_end|>")
	fmt.Println(t.Decode(ids))
	end, _ := t.TokenID("<|im_end|>")
	fmt.Println(ids[len(ids)-1] == end)
	fmt.Println(t.Decode(t.EncodePlain(nil, "<|im_end|>")), t.EncodePlain(nil, "<|im_end|>")[0] == end)
	// Output:
	// two words<|im_end|>
	// true
	// <|im_end|> false
}
