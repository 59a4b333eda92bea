package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
)

// compareTokens encodes a corpus and compares ids with those of the oracle,
// then decoded texts. On the same texts it checks what no oracle can say: that
// spans cover the text in order, that streaming gives the decoded text, and
// that stable cuts are stable.
func compareTokens(args []string) (name string, passed, failed int, err error) {
	flags := flag.NewFlagSet("tokens", flag.ExitOnError)
	flags.StringVar(&name, "name", "", "what to call it")
	file := flags.String("tokenizer", "", "tokenizer.json, tekken.json, or a tiktoken rank file")
	pattern := flags.String("pattern", "", "of a tiktoken rank file: qwen, qwen35, cl100k, o200k, kimi")
	config := flags.String("config", "", "tokenizer_config.json with the added tokens of a rank file")
	plain := flags.Bool("plain", false, "the oracle does not look for added tokens")
	corpus := flags.String("corpus", "", "texts")
	ids := flags.String("ids", "", "the oracle's ids of the texts")
	decoded := flags.String("decoded", "", "the oracle's texts of ids")
	cuts := flags.Int("cuts", 5000, "how many stable cuts to check")
	rust := flags.Bool("rust", false, "compare tokenizer/hf (needs the build tag hf)")
	if err := flags.Parse(args); err != nil {
		return name, 0, 0, err
	}
	start := time.Now()
	open := func() (tokenizer.Tokenizer, error) { return openTokenizer(*file, *pattern, *config) }
	if *rust {
		open = func() (tokenizer.Tokenizer, error) { return openRustFile(*file) }
	}
	t, err := open()
	if err != nil {
		return name, 0, 0, err
	}
	load := time.Since(start)
	c := &comparison{name: name, t: t}
	var texts []string
	for line := range lines(*corpus) {
		var doc struct{ T string }
		if err := json.Unmarshal(line, &doc); err != nil {
			return name, 0, 0, err
		}
		texts = append(texts, doc.T)
	}
	if err := c.encode(texts, *ids, *plain); err != nil {
		return name, 0, 0, err
	}
	if *decoded != "" {
		if err := c.decode(*decoded); err != nil {
			return name, 0, 0, err
		}
	}
	if !*rust { // the Rust library has its own idea of spans, and no cuts
		c.spans(texts)
	}
	if !*plain && !*rust {
		c.stableCuts(texts, *cuts)
	}
	fmt.Printf("  %s: loaded in %v, first pass %.1f MB/s\n", name, load.Round(time.Millisecond), c.rate)
	return name, c.passed, c.failed, nil
}

// openRust opens a tokenizer.json with tokenizer/hf; nil without the build tag.
var openRust func(data []byte) (tokenizer.Tokenizer, error)

