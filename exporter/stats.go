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
	// Observed entries of the log, and Retries of a log or sink that was away.
	Observed, Retries int64
	// ReleasedTooLate counts parked sessions that were released when they, or
	// their groups, were settled already.
	ReleasedTooLate int64
	Held            Held
	// Plan is the one that is being executed, or was the last.
	Plan Progress
	// Manifest is the number of the last one.
	Manifest int64
	// Exported is when the last manifest was published; Lag the time from the
	// last seal in it to then.
	Exported time.Time
	Lag      time.Duration
}

// Progress is how far the execution of a plan is.
type Progress struct {
	ID int64
	Op manifest.Op
	// Began is when the execution did.
	Began time.Time
	// Groups are those that it exports, of which Done are read.
	Groups, Done           int
	Sessions, Rows, Tokens int64
	// Bytes are in files that are published.
	Bytes int64
}

func (p *Progress) add(l loaded) {
	p.Done++
	p.Sessions += int64(l.sessions)
	for _, r := range l.rows {
		p.Rows++
		p.Tokens += int64(r.Length)
	}
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
