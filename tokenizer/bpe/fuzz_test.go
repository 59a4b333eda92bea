package bpe_test

import (
	"testing"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
	"turnlog.dev/tokenizer/demo"
)

// FuzzLoad reads definitions that no library wrote.
func FuzzLoad(f *testing.F) {
	for _, c := range golden(f).Whole {
		f.Add([]byte(c.Definition))
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","a"]]}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		tok, err := bpe.Load(file)
		if err != nil {
			return
		}
		for id := range uint32(min(tok.VocabSize(), 1000)) {
			tok.Token(id)
		}
		tok.Decode(tok.Encode(nil, "a b\n"+string(file[:min(len(file), 100)])))
	})
}

// FuzzRoundTrip checks that no text is lost in encoding, in any kind of
// tokenizer without a normalizer, and that spans cover it.
func FuzzRoundTrip(f *testing.F) {
	g := golden(f)
	all := tokenizers(f, g)
	for i := 0; i < len(g.Texts); i += 6 { // more seeds would take all of a short run
		f.Add(g.Texts[i])
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := tokenizer.Repair(text)
		for name, tok := range all {
			ids := tok.Encode(nil, text)
			switch name {
			case "cl100k", "o200k", "deepseek", "tiktoken", "tekken", "characters joined":
				if got := tok.Decode(ids); got != want && name != "characters joined" {
					t.Fatalf("%s: %q came back as %q", name, want, got)
				}
				if got := tok.Decode(tok.EncodePlain(nil, text)); got != want && name != "characters joined" {
					t.Fatalf("%s: plain %q came back as %q", name, want, got)
				}
			}
			checkSpans(t, name, tok, text)
		}
	})
}

// FuzzStableCut checks the promise of StableCut.
func FuzzStableCut(f *testing.F) {
	g := golden(f)
	all := tokenizers(f, g)
	for i := 0; i < len(g.Texts); i += 6 {
		f.Add(g.Texts[i], g.Texts[(i+1)%len(g.Texts)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		a, b = tokenizer.Repair(a), tokenizer.Repair(b)
		for name, tok := range all {
			checkCut(t, name, tok, a, b)
		}
	})
}

// FuzzStream checks that pieces of a stream add up to the decoded text.
func FuzzStream(f *testing.F) {
	tok := demo.Tokenizer()
	f.Add([]byte{1, 2, 3, 200, 250})
	f.Fuzz(func(t *testing.T, raw []byte) {
		ids := make([]uint32, len(raw))
		for i, b := range raw {
			ids[i] = uint32(b) // the tokens of single bytes: every kind of broken UTF-8
		}
		s := tokenizer.NewStream(tok)
		var out []byte
		for _, id := range ids {
			out = s.Append(out, id)
		}
		if got, want := string(s.Flush(out)), tok.Decode(ids); got != want {
			t.Fatalf("%v: streamed %q, decoded %q", ids, got, want)
		}
	})
}
