package parse

import (
	"slices"
	"strings"
)

// output collects a reply and the deltas that were not handed out yet.
type output struct {
	thought, content strings.Builder
	calls            []Call
	flags            flags
	deltas           []Delta
	from             int // where the text of the last delta begins
}

// add appends text to the reasoning or the content.
func (o *output) add(k Kind, s string) {
	if s == "" {
		return
	}
	b := &o.content
	if k == Reasoning {
		b = &o.thought
	}
	n := len(o.deltas)
	if n == 0 || o.deltas[n-1].Kind != k {
		o.deltas, n = append(o.deltas, Delta{Kind: k}), n+1
		o.from = b.Len()
	}
	b.WriteString(s)
	// A part of the builder's text: no copy.
	o.deltas[n-1].Text = b.String()[o.from:]
}

func (o *output) call(calls ...Call) {
	for _, c := range calls {
		n := len(o.calls)
		if c.ModelID != "" && slices.ContainsFunc(o.calls, func(other Call) bool { return other.ModelID == c.ModelID }) {
			o.flags.set(RepeatedID)
		}
		o.calls = append(o.calls, c)
		o.deltas = append(
			o.deltas,
			Delta{Kind: CallStart, Call: n, Name: c.Name, ModelID: c.ModelID},
			Delta{Kind: CallArguments, Call: n, Text: c.Arguments},
			Delta{Kind: CallEnd, Call: n},
		)
	}
}

// flush hands the deltas out.
func (o *output) flush() []Delta {
	out := o.deltas
	o.deltas = nil
	return out
}

func (o *output) reply() Reply {
	return Reply{Reasoning: o.thought.String(), Content: o.content.String(), Calls: o.calls, Flags: o.flags}
}
