package mock

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
)

// answer is one generation: what was asked and what is sent back.
type answer struct {
	call
	// shown is the prompt as the answer was computed from it.
	shown    []uint32
	ids      []uint32
	logprobs []float32
	versions []string
	// finish is stop, length or abort; matched is the stop string or the stop
	// token's id.
	finish    string
	matched   string
	matchedID uint32
	byToken   bool
	cached    int
	fault     Fault
	text      string // without the stop token
}

// seedOf mixes the server's seed, the request's own and the prompt.
func seedOf(server uint64, own *int64, prompt []uint32) uint64 {
	h := fnv.New64a()
	var b [8]byte
	put := func(n uint64) {
		for i := range b {
			b[i] = byte(n >> (8 * i))
		}
		_, _ = h.Write(b[:])
	}
	put(server)
	if own != nil {
		put(uint64(*own))
	}
	_, _ = h.Write(event.AppendIDs(nil, prompt))
	return h.Sum64()
}

// sample turns a reply into tokens.
func (s *Server) sample(c call, r Reply, seed uint64) *answer {
	rng := rand.New(rand.NewPCG(seed, 1))
	a := &answer{call: c, shown: c.prompt, fault: r.Fault}
	ids := r.IDs
	if ids == nil {
		ids = s.split(s.tok.Encode(nil, r.Text), rng)
	} else {
		ids = append([]uint32(nil), ids...)
	}
	if !r.NoStop && (len(ids) == 0 || ids[len(ids)-1] != s.stop) {
		ids = append(ids, s.stop)
	}
	a.ids = ids
	a.end(s.stop, s.tok)
	switch a.fault.Kind {
	case Abort:
		a.ids, a.finish, a.byToken = a.ids[:min(a.fault.After, len(a.ids))], "abort", false
	case Extra:
		a.ids = append(a.ids, a.ids[0], a.ids[0], a.ids[0])
	}
	version := *s.version.Load()
	for i := range a.ids {
		a.logprobs = append(a.logprobs, s.scale(&c, logprob(rng)))
		if v := r.Version; v != "" && i >= r.VersionAt {
			version = v
		}
		a.versions = append(a.versions, version)
	}
	if a.fault.Kind == IgnoreIDs {
		a.shown = s.tok.Encode(nil, "user: "+s.tok.Decode(c.prompt))
	}
	return a
}

// end cuts the answer at a stop token, a stop string or the budget.
func (a *answer) end(stop uint32, tok tokenizer.Tokenizer) {
	var text []byte
	for i, id := range a.ids {
		if a.max > 0 && i == a.max {
			a.ids = a.ids[:i]
			break
		}
		if id == stop || slices.Contains(a.stopIDs, id) {
			a.ids, a.byToken, a.matchedID = a.ids[:i+1], true, id
			a.finish, a.text = "stop", string(text)
			return
		}
		text, _ = tok.AppendBytes(text, id)
		if match, at := firstStop(string(text), a.stop); at >= 0 {
			a.ids, a.matched = a.ids[:i+1], match
			a.finish, a.text = "stop", string(text[:at])
			return
		}
	}
	a.finish, a.text = "length", string(text)
}

func firstStop(text string, stops []string) (string, int) {
	best, at := "", -1
	for _, stop := range stops {
		if i := strings.Index(text, stop); stop != "" && i >= 0 && (at < 0 || i < at) {
			best, at = stop, i
		}
	}
	return best, at
}

// logprob draws a plausible one: mostly near 0, now and then far below.
func logprob(rng *rand.Rand) float32 {
	u := rng.Float64()
	return float32(math.Log(1 - u*u*u*0.999))
}

// scale is the logprob as the wire's sampling makes it.
func (s *Server) scale(c *call, f float32) float32 {
	switch {
	case s.cfg.Logprobs == Processed && c.topK == 1:
		return 0
	case s.cfg.Logprobs != Raw && c.temperature > 0 && c.temperature != 1:
		return f / c.temperature
	}
	return f
}

// Likeliest are the n likeliest tokens where one was sampled with a logprob: that
// one first, or behind another where it had less than half of the chance.
func (s *Server) Likeliest(id uint32, logprob float32, n int) []engine.Candidate {
	other := func(k int) uint32 { return (id + 1 + uint32(k)) % uint32(s.tok.VocabSize()) }
	list := []engine.Candidate{{ID: id, Logprob: logprob}}
	if logprob < -math.Ln2 {
		list = []engine.Candidate{{ID: other(0), Logprob: logprob / 2}, list[0]}
	}
	for k := len(list); k <= n; k++ {
		list = append(list, engine.Candidate{ID: other(k), Logprob: logprob - float32(k)})
	}
	return list[:n]
}

