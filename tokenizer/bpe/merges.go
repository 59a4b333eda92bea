package bpe

import (
	"math"
	"math/bits"
)

// merges maps a pair of ids to the rank of its merge and the id that it makes:
// a hash table with open addressing, read-only once built.
type merges struct {
	slots []merge
	shift uint
}

type merge struct {
	pair uint64 // left<<32 | right
	rank uint32
	id   uint32
}

// noPair marks an empty slot. No id is 2^32-1.
const noPair = math.MaxUint64

func newMerges(n int) *merges {
	log := bits.Len(uint(n + n/2 + 1)) // at most two thirds full
	m := &merges{slots: make([]merge, 1<<log), shift: uint(64 - log)}
	for i := range m.slots {
		m.slots[i].pair = noPair
	}
	return m
}

// hashFactor spreads a key over the upper bits of their product.
const hashFactor = 0x9e3779b97f4a7c15

// putAll adds merges in the order of the parts of the table, each of which fits
// into the processor's cache. Those of one pair stay in their order.
func (m *merges) putAll(list []merge) {
	const parts = 64
	part := func(pair uint64) uint64 { return pair * hashFactor / (1 << 64 / parts) }
	var ends [parts + 1]int
	for i := range list {
		ends[part(list[i].pair)+1]++
	}
	for i := range parts {
		ends[i+1] += ends[i]
	}
	ordered := make([]merge, len(list))
	for i := range list {
		at := &ends[part(list[i].pair)]
		ordered[*at] = list[i]
		*at++
	}
	for i := range ordered {
		*m.slot(ordered[i].pair) = ordered[i]
	}
}

func pairOf(left, right uint32) uint64 { return uint64(left)<<32 | uint64(right) }

// slot is where pair is, or would be.
func (m *merges) slot(pair uint64) *merge {
	i := pair * hashFactor >> m.shift
	for {
		s := &m.slots[i]
		if s.pair == pair || s.pair == noPair {
			return s
		}
		i = (i + 1) & uint64(len(m.slots)-1)
	}
}

// put adds a merge; of two for one pair the later counts, as in the Rust
// library.
func (m *merges) put(left, right, rank, id uint32) {
	*m.slot(pairOf(left, right)) = merge{pairOf(left, right), rank, id}
}

// get returns rank<<32 | id, or noPair.
func (m *merges) get(left, right uint32) uint64 {
	s := m.slot(pairOf(left, right))
	if s.pair == noPair {
		return noPair
	}
	return uint64(s.rank)<<32 | uint64(s.id)
}

// shortWord is up to where rescanning all ranks after each merge is faster
// than a heap.
const shortWord = 96

// apply merges ids in place: always the pair of the lowest rank, and of equal
// ranks the leftmost, until no pair has a rank.
func (m *merges) apply(ids []uint32, w *work) []uint32 {
	if len(ids) <= shortWord {
		return m.applyShort(ids, &w.ranks)
	}
	return m.applyLong(ids)
}

func (m *merges) applyShort(ids []uint32, ranks *[shortWord]uint64) []uint32 {
	n := len(ids)
	for i := 0; i+1 < n; i++ {
		ranks[i] = m.get(ids[i], ids[i+1])
	}
	for n > 1 {
		best, at := uint64(noPair), -1
		for i := range ranks[:n-1] {
			if ranks[i]>>32 < best>>32 {
				best, at = ranks[i], i
			}
		}
		if at < 0 {
			break
		}
		ids[at] = uint32(best)
		copy(ids[at+1:n-1], ids[at+2:n])
		copy(ranks[at+1:n-1], ranks[at+2:n])
		n--
		if at > 0 {
			ranks[at-1] = m.get(ids[at-1], ids[at])
		}
		if at < n-1 {
			ranks[at] = m.get(ids[at], ids[at+1])
		}
	}
	return ids[:n]
}

// applyLong takes n log n steps: one pre-token may be a line of 100 KB. The ids
// form a linked list; candidates for merging wait in a heap and are checked
// when they come out, since their neighbours may have merged meanwhile.
func (m *merges) applyLong(ids []uint32) []uint32 {
	n := len(ids)
	l := list{ids: ids, prev: make([]int32, n), next: make([]int32, n)}
	var h candidates
	for i := range n {
		l.prev[i], l.next[i] = int32(i-1), int32(i+1)
		if i+1 < n {
			if v := m.get(ids[i], ids[i+1]); v != noPair {
				h = append(h, candidate{v>>32<<32 | uint64(i), uint32(v), pairOf(ids[i], ids[i+1])})
			}
		}
	}
	h.init()
	for len(h) > 0 {
		c := h.pop()
		i := int32(uint32(c.order))
		j := l.next[i]
		if j < 0 || int(j) >= n || pairOf(ids[i], ids[j]) != c.pair {
			continue
		}
		ids[i] = c.id
		l.remove(j)
		for _, left := range [2]int32{l.prev[i], i} {
			if left < 0 || int(l.next[left]) >= n {
				continue
			}
			right := l.next[left]
			if v := m.get(ids[left], ids[right]); v != noPair {
				h.push(candidate{v>>32<<32 | uint64(left), uint32(v), pairOf(ids[left], ids[right])})
			}
		}
	}
	out := ids[:0]
	for i := int32(0); int(i) < n; i = l.next[i] {
		out = append(out, ids[i])
	}
	return out
}

type list struct {
	ids        []uint32
	prev, next []int32
}

const removed = -1

func (l *list) remove(j int32) {
	before, after := l.prev[j], l.next[j]
	l.next[before] = after
	if int(after) < len(l.prev) {
		l.prev[after] = before
	}
	l.next[j] = removed
}

// candidate is a merge of the ids at a position and after it.
type candidate struct {
	order uint64 // rank<<32 | position
	id    uint32
	pair  uint64
}

// candidates is a binary heap, the lowest order first.
type candidates []candidate

func (h candidates) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *candidates) push(c candidate) {
	*h = append(*h, c)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].order <= s[i].order {
			break
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *candidates) pop() candidate {
	s := *h
	top := s[0]
	s[0] = s[len(s)-1]
	*h = s[:len(s)-1]
	h.down(0)
	return top
}

func (h candidates) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].order < h[child].order {
			child++
		}
		if h[i].order <= h[child].order {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
