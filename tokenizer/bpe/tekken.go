package bpe

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"turnlog.dev/tokenizer"
)

// tekkenFile is Mistral's tekken.json, as mistral-common 1.13 reads it.
type tekkenFile struct {
	Config struct {
		Pattern       string `json:"pattern"`
		VocabSize     int    `json:"default_vocab_size"`
		SpecialTokens int    `json:"default_num_special_tokens"`
		Version       string `json:"version"`
	} `json:"config"`
	Vocab []struct {
		Rank  int    `json:"rank"`
		Bytes string `json:"token_bytes"`
	} `json:"vocab"`
	Special []struct {
		Rank    int    `json:"rank"`
		Token   string `json:"token_str"`
		Control bool   `json:"is_control"`
	} `json:"special_tokens"`
}

// tekkenSpecials are the tokens of files that do not list them (versions up to
// v7).
var tekkenSpecials = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
	"[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
	"[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}

// LoadTekken reads Mistral's tekken.json. Special tokens have the first ids;
// the id of any other token is its rank plus their number, and ranks beyond the
// vocabulary's size are not used. Places without a special token get the name
// <SPECIAL_n>.
//
// mistral-common never turns text into special tokens: EncodePlain does what it
// does.
func LoadTekken(data []byte) (*Tokenizer, error) {
	t, err := loadTekken(data)
	if err != nil {
		return nil, fmt.Errorf("bpe: load tekken.json: %w", err)
	}
	return t, nil
}

func loadTekken(data []byte) (*Tokenizer, error) {
	var f tekkenFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	split, ok := splitters[f.Config.Pattern]
	if !ok {
		return nil, unsupported("the pattern %q", f.Config.Pattern)
	}
	specials := f.Config.SpecialTokens
	words := f.Config.VocabSize - specials
	if specials < 0 || words < 256 || words > len(f.Vocab) || f.Config.VocabSize > maxID {
		return nil, fmt.Errorf("%d tokens, of these %d special, do not fit to %d entries", f.Config.VocabSize, specials, len(f.Vocab))
	}
	b := vocabBuilder{}
	for i, e := range f.Vocab[:words] {
		if e.Rank != i {
			return nil, fmt.Errorf("entry %d has the rank %d", i, e.Rank)
		}
		start := len(b.arena)
		var err error
		if b.arena, err = base64.StdEncoding.AppendDecode(b.arena, []byte(e.Bytes)); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		b.add(uint32(specials+i), start)
	}
	added, err := f.specials(specials)
	if err != nil {
		return nil, err
	}
	return fromRanks(b, split, added, fingerprint(data))
}

func (f *tekkenFile) specials(n int) ([]tokenizer.AddedToken, error) {
	added := make([]tokenizer.AddedToken, n)
	for i := range added {
		added[i] = tokenizer.AddedToken{ID: uint32(i), Content: fmt.Sprintf("<SPECIAL_%d>", i), Special: true}
	}
	if f.Special == nil {
		for i, token := range tekkenSpecials[:min(n, len(tekkenSpecials))] {
			added[i].Content = token
		}
	}
	for _, s := range f.Special {
		if s.Rank < 0 || s.Rank >= n {
			return nil, fmt.Errorf("the special token %q has the rank %d of %d", s.Token, s.Rank, n)
		}
		added[s.Rank].Content, added[s.Rank].Special = s.Token, s.Control
	}
	return added, nil
}
