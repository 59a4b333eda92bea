package bpe

import (
	"encoding/json"
	"strings"
)

// step is one normalizer, pre-tokenizer or decoder of tokenizer.json: a type
// and its settings.
type step struct {
	Type string `json:"type"`
	raw  json.RawMessage
}

// steps reads a member of tokenizer.json that holds steps, and unfolds
// Sequence, which names its list after what the steps are.
func steps(raw, list string) ([]step, error) {
	if raw == "" || raw == "null" {
		return nil, nil
	}
	var s step
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return nil, err
	}
	if s.Type != "Sequence" {
		s.raw = json.RawMessage(raw)
		return []step{s}, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(raw), &members); err != nil {
		return nil, err
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(members[list], &parts); err != nil {
		return nil, err
	}
	var out []step
	for _, p := range parts {
		inner, err := steps(string(p), list)
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
	}
	return out, nil
}

func types(list []step) string {
	var names []string
	for _, s := range list {
		names = append(names, s.Type)
	}
	return strings.Join(names, " ")
}

// pattern is how Split and Replace say what they look for.
type pattern struct {
	String *string
	Regex  *string
}

// readPipeline compares everything around the model with the forms that are
// implemented.
func (d *definition) readPipeline(parts map[string]string, m *model) error {
	d.characters = m.settings.ByteFallback
	d.wholeWords = m.settings.IgnoreMerges
	d.alphabet = !d.characters
	normalizers, err := steps(parts["normalizer"], "normalizers")
	if err != nil {
		return unsupported("normalizer: %w", err)
	}
	if err := d.readNormalizers(normalizers); err != nil {
		return err
	}
	pre, err := steps(parts["pre_tokenizer"], "pretokenizers")
	if err != nil {
		return unsupported("pre_tokenizer: %w", err)
	}
	if err := d.readPreTokenizers(pre); err != nil {
		return err
	}
	decoders, err := steps(parts["decoder"], "decoders")
	if err != nil {
		return unsupported("decoder: %w", err)
	}
	return d.readDecoders(decoders)
}

func (d *definition) readNormalizers(list []step) error {
	for _, s := range list {
		switch s.Type {
		case "NFC":
			if d.normalize != normalizeNot || d.characters {
				return unsupported("the normalizers %s", types(list))
			}
			d.normalize = normalizeNFC
		case "Prepend":
			var p struct {
				Type, Prepend string
			}
			if err := strict(s.raw, &p, "normalizer"); err != nil {
				return err
			}
			if p.Prepend != space || len(list) != 2 || !d.characters {
				return unsupported("the normalizer Prepend in %s", types(list))
			}
			d.normalize = normalizePrefixed
		case "Replace":
			var p struct {
				Type    string
				Pattern pattern
				Content string
			}
			if err := strict(s.raw, &p, "normalizer"); err != nil {
				return err
			}
			if p.Pattern.String == nil || *p.Pattern.String != " " || p.Content != space || !d.characters {
				return unsupported("the normalizer %s", s.raw)
			}
			if d.normalize != normalizePrefixed {
				d.normalize = normalizeSpaces
			}
		default:
			return unsupported("the normalizer %s", s.Type)
		}
	}
	if d.characters && (d.normalize == normalizeNot || len(list) > 2) {
		return unsupported("byte_fallback with the normalizers [%s]", types(list))
	}
	return nil
}

type splitStep struct {
	Type     string
	Pattern  pattern
	Behavior string
	Invert   bool
}

type digitsStep struct {
	Type             string
	IndividualDigits bool `json:"individual_digits"`
}

type byteLevelStep struct {
	Type           string
	AddPrefixSpace bool  `json:"add_prefix_space"`
	TrimOffsets    bool  `json:"trim_offsets"`
	UseRegex       *bool `json:"use_regex"`
}

