// Package registry is the projection of all sessions that lists and dashboards
// read and the reaper walks. It holds nothing that the log does not: a lost
// registry is filled again from it (worker.Fill).
package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// State is where a session stands.
type State string

// The states. A parked session holds an event that could not be folded; a
// trimmed one is a tombstone, so that its id cannot be opened again.
const (
	Open    State = "open"
	Closed  State = "closed"
	Parked  State = "parked"
	Trimmed State = "trimmed"
)

// Session is one row. Times are the log's.
type Session struct {
	ID        string `json:"id"`
	Tenant    string `json:"tenant,omitempty"`
	Run       string `json:"run,omitempty"`
	Group     string `json:"group,omitempty"`
	Index     int32  `json:"index"`
	Attempt   int32  `json:"attempt"`
	GroupSize int32  `json:"group_size,omitempty"`
	Task      string `json:"task,omitempty"`

	State State `json:"state"`
	// Status and Reason are those of the seal, or of the fault.
	Status string `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`

	// Archive is the number of the archive's manifest that lists a trimmed
	// session.
	Archive int64 `json:"archive,omitempty"`

	// Events counts what was folded: of two rows the one with more is newer.
	Events uint64 `json:"events"`
	Turns  int    `json:"turns"`
	// Generated and Lost count sampled ids, Trainable those that the seal
	// found trainable.
	Generated uint64 `json:"generated"`
	Trainable uint64 `json:"trainable"`
	Lost      uint64 `json:"lost"`
	Branches  int    `json:"branches"`
	// Reward is nil until one is assigned.
	Reward *float64 `json:"reward,omitempty"`

	OpenedAt time.Time `json:"opened_at,omitzero"`
	LastAt   time.Time `json:"last_at,omitzero"`
	ClosedAt time.Time `json:"closed_at,omitzero"`
	// The limits that the session was opened with, in seconds; 0 is none.
	WallSeconds int64 `json:"wall_seconds,omitempty"`
	IdleSeconds int64 `json:"idle_seconds,omitempty"`
}

// replaces reports whether a row may take the place of another of its session.
// A tombstone stays, unless something came after it.
func (s Session) replaces(old Session) bool {
	return s.Events > old.Events || s.Events == old.Events && (s.State == Trimmed || old.State != Trimmed)
}

// Filter selects rows; empty fields select all.
type Filter struct {
	Run   string
	Group string
	State State
}

// Matches reports whether the filter selects s.
func (f Filter) Matches(s Session) bool {
	return (f.Run == "" || f.Run == s.Run) &&
		(f.Group == "" || f.Group == s.Group) &&
		(f.State == "" || f.State == s.State)
}

// Memory is a registry in memory. It is safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	rows map[string]Session
}

// NewMemory returns an empty registry.
func NewMemory() *Memory { return &Memory{rows: map[string]Session{}} }

// Volatile says that a new process starts with an empty registry.
func (m *Memory) Volatile() bool { return true }

// Put stores a row, unless a newer one is there.
func (m *Memory) Put(_ context.Context, s Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.replaces(m.rows[s.ID]) {
		m.rows[s.ID] = s
	}
	return nil
}

// Get returns the row of a session, and whether there is one.
func (m *Memory) Get(_ context.Context, id string) (Session, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.rows[id]
	return s, ok, nil
}

// List yields the selected rows as they are now, by id.
func (m *Memory) List(_ context.Context, f Filter) iter.Seq2[Session, error] {
	m.mu.Lock()
	rows := slices.Collect(maps.Values(m.rows))
	m.mu.Unlock()
	slices.SortFunc(rows, func(a, b Session) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return func(yield func(Session, error) bool) {
		for _, s := range rows {
			if f.Matches(s) && !yield(s, nil) {
				return
			}
		}
	}
}

// Bucket is a key-value store that a registry can be kept in. Keys are session
// ids. It is safe for concurrent use.
type Bucket interface {
	// Put stores value under key if the key's revision is still the given one
	// (0: the key is not there), and reports whether it did.
	Put(ctx context.Context, key string, value []byte, revision uint64) (bool, error)
	// Get returns the value and its revision; revision 0 if there is none.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// All yields all values. It ends after an error.
	All(ctx context.Context) iter.Seq2[[]byte, error]
	// Remove removes a key. One that is not there is no error.
	Remove(ctx context.Context, key string) error
	// Used returns how many bytes are held, and how many can be.
	Used(ctx context.Context) (bytes, room int64, err error)
}

// Stored is a registry in a Bucket, as JSON. It is safe for concurrent use, by
// any number of processes.
type Stored struct{ bucket Bucket }

// NewStored returns the registry that is kept in a bucket.
func NewStored(bucket Bucket) *Stored { return &Stored{bucket} }

// Put stores a row, unless a newer one is there.
func (r *Stored) Put(ctx context.Context, s Session) error {
	value, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("registry: put %s: %w", s.ID, err)
	}
	for {
		old, revision, err := r.bucket.Get(ctx, s.ID)
		if err != nil {
			return fmt.Errorf("registry: put %s: %w", s.ID, err)
		}
		if revision > 0 {
			var is Session
			if err := json.Unmarshal(old, &is); err == nil && !s.replaces(is) {
				return nil
			}
		}
		done, err := r.bucket.Put(ctx, s.ID, value, revision)
		if err != nil {
			return fmt.Errorf("registry: put %s: %w", s.ID, err)
		}
		if done {
			return nil
		}
	}
}

// Get returns the row of a session, and whether there is one.
func (r *Stored) Get(ctx context.Context, id string) (Session, bool, error) {
	value, revision, err := r.bucket.Get(ctx, id)
	if err != nil || revision == 0 {
		return Session{}, false, err
	}
	var s Session
	if err := json.Unmarshal(value, &s); err != nil {
		return Session{}, false, fmt.Errorf("registry: get %s: %w", id, err)
	}
	return s, true, nil
}

// Remove removes the row of a session.
func (r *Stored) Remove(ctx context.Context, id string) error { return r.bucket.Remove(ctx, id) }

// Used returns how many bytes the rows take, and how many they may.
func (r *Stored) Used(ctx context.Context) (bytes, room int64, err error) { return r.bucket.Used(ctx) }

// List yields the selected rows, in no order. It ends after an error.
func (r *Stored) List(ctx context.Context, f Filter) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		for value, err := range r.bucket.All(ctx) {
			if err != nil {
				yield(Session{}, fmt.Errorf("registry: list: %w", err))
				return
			}
			var s Session
			if err := json.Unmarshal(value, &s); err != nil {
				yield(Session{}, fmt.Errorf("registry: list: %w", err))
				return
			}
			if f.Matches(s) && !yield(s, nil) {
				return
			}
		}
	}
}
