package ucd

import (
	"slices"
	"sync"
	"unicode/utf8"
)

// Hangul syllables are composed by arithmetic (Unicode Standard, 3.12).
const (
	hangulBase  = 0xac00
	hangulEnd   = hangulBase + 11172
	leadBase    = 0x1100
	leadCount   = 19
	vowelBase   = 0x1161
	vowelCount  = 21
	tailBase    = 0x11a7 // one before the first tail
	tailCount   = 28
	perLeadings = vowelCount * tailCount
)

type normalizer struct {
	marks     map[rune]uint8
	decompose map[rune]string
	compose   map[[2]rune]rune
}

// tables are built when text first needs them: most text never does.
var tables = sync.OnceValue(func() *normalizer {
	t := &normalizer{
		marks:     make(map[rune]uint8, 1024),
		decompose: make(map[rune]string, len(decompositions)),
		compose:   make(map[[2]rune]rune, len(compositions)),
	}
	for _, m := range markRuns {
		for r := m.first; r <= m.last; r++ {
			t.marks[r] = m.class
		}
	}
	for _, d := range decompositions {
		t.decompose[d.r] = d.to
	}
	for _, c := range compositions {
		t.compose[[2]rune{c.a, c.b}] = c.to
	}
	return t
})

// firstUnstable is the offset of the first character from i on that carries
// the class NFC.
func firstUnstable(s string, i int) int {
	for i < len(s) {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, w := utf8.DecodeRuneInString(s[i:])
		if Of(r)&NFC != 0 {
			return i
		}
		i += w
	}
	return len(s)
}

// Segment is a part of a text that normalization replaces.
type Segment struct {
	Start, End int // in the text
	To         string
}

// Changes yields the parts of s that NFC replaces, in order. Each begins with a
// character that nothing before it can join, and ends before the next such
// character.
func Changes(s string) []Segment {
	var out []Segment
	for i := firstUnstable(s, 0); i < len(s); i = firstUnstable(s, i) {
		start := i
		if i > 0 { // the character before is stable, and i may join it
			_, w := utf8.DecodeLastRuneInString(s[:i])
			start = i - w
		}
		end := i
		for end < len(s) {
			r, w := utf8.DecodeRuneInString(s[end:])
			if s[end] < utf8.RuneSelf || Of(r)&NFC == 0 {
				break
			}
			end += w
		}
		if to := tables().normalize(s[start:end]); to != s[start:end] {
			out = append(out, Segment{start, end, to})
		}
		i = end
	}
	return out
}

// Normalize returns the normalization form C of s, of Unicode 9.0: characters
// assigned later stay as they are.
func Normalize(s string) string {
	changes := Changes(s)
	if len(changes) == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	at := 0
	for _, c := range changes {
		b = append(b, s[at:c.Start]...)
		b = append(b, c.To...)
		at = c.End
	}
	return string(append(b, s[at:]...))
}

type char struct {
	r     rune
	class uint8 // canonical combining class
}

// normalize is the full algorithm: decompose, order the marks, compose.
func (t *normalizer) normalize(s string) string {
	chars := make([]char, 0, len(s))
	for _, r := range s {
		switch {
		case r >= hangulBase && r < hangulEnd:
			x := r - hangulBase
			chars = append(chars, char{leadBase + x/perLeadings, 0}, char{vowelBase + x%perLeadings/tailCount, 0})
			if x%tailCount != 0 {
				chars = append(chars, char{tailBase + x%tailCount, 0})
			}
		case t.decompose[r] != "":
			for _, d := range t.decompose[r] {
				chars = append(chars, char{d, t.marks[d]})
			}
		default:
			chars = append(chars, char{r, t.marks[r]})
		}
	}
	for i := 0; i < len(chars); { // every run of marks in the order of its classes
		j := i
		for j < len(chars) && chars[j].class != 0 {
			j++
		}
		slices.SortStableFunc(chars[i:j], func(a, b char) int { return int(a.class) - int(b.class) })
		i = j + 1
	}
	composed := chars[:0]
	starter, last := -1, -1 // last: class of the last mark kept after the starter
	for _, c := range chars {
		if starter >= 0 && last < int(c.class) {
			if r, ok := t.composed(composed[starter].r, c.r); ok {
				composed[starter].r = r
				continue
			}
		}
		if c.class == 0 {
			starter, last = len(composed), -1
		} else {
			last = int(c.class)
		}
		composed = append(composed, c)
	}
	b := make([]byte, 0, len(s))
	for _, c := range composed {
		b = utf8.AppendRune(b, c.r)
	}
	return string(b)
}

func (t *normalizer) composed(a, b rune) (rune, bool) {
	if a >= leadBase && a < leadBase+leadCount && b >= vowelBase && b < vowelBase+vowelCount {
		return hangulBase + ((a-leadBase)*vowelCount+(b-vowelBase))*tailCount, true
	}
	if a >= hangulBase && a < hangulEnd && (a-hangulBase)%tailCount == 0 && b > tailBase && b < tailBase+tailCount {
		return a + b - tailBase, true
	}
	r, ok := t.compose[[2]rune{a, b}]
	return r, ok
}