func (d *definition) readPreTokenizers(list []step) error {
	if d.characters {
		return d.readCharacterSplit(list)
	}
	if len(list) == 0 || list[len(list)-1].Type != "ByteLevel" {
		return unsupported("the pre-tokenizers [%s]: the last one must be ByteLevel", types(list))
	}
	var last byteLevelStep
	if err := strict(list[len(list)-1].raw, &last, "pre_tokenizer"); err != nil {
		return err
	}
	if last.AddPrefixSpace {
		return unsupported("add_prefix_space of the pre-tokenizer ByteLevel")
	}
	list = list[:len(list)-1]
	var digits *digitsStep
	if len(list) > 0 && list[0].Type == "Digits" {
		digits = &digitsStep{}
		if err := strict(list[0].raw, digits, "pre_tokenizer"); err != nil {
			return err
		}
		list = list[1:]
	}
	var patterns []string
	for _, s := range list {
		if s.Type != "Split" {
			return unsupported("the pre-tokenizer %s", s.Type)
		}
		var split splitStep
		if err := strict(s.raw, &split, "pre_tokenizer"); err != nil {
			return err
		}
		// All patterns match every character, so removing what does not match
		// removes nothing.
		isolated := split.Behavior == "Isolated" && !split.Invert || split.Behavior == "Removed" && split.Invert
		if split.Pattern.Regex == nil || !isolated {
			return unsupported("the pre-tokenizer %s", s.raw)
		}
		patterns = append(patterns, *split.Pattern.Regex)
	}
	if last.UseRegex == nil || *last.UseRegex {
		patterns = append(patterns, PatternGPT2)
	}
	switch {
	case len(patterns) == 1:
		var ok bool
		if d.split, ok = splitters[patterns[0]]; !ok {
			return unsupported("the pattern %s", patterns[0])
		}
	case len(patterns) == 3 && patterns[0] == deepseekNumbers && patterns[1] == deepseekCJK && patterns[2] == deepseekWords:
		d.split = splitDeepSeek
	default:
		return unsupported("the patterns %q", patterns)
	}
	if digits != nil {
		d.split = splitDigits(digits.IndividualDigits, d.split)
	}
	return nil
}

// readCharacterSplit accepts no pre-tokenizer, or Gemma 3's, which splits at
// spaces after the normalizer has replaced them all.
func (d *definition) readCharacterSplit(list []step) error {
	if len(list) == 0 {
		return nil
	}
	var split splitStep
	if len(list) > 1 || list[0].Type != "Split" {
		return unsupported("byte_fallback with the pre-tokenizers [%s]", types(list))
	}
	if err := strict(list[0].raw, &split, "pre_tokenizer"); err != nil {
		return err
	}
	if split.Pattern.String == nil || *split.Pattern.String != " " {
		return unsupported("byte_fallback with the pre-tokenizer %s", list[0].raw)
	}
	return nil
}

func (d *definition) readDecoders(list []step) error {
	want := "ByteLevel"
	switch {
	case d.characters && d.normalize == normalizePrefixed:
		want = "Replace ByteFallback Fuse Strip"
	case d.characters:
		want = "Replace ByteFallback Fuse"
	}
	if types(list) != want {
		return unsupported("the decoders [%s]", types(list))
	}
	for _, s := range list {
		switch s.Type {
		case "Replace":
			var p struct {
				Type    string
				Pattern pattern
				Content string
			}
			if err := strict(s.raw, &p, "decoder"); err != nil {
				return err
			}
			if p.Pattern.String == nil || *p.Pattern.String != space || p.Content != " " {
				return unsupported("the decoder %s", s.raw)
			}
		case "Strip":
			var p struct {
				Type, Content string
				Start, Stop   int
			}
			if err := strict(s.raw, &p, "decoder"); err != nil {
				return err
			}
			if p.Content != " " || p.Start != 1 || p.Stop != 0 {
				return unsupported("the decoder %s", s.raw)
			}
		}
	}
	return nil
}
