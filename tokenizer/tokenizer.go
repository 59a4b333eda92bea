// Package tokenizer turns chat conversations into the exact token ids that a
// model was trained to read, and token ids back into text.
//
// This root package holds only the words that the subpackages share: what a
// tokenizer can do, whatever file it was loaded from. tokenizer/bpe implements
// it in pure Go, tokenizer/hf through the Rust library (build tag hf).
package tokenizer

// Tokenizer maps text to token ids and back, exactly as the model's own
// tokenizer files define it.
//
// A Tokenizer is immutable after loading and safe for concurrent use. Text is
// UTF-8; invalid bytes are replaced by U+FFFD, one for each maximal invalid
// part, before anything else happens.
type Tokenizer interface {
	// Encode appends the ids of text to dst. Added tokens that are spelled out
	// in text (such as <|im_end|>) become their ids, as in transformers with
	// add_special_tokens=False.
	Encode(dst []uint32, text string) []uint32

	// EncodePlain is Encode for text that must not name control tokens: added
	// tokens are spelled out in ordinary tokens.
	EncodePlain(dst []uint32, text string) []uint32

	// EncodeSpans is Encode, and says which bytes of text each id stands for.
	EncodeSpans(text string) []Span

	// Decode returns the text of ids, added tokens included. Each maximal
	// invalid part of the bytes becomes one U+FFFD.
	Decode(ids []uint32) string

	// AppendBytes appends the raw bytes that id stands for: possibly a part of
	// a UTF-8 character. An unknown id appends nothing and reports false.
	AppendBytes(dst []byte, id uint32) ([]byte, bool)

	// StableCut returns the length of the longest prefix of text whose ids do
	// not depend on what follows it.
	StableCut(text string) int

	// TokenID returns the id of the token that is spelled exactly so: an added
	// token, or an entry of the vocabulary in its visible form.
	TokenID(token string) (uint32, bool)

	// Token returns the spelling of an id, the inverse of TokenID.
	Token(id uint32) (string, bool)

	// Added lists the added tokens in the order of their ids.
	Added() []AddedToken

	// VocabSize is the number of ids, added tokens included: one more than the
	// highest id.
	VocabSize() int

	// Fingerprint identifies what Encode computes: a sha256 in hex over the
	// tokenizer's definition and the version of the code that runs it.
	Fingerprint() string
}

// Span is one token of an encoded text: its id and the half-open range of
// bytes that it stands for. Where a character is split over several tokens,
// all of them carry the range of the whole character.
type Span struct {
	ID         uint32
	Start, End int
}

// AddedToken is a token that is cut out of the text before the model's own
// segmentation sees it.
type AddedToken struct {
	ID      uint32
	Content string
	// Special tokens are dropped by decoders that skip special tokens. Tokens
	// such as <think> are added but not special.
	Special bool
}
