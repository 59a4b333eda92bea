package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer"
)

// answer is one answer while it is read.
type answer struct {
	*wire.Tally
	pieces *pieces
	ids    []uint32
	// scored are the logprobs that came, with the token that each is of; missing
	// says that some did not.
	scored  []score
	missing bool
	// stopped: a token came at which the answer was to end.
	stopped bool
}

type score struct {
	id      uint32
	logprob float32
	// likeliest are the likeliest tokens at its place, as many as were asked for.
	likeliest []engine.Candidate
}

// said is one event of a stream, or a whole answer.
type said struct {
	ids                          []uint32
	scored                       []score
	content, stop, word          string
	predicted, evaluated, cached []byte
	last, truncated              bool
}

func read(data []byte) (e said, err error) {
	if err := wire.Valid(data); err != nil {
		return e, err
	}
	for k, v := range rawjson.Members(data) {
		switch k {
		case "tokens":
			e.ids, err = wire.IDs(nil, v)
		case "completion_probabilities":
			e.scored, err = scores(v)
		case "content":
			e.content = rawjson.Text(v)
		case "tokens_predicted":
			e.predicted = v
		case "tokens_evaluated":
			e.evaluated = v
		case "timings":
			e.cached, _ = rawjson.Get(v, "cache_n")
		case "stop":
			e.last = string(v) == "true"
		case "stop_type":
			e.stop = rawjson.Text(v)
		case "stopping_word":
			e.word = rawjson.Text(v)
		case "truncated":
			e.truncated = string(v) == "true"
		case "error":
			return e, wire.EventError(v)
		}
		if err != nil {
			return e, wire.Broken("%s: %v", k, err)
		}
	}
	return e, nil
}

func scores(raw []byte) (out []score, err error) {
	for entry := range rawjson.Elements(raw) {
		var s score
		seen := false
		for k, v := range rawjson.Members(entry) {
			switch k {
			case "id":
				s.id, err = wire.ID(v)
			case "logprob":
				s.logprob, err = wire.Logprob(v)
				// The server writes the lowest float for a probability of 0.
				if err == nil && s.logprob == -math.MaxFloat32 {
					err = wire.ErrNotFinite
				}
				seen = true
			case "top_logprobs":
				s.likeliest, err = candidates(v)
			}
			if err != nil {
				return out, fmt.Errorf("entry %d: %w", len(out), err)
			}
		}
		if !seen {
			return out, fmt.Errorf("entry %d has no logprob", len(out))
		}
		out = append(out, s)
	}
	return out, nil
}

// candidates reads a list of tokens with their logprobs.
func candidates(raw []byte) (list []engine.Candidate, err error) {
	for e := range rawjson.Elements(raw) {
		id, _ := rawjson.Get(e, "id")
		logprob, _ := rawjson.Get(e, "logprob")
		var c engine.Candidate
		if c.ID, err = wire.ID(id); err != nil {
			return nil, err
		}
		if f, err := wire.Logprob(logprob); err == nil && f > -math.MaxFloat32 {
			c.Logprob = f
			list = append(list, c)
		}
	}
	return list, nil
}

// errAmbiguous: tokens were left out of a stream, and the bytes do not tell
// which.
var errAmbiguous = errors.New("llamacpp: the stream left out tokens")

// stream reads an answer token by token.
func (e *Engine) stream(ctx context.Context, req *engine.Request, a *answer) error {
	sent, err := e.body(req, true)
	if err != nil {
		return err
	}
	resp, err := e.wire.Post(ctx, "/completion", "", sent)
	if err != nil {
		return err
	}
	defer resp.Close()
	resp.Waiting(req.Idle)
	if !resp.Streamed() {
		return wire.Broken("the answer is no stream: is this llama.cpp's /completion?")
	}
	for !a.stopped {
		data, err := resp.Next()
		if errors.Is(err, io.EOF) {
			return nil // Finish says that the end is missing
		}
		if err != nil {
			return err
		}
		if string(data) == "[DONE]" {
			continue
		}
		ev, err := read(data)
		if err == nil {
			err = a.event(ev)
		}
		if err != nil || ev.last {
			return err
		}
	}
	return nil
}

