// Command check runs the repository's checks and counts them. Its last line is
// always "N passed, N failed, N skipped", and it fails if anything failed.
//
//	check test        lint, vet, each module built by itself, all Go tests,
//	                  every fuzz test for 5 s
//	check fuzz 10m    every fuzz test for 10 minutes
//	check registry    what needs packages from npm or the Python index
//
// It runs in the root of the repository; the Makefile builds the tools that it
// uses into bin/.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// modules are the folders of go.work.
var modules = []string{"schema", "tokenizer", "gateway", "recorder", "exporter", "deploy", "tests"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := &checker{ctx: ctx}
	switch {
	case len(os.Args) == 2 && os.Args[1] == "test":
		c.test()
	case len(os.Args) == 2 && os.Args[1] == "registry":
		c.registry()
	case len(os.Args) == 3 && os.Args[1] == "fuzz":
		c.fuzz(os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: check test|fuzz TIME|registry")
		os.Exit(2)
	}
	fmt.Println(c.tally)
	if c.tally.failed > 0 {
		os.Exit(1)
	}
}

// tally counts what was checked.
type tally struct{ passed, failed, skipped int }

func (t tally) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
}

func (t *tally) add(o tally) {
	t.passed += o.passed
	t.failed += o.failed
	t.skipped += o.skipped
}

type checker struct {
	ctx   context.Context //nolint:containedctx // the life of the command
	tally tally
}

// test is what needs only Go.
func (c *checker) test() {
	patterns := make([]string, len(modules))
	for i, m := range modules {
		patterns[i] = "./" + m + "/..."
	}
	c.step("lint", command{args: append([]string{"bin/golangci-lint", "run", "--allow-parallel-runners"}, patterns...)})
	c.step("vet", command{args: append([]string{"go", "vet"}, patterns...)})
	c.step("lint of the event format", command{args: []string{"../bin/buf", "lint"}, dir: "schema"})
	for _, m := range modules {
		c.step("build of "+m+" by itself", command{
			args: []string{"go", "build", "-o", os.DevNull, "./..."}, dir: m,
			env: []string{"GOWORK=off", "CGO_ENABLED=0"},
		})
	}
	c.tally.add(goTest(c.ctx, os.Stdout, patterns))
	c.tally.add(fuzzing{roots: modules, time: 5 * time.Second}.run(c.ctx, os.Stdout))
}

// fuzz runs every fuzz test for some time, going on from the inputs that
// earlier runs have found.
func (c *checker) fuzz(each string) {
	limit, err := time.ParseDuration(each)
	corpus, cacheErr := fuzzCache(c.ctx)
	if err := errors.Join(err, cacheErr); err != nil {
		fmt.Println("FAIL  fuzz:", err)
		c.tally.failed++
		return
	}
	c.tally.add(fuzzing{roots: modules, time: limit, corpus: corpus}.run(c.ctx, os.Stdout))
}

// command is one program to run.
type command struct {
	args []string
	dir  string
	env  []string
}

// step runs a command that passes or fails as a whole, and shows its output if
// it fails.
func (c *checker) step(name string, run command) {
	began := time.Now()
	cmd := exec.CommandContext(c.ctx, run.args[0], run.args[1:]...)
	cmd.Dir = run.dir
	cmd.Env = append(os.Environ(), run.env...)
	output, err := cmd.CombinedOutput()
	took := time.Since(began).Round(time.Second / 10)
	if err != nil {
		c.tally.failed++
		fmt.Printf("FAIL  %s (%s)\n%s", name, took, output)
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			fmt.Println(err)
		}
		return
	}
	c.tally.passed++
	fmt.Printf("ok    %s (%s)\n", name, took)
}
