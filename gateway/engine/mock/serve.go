package mock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// maxBody bounds a request in bytes.
const maxBody = 256 << 20

// call is a request in the words that all wires share.
type call struct {
	path    string
	id      string
	model   string // as it was asked for
	lora    string // sglang: the adapter
	prompt  []uint32
	max     int // 0 is up to the context's end
	seed    *int64
	stop    []string
	stopIDs []uint32
	stream  bool
	// what the client wants to see
	scores, echo, showIDs, usage, spans, meta bool
	routed                                    int  // start position, -1 for none
	step                                      int  // tokens per chunk that the client asked for
	rescore                                   bool // llama.cpp: only the logprob of what comes next
	topK                                      int
	likeliest                                 int     // of the likeliest tokens, for each place
	temperature                               float32 // 0 is unset
	// tag and grammar are constraints: a structural tag, or a grammar's text.
	tag, grammar string
}

// format is how one wire spells answers. All methods append to dst.
type format interface {
	// parse reads a request; the error is for the client, status 400.
	parse(body []byte) (call, error)
	// chunk writes the event of tokens from up to to; to == len(a.ids) is the
	// last one and finishes the answer.
	chunk(dst []byte, a *answer, from, to int) []byte
	// whole writes the answer that is not streamed.
	whole(dst []byte, a *answer) []byte
	// fail writes an error object.
	fail(dst []byte, status int, message string) []byte
}

// generate serves one request on a wire.
func (s *Server) generate(f format) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fail := func(status int, message string) { writeJSON(w, status, f.fail(nil, status, message)) }
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			fail(http.StatusBadRequest, err.Error())
			return
		}
		if err := rawjson.Valid(body); err != nil {
			fail(http.StatusBadRequest, err.Error())
			return
		}
		c, err := f.parse(body)
		if err != nil {
			fail(http.StatusBadRequest, err.Error())
			return
		}
		c.path = r.URL.Path
		if err := s.admit(&c); err != nil {
			fail(http.StatusBadRequest, err.Error())
			return
		}
		if running := s.running.Add(1); s.cfg.Concurrency > 0 && running > int64(s.cfg.Concurrency) {
			s.running.Add(-1)
			w.Header().Set("Retry-After", "1")
			fail(http.StatusServiceUnavailable, "the queue is full")
			return
		}
		defer s.running.Add(-1)
		s.answer(w, r, f, c)
	}
}

// check reports a request of an adapter's start-up check. It is no turn: it
// asks no script and leaves no line in the journal.
func (c *call) check() bool { return c.rescore || strings.HasPrefix(c.id, wire.CheckID) }

// admit checks what every engine checks.
func (s *Server) admit(c *call) error {
	if c.model != "" && c.model != s.cfg.Model && !slices.Contains(s.cfg.Adapters, c.model) {
		return fmt.Errorf("the model %q does not exist", c.model)
	}
	if c.lora != "" {
		if !slices.Contains(s.cfg.Adapters, c.lora) {
			return fmt.Errorf("the adapter %q is not loaded", c.lora)
		}
		c.model = c.lora
	}
	if len(c.prompt) == 0 {
		return errors.New("the prompt is empty")
	}
	for _, id := range c.prompt {
		if int(id) >= s.tok.VocabSize() {
			return fmt.Errorf("token id %d is out of the vocabulary of %d", id, s.tok.VocabSize())
		}
	}
	if need := len(c.prompt) + c.max; need >= s.cfg.ContextLength {
		return fmt.Errorf("this model's maximum context length is %d tokens, but %d were requested (%d of the prompt and %d of the completion)",
			s.cfg.ContextLength, need, len(c.prompt), c.max)
	}
	return nil
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, f format, c call) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	s.mu.Lock()
	s.flights[c.id] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.flights, c.id)
		s.mu.Unlock()
	}()

	seed := seedOf(s.cfg.Seed, c.seed, c.prompt)
	reply := Say("a king")
	if !c.check() {
		text := s.tok.Decode(c.prompt)
		n := int(s.requests.Add(1)) - 1
		reply = s.cfg.Script(Request{N: n, Wire: c.path, ID: c.id, Model: cmp.Or(c.model, s.cfg.Model), Prompt: c.prompt, Text: text, Messages: messages(text), Seed: seed})
	}
	setDefault(&reply.Delay, s.cfg.Delay)
	setDefault(&reply.Pace, s.cfg.Pace)
	if pause(ctx, reply.Delay) != nil {
		return
	}
	if reply.Fault.Kind == Status {
		if reply.Fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.FormatFloat(reply.Fault.RetryAfter.Seconds(), 'f', -1, 64))
		}
		setDefault(&reply.Fault.Message, http.StatusText(reply.Fault.Status))
		writeJSON(w, reply.Fault.Status, f.fail(nil, reply.Fault.Status, reply.Fault.Message))
		return
	}
	if ids := s.constrained(&c); ids != nil {
		reply.IDs = ids
	}
	a := s.sample(c, reply, seed)
	a.cached = s.cache(a.shown, a.ids)
	if c.stream {
		s.stream(ctx, w, f, a, reply.Pace)
	} else {
		s.whole(ctx, w, f, a)
	}
}

