package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/jinja"
)

// bench measures what bench.py measures, and prints one JSON object that maps
// names to microseconds, for bench.sh to put side by side.
func bench(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	casesFile := flags.String("cases", "", "conversations")
	corpus := flags.String("text", "", "a text file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cases, err := readJSON(*casesFile)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(*corpus)
	if err != nil {
		return err
	}
	results := map[string]float64{}
	for _, arg := range flags.Args() {
		kind, file, _ := strings.Cut(arg, "=")
		if name, ok := strings.CutPrefix(kind, "template:"); ok {
			if err := benchTemplate(results, name, file, object(object(cases, "cases"), "31_long50")); err != nil {
				return err
			}
			continue
		}
		start := time.Now()
		t, err := openTokenizer(file, "", "")
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(kind, "tokenizer:")
		results["load "+name] = float64(time.Since(start).Microseconds())
		benchTokenizer(results, name, t, string(raw))
	}
	out, err := json.Marshal(results)
	if err != nil {
		return err
	}
	fmt.Println(string(out))
	return nil
}

func benchTemplate(results map[string]float64, name, file string, c *jinja.Dict) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t, err := chat.New(string(source), chat.SpecialTokens{"bos_token": "<s>", "eos_token": "</s>"})
	if err != nil {
		return err
	}
	if _, err := render(t, c); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	results["render "+name] = micros(func() {
		if _, err := render(t, c); err != nil {
			panic(err)
		}
	})
	return nil
}

// sizes are the texts that are encoded, in bytes.
var sizes = []int{20, 100, 1000, 10_000, 100_000}

func benchTokenizer(results map[string]float64, name string, t tokenizer.Tokenizer, text string) {
	for _, size := range sizes {
		part := text[:size]
		dst := make([]uint32, 0, size)
		results[fmt.Sprintf("encode %s %d", name, size)] = micros(func() { t.Encode(dst, part) })
	}
	ids := t.Encode(nil, text[:10_000])
	results["decode "+name] = micros(func() { t.Decode(ids) })
	var out []byte
	results["stream "+name] = micros(func() {
		s := tokenizer.NewStream(t)
		out = out[:0]
		for _, id := range ids {
			out = s.Append(out, id)
		}
	})
}

// micros is how long f takes, the best of a few rounds.
func micros(f func()) float64 {
	best := 0.0
	for range 3 {
		r := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				f()
			}
		})
		if us := float64(r.T.Nanoseconds()) / float64(r.N) / 1000; best == 0 || us < best {
			best = us
		}
	}
	return best
}
