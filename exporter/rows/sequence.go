package rows

import (
	"fmt"
	"math"
	"slices"
)

// sequence is the ids along a branch so far.
type sequence struct {
	ids      []int32
	mask     []int8
	logprobs []float32
	versions []int32
	spans    []span
	// bare is the index of the first sampled id without a logprob.
	bare int
	// hole is the first index before which ids were left out that nothing
	// trains.
	hole int
}

func newSequence() sequence { return sequence{bare: math.MaxInt, hole: math.MaxInt} }

// span is what one turn sampled, half open.
type span struct {
	turn       *turn
	start, end int
}

// grow makes room for n tokens in all.
func (q *sequence) grow(n int) {
	q.ids, q.mask = slices.Grow(q.ids, n), slices.Grow(q.mask, n)
	q.logprobs, q.versions = slices.Grow(q.logprobs, n), slices.Grow(q.versions, n)
}

// add appends the new ids of a turn.
func (q *sequence) add(t *turn, train bool) error {
	base := len(q.ids)
	q.ids = t.AppendInt32IDs(q.ids)
	for _, id := range q.ids[base:] {
		if id < 0 {
			return fmt.Errorf("%w: turn %s: id %d is above int32", ErrMalformed, t.Turn, uint32(id))
		}
	}
	q.mask = t.AppendMask(q.mask)
	if !train {
		clear(q.mask[base:])
	}
	q.logprobs = t.AppendLogprobs(q.logprobs)
	q.versions = t.AppendVersions(q.versions)
	if t.Start < t.End {
		q.spans = append(q.spans, span{t, base + t.Start, base + t.End})
	}
	if !t.HasLogprobs() {
		q.bare = min(q.bare, base+t.Start)
	}
	return nil
}

// truncate keeps the first n ids. A turn that loses sampled ids ends there if
// none of them was to be trained; else it is context from then on, since the
// segment before holds it whole.
func (q *sequence) truncate(n int) {
	lost := q.trains(n)
	q.ids, q.mask = q.ids[:n], q.mask[:n]
	q.logprobs, q.versions = q.logprobs[:n], q.versions[:n]
	kept := q.spans[:0]
	for _, s := range q.spans {
		switch {
		case s.start >= n:
			continue
		case s.end > n && lost:
			clear(q.mask[s.start:])
			continue
		}
		s.end = min(s.end, n)
		kept = append(kept, s)
	}
	q.spans = kept
	if q.bare >= n {
		q.bare = math.MaxInt
	}
	if q.hole > n {
		q.hole = math.MaxInt
	}
	if !lost {
		q.hole = min(q.hole, n)
	}
}

// trains reports whether one of the ids from n on is to be trained.
func (q *sequence) trains(n int) bool { return slices.Contains(q.mask[n:], 1) }

// trim returns the sequence up to the end of the last turn that is trained;
// nothing when none is.
func (q *sequence) trim() sequence {
	for i := len(q.spans) - 1; i >= 0; i-- {
		if s := q.spans[i]; slices.Contains(q.mask[s.start:s.end], 1) {
			return q.upTo(s.end, i+1)
		}
	}
	return q.upTo(0, 0)
}

// clone shares nothing that the sequence may change.
func (q *sequence) clone() *sequence {
	c := *q
	c.ids, c.mask = slices.Clone(q.ids), slices.Clone(q.mask)
	c.logprobs, c.versions = slices.Clone(q.logprobs), slices.Clone(q.versions)
	c.spans = slices.Clone(q.spans)
	return &c
}

// upTo shares what the sequence holds with the result.
func (q *sequence) upTo(ids, spans int) sequence {
	return sequence{
		ids: q.ids[:ids], mask: q.mask[:ids], logprobs: q.logprobs[:ids], versions: q.versions[:ids],
		spans: q.spans[:spans], bare: q.bare, hole: q.hole,
	}
}

// hasLogprobs reports whether every sampled token has one.
func (q *sequence) hasLogprobs() bool { return q.bare >= len(q.ids) }

// stable reports whether nothing was left out, in between or of the last turn.
func (q *sequence) stable() bool { return q.hole > len(q.ids) }

// hasVersions reports whether any token's weight version is known.
func (q *sequence) hasVersions() bool {
	return slices.ContainsFunc(q.versions, func(v int32) bool { return v >= 0 })
}

// trainedVersions returns the oldest and the newest weight version of the tokens
// that are trained, as far as they are known.
func (q *sequence) trainedVersions() (least, most int64, known bool) {
	for i, v := range q.versions {
		if v < 0 || q.mask[i] == 0 {
			continue
		}
		if version := int64(v); !known {
			least, most, known = version, version, true
		} else {
			least, most = min(least, version), max(most, version)
		}
	}
	return least, most, known
}
