package replay

import (
	"context"
	"sync"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// versions reads each run's weight labels once: a replay knows what was said
// later, which a recorder may not have known in time.
type versions struct {
	turns journal.Journal
	mu    sync.Mutex
	runs  map[string]map[string]int32
}

func newVersions(turns journal.Journal) *versions {
	return &versions{turns: turns, runs: map[string]map[string]int32{}}
}

func (v *versions) lookup(run, label string) (int32, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, ok := v.runs[run][label]
	return n, ok
}

func (v *versions) learn(ctx context.Context, ev *event.Event) error {
	run := ev.GetRun()
	if run == "" || ev.GetTurnCommitted() == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.runs[run]; ok {
		return nil
	}
	numbers := map[string]int32{}
	for e, err := range v.turns.ReadSession(ctx, journal.RunSession(run), journal.Tip{}) {
		if err != nil {
			return err
		}
		if w := e.Event.GetWeightsUpdated(); w != nil {
			if _, ok := numbers[w.GetLabel()]; !ok {
				numbers[w.GetLabel()] = w.GetVersion()
			}
		}
	}
	v.runs[run] = numbers
	return nil
}
