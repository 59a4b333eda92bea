package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unsafe"

	"turnlog.dev/tokenizer"
)

// Load reads a tokenizer.json of Hugging Face tokenizers (the format of its
// versions 0.15 to 0.22). A setting that is not implemented is refused with an
// error that wraps ErrUnsupported and names it.
//
// Truncation, padding and the post-processor are not looked at: they concern
// encoding with special tokens, which prompts do not use.
func Load(data []byte) (*Tokenizer, error) {
	hash := make(chan string, 1) // hashing runs beside, it takes a fifth of the time
	go func() { hash <- fingerprint(data) }()
	t, err := load(data, hash)
	if err != nil {
		return nil, fmt.Errorf("bpe: load tokenizer.json: %w", err)
	}
	return t, nil
}

func load(data []byte, hash <-chan string) (*Tokenizer, error) {
	// Not copied: what is kept of the text is cloned.
	r := &jsonReader{s: unsafe.String(unsafe.SliceData(data), len(data))}
	d := &definition{hidden: map[uint32]string{}}
	parts := map[string]string{}
	var model *model
	err := r.object(func(key string) (err error) {
		switch key {
		case "model":
			model, err = readModel(r)
		default:
			parts[key], err = r.value()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.space(); r.i != len(r.s) {
		return nil, r.fail("the end of the file")
	}
	if model == nil {
		return nil, fmt.Errorf("no model: is this a tokenizer.json?")
	}
	if err := d.readPipeline(parts, model); err != nil {
		return nil, err
	}
	if err := d.readAdded(parts["added_tokens"]); err != nil {
		return nil, err
	}
	if err := d.readVocabulary(model); err != nil {
		return nil, err
	}
	return d.build(<-hash)
}

// model is the member "model", its large parts unread.
type model struct {
	vocab, merges jsonReader
	settings      modelSettings
}

type modelSettings struct {
	Type         string   `json:"type"`
	Dropout      *float64 `json:"dropout"`
	Prefix       string   `json:"continuing_subword_prefix"`
	Suffix       string   `json:"end_of_word_suffix"`
	IgnoreMerges bool     `json:"ignore_merges"`
	ByteFallback bool     `json:"byte_fallback"`
	// Unknown characters cannot occur: a vocabulary has all bytes, or is refused.
	UnknownToken json.RawMessage `json:"unk_token"`
	FuseUnknown  json.RawMessage `json:"fuse_unk"`
}

func readModel(r *jsonReader) (*model, error) {
	m := &model{}
	settings := []byte{'{'}
	err := r.object(func(key string) error {
		value, err := r.value()
		if err != nil {
			return err
		}
		switch key {
		case "vocab":
			m.vocab.s = value
		case "merges":
			m.merges.s = value
		default:
			if len(settings) > 1 {
				settings = append(settings, ',')
			}
			settings = fmt.Appendf(settings, "%q:%s", key, value)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var kind struct{ Type string }
	if err := json.Unmarshal(append(settings, '}'), &kind); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	switch {
	case kind.Type != "" && kind.Type != "BPE":
		return nil, unsupported("a model of type %s", kind.Type)
	case m.vocab.s == "" || m.merges.s == "":
		return nil, fmt.Errorf("model: no vocab or no merges: is this a BPE tokenizer?")
	}
	if err := strict(append(settings, '}'), &m.settings, "model"); err != nil {
		return nil, err
	}
	switch s := m.settings; {
	case s.Dropout != nil && *s.Dropout != 0:
		return nil, unsupported("dropout")
	case s.Prefix != "":
		return nil, unsupported("continuing_subword_prefix %q", s.Prefix)
	case s.Suffix != "":
		return nil, unsupported("end_of_word_suffix %q", s.Suffix)
	case s.IgnoreMerges && s.ByteFallback:
		return nil, unsupported("ignore_merges together with byte_fallback")
	}
	return m, nil
}

// strict decodes JSON and refuses members that it does not know.
func strict(raw []byte, into any, what string) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return unsupported("%s: %w in %.300s", what, err, raw)
	}
	return nil
}

func (d *definition) readAdded(raw string) error {
	if raw == "" {
		return nil
	}
	var list []struct {
		ID         uint32 `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	if err := strict([]byte(raw), &list, "added_tokens"); err != nil {
		return err
	}
	stripped, white := "", ""
	for _, a := range list {
		if a.RStrip {
			stripped = a.Content
		}
		if strings.TrimLeftFunc(a.Content, isWhite) != a.Content {
			white = a.Content
		}
		switch {
		case a.Normalized && (a.LStrip || a.RStrip):
			return unsupported("lstrip or rstrip of the added token %q, which is normalized", a.Content)
		case a.SingleWord:
			return unsupported("single_word of the added token %q", a.Content)
		case a.ID > maxID:
			return unsupported("the id %d of the added token %q", a.ID, a.Content)
		}
		d.added = append(d.added, addedToken{
			AddedToken: tokenizer.AddedToken{ID: a.ID, Content: a.Content, Special: a.Special},
			normalized: a.Normalized, leftStrip: a.LStrip, rightStrip: a.RStrip,
		})
	}
	if stripped != "" && white != "" {
		return unsupported("rstrip of the added token %q beside %q, which begins with white space", stripped, white)
	}
	return nil
}

// readVocabulary reads vocab and merges.
func (d *definition) readVocabulary(m *model) error {
	b := vocabBuilder{arena: make([]byte, 0, len(m.vocab.s)/2)}
	err := m.vocab.object(func(token string) error {
		id, err := m.vocab.id()
		if err != nil {
			return err
		}
		start := len(b.arena)
		if d.characters {
			b.arena = append(b.arena, token...)
		} else {
			var inAlphabet bool
			if b.arena, inAlphabet = appendRaw(b.arena, token); !inAlphabet {
				d.hidden[id] = strings.Clone(token) // not the whole file with it
			}
		}
		if !b.add(id, start) {
			return fmt.Errorf("two tokens have the id %d", id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if d.vocab, err = b.build(d.hidden); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if err := d.readMerges(&m.merges); err != nil {
		return fmt.Errorf("merges: %w", err)
	}
	return nil
}

// readMerges reads the merges, each ["a", "b"] or "a b", lowest rank first.
func (d *definition) readMerges(r *jsonReader) error {
	n := countMerges(r.s)
	list := make([]merge, 0, n)
	raw := func(dst []byte, part string) ([]byte, error) {
		if d.characters {
			return append(dst, part...), nil
		}
		dst, ok := appendRaw(dst, part)
		if !ok {
			return nil, unsupported("a merge outside of the byte alphabet: %q", part)
		}
		return dst, nil
	}
	find := func(token []byte) (uint32, error) {
		id, ok := d.vocab.find(string(token))
		if !ok {
			return 0, fmt.Errorf("%q is not in the vocabulary", token)
		}
		return id, nil
	}
	// Most files list tokens in the order of the merges that make them, so the
	// id after the last one found is tried before the hash table.
	next := uint32(0)
	findMerged := func(token []byte) (id uint32, err error) {
		if have, ok := d.vocab.get(next); ok && have == string(token) && d.hidden[next] == "" {
			id = next
		} else if id, err = find(token); err != nil {
			return 0, err
		}
		next = id + 1
		return id, nil
	}
	var buf []byte
	rank := uint32(0)
	err := r.array(func() error {
		left, right, err := readMerge(r)
		if err != nil {
			return err
		}
		if buf, err = raw(buf[:0], left); err != nil {
			return err
		}
		middle := len(buf)
		if buf, err = raw(buf, right); err != nil {
			return err
		}
		a, err := find(buf[:middle])
		if err != nil {
			return err
		}
		b, err := find(buf[middle:])
		if err != nil {
			return err
		}
		ab, err := findMerged(buf)
		if err != nil {
			return err
		}
		list = append(list, merge{pairOf(a, b), rank, ab})
		rank++
		return nil
	})
	d.merges = newMerges(n)
	d.merges.putAll(list)
	return err
}

// countMerges is at least the number of merges in their JSON text.
func countMerges(s string) int {
	perMerge := 2
	r := &jsonReader{s: s}
	r.skip('[')
	if pairs := r.skip('['); pairs {
		perMerge = 4
	}
	return strings.Count(s, `"`)/perMerge + 1
}

func readMerge(r *jsonReader) (left, right string, err error) {
	if r.space(); r.i < len(r.s) && r.s[r.i] == '"' {
		both, err := r.str()
		if err != nil {
			return "", "", err
		}
		left, right, ok := strings.Cut(both, " ")
		if !ok {
			return "", "", fmt.Errorf("%q has no space", both)
		}
		return left, right, nil
	}
	n := 0
	err = r.array(func() (err error) {
		switch n++; n {
		case 1:
			left, err = r.str()
		case 2:
			right, err = r.str()
		default:
			err = fmt.Errorf("a merge of more than two")
		}
		return err
	})
	if err == nil && n != 2 {
		err = fmt.Errorf("a merge of %d", n)
	}
	return left, right, err
}
