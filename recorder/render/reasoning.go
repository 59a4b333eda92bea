package render

import (
	"turnlog.dev/recorder/fold"
	"turnlog.dev/tokenizer/parse"
)

// kind is what an id adds to a reply.
type kind uint8

const (
	nothing kind = iota // a mark, or space that the format drops
	thinking
	output
)

// reasoning finds the ids of a completion that are thinking. A parser holds
// text back until it is sure of it, so the deltas do not say which id brought
// what. What a prefix says, however, is certain: the ids between two prefixes
// with the same thinking are none, and the search for the places where thinking
// begins and ends needs few prefixes.
func reasoning(ids []uint32, parser func() parse.Parser) []fold.Range {
	kinds := make([]kind, len(ids))
	said := func(n int) (thought, rest int) {
		p := parser()
		p.Push(ids[:n])
		reply, _ := p.Finish("length")
		rest = len(reply.Content)
		for _, c := range reply.Calls {
			rest += len(c.Name) + len(c.Arguments) + 1
		}
		return len(reply.Reasoning), rest
	}
	type point struct{ at, thought, rest int }
	var split func(a, b point)
	split = func(a, b point) {
		switch {
		case a.at == b.at:
			return
		case a.thought == b.thought && a.rest == b.rest:
			return // nothing
		case a.thought == b.thought:
			fill(kinds[a.at:b.at], output)
			return
		case a.rest == b.rest:
			fill(kinds[a.at:b.at], thinking)
			return
		case b.at == a.at+1:
			kinds[a.at] = thinking
			return
		}
		mid := point{at: (a.at + b.at) / 2}
		mid.thought, mid.rest = said(mid.at)
		split(a, mid)
		split(mid, b)
	}
	end := point{at: len(ids)}
	end.thought, end.rest = said(len(ids))
	split(point{}, end)
	return ranges(kinds)
}

func fill(kinds []kind, k kind) {
	for i := range kinds {
		kinds[i] = k
	}
}

// ranges joins the thinking with the marks around it: those before it if they
// begin the reply, and those behind it.
func ranges(kinds []kind) []fold.Range {
	var out []fold.Range
	for i := 0; i < len(kinds); {
		start := i
		if i == 0 || kinds[i] == thinking {
			for i < len(kinds) && kinds[i] == nothing {
				i++
			}
			if i < len(kinds) && kinds[i] == thinking {
				for i < len(kinds) && kinds[i] != output {
					i++
				}
				out = append(out, fold.Range{Start: start, End: i})
				continue
			}
		}
		i++
	}
	return out
}
