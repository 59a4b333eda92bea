package worker_test

import (
	"context"
	"fmt"
	"testing"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// BenchmarkWorker records whole sessions from one memory journal into another:
// what the recorder itself costs, encoding and hashing included.
func BenchmarkWorker(b *testing.B) {
	for _, size := range []struct{ prompt, completion int }{{100, 150}, {1500, 500}, {6000, 2000}} {
		b.Run(fmt.Sprintf("tokens=%d+%d", size.prompt, size.completion), func(b *testing.B) {
			const sessions, length = 64, 20
			turns := mem.New(mem.Options{})
			for i := range sessions {
				s := sessiontest.Long(fmt.Sprintf("s%d", i), length, size.prompt, size.completion)
				var tip journal.Tip
				for _, ev := range s.Events {
					var err error
					if tip, err = turns.Append(b.Context(), tip, ev); err != nil {
						b.Fatal(err)
					}
				}
			}
			n := 0
			for b.Loop() {
				n += record(b, turns, fmt.Sprint("group", n), sessions*length)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "turns/s")
			b.ReportMetric(float64(n*(size.prompt+size.completion))/b.Elapsed().Seconds()/1e6, "Mtokens/s")
		})
	}
}

// record lets a fresh group of workers record all turns.
func record(b *testing.B, turns journal.Journal, group string, want int) int {
	cfg := worker.DefaultConfig()
	cfg.Group = group
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	left := make(chan struct{}, 1<<20)
	w, err := worker.New(cfg, worker.Deps{
		Turns: turns, Trajectories: mem.New(mem.Options{}),
		DeadLetters: deadletter.New(mem.New(mem.Options{})), Registry: registry.NewMemory(),
		Fault: func(p worker.Point) {
			if p == worker.PointAppended {
				left <- struct{}{}
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for range want {
		<-left
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return want
}
