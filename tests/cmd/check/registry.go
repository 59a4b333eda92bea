package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// registry is where packages come from. It is asked through its own client, so
// that mirrors and proxies count as it.
type registry struct {
	name  string
	probe []string
}

var (
	npm     = registry{"npm", []string{"npm", "view", "openai", "version"}}
	goProxy = registry{"the Go module proxy", []string{"go", "list", "-m", "-versions", "github.com/minio/minio-go/v7"}}
	python  = registry{"the Python index", []string{"python3", "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps", "six"}}
)

// probeLimit is how long a registry may take to answer.
const probeLimit = 30 * time.Second

// suites are the scripts that need a registry. Each ends with a line like that
// of check itself.
var suites = []struct {
	name   string
	script string
	needs  registry
	limit  time.Duration
}{
	{"real clients", "tests/clients/run.sh", npm, 8 * time.Minute},
	{"readers of shards", "tests/readers/run.sh", python, 5 * time.Minute},
	{"sinks on S3 servers", "tests/sinks/run.sh", goProxy, 8 * time.Minute},
	{"parity with the reference tokenizers and templates", "tests/parity/run.sh", python, 9 * time.Minute},
	{"wires of engines against their own packages", "gateway/engine/wires/check.sh", python, 5 * time.Minute},
	{"prompts and replies of real models", "tests/parsers/run.sh", python, 5 * time.Minute},
}

// registry runs the suites whose registry answers. There a skip is a failure:
// nothing excuses it.
func (c *checker) registry() {
	answers := map[string]bool{}
	for _, r := range []registry{npm, python, goProxy} {
		ctx, cancel := context.WithTimeout(c.ctx, probeLimit)
		err := exec.CommandContext(ctx, r.probe[0], r.probe[1:]...).Run()
		cancel()
		answers[r.name] = err == nil
		if err == nil {
			fmt.Printf("%s answers\n", r.name)
		} else {
			fmt.Printf("%s does not answer (%v)\n", r.name, err)
		}
	}
	for _, s := range suites {
		if !answers[s.needs.name] {
			fmt.Printf("skip  %s: %s does not answer\n", s.name, s.needs.name)
			c.tally.skipped++
			continue
		}
		began := time.Now()
		t := c.suite(s.script, s.limit)
		if t.skipped > 0 {
			fmt.Printf("FAIL  %s: %d skipped though %s answers\n", s.name, t.skipped, s.needs.name)
			t.failed += t.skipped
			t.skipped = 0
		}
		fmt.Printf("%-5s %s (%s): %s\n", verdict(t), s.name, time.Since(began).Round(time.Second), t)
		c.tally.add(t)
	}
}

func verdict(t tally) string {
	if t.failed > 0 {
		return "FAIL"
	}
	return "ok"
}

// suite runs a script, shows what it says, and returns what it counted.
func (c *checker) suite(script string, limit time.Duration) tally {
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, script)
	var output bytes.Buffer
	cmd.Stdout = io.MultiWriter(os.Stdout, &output)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	t, ok := lastCount(output.Bytes())
	switch {
	case ctx.Err() != nil:
		fmt.Printf("FAIL  %s: not done after %s\n", script, limit)
		t.failed++
	case !ok:
		fmt.Printf("FAIL  %s: no count in its output (%v)\n", script, err)
		t.failed++
	case err != nil && t.failed == 0:
		fmt.Printf("FAIL  %s: %v\n", script, err)
		t.failed++
	}
	return t
}

var countLine = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed, (\d+) skipped$`)

// lastCount is the last line of the form that check writes itself.
func lastCount(output []byte) (t tally, ok bool) {
	all := countLine.FindAllSubmatch(output, -1)
	if len(all) == 0 {
		return tally{}, false
	}
	m := all[len(all)-1]
	for i, n := range []*int{&t.passed, &t.failed, &t.skipped} {
		*n, _ = strconv.Atoi(string(m[i+1])) // digits
	}
	return t, true
}
