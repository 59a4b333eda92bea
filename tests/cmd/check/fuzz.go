package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// fuzzing runs every fuzz test below some folders.
type fuzzing struct {
	roots []string      // folders to look in
	time  time.Duration // for each target
	// corpus is where inputs that reach new code are kept between runs, a folder
	// for each package. Empty: nowhere, so that a run costs and finds the same on
	// every machine.
	corpus string
}

// fuzzPackage is a folder with fuzz tests.
type fuzzPackage struct {
	dir     string
	targets []string
}

var fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// packages finds the fuzz tests in the sources: asking a test binary would
// mean to build all of them.
func (z fuzzing) packages() ([]fuzzPackage, error) {
	found := map[string][]string{}
	for _, root := range z.roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range fuzzFunction.FindAllSubmatch(source, -1) {
				found[filepath.Dir(path)] = append(found[filepath.Dir(path)], string(m[1]))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var all []fuzzPackage
	for dir, targets := range found {
		slices.Sort(targets)
		all = append(all, fuzzPackage{dir, targets})
	}
	slices.SortFunc(all, func(a, b fuzzPackage) int { return strings.Compare(a.dir, b.dir) })
	return all, nil
}

// run builds each package once and runs its targets, one on each processor.
func (z fuzzing) run(ctx context.Context, out io.Writer) tally {
	packages, err := z.packages()
	binaries, tmpErr := os.MkdirTemp("", "fuzz")
	if err := errors.Join(err, tmpErr); err != nil {
		fmt.Fprintln(out, "FAIL  fuzz tests:", err)
		return tally{failed: 1}
	}
	defer os.RemoveAll(binaries)

	var (
		places  = make(chan struct{}, runtime.GOMAXPROCS(0))
		running sync.WaitGroup
		mu      sync.Mutex
		total   tally
	)
	report := func(passed bool, text string) {
		mu.Lock()
		defer mu.Unlock()
		if passed {
			total.passed++
		} else {
			total.failed++
		}
		fmt.Fprintln(out, text)
	}
	for i, p := range packages {
		binary := filepath.Join(binaries, fmt.Sprint(i))
		build := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz=.", "-o", binary, ".")
		build.Dir = p.dir
		if output, err := build.CombinedOutput(); err != nil {
			report(false, fmt.Sprintf("FAIL  build of the fuzz tests in %s: %v\n%s", p.dir, err, output))
			continue
		}
		corpus := filepath.Join(binaries, "corpus", p.dir)
		if z.corpus != "" {
			corpus = filepath.Join(z.corpus, p.dir)
		}
		for _, target := range p.targets {
			places <- struct{}{}
			running.Go(func() {
				defer func() { <-places }()
				report(z.target(ctx, p.dir, target, binary, corpus))
			})
		}
	}
	running.Wait()
	return total
}

// target runs one fuzz test and says how it went.
func (z fuzzing) target(ctx context.Context, dir, target, binary, corpus string) (passed bool, text string) {
	began := time.Now()
	// Go's own clock stops the run; this one is for a test that it cannot stop.
	ctx, cancel := context.WithTimeout(ctx, z.time+2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.fuzz=^"+target+"$", "-test.parallel=1",
		"-test.fuzztime="+z.time.String(), "-test.fuzzminimizetime=10s", "-test.fuzzcachedir="+corpus)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.WaitDelay = 10 * time.Second
	output, err := cmd.CombinedOutput()
	name := fmt.Sprintf("fuzz %s %s (%.1fs", dir, target, time.Since(began).Seconds())
	if runs := fuzzRuns.FindAllSubmatch(output, -1); len(runs) > 0 {
		name += fmt.Sprintf(", %s runs)", runs[len(runs)-1][1])
	} else { // a machine too busy to get through them
		name += ", no more than its seeds)"
	}
	if err == nil || ranOut(output) {
		return true, "ok    " + name
	}
	return false, fmt.Sprintf("FAIL  %s: %v\n%s%s", name, err, output, failingInput(dir, output))
}

var (
	fuzzRuns    = regexp.MustCompile(`execs: (\d+)`)
	fuzzTimeout = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([^)]*\)\n    context deadline exceeded\n`)
	fuzzInput   = regexp.MustCompile(`Failing input written to (testdata/fuzz/(Fuzz\w+)/\w+)`)
)

// ranOut reports whether a run failed only because its time was over: before
// Go 1.27 the end may race with the worker (golang.org/issue/75804).
func ranOut(output []byte) bool {
	return fuzzTimeout.Match(output) && !bytes.Contains(output, []byte("Failing input")) &&
		bytes.Count(output, []byte("--- FAIL")) == 1
}

// failingInput shows the input that a run has found, since the folder where it
// was written may be gone when somebody reads this, and how to run it again.
func failingInput(dir string, output []byte) string {
	m := fuzzInput.FindSubmatch(output)
	if m == nil {
		return ""
	}
	path := filepath.Join(dir, string(m[1]))
	input, err := os.ReadFile(path)
	if err != nil {
		return err.Error() + "\n"
	}
	return fmt.Sprintf("%s, keep it with the fix:\n%s\nagain: go test -run='^%s$' ./%s\n", path, input,
		strings.TrimPrefix(string(m[1]), "testdata/fuzz/"), dir)
}

// fuzzCache is where "go test -fuzz" keeps the inputs of this repository.
func fuzzCache(ctx context.Context) (string, error) {
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	return filepath.Join(strings.TrimSpace(string(cache)), "fuzz", "turnlog.dev"), err
}
