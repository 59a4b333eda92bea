package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
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
		t, err := openTokenizer(file, "", "")
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(kind, "tokenizer:")
		results["load "+name] = micros(func() { t, err = openTokenizer(file, "", "") })
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

// micros is how much processor time f takes, the best of a few rounds. Unlike
// the time on the wall it does not depend on what else the machine does; it
// includes the garbage collector's.
func micros(f func()) float64 {
	f()
	best, runs := 0.0, 1
	for range 5 {
		start := processorTime()
		for range runs {
			f()
		}
		spent := processorTime() - start
		if us := float64(spent.Nanoseconds()) / float64(runs) / 1000; best == 0 || us < best {
			best = us
		}
		runs = max(1, int(float64(runs)*float64(200*time.Millisecond)/float64(max(spent, time.Microsecond))))
		runs = min(runs, 2_000_000)
	}
	return best
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
