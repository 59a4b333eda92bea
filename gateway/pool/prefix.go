package pool

import (
	"encoding/binary"
	"hash/maphash"
)

const (
	// block is how many tokens are compared at once, as engines cache them.
	block = 256
	// maxBlocks bounds what is remembered of a replica: 16 M tokens.
	maxBlocks = 1 << 16
	// blocksPerRequest is how many cached blocks outweigh one request more in
	// flight.
	blocksPerRequest = 4
)

// prefixes remembers the beginnings of prompts that a replica has seen, as
// hashes of blocks that include everything before them. The oldest go first.
type prefixes struct {
	seed  maphash.Seed
	known map[uint64]struct{}
	order []uint64 // ring
	at    int
}

func newPrefixes(seed maphash.Seed) *prefixes {
	return &prefixes{seed: seed, known: map[uint64]struct{}{}}
}

// hashes calls f for every whole block of the prompt until it returns false.
func (p *prefixes) hashes(prompt []uint32, f func(uint64) bool) {
	var h maphash.Hash
	h.SetSeed(p.seed)
	var b [4 * block]byte
	for ; len(prompt) >= block; prompt = prompt[block:] {
		for i, id := range prompt[:block] {
			binary.LittleEndian.PutUint32(b[4*i:], id)
		}
		_, _ = h.Write(b[:])
		if !f(h.Sum64()) {
			return
		}
	}
}

// score is what the cached beginning of a prompt is worth, in requests.
func (p *prefixes) score(prompt []uint32) int {
	n := 0
	p.hashes(prompt, func(h uint64) bool {
		_, ok := p.known[h]
		if ok {
			n++
		}
		return ok
	})
	return n / blocksPerRequest
}

func (p *prefixes) add(prompt []uint32) {
	p.hashes(prompt, func(h uint64) bool {
		if _, ok := p.known[h]; ok {
			return true
		}
		if len(p.order) < maxBlocks {
			p.order = append(p.order, h)
		} else {
			delete(p.known, p.order[p.at])
			p.order[p.at] = h
			p.at = (p.at + 1) % maxBlocks
		}
		p.known[h] = struct{}{}
		return true
	})
}
