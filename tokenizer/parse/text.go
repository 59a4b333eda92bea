package parse

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"turnlog.dev/tokenizer"
)

// Inside this package a mark that is one token is written as two bytes: mark,
// then its number. The byte 0xFF never occurs in UTF-8, so marks and text
// cannot be confused, and a search for a mark is a search for a string.
const (
	mark     = 0xff
	markByte = "\xff"
)

// vocabulary is what a format knows of a tokenizer.
type vocabulary struct {
	tok tokenizer.Tokenizer
	// marks numbers the added tokens that mean something to the format.
	marks  map[uint32]byte
	spell  []string
	stops  map[uint32]bool
	ignore map[uint32]bool // special tokens that mean nothing to the format
}

func newVocabulary(tok tokenizer.Tokenizer, marks, stops []string) *vocabulary {
	v := &vocabulary{
		tok:   tok,
		marks: map[uint32]byte{}, stops: map[uint32]bool{}, ignore: map[uint32]bool{},
	}
	added := map[string]tokenizer.AddedToken{}
	for _, t := range tok.Added() {
		added[t.Content] = t
		if t.Special {
			v.ignore[t.ID] = true
		}
	}
	for _, m := range marks {
		t, ok := added[m]
		if !ok {
			continue
		}
		if _, ok = v.marks[t.ID]; !ok {
			v.marks[t.ID] = byte(len(v.spell))
			v.spell = append(v.spell, m)
			delete(v.ignore, t.ID)
		}
	}
	for _, s := range stops {
		t, ok := added[s]
		if _, means := v.marks[t.ID]; ok && !means {
			v.stops[t.ID] = true
		}
	}
	return v
}

// mark returns what to search for to find s: its tokens that are marks in
// their two bytes, the rest in letters.
func (v *vocabulary) mark(s string) string {
	for i, m := range v.spell {
		s = strings.ReplaceAll(s, m, string([]byte{mark, byte(i)}))
	}
	return s
}

// id is the id of a mark that is one token.
func (v *vocabulary) id(spelled string) (uint32, bool) {
	for id, n := range v.marks {
		if v.spell[n] == spelled {
			return id, true
		}
	}
	return 0, false
}

// text spells the marks in s out.
func (v *vocabulary) text(s string) string {
	for i := range len(s) {
		if s[i] != mark {
			continue
		}
		b := append([]byte(nil), s[:i]...)
		for ; i < len(s); i++ {
			if s[i] == mark && i+1 < len(s) {
				i++
				b = append(b, v.spell[s[i]]...)
			} else {
				b = append(b, s[i])
			}
		}
		return string(b)
	}
	return s
}

// reader turns ids into text with marks.
type reader struct {
	*vocabulary
	flags   *flags
	partial []byte // the start of a UTF-8 character
	done    bool   // a stop token was read
	// looked is how many bytes were searched, again or for the first time.
	looked int
}

// index is where m first occurs in b. An empty m never does.
func (r *reader) index(b []byte, m string) int {
	if m == "" {
		return -1
	}
	r.looked += len(b)
	return bytes.Index(b, []byte(m))
}

// read appends what id stands for to dst.
func (r *reader) read(dst []byte, id uint32) []byte {
	if r.done {
		r.flags.set(AfterStop)
		return dst
	}
	if r.stops[id] {
		r.done = true
		return r.end(dst)
	}
	if n, ok := r.marks[id]; ok {
		return append(r.end(dst), mark, n)
	}
	if r.ignore[id] {
		r.flags.set(SpecialToken)
		return r.end(dst)
	}
	r.partial, _ = r.tok.AppendBytes(r.partial, id)
	return r.settle(dst, false)
}

// end settles a character that will not be completed.
func (r *reader) end(dst []byte) []byte { return r.settle(dst, true) }

// settle moves all whole characters from partial to dst, and U+FFFD for each
// maximal part that can never become one.
func (r *reader) settle(dst []byte, final bool) []byte {
	b := r.partial
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		if c == utf8.RuneError && n == 1 {
			if !final && !utf8.FullRune(b) {
				break
			}
			for n < len(b) && !utf8.FullRune(b[:n+1]) {
				n++
			}
			r.flags.set(InvalidUTF8)
			dst = append(dst, "\uFFFD"...)
		} else {
			dst = append(dst, b[:n]...)
		}
		b = b[n:]
	}
	r.partial = append(r.partial[:0], b...)
	return dst
}

// flags is a small ordered set.
type flags []string

func (f *flags) set(name string) {
	for _, have := range *f {
		if have == name {
			return
		}
	}
	*f = append(*f, name)
}