// listed are the likeliest tokens at place i as an engine lists them that always
// lists the sampled one, first.
func (s *Server) listed(a *answer, i int) []engine.Candidate {
	list := []engine.Candidate{{ID: a.ids[i], Logprob: a.logprobs[i]}}
	for _, c := range s.Likeliest(a.ids[i], a.logprobs[i], a.likeliest) {
		if c.ID != a.ids[i] {
			list = append(list, c)
		}
	}
	return list
}

// split replaces some tokens by two that spell the same.
func (s *Server) split(ids []uint32, rng *rand.Rand) []uint32 {
	if s.cfg.NonCanonical <= 0 {
		return ids
	}
	out := make([]uint32, 0, len(ids)+8)
	for _, id := range ids {
		if rng.Float64() < s.cfg.NonCanonical {
			if a, b, ok := s.halves(id, rng); ok {
				out = append(out, a, b)
				continue
			}
		}
		out = append(out, id)
	}
	return out
}

// halves finds two tokens whose spellings join to that of id.
func (s *Server) halves(id uint32, rng *rand.Rand) (a, b uint32, ok bool) {
	spelled, ok := s.tok.Token(id)
	runes := []rune(spelled)
	if !ok || len(runes) < 2 {
		return 0, 0, false
	}
	for _, t := range s.tok.Added() {
		if t.ID == id {
			return 0, 0, false
		}
	}
	start := rng.IntN(len(runes) - 1)
	for i := range len(runes) - 1 {
		cut := 1 + (start+i)%(len(runes)-1)
		a, okA := s.tok.TokenID(string(runes[:cut]))
		b, okB := s.tok.TokenID(string(runes[cut:]))
		if okA && okB {
			return a, b, true
		}
	}
	return 0, 0, false
}

// appendIDs writes tokens from up to to as the wire's ids.
func (a *answer) appendIDs(dst []byte, from, to int) []byte {
	if a.fault.Kind != FloatIDs {
		return wire.AppendIDs(dst, a.ids[from:to])
	}
	dst = append(dst, '[')
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = a.appendID(dst, i)
	}
	return append(dst, ']')
}

func (a *answer) appendID(dst []byte, i int) []byte {
	dst = strconv.AppendUint(dst, uint64(a.ids[i]), 10)
	if a.fault.Kind == FloatIDs {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendLogprob writes the logprob of token i, or what the fault makes of it.
func (a *answer) appendLogprob(dst []byte, i int) []byte {
	if i == a.fault.After {
		switch a.fault.Kind {
		case NaN:
			return append(dst, "NaN"...)
		case Minus:
			return append(dst, "-Infinity"...)
		case Null:
			return append(dst, "null"...)
		case StringLogprob:
			return append(dst, `"-0.5"`...)
		}
	}
	return wire.AppendLogprob(dst, a.logprobs[i])
}

// scored lists the tokens from up to to that have a logprob.
func (a *answer) scored(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		if a.fault.Kind == NoLogprobs || a.fault.Kind == MissingLogprob && i == a.fault.After {
			continue
		}
		out = append(out, i)
	}
	return out
}

// count is the number of completion tokens that the server claims for n.
func (a *answer) count(n int) int {
	if a.fault.Kind == WrongCount {
		n++
	}
	return n
}

// promptCount is the number of prompt tokens that the server claims.
func (a *answer) promptCount() int {
	n := len(a.shown)
	if a.fault.Kind == WrongPromptCount {
		n++
	}
	return n
}

// run is a span of tokens with one weight version.
type run struct {
	label      string
	start, end int
}

func (a *answer) runs() []run {
	var out []run
	for i, v := range a.versions {
		if len(out) > 0 && out[len(out)-1].label == v {
			out[len(out)-1].end = i + 1
			continue
		}
		out = append(out, run{v, i, i + 1})
	}
	return out
}

// appendRuns writes the spans as sglang and vLLM do.
func (a *answer) appendRuns(dst []byte) []byte {
	dst = append(dst, '[')
	for i, r := range a.runs() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(append(dst, `{"version":`...), r.label)
		dst = strconv.AppendInt(append(dst, `,"start":`...), int64(r.start), 10)
		dst = append(strconv.AppendInt(append(dst, `,"end":`...), int64(r.end), 10), '}')
	}
	return append(dst, ']')
}
