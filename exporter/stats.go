package exporter

import (
	"sync"
	"time"

	"turnlog.dev/exporter/manifest"
)

// Stats are counters since the start, and gauges.
type Stats struct {
	// Counts sums the manifests that this exporter wrote.
	manifest.Counts
	// Files and Bytes that it published.
	Files, Bytes int64
	// Retries of a log or sink that was away.
	Retries int64
	// Waiting groups and Open sessions.
	Waiting, Open int
	// Manifest is the number of the last one.
	Manifest int64
	// Exported is when the last manifest was published; Lag the time from the
	// last seal in it to then.
	Exported time.Time
	Lag      time.Duration
}

type stats struct {
	mu sync.Mutex
	Stats
}

// Stats returns the counters.
func (e *Exporter) Stats() Stats {
	e.stats.mu.Lock()
	defer e.stats.mu.Unlock()
	return e.stats.Stats
}

func (s *stats) update(f func(s *Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.Stats)
}
