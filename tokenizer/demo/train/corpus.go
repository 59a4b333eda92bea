package main

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
)

// seed holds word lists, sentence patterns and sentences, written for this
// purpose.
//
//go:embed seed.txt
var seed string

// corpusSize is how much text the tokenizer is trained on, in bytes.
const corpusSize = 500_000

// writer composes text from the seed. The same seed gives the same text.
type writer struct {
	sections map[string][]string
	r        *rand.Rand
}

func newWriter() *writer {
	w := &writer{sections: map[string][]string{}, r: rand.New(rand.NewPCG(1, 2))}
	section := ""
	for line := range strings.Lines(seed) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "["); ok && strings.HasSuffix(name, "]") && !strings.Contains(name, " ") {
			section = strings.TrimSuffix(name, "]")
			continue
		}
		switch section {
		case "nouns", "verbs", "adjectives", "adverbs":
			w.sections[section] = append(w.sections[section], strings.Fields(line)...)
		default:
			w.sections[section] = append(w.sections[section], line)
		}
	}
	return w
}

// corpus is the training text: mostly English, a quarter code and JSON, and a
// tenth other scripts.
func corpus() string {
	w := newWriter()
	var b strings.Builder
	for b.Len() < corpusSize {
		switch n := w.r.IntN(20); {
		case n < 10:
			for range 2 + w.r.IntN(4) {
				b.WriteString(w.fill(w.pick("patterns")) + " ")
			}
			b.WriteString("\n\n")
		case n < 12:
			b.WriteString("```go\n" + w.fill(w.pick("go")) + "```\n")
		case n < 13:
			b.WriteString(w.fill(w.pick("python")) + "\n")
		case n < 14:
			b.WriteString(w.fill(w.pick("shell")))
		case n < 17:
			b.WriteString(w.fill(w.pick("json")) + "\n")
		default:
			b.WriteString(w.pick("scripts") + "\n")
		}
	}
	return b.String()
}

func (w *writer) pick(section string) string {
	list := w.sections[section]
	return list[w.r.IntN(len(list))]
}

// fill replaces the places in a pattern: a noun {n}, one that stays the same in
// the pattern {n2}, a verb {v}, its form with -ing {g}, an adjective {a}, an adverb {d}, a year {y}, two
// digits {m}, an integer {i}, a fraction {f}. A capital letter gives a capital.
func (w *writer) fill(pattern string) string {
	other, verb := w.pick("nouns"), w.pick("verbs")
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(pattern, "{")
		b.WriteString(before)
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		text := ""
		switch name {
		case "n":
			text = w.pick("nouns")
		case "N":
			text = capital(w.pick("nouns"))
			if w.r.IntN(2) == 0 { // CamelCase, one pre-token
				text = capital(w.pick([]string{"adjectives", "nouns"}[w.r.IntN(2)])) + text
			}
		case "n2":
			text = other
		case "N2":
			text = capital(other)
		case "v":
			text = w.pick("verbs")
		case "g":
			text = strings.TrimSuffix(w.pick("verbs"), "e") + "ing"
		case "V":
			text = capital(verb)
		case "a":
			text = w.pick("adjectives")
		case "d":
			text = w.pick("adverbs")
		case "y":
			text = fmt.Sprint(1990 + w.r.IntN(50))
		case "m":
			text = fmt.Sprintf("%02d", w.r.IntN(60))
		case "i":
			text = fmt.Sprint(w.r.IntN(1 << w.r.IntN(14)))
		case "f":
			text = fmt.Sprintf("%.2f", 100*w.r.Float64())
		default: // a brace that stands for itself
			b.WriteByte('{')
			pattern = rest
			continue
		}
		if !closed {
			panic("seed.txt: an open { in " + pattern)
		}
		b.WriteString(text)
		pattern = after
	}
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(b.String())
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
