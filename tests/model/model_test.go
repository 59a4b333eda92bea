// Package model runs random programs of an agent against gateways on a faulty
// log and compares what the log holds with a simple oracle: what the engine
// says that it sampled, and what the agent says that it was given.
package model

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/mem"
)

var (
	programs = flag.Int("programs", 10_000, "random programs to run")
	seed     = flag.Uint64("seed", 1, "seed of the first program")
	real     = flag.Int("real", 100, "programs to run on the real server too")
)

// bubble is how many programs share one virtual clock.
const bubble = 100

// TestRandomProgramsKeepEveryPromise is the promise of the whole gateway: no
// retry, rewind, edit, cut, crash or second gateway makes the log say anything
// but what happened. A failing program is run again with -programs 1 -seed N.
func TestRandomProgramsKeepEveryPromise(t *testing.T) {
	var total counts
	for first := 0; first < *programs; first += bubble {
		synctest.Test(t, func(t *testing.T) {
			for n := first; n < min(first+bubble, *programs); n++ {
				s := *seed + uint64(n)
				w := newWorld(t, mem.New(mem.Options{}), s)
				w.run()
				w.check()
				total.add(w.counts)
				if t.Failed() {
					t.Fatalf("program with -seed %d", s)
				}
			}
		})
	}
	t.Logf("%d programs: %s", *programs, total)
	if *programs >= 1000 {
		// A test that stopped reaching something would pass in silence.
		for what, n := range total.each() {
			require.Positive(t, n, "no program reached: %s", what)
		}
	}
}

// TestTheSameProgramsOnTheRealServer runs the first programs on an embedded
// server, several at a time.
func TestTheSameProgramsOnTheRealServer(t *testing.T) {
	conn := natsdtest.Dial(t, natsdtest.Serve(t, natsd.Config{}))
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 1 << 29
	log, err := conn.Open(t.Context(), cfg)
	require.NoError(t, err)

	seeds := make(chan uint64)
	var mu sync.Mutex
	var total counts
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for s := range seeds {
				w := newWorld(t, log, s)
				w.run()
				w.check()
				mu.Lock()
				total.add(w.counts)
				mu.Unlock()
			}
		})
	}
	for n := range *real {
		seeds <- *seed + uint64(n)
	}
	close(seeds)
	wg.Wait()
	t.Logf("%d programs: %s", *real, total)
}

// counts is what programs did.
type counts struct {
	requests, given, repeated, extends, branches, roots, aborted, closed, unavailable, faults, restarts int
}

func (c *counts) add(o counts) {
	c.requests += o.requests
	c.given += o.given
	c.repeated += o.repeated
	c.extends += o.extends
	c.branches += o.branches
	c.roots += o.roots
	c.aborted += o.aborted
	c.closed += o.closed
	c.unavailable += o.unavailable
	c.faults += o.faults
	c.restarts += o.restarts
}

func (c counts) each() map[string]int {
	return map[string]int{
		"an answer": c.given, "a repeat": c.repeated, "an extension": c.extends, "a branch": c.branches,
		"a second root": c.roots, "an aborted turn": c.aborted, "a closed session": c.closed,
		"a fault of the log": c.faults, "a restart": c.restarts,
	}
}

func (c counts) String() string {
	return fmt.Sprintf("%d requests, %d answers (%d repeated), %d extensions, %d branches, %d roots, %d aborted, %d refused as closed, %d log away, %d faults of the log, %d restarts",
		c.requests, c.given, c.repeated, c.extends, c.branches, c.roots, c.aborted, c.closed, c.unavailable, c.faults, c.restarts)
}
