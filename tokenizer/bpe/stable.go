package bpe

import (
	"strings"
	"unicode/utf8"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe/internal/ucd"
)

// StableCut implements tokenizer.Tokenizer: for every continuation b, the ids
// of text+b are those ids of text that end at or before the cut, followed by
// the ids of (text+b)[cut:].
//
// The ids before the cut are to be taken from the ids of the whole text.
// Encoding text[:cut] alone can differ, since some patterns treat the end of a
// text in their own way.
func (t *Tokenizer) StableCut(text string) int {
	text = tokenizer.Repair(text)
	gap, hold := addedBoundaries(t.raw, text)
	if gap == hold {
		return gap
	}
	return gap + t.stableInGap(text[gap:hold])
}

// addedBoundaries returns the end of the last added token that is certain, and
// the place from which the rest of text may still become a part of one.
func addedBoundaries(added *trie, text string) (gap, hold int) {
	hold = len(text)
	for i := 0; i < len(text); {
		tok, open := added.at(text, i)
		end := i
		if tok != nil {
			end += len(tok.Content)
			if tok.rightStrip {
				end = len(text) - len(strings.TrimLeftFunc(text[end:], isWhite))
				open = open || end == len(text) // more white space may follow
			}
		}
		if open {
			hold = i
			break
		}
		if tok == nil {
			i++
			continue
		}
		i, gap = end, end
	}
	if added.leftStrip { // a token at hold may take the white space before it
		hold = gap + len(strings.TrimRightFunc(text[gap:hold], isWhite))
	}
	return gap, hold
}

// stableInGap is StableCut for the text after the last raw added token.
func (t *Tokenizer) stableInGap(gap string) int {
	if t.normalize == normalizePrefixed {
		return 0 // a cut inside would put another space in front of the rest
	}
	known := gap
	if t.normalize == normalizeNFC {
		known = gap[:lastStable(gap)]
	}
	toOriginal := originalOffsets{changes: t.changes(known)}
	normal := t.normalForm(known)
	start, end := 0, len(normal)
	if t.normalized != nil {
		start, end = addedBoundaries(t.normalized, normal)
	}
	cut := 0
	consider := func(boundary int) {
		original, inside := toOriginal.locate(boundary)
		if inside == nil && (original == len(known) || !joinsBefore(t.normalize, known[original:])) {
			cut = original
		}
	}
	consider(start)
	if start < end {
		s := &scan{text: normal[start:end]}
		open := false
		s.emit = func(_, wordEnd int) {
			if open = open || s.open; !open {
				consider(start + wordEnd)
			}
		}
		t.split(s)
	}
	return cut
}

// joinsBefore reports whether the first character of rest could be changed by
// normalization together with what stands before it.
func joinsBefore(n normalization, rest string) bool {
	r, _ := utf8.DecodeRuneInString(rest)
	return n == normalizeNFC && ucd.Of(r)&ucd.NFC != 0
}

// lastStable is the offset of the last character that NFC can neither change
// nor join to what stands before it. What comes later may join that character
// and all after it.
func lastStable(s string) int {
	for i := len(s); i > 0; {
		r, w := utf8.DecodeLastRuneInString(s[:i])
		i -= w
		if ucd.Of(r)&ucd.NFC == 0 {
			return i
		}
	}
	return 0
}
