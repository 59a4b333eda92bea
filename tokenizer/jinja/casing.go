package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Case mapping as in Python, which maps some characters to several
// (casing_tables.go) and knows the final form of sigma. Go maps one to one.

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, r := range s {
		if many, ok := manyUpper[r]; ok {
			b.WriteString(many)
		} else {
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

func lower(s string) string {
	if !strings.ContainsAny(s, "ΣİI") || isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 'Σ' && finalSigma(s, i):
			b.WriteRune('ς')
		case r == 'İ':
			b.WriteString("i\u0307")
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// finalSigma reports whether the sigma at i ends a word: a cased letter stands
// before it and none behind it, not counting characters that case ignores.
func finalSigma(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], caseIgnorable)
	r, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || !cased(r) {
		return false
	}
	after := strings.TrimLeftFunc(s[i+len("Σ"):], caseIgnorable)
	r, _ = utf8.DecodeRuneInString(after)
	return after == "" || !cased(r)
}

func cased(r rune) bool { return lowercase(r) || uppercase(r) || unicode.IsTitle(r) }

// lowercase and uppercase are properties, which characters without a mapping
// may have: ª is lowercase, Ⅷ uppercase.
func lowercase(r rune) bool { return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r) }
func uppercase(r rune) bool { return unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r) }

func caseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·’․‧﹒＇．：", r)
}

func writeTitle(b *strings.Builder, r rune) {
	if many, ok := manyTitle[r]; ok {
		b.WriteString(many)
	} else {
		b.WriteRune(unicode.ToTitle(r))
	}
}

func capitalize(s string) string {
	r, w := utf8.DecodeRuneInString(s)
	if w == 0 {
		return s
	}
	var b strings.Builder
	writeTitle(&b, r)
	b.WriteString(lower(s[w:]))
	return b.String()
}

// titleWords is str.title: a letter after a non-letter is a capital.
func titleWords(s string) string {
	var b strings.Builder
	inWord := false
	for i, r := range s {
		if !inWord {
			writeTitle(&b, r)
		} else {
			b.WriteString(lowerAt(s, i, r))
		}
		inWord = cased(r)
	}
	return b.String()
}

func lowerAt(s string, i int, r rune) string {
	if r == 'Σ' && finalSigma(s, i) {
		return "ς"
	}
	return lower(string(r))
}

// titleFilter is jinja's |title: words start after white space or one of
// -({[<, so "they're" stays "They're".
func titleFilter(s string) string {
	var b strings.Builder
	start := true
	for _, r := range s {
		if strings.ContainsRune("-({[<", r) || isSpace(r) {
			start = true
			b.WriteRune(r)
			continue
		}
		if start {
			b.WriteString(upper(string(r)))
		} else {
			b.WriteString(lower(string(r)))
		}
		start = false
	}
	return b.String()
}

// isLower is str.islower: a lowercase character, and none of another case.
func isLower(s string) bool {
	return strings.ContainsFunc(s, lowercase) && !strings.ContainsFunc(s, func(r rune) bool { return uppercase(r) || unicode.IsTitle(r) })
}

func isUpper(s string) bool {
	return strings.ContainsFunc(s, uppercase) && !strings.ContainsFunc(s, func(r rune) bool { return lowercase(r) || unicode.IsTitle(r) })
}

// isDigit is str.isdigit for one character: decimal digits, and others that
// stand for one digit (Numeric_Type=Digit).
func isDigit(r rune) bool { return unicode.IsDigit(r) || unicode.Is(otherDigits, r) }

var otherDigits = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0xb2, Hi: 0xb3, Stride: 1},
		{Lo: 0xb9, Hi: 0xb9, Stride: 1},
		{Lo: 0x1369, Hi: 0x1371, Stride: 1},
		{Lo: 0x19da, Hi: 0x19da, Stride: 1},
		{Lo: 0x2070, Hi: 0x2070, Stride: 1},
		{Lo: 0x2074, Hi: 0x2079, Stride: 1},
		{Lo: 0x2080, Hi: 0x2089, Stride: 1},
		{Lo: 0x2460, Hi: 0x2468, Stride: 1},
		{Lo: 0x2474, Hi: 0x247c, Stride: 1},
		{Lo: 0x2488, Hi: 0x2490, Stride: 1},
		{Lo: 0x24ea, Hi: 0x24ea, Stride: 1},
		{Lo: 0x24f5, Hi: 0x24fd, Stride: 1},
		{Lo: 0x24ff, Hi: 0x24ff, Stride: 1},
		{Lo: 0x2776, Hi: 0x277e, Stride: 1},
		{Lo: 0x2780, Hi: 0x2788, Stride: 1},
		{Lo: 0x278a, Hi: 0x2792, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x10a40, Hi: 0x10a43, Stride: 1},
		{Lo: 0x10e60, Hi: 0x10e68, Stride: 1},
		{Lo: 0x11052, Hi: 0x1105a, Stride: 1},
		{Lo: 0x1f100, Hi: 0x1f10a, Stride: 1},
	},
	LatinOffset: 2,
}

func swapCase(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsUpper(r):
			b.WriteString(lower(string(r)))
		case unicode.IsLower(r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isTitle is str.istitle: capitals only at the start of words, and a cased
// character at all.
func isTitle(s string) bool {
	some, inWord := false, false
	for _, r := range s {
		switch {
		case uppercase(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			some, inWord = true, true
		case lowercase(r):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return some
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r)) {
			return false
		}
	}
	return s != ""
}
