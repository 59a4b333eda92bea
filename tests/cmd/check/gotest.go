package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// goTest runs the Go tests of packages.
func goTest(ctx context.Context, out io.Writer, patterns []string) tally {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-timeout=9m"}, patterns...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(out, "FAIL  go test:", err)
		return tally{failed: 1}
	}
	t := count(out, events)
	if err := cmd.Wait(); err != nil && t.failed == 0 {
		fmt.Fprintln(out, "FAIL  go test:", err)
		t.failed++
	}
	return t
}

// testEvent is one line of "go test -json".
type testEvent struct {
	Action     string
	Package    string
	ImportPath string // of what was built
	Test       string
	Elapsed    float64
	Output     string
}

// count reads the events of "go test -json". Tests and their subtests are
// counted alike; a package that fails without a failed test counts as one. The
// output of what failed is shown, and one line for each package.
func count(out io.Writer, events io.Reader) tally {
	var total tally
	packages := map[string]*tally{}
	output := map[string]*strings.Builder{}
	of := func(key string) *strings.Builder {
		if output[key] == nil {
			output[key] = &strings.Builder{}
		}
		return output[key]
	}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e testEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // the go command itself
			continue
		}
		if e.Package == "" {
			e.Package = e.ImportPath
		}
		p := packages[e.Package]
		if p == nil {
			p = &tally{}
			packages[e.Package] = p
		}
		key := e.Package + " " + e.Test
		switch {
		case e.Action == "output" || e.Action == "build-output":
			of(key).WriteString(e.Output)
		case e.Test != "":
			switch e.Action {
			case "pass":
				p.passed++
			case "skip":
				p.skipped++
				fmt.Fprintf(out, "skip  %s %s%s", e.Package, e.Test, reason(of(key).String()))
			case "fail":
				p.failed++
				fmt.Fprintf(out, "FAIL  %s %s\n%s", e.Package, e.Test, of(key))
			default:
				continue
			}
			delete(output, key)
		case e.Action == "pass" || e.Action == "fail":
			if e.Action == "fail" && p.failed == 0 {
				p.failed = 1
				fmt.Fprintf(out, "FAIL  %s\n%s", e.Package, of(key))
			}
			if p.passed+p.failed+p.skipped > 0 {
				fmt.Fprintf(out, "%-5s %s (%.1fs): %s\n", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], e.Package, e.Elapsed, p)
			}
			total.add(*p)
		case e.Action == "build-fail":
			fmt.Fprintf(out, "FAIL  build of %s\n%s", e.Package, of(key))
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(out, "FAIL  reading the results of go test:", err)
		total.failed++
	}
	return total
}

// reason is what a skipped test says.
func reason(output string) string {
	for line := range strings.Lines(output) {
		if _, why, ok := strings.Cut(line, ".go:"); ok {
			if _, why, ok := strings.Cut(why, ": "); ok {
				return ": " + why
			}
		}
	}
	return "\n"
}
