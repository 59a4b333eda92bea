// Package ucd holds the Unicode data that tokenizers depend on: character
// classes of Unicode 16.0 and canonical composition of Unicode 9.0.
//
// Go's own tables cannot be used. They move with the toolchain, while a model
// is trained with the tables of one regex library (Oniguruma, Unicode 16.0) and
// one normalizer (the unicode-normalization-alignments crate, Unicode 9.0).
// golang.org/x/text/unicode/norm also differs in kind: it inserts U+034F after
// 30 combining marks.
//
// tables.go is written by generate.py, which says where the data comes from.
package ucd

import "unicode/utf8"

//go:generate python3 generate.py unicode-16.0.0 unicode-9.0.0

// Class is a set of properties of a character.
type Class uint16

// The properties.
const (
	L       Class = 1 << iota // \p{L}
	N                         // \p{N}
	S                         // \s: White_Space
	P                         // \p{P} or \p{S}
	M                         // \p{M}
	U                         // \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}
	W                         // \p{Ll} \p{Lm} \p{Lo} \p{M}
	Newline                   // \r or \n
	Han                       // \p{Han}
	NFC                       // may change, or join what stands before it, under NFC
)

const pageSize = 256

// pages[r/256][r%256] is the class of r. Equal pages share memory.
var pages = buildPages()

// ASCII are the classes of the first 128 characters.
var ASCII = [utf8.RuneSelf]Class(pages[0][:utf8.RuneSelf])

func buildPages() *[(utf8.MaxRune + 1) / pageSize]*[pageSize]Class {
	var out [(utf8.MaxRune + 1) / pageSize]*[pageSize]Class
	uniform := map[Class]*[pageSize]Class{} // pages of one class: most of them
	run := 0
	seek := func(r rune) {
		for run+1 < len(classRuns) && classRuns[run+1].from <= r {
			run++
		}
	}
	for p := range out {
		first := rune(p * pageSize)
		seek(first)
		bits := classRuns[run].bits
		oneClass := run+1 == len(classRuns) || classRuns[run+1].from >= first+pageSize
		if oneClass && uniform[bits] != nil {
			out[p] = uniform[bits]
			continue
		}
		page := new([pageSize]Class)
		for i := range page {
			seek(first + rune(i))
			page[i] = classRuns[run].bits
		}
		out[p] = page
		if oneClass {
			uniform[bits] = page
		}
	}
	return &out
}

// Of returns the class of r, which must be a valid code point.
func Of(r rune) Class { return pages[uint32(r)/pageSize][uint32(r)%pageSize] }
