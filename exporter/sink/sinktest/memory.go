package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"turnlog.dev/exporter/sink"
)

// Memory is a sink in memory, for tests of what uses one.
type Memory struct {
	mu     sync.Mutex
	values map[string]value
}

type value struct {
	content  []byte
	modified time.Time
}

var _ sink.Sink = (*Memory)(nil)

// NewMemory returns an empty sink.
func NewMemory() *Memory { return &Memory{values: make(map[string]value)} }

// PutExclusive implements sink.Sink.
func (m *Memory) PutExclusive(_ context.Context, key string, body io.Reader, size int64) error {
	return m.put(key, body, size, true)
}

// Put implements sink.Sink.
func (m *Memory) Put(_ context.Context, key string, body io.Reader, size int64) error {
	return m.put(key, body, size, false)
}

func (m *Memory) put(key string, body io.Reader, size int64, exclusive bool) error {
	if err := sink.CheckKey(key); err != nil {
		return err
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("sink/memory: put %s: %w", key, err)
	}
	if int64(len(content)) != size {
		return fmt.Errorf("sink/memory: put %s: the body has %d bytes, not %d", key, len(content), size)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := m.values[key]; exists && exclusive {
		return fmt.Errorf("%w: %s", sink.ErrExists, key)
	}
	m.values[key] = value{content, time.Now()}
	return nil
}

// Open implements sink.Sink.
func (m *Memory) Open(_ context.Context, key string) (io.ReadCloser, error) {
	if err := sink.CheckKey(key); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	if !ok {
		return nil, fmt.Errorf("%w: %s", sink.ErrNotFound, key)
	}
	return io.NopCloser(bytes.NewReader(v.content)), nil
}

// List implements sink.Sink.
func (m *Memory) List(_ context.Context, prefix string) iter.Seq2[sink.Info, error] {
	m.mu.Lock()
	values := maps.Clone(m.values)
	m.mu.Unlock()
	return func(yield func(sink.Info, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			v := values[key]
			if strings.HasPrefix(key, prefix) && !yield(sink.Info{Key: key, Size: int64(len(v.content)), Modified: v.modified}, nil) {
				return
			}
		}
	}
}

// Delete implements sink.Sink.
func (m *Memory) Delete(_ context.Context, key string) error {
	if err := sink.CheckKey(key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return nil
}