func openRustFile(file string) (tokenizer.Tokenizer, error) {
	if openRust == nil {
		return nil, errors.New("built without the tag hf")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return openRust(data)
}

func openTokenizer(file, pattern, config string) (*bpe.Tokenizer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch {
	case pattern != "":
		patterns := map[string]string{
			"qwen": bpe.PatternQwen, "qwen35": bpe.PatternQwen35, "cl100k": bpe.PatternCL100K,
			"o200k": bpe.PatternO200K, "kimi": bpe.PatternKimi,
		}
		var added []tokenizer.AddedToken
		if config != "" {
			raw, err := os.ReadFile(config)
			if err != nil {
				return nil, err
			}
			if added, err = bpe.AddedFromConfig(raw); err != nil {
				return nil, err
			}
		}
		return bpe.LoadTiktoken(data, patterns[pattern], added)
	case strings.HasPrefix(filepath.Base(file), "tekken"):
		return bpe.LoadTekken(data)
	}
	return bpe.Load(data)
}

type comparison struct {
	name           string
	t              tokenizer.Tokenizer
	passed, failed int
	rate           float64
}

func (c *comparison) check(ok bool, format string, args ...any) {
	if ok {
		c.passed++
		return
	}
	if c.failed++; c.failed <= shown {
		fmt.Printf("  %s: %s\n", c.name, fmt.Sprintf(format, args...))
	}
}

func (c *comparison) encode(texts []string, idsFile string, plain bool) error {
	next, stop := iter.Pull(lines(idsFile))
	defer stop()
	encode := c.t.Encode
	if plain {
		encode = c.t.EncodePlain
	}
	var spent time.Duration
	size := 0
	for _, text := range texts {
		line, ok := next()
		if !ok {
			return fmt.Errorf("%s has fewer lines than the corpus", idsFile)
		}
		var want []uint32
		if err := json.Unmarshal(line, &want); err != nil {
			return err
		}
		start := time.Now()
		got := encode(nil, text)
		spent += time.Since(start)
		size += len(text)
		i := 0
		for i < len(want) && i < len(got) && want[i] == got[i] {
			i++
		}
		c.check(slices.Equal(want, got), "encode %.60q: token %d of %d differs", text, i, len(want))
	}
	c.rate = float64(size) / 1e6 / spent.Seconds()
	return nil
}

func (c *comparison) decode(file string) error {
	for line := range lines(file) {
		var pair [2]json.RawMessage
		var ids []uint32
		var want string
		if err := json.Unmarshal(line, &pair); err != nil {
			return err
		}
		if err := json.Unmarshal(pair[0], &ids); err != nil {
			return err
		}
		if err := json.Unmarshal(pair[1], &want); err != nil {
			return err
		}
		got := c.t.Decode(ids)
		c.check(got == want, "decode %v: want %q, got %q", ids, want, got)
	}
	return nil
}

// spans checks that the ids of EncodeSpans are those of Encode, and that the
// ranges go over the whole text from start to end.
func (c *comparison) spans(texts []string) {
	for _, text := range texts {
		ids := c.t.Encode(nil, text)
		spans := c.t.EncodeSpans(text)
		end, ok := 0, len(ids) == len(spans)
		for i, s := range spans {
			ok = ok && s.ID == ids[i] && s.Start <= end && s.End >= end && s.Start <= s.End &&
				(s.Start == len(text) || utf8.RuneStart(text[s.Start])) && (s.End == len(text) || utf8.RuneStart(text[s.End]))
			end = max(end, s.End)
		}
		c.check(ok && end == len(text), "spans of %.60q do not cover it", text)
	}
}

// stableCuts checks what StableCut promises, with the real continuation of a
// text and with foreign ones.
func (c *comparison) stableCuts(texts []string, n int) {
	r := rand.New(rand.NewPCG(3, 5))
	tail, total := 0, 0
	for k := range n {
		text := texts[r.IntN(len(texts))]
		if len(text) > 2000 {
			text = clip(text[:2000])
		}
		at := runeBoundary(text, r.IntN(len(text)+1))
		a, b := text[:at], text[at:]
		if k%3 == 0 {
			other := texts[r.IntN(len(texts))]
			b = other[runeBoundary(other, r.IntN(len(other)+1)):]
			if len(b) > 200 {
				b = clip(b[:200])
			}
		}
		cut := c.t.StableCut(a)
		var got []uint32
		for _, s := range c.t.EncodeSpans(a) {
			if s.End <= cut {
				got = append(got, s.ID)
			}
		}
		got = c.t.Encode(got, a[cut:]+b)
		c.check(slices.Equal(got, c.t.Encode(nil, a+b)), "stable cut %d of %q is not stable before %.20q", cut, a[max(0, len(a)-40):], b)
		tail += len(a) - cut
		total++
	}
	fmt.Printf("  %s: a stable cut leaves %.1f bytes to encode again\n", c.name, float64(tail)/float64(max(total, 1)))
}

func runeBoundary(s string, i int) int {
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return i
}

// clip drops an incomplete character at the end.
func clip(s string) string { return strings.ToValidUTF8(s, "") }

func lines(file string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		f, err := os.Open(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "parity:", err)
			return
		}
		defer f.Close()
		s := bufio.NewScanner(f)
		s.Buffer(make([]byte, 1<<20), 1<<28)
		for s.Scan() {
			if !yield(s.Bytes()) {
				return
			}
		}
	}
}
