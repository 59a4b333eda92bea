package familytest

import (
	"encoding/json"
	"fmt"
	"strings"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
)

// words become one token each, so that texts do not simply fall apart into
// bytes: where two pieces of text meet, merges can happen.
const words = ` the of to and in is it you that was for on are with as I his they be at one have this
from or had by hot but some what there we can out other were all your when up use word how said an each
she which do their time if will way about many then them would write like so these her long make thing
see him two has look more day could go come did my sound no most number who over know water than call
first people may down side been now find {" ": "} " , : ; -- name arguments city path command function tool result
assistant user system model json true false null call value key turnlog Return`

// joints are tokens of white space and punctuation that pre-tokenizers keep
// together.
var joints = []string{"\n\n", "\n\n\n", "  ", "    ", ">\n", "}\n", ".\n", "\":", " {\"", "\"}", "...", ".\n\n"}

// Tokenizer returns a byte-level BPE tokenizer with the checkpoint's special
// tokens. Its vocabulary is made of a word list of this package.
func (c Checkpoint) Tokenizer() tokenizer.Tokenizer {
	t, err := bpe.Load(c.tokenizerJSON())
	if err != nil {
		panic(fmt.Sprintf("familytest: %s: %v", c.Name, err))
	}
	return t
}

func (c Checkpoint) tokenizerJSON() []byte {
	vocab := map[string]int{}
	var merges []string
	add := func(s string) {
		if _, ok := vocab[s]; !ok {
			vocab[s] = len(vocab)
		}
	}
	for b := range 256 {
		add(string(letter(byte(b))))
	}
	for _, w := range append(joints, strings.Fields(words)...) {
		if !strings.ContainsAny(w, "\n {}\":.;,-") {
			w = " " + w
		}
		spelled := ""
		for i := range len(w) {
			l := string(letter(w[i]))
			if spelled != "" {
				if _, ok := vocab[spelled+l]; !ok {
					merges = append(merges, spelled+" "+l)
				}
			}
			spelled += l
			add(spelled)
		}
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
	var added []token
	for i, t := range append(append([]string(nil), c.Special...), c.Marks...) {
		added = append(added, token{ID: len(vocab) + i, Content: t, Special: i < len(c.Special)})
	}
	out, err := json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": map[string]any{"type": "NFC"},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": bpe.PatternQwen}, "behavior": "Isolated", "invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		}},
		"post_processor": nil,
		"decoder":        map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
		},
	})
	if err != nil {
		panic(fmt.Sprintf("familytest: %v", err))
	}
	return out
}

// letter is how byte-level vocabularies spell a byte: itself if it is printable
// in Latin-1, else the next free character from U+0100 on.
func letter(b byte) rune {
	printable := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	if printable(int(b)) {
		return rune(b)
	}
	r := rune(0x100)
	for i := range int(b) {
		if !printable(i) {
			r++
		}
	}
	return r
}