// event takes one event of a stream.
func (a *answer) event(ev said) error {
	if ev.evaluated != nil {
		if err := a.CountPrompt(ev.evaluated); err != nil {
			return err
		}
	}
	n, err := wire.Int(ev.predicted)
	if err != nil {
		return wire.Broken("tokens_predicted: %v", err)
	}
	gap := n - len(a.ids) - len(ev.ids)
	switch {
	case ev.last:
		if ev.cached != nil {
			if a.Report.CachedTokens, err = wire.Int(ev.cached); err != nil {
				return wire.Broken("cache_n: %v", err)
			}
		}
		if gap > 0 && !a.counts() {
			return wire.Broken("tokens_predicted is %d but %d tokens came: does the server lack return_tokens?", n, len(a.ids))
		}
		if gap > 0 {
			return errAmbiguous // a character that the end cut
		}
	case len(ev.ids) == 0:
		return nil // the prompt's progress
	}
	if gap < 0 {
		return wire.Broken("tokens_predicted is %d but %d tokens came", n, len(a.ids)+len(ev.ids))
	}
	if ev.last {
		return a.finish(ev.stop, ev.word, ev.truncated)
	}
	var c engine.Chunk
	if gap > 0 {
		c.IDs = a.pieces.between(ev.content, gap, ev.ids[len(ev.ids)-1])
		if c.IDs == nil {
			a.Report.Discarded = append(a.Report.Discarded, ev.ids...)
			return errAmbiguous
		}
	}
	c.IDs = append(c.IDs, ev.ids...)
	if len(ev.scored) == len(c.IDs) {
		for i, s := range ev.scored {
			if s.id != c.IDs[i] {
				return wire.Broken("the logprob of token %d is of another token", len(a.ids)+i)
			}
			c.Logprobs = append(c.Logprobs, s.logprob)
			if n := a.Request().Likeliest; n > 0 {
				c.Likeliest = append(c.Likeliest, wire.Likeliest(s.likeliest, n))
			}
		}
	} else {
		a.missing = true
	}
	return a.take(c, ev.scored)
}

// counts reports whether anything came at all: a server that sends no ids has
// none to leave out.
func (a *answer) counts() bool { return len(a.ids) > 0 }

// take passes tokens on, up to one at which the answer was to end: stop tokens
// cannot be named on this wire.
func (a *answer) take(c engine.Chunk, scored []score) error {
	for i, id := range c.IDs {
		if slices.Contains(a.Request().Sampling.StopTokens, id) {
			a.Report.FinishReason, a.Report.MatchedStop = "stop", fmt.Sprint(id)
			a.stopped = true
			if c.IDs = c.IDs[:i+1]; len(c.Logprobs) > i {
				c.Logprobs = c.Logprobs[:i+1]
			}
			if len(c.Likeliest) > i {
				c.Likeliest = c.Likeliest[:i+1]
			}
			break
		}
	}
	a.ids = append(a.ids, c.IDs...)
	a.scored = append(a.scored, scored...)
	return a.EmitUnscored(c)
}

// rest asks for what follows the tokens that are certain, whole.
func (e *Engine) rest(ctx context.Context, req engine.Request, a *answer) error {
	before := a.Report
	req.Prompt = slices.Concat(req.Prompt, a.ids)
	if req.Sampling.MaxTokens > 0 {
		req.Sampling.MaxTokens -= len(a.ids)
	}
	sent, err := e.body(&req, false)
	if err != nil {
		return err
	}
	data, err := e.wire.Call(ctx, http.MethodPost, "/completion", sent)
	if err != nil {
		return err
	}
	ev, err := read(data)
	if err != nil {
		return err
	}
	whole := wire.NewTally(&req, nil)
	if err := whole.CountPrompt(ev.evaluated); err != nil {
		return err
	}
	if n, err := wire.Int(ev.predicted); err != nil || n != len(ev.ids) || n == 0 {
		return wire.Broken("tokens_predicted is %s but there are %d tokens", ev.predicted, len(ev.ids))
	}
	a.Report, a.missing = before, true
	if err := a.take(engine.Chunk{IDs: ev.ids}, ev.scored); err != nil || a.stopped {
		return err
	}
	return a.finish(ev.stop, ev.word, ev.truncated)
}

// pieces are the tokens of a vocabulary that are no whole text, by their bytes.
type pieces struct {
	tok tokenizer.Tokenizer
	by  map[string][]uint32
}

func newPieces(tok tokenizer.Tokenizer) *pieces {
	p := &pieces{tok: tok, by: map[string][]uint32{}}
	var b []byte
	for id := range uint32(tok.VocabSize()) {
		if b, _ = tok.AppendBytes(b[:0], id); !utf8.Valid(b) {
			p.by[string(b)] = append(p.by[string(b)], id)
		}
	}
	return p
}

// between finds the n tokens before the last one of a text, each of which ended
// inside a character. It is nil where the bytes do not tell.
func (p *pieces) between(text string, n int, last uint32) []uint32 {
	if p == nil {
		return nil
	}
	end, _ := p.tok.AppendBytes(nil, last)
	text, ok := strings.CutSuffix(text, string(end))
	if !ok || len(end) == 0 || strings.Contains(text, "\ufffd") {
		return nil
	}
	var found []uint32
	p.split(nil, text, n, nil, &found)
	if len(found) != n {
		return nil
	}
	return found
}

// split appends to found every way to make rest of n pieces, of which none ends
// a character: those that do are sent.
func (p *pieces) split(before []byte, rest string, n int, head []uint32, found *[]uint32) {
	if n == 0 {
		if rest == "" {
			*found = append(*found, head...)
		}
		return
	}
	for k := 1; k <= len(rest); k++ {
		read := append(before[:len(before):len(before)], rest[:k]...)
		if !inside(read) {
			continue
		}
		for _, id := range p.by[rest[:k]] {
			p.split(read, rest[k:], n-1, append(head[:len(head):len(head)], id), found)
		}
	}
}

// inside reports whether a text ends inside a character.
func inside(text []byte) bool {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			return !utf8.FullRune(text[i:])
		}
	}
	return false
}