// stream sends the answer chunk by chunk.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, f format, a *answer, pace time.Duration) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush := http.NewResponseController(w).Flush
	var b []byte
	for from := 0; from < len(a.ids); {
		to := min(from+max(s.cfg.ChunkTokens, a.step), len(a.ids))
		if a.breaks() && from < a.fault.After {
			to = min(to, a.fault.After)
		}
		if a.breaks() && from >= min(a.fault.After, len(a.ids)-1) {
			s.record(a, from, "")
			s.misbehave(ctx, w, f, a, from)
			return
		}
		if from > 0 && pause(ctx, pace) != nil {
			s.record(a, from, "abort")
			if errors.Is(context.Cause(ctx), errAborted) {
				a.ids, a.versions, a.finish, a.byToken = a.ids[:from], a.versions[:from], "abort", false
				_, _ = w.Write(append(f.chunk(nil, a, from, from), doneEvent...))
			}
			return
		}
		// In the journal before the client can act on it.
		if to == len(a.ids) {
			s.record(a, to, a.finish)
		}
		b = f.chunk(b[:0], a, from, to)
		if to == len(a.ids) {
			b = append(b, doneEvent...)
		}
		if _, err := w.Write(b); err != nil || flush() != nil {
			if to < len(a.ids) {
				s.record(a, to, "abort")
			}
			return
		}
		from = to
	}
	if len(a.ids) == 0 {
		s.record(a, 0, a.finish)
		_, _ = w.Write(append(f.chunk(nil, a, 0, 0), doneEvent...))
	}
}

const doneEvent = "data: [DONE]\n\n"

// breaks reports whether the fault happens in the middle of the answer.
func (a *answer) breaks() bool {
	switch a.fault.Kind {
	case Cut, Hang, ErrorEvent, NoEnd, Garbage:
		return true
	}
	return false
}

// misbehave carries out a fault that breaks the answer.
func (s *Server) misbehave(ctx context.Context, w http.ResponseWriter, f format, a *answer, sent int) {
	_ = http.NewResponseController(w).Flush()
	switch a.fault.Kind {
	case Cut:
		panic(http.ErrAbortHandler) // the server closes the connection as it is
	case Hang:
		<-ctx.Done()
	case ErrorEvent:
		message := a.fault.Message
		setDefault(&message, "the worker died")
		b := append([]byte("data: "), f.fail(nil, http.StatusInternalServerError, message)...)
		_, _ = w.Write(append(append(b, "\n\n"...), doneEvent...))
	case NoEnd:
		_, _ = w.Write([]byte(doneEvent))
	case Garbage:
		_, _ = w.Write([]byte("data: {\"text\": \n\n"))
	}
}

func (s *Server) whole(ctx context.Context, w http.ResponseWriter, f format, a *answer) {
	b := f.whole(nil, a)
	switch {
	case a.fault.Kind == ErrorEvent:
		s.record(a, 0, "")
		writeJSON(w, http.StatusInternalServerError, f.fail(nil, http.StatusInternalServerError, "the worker died"))
	case a.fault.Kind == Garbage:
		s.record(a, 0, "")
		writeJSON(w, http.StatusOK, []byte("<html>"))
	case a.breaks():
		s.record(a, 0, "")
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b[:len(b)/2])
		if a.fault.Kind != Hang {
			a.fault.Kind = Cut
		}
		s.misbehave(ctx, w, f, a, 0)
	default:
		s.record(a, len(a.ids), a.finish)
		writeJSON(w, http.StatusOK, b)
	}
}

// record notes the first n tokens as sampled.
func (s *Server) record(a *answer, n int, finish string) {
	if a.check() {
		return
	}
	err := s.journal.append(Sampled{
		Request: a.id, Wire: a.path, Prompt: a.shown,
		Completion: a.ids[:n], Logprobs: a.logprobs[:n], Versions: a.versions[:n], Finish: finish,
	})
	if err != nil {
		s.log.Error("the mock's journal cannot be written", "error", err)
	}
}

// cacheSize is how many sequences the prefix cache holds.
const cacheSize = 32

// cache returns how much of the prompt was computed before, and keeps this
// sequence.
func (s *Server) cache(prompt, ids []uint32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := 0
	for _, seq := range slices.Backward(s.recent) {
		n := 0
		for n < len(seq) && n < len(prompt)-1 && seq[n] == prompt[n] {
			n++
		}
		if best = max(best, n); n == len(seq) {
			break // what this prompt continues
		}
	}
	if len(s.recent) == cacheSize {
		s.recent = append(s.recent[:0], s.recent[1:]...)
	}
	s.recent = append(s.recent, append(append(make([]uint32, 0, len(prompt)+len(ids)), prompt...), ids...))
	return best
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
