package bpe

import (
	"strings"
	"unicode/utf8"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe/internal/ucd"
)

// EncodeSpans implements tokenizer.Tokenizer. Ranges are of the repaired text,
// if text is not valid UTF-8. Where normalization changes several characters
// together, tokens that touch the change carry the range of all of them.
func (t *Tokenizer) EncodeSpans(text string) []tokenizer.Span {
	text = tokenizer.Repair(text)
	spans := make([]tokenizer.Span, 0, len(text)/3+8)
	w := t.work()
	for i := 0; i < len(text); {
		tok, start, end := t.raw.next(text, i)
		if i < start {
			spans = t.gapSpans(w, spans, text, i, start)
		}
		if tok == nil {
			break
		}
		spans = append(spans, tokenizer.Span{ID: tok.ID, Start: start, End: end})
		i = end
	}
	t.works.Put(w)
	return spans
}

// gapSpans encodes text[from:to], which has no raw added token. The ids come
// from gap; the bytes of each say how far it reaches in the normalized text.
func (t *Tokenizer) gapSpans(w *work, spans []tokenizer.Span, text string, from, to int) []tokenizer.Span {
	changes := t.changes(text[from:to])
	toOriginal := originalOffsets{changes: changes}
	end := 0
	w.gap = t.gap(w, w.gap[:0], text[from:to])
	for _, id := range w.gap {
		start := end
		end += t.normalLen(id)
		s := from + toOriginal.floor(start)
		e := from + toOriginal.ceil(end)
		for s > from && !utf8.RuneStart(text[s]) {
			s--
		}
		for e < to && !utf8.RuneStart(text[e]) {
			e++
		}
		spans = append(spans, tokenizer.Span{ID: id, Start: s, End: e})
	}
	return spans
}

// normalLen is how many bytes of normalized text a token stands for.
func (t *Tokenizer) normalLen(id uint32) int {
	if _, ok := t.byteOf[id]; ok {
		return 1
	}
	if form, ok := t.forms[id]; ok {
		return len(form)
	}
	s, _ := t.vocab.get(id)
	return len(s)
}

// changes lists what normalForm changes in text.
func (t *Tokenizer) changes(text string) []ucd.Segment {
	var out []ucd.Segment
	switch t.normalize {
	case normalizeNFC:
		return ucd.Changes(text)
	case normalizeNot:
		return nil
	}
	i := 0
	if t.normalize == normalizePrefixed { // the prefix belongs to the first character
		_, w := utf8.DecodeRuneInString(text)
		out = append(out, ucd.Segment{End: w, To: space + strings.ReplaceAll(text[:w], " ", space)})
		i = w
	}
	for ; ; i++ {
		n := strings.IndexByte(text[i:], ' ')
		if n < 0 {
			return out
		}
		i += n
		out = append(out, ucd.Segment{Start: i, End: i + 1, To: space})
	}
}

// originalOffsets maps offsets in normalized text, in rising order, to offsets
// in the text before. changes are in order.
type originalOffsets struct {
	changes []ucd.Segment
	next    int // the first change that may lie at or after the next offset
	shift   int // normalized minus original offset, before that change
}

// locate finds where offset lies: in the original text, or inside a change.
func (o *originalOffsets) locate(offset int) (original int, inside *ucd.Segment) {
	for o.next < len(o.changes) {
		c := &o.changes[o.next]
		start := c.Start + o.shift
		if offset <= start {
			break
		}
		if offset < start+len(c.To) {
			return 0, c
		}
		o.shift += len(c.To) - (c.End - c.Start)
		o.next++
	}
	return offset - o.shift, nil
}

func (o *originalOffsets) floor(offset int) int {
	at, inside := o.locate(offset)
	if inside == nil {
		return at
	}
	return inside.Start
}

func (o *originalOffsets) ceil(offset int) int {
	at, inside := o.locate(offset)
	if inside == nil {
		return at
	}
	return inside.End
}
