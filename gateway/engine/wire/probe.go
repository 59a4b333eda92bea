package wire

import (
	"fmt"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
)

// probe has what tokenizers disagree on: digits, spaces, contractions, scripts,
// characters of several code points.
const probe = "The 3 quick foxes don't   jump: 12345.678 + 9 == x_1\n\n\tdef f(a, b):\n        return {\"k\": [a, b]}\r\n" +
	"Ünïcödé naïve café — “quotes” … 你好，世界 こんにちは 안녕하세요 Привет שלום مرحبا हिन्दी ไทย 🙂👩‍💻 ﬁ ①\u00a0 end "

// probeAdded is how many added tokens of each end of the vocabulary are probed.
const probeAdded = 16

// CheckID begins the ids of the requests that Check makes: they are no turns.
const CheckID = "turnlog-check-"

// ProbeText is a text whose ids tell tokenizers apart: ordinary text and the
// tokenizer's added tokens, the last of which is the highest id.
func ProbeText(tok tokenizer.Tokenizer) string {
	var b strings.Builder
	b.WriteString(probe)
	added := tok.Added()
	for i, t := range added {
		if i < probeAdded || i >= len(added)-probeAdded {
			b.WriteString(t.Content)
			b.WriteByte('x')
		}
	}
	return b.String()
}

// SameTokenizer compares the ids that an engine gives for ProbeText with ours.
// The error is Refused and names both sides.
func SameTokenizer(tok tokenizer.Tokenizer, answer []byte, key string) error {
	raw, _ := rawjson.Get(answer, key)
	theirs, err := IDs(nil, raw)
	if err != nil {
		return Broken("tokenize: %s: %v", key, err)
	}
	ours := tok.Encode(nil, ProbeText(tok))
	for i := range max(len(ours), len(theirs)) {
		a, b := nameAt(tok, ours, i), nameAt(tok, theirs, i)
		if a != b {
			return &engine.Error{Class: engine.Refused, Message: fmt.Sprintf(
				"the engine has another tokenizer: token %d of the probe text is %s here and %s there (here %d tokens of a vocabulary of %d, fingerprint %.12s); "+
					"set files of the model to those of the model that the engine serves", i, a, b, len(ours), tok.VocabSize(), tok.Fingerprint())}
		}
	}
	return nil
}

func nameAt(tok tokenizer.Tokenizer, ids []uint32, i int) string {
	if i >= len(ids) {
		return "missing"
	}
	spelled, ok := tok.Token(ids[i])
	if !ok {
		return fmt.Sprintf("%d (not in our vocabulary)", ids[i])
	}
	return fmt.Sprintf("%d %q", ids[i], spelled)
}
