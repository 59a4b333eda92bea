package bpe

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"turnlog.dev/tokenizer"
)

// LoadTiktoken reads a tiktoken rank file: lines of base64 bytes, a space and
// the token's rank, which is its id. The file holds neither the pattern nor the
// added tokens: pattern is one of the constants of this package, and
// AddedFromConfig reads the tokens from a tokenizer_config.json.
//
// Models that ship such files (Kimi K2, the first Qwen) cut very long texts
// before encoding; this is not done here, so texts with a run of more than
// 25,000 characters without white space, or of nothing else, may get other ids.
func LoadTiktoken(ranks []byte, pattern string, added []tokenizer.AddedToken) (*Tokenizer, error) {
	split, ok := splitters[pattern]
	if !ok {
		return nil, fmt.Errorf("bpe: load tiktoken ranks: %w", unsupported("the pattern %q", pattern))
	}
	b := vocabBuilder{arena: make([]byte, 0, len(ranks))}
	number := 0
	for line := range strings.Lines(string(ranks)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if err := b.addRank(line); err != nil {
			return nil, fmt.Errorf("bpe: load tiktoken ranks: line %d: %w", number, err)
		}
	}
	list, err := json.Marshal(added)
	if err != nil {
		return nil, fmt.Errorf("bpe: load tiktoken ranks: %w", err)
	}
	t, err := fromRanks(b, split, added, fingerprint(ranks, []byte(pattern), list))
	if err != nil {
		return nil, fmt.Errorf("bpe: load tiktoken ranks: %w", err)
	}
	return t, nil
}

func (b *vocabBuilder) addRank(line string) error {
	token, rank, ok := strings.Cut(line, " ")
	if !ok {
		return fmt.Errorf("no rank in %.40q", line)
	}
	id, err := strconv.ParseUint(rank, 10, 32)
	if err != nil || id > maxID {
		return fmt.Errorf("bad rank %.40q", rank)
	}
	start := len(b.arena)
	if b.arena, err = base64.StdEncoding.AppendDecode(b.arena, []byte(token)); err != nil {
		return err
	}
	if len(b.arena) == start {
		return fmt.Errorf("an empty token")
	}
	if !b.add(uint32(id), start) {
		return fmt.Errorf("two tokens have the rank %d", id)
	}
	return nil
}

// fromRanks makes a tokenizer whose merges are implied: two tokens merge if
// their bytes together are a token, whose rank is the rank of the merge.
func fromRanks(b vocabBuilder, split splitter, added []tokenizer.AddedToken, fingerprint string) (*Tokenizer, error) {
	v, err := b.build(nil)
	if err != nil {
		return nil, err
	}
	type pair struct{ left, right, id uint32 }
	var pairs []pair
	for id := range v.tokens {
		if v.tokens[id].len < 2 {
			continue
		}
		token := v.at(uint32(id))
		for i := 1; i < len(token); i++ {
			left, ok := v.find(token[:i])
			if !ok {
				continue
			}
			if right, ok := v.find(token[i:]); ok {
				pairs = append(pairs, pair{left, right, uint32(id)})
			}
		}
	}
	m := newMerges(len(pairs))
	for _, p := range pairs {
		m.put(p.left, p.right, p.id, p.id)
	}
	d := &definition{vocab: v, split: split, merges: m, wholeWords: true}
	for _, a := range added {
		d.added = append(d.added, addedToken{AddedToken: a})
	}
	return d.build(fingerprint)
}

// AddedFromConfig reads the added tokens of a tokenizer_config.json (the member
// added_tokens_decoder), in the order of their ids.
func AddedFromConfig(config []byte) ([]tokenizer.AddedToken, error) {
	var c struct {
		Added map[string]struct {
			Content string
			Special bool
			LStrip  bool
			RStrip  bool
		} `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, fmt.Errorf("bpe: added tokens: %w", err)
	}
	added := make([]tokenizer.AddedToken, 0, len(c.Added))
	for key, a := range c.Added {
		id, err := strconv.ParseUint(key, 10, 32)
		if err != nil || id > maxID {
			return nil, fmt.Errorf("bpe: added tokens: bad id %q", key)
		}
		if a.LStrip || a.RStrip {
			return nil, fmt.Errorf("bpe: added tokens: %w", unsupported("lstrip or rstrip of %q", a.Content))
		}
		added = append(added, tokenizer.AddedToken{ID: uint32(id), Content: a.Content, Special: a.Special})
	}
	slices.SortFunc(added, func(a, b tokenizer.AddedToken) int { return cmp.Compare(a.ID, b.ID) })
	return added, nil
}
