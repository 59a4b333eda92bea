package run

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Store holds the runs that this gateway has to do with.
type Store struct {
	journal  journal.Journal
	process  string
	patience time.Duration
	event    func(id, run string) *event.Event

	closing  context.Context // ends the watchers
	stop     context.CancelFunc
	watchers sync.WaitGroup

	words atomic.Int64 // of this process, so far

	mu   sync.Mutex
	runs map[string]*Run
}

// keep is how many runs stay in memory that nobody uses.
const keep = 256

// NewStore returns the runs of a gateway. process names the gateway among all
// that share the log, and is new with each start; patience bounds the wait for
// the log; event makes an event of the gateway about a run.
func NewStore(j journal.Journal, process string, patience time.Duration, event func(id, run string) *event.Event) *Store {
	s := &Store{journal: j, process: process, patience: patience, event: event, runs: map[string]*Run{}}
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

// Use runs fn with a run.
func (s *Store) Use(name string, fn func(*Run) error) error {
	r := s.acquire(name)
	defer s.release(r)
	return fn(r)
}

// acquire counts the user in before release can forget the run: of one run
// there must not be two here, each with turns of its own.
func (s *Store) acquire(name string) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[name]
	if r == nil {
		r = &Run{store: s, name: name, io: make(chan struct{}, 1), word: make(chan struct{}, 1), state: newState()}
		s.runs[name] = r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users++
	return r
}

func (s *Store) release(r *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	if r.users == 0 && len(s.runs) > keep {
		delete(s.runs, r.name)
	}
}

// Close says that this gateway serves no run any more, and ends what it has
// running. Nobody may use a run after it.
func (s *Store) Close() {
	s.stop()
	s.watchers.Wait()
}
