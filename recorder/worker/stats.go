package worker

import (
	"maps"
	"sync"
	"time"

	"turnlog.dev/schema/event"
)

// Stats is what a worker has done since it was made.
type Stats struct {
	// Updates, Turns and Tokens count what was appended to the trajectory
	// stream; Skipped what was there already.
	Updates, Turns, Tokens, Skipped uint64
	// Faults counts events that could not be folded.
	Faults uint64
	// Released counts parked sessions that were folded again.
	Released uint64
	// Conflicts counts appends that another worker had made before, Rebuilds
	// sessions read again from the log, Retries calls that failed and were
	// made again, Stalls subscriptions that were replaced.
	Conflicts, Rebuilds, Retries, Stalls uint64
	// Batches counts batches that were appended at once, Splits those that were
	// refused, or lost their answer, and were appended one by one instead.
	Batches, Splits uint64
	// Sealed counts sessions, Unbalanced those whose ledger does not add up.
	Sealed, Unbalanced uint64
	// Ledger sums the ledgers of all sealed sessions.
	Ledger Ledger
	// Cached counts sessions in memory, CachedBytes what they hold.
	Cached, CachedBytes int
	Partitions          map[int]PartitionStats
}

// PartitionStats is where a worker is in a partition.
type PartitionStats struct {
	// Position and Time are those of the last entry that was done.
	Position uint64
	Time     time.Time
	// Lag is how old that entry was when it was done.
	Lag time.Duration
	// Pending is how many entries the group had not acknowledged when the
	// log was last asked: at most RegistryEvery ago while any were left.
	Pending uint64

	cached, cachedBytes int
}

// Ledger is a sum of ledgers.
type Ledger struct {
	Generated, Trainable uint64
	Masked, Lost         map[string]uint64
}

// Balanced reports whether generated = trainable + masked + lost.
func Balanced(l *event.Ledger) bool {
	n := l.GetTrainable()
	for _, k := range l.GetMasked() {
		n += k
	}
	for _, k := range l.GetLost() {
		n += k
	}
	return n == l.GetGenerated()
}

type meter struct {
	mu sync.Mutex
	s  Stats
}

func newMeter() *meter {
	return &meter{s: Stats{
		Ledger:     Ledger{Masked: map[string]uint64{}, Lost: map[string]uint64{}},
		Partitions: map[int]PartitionStats{},
	}}
}

func (m *meter) add(f func(*Stats)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.s)
}

func (m *meter) snapshot() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.s
	s.Ledger.Masked, s.Ledger.Lost = maps.Clone(s.Ledger.Masked), maps.Clone(s.Ledger.Lost)
	s.Partitions = maps.Clone(s.Partitions)
	for _, p := range s.Partitions {
		s.Cached += p.cached
		s.CachedBytes += p.cachedBytes
	}
	return s
}

// count adds what an appended update says.
func (m *meter) count(u *event.TrajectoryUpdate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s.Updates++
	for _, o := range u.GetOutputs() {
		switch o := o.GetOutput().(type) {
		case *event.Output_TurnSpans:
			m.s.Turns++
			m.s.Tokens += uint64(o.TurnSpans.Count())
		case *event.Output_Fault:
			m.s.Faults++
		case *event.Output_SessionRestarted:
			m.s.Released++
		case *event.Output_SessionSealed:
			m.seal(o.SessionSealed.GetLedger())
		}
	}
}

// seal needs mu.
func (m *meter) seal(l *event.Ledger) {
	m.s.Sealed++
	if !Balanced(l) {
		m.s.Unbalanced++
	}
	m.s.Ledger.Generated += l.GetGenerated()
	m.s.Ledger.Trainable += l.GetTrainable()
	for why, n := range l.GetMasked() {
		m.s.Ledger.Masked[why] += n
	}
	for why, n := range l.GetLost() {
		m.s.Ledger.Lost[why] += n
	}
}
