package session

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/tree"
)

// Store is the gateway's cache of sessions, bounded by bytes. An evicted
// session costs one read of its own events when it is wanted again.
type Store struct {
	journal journal.Journal
	limit   int

	mu    sync.Mutex
	items map[string]*item
	order *list.List // of *item, the most recently used first
	bytes int
}

type item struct {
	session *Session
	element *list.Element
	users   int // an item in use is not evicted
	bytes   int // as last counted
}

// NewStore returns a cache that holds sessions of about limit bytes in all.
func NewStore(j journal.Journal, limit int) *Store {
	return &Store{journal: j, limit: limit, items: map[string]*item{}, order: list.New()}
}

// Bytes and Len tell how full the cache is.
func (s *Store) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Len is the number of sessions in the cache.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}

// Use runs fn with the session, read from the log if it is not in the cache.
// The error is ErrUnknown for a session that was never opened, ErrDamaged, the
// journal's, or fn's.
func (s *Store) Use(ctx context.Context, id string, fn func(*Session) error) error {
	if !journal.ValidSession(id) || journal.IsRunSession(id) {
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	it := s.acquire(id)
	defer s.release(it)
	if err := it.session.load(ctx); err != nil {
		return err
	}
	return fn(it.session)
}

// Open appends the first event of a session, unless the session exists, and
// runs fn with it. created says which of the two it was.
func (s *Store) Open(ctx context.Context, ev *event.Event, fn func(sess *Session, created bool) error) error {
	it := s.acquire(ev.GetSession())
	defer s.release(it)
	created := false
	err := it.session.Append(ctx, func(t *tree.Tree) (*event.Event, error) {
		created = t.Opened == nil
		if !created {
			return nil, nil
		}
		return ev, nil
	})
	if err != nil {
		return err
	}
	return fn(it.session, created)
}

// load reads the session's events the first time.
func (s *Session) load(ctx context.Context) error {
	opened := func() (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.tree.Opened != nil, s.damaged
	}
	if ok, err := opened(); ok || err != nil {
		return err
	}
	if err := s.CatchUp(ctx); err != nil {
		return err
	}
	if ok, err := opened(); ok || err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", ErrUnknown, s.id)
}

func (s *Store) acquire(id string) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[id]
	if it == nil {
		it = &item{session: newSession(id, s.journal)}
		it.element = s.order.PushFront(it)
		s.items[id] = it
	}
	it.users++
	s.order.MoveToFront(it.element)
	return it
}

// release also forgets a session that was never opened: asking for what does
// not exist must not push out what does.
func (s *Store) release(it *item) {
	size, opened := it.session.size()
	s.mu.Lock()
	defer s.mu.Unlock()
	it.users--
	s.bytes += size - it.bytes
	it.bytes = size
	if it.users == 0 && !opened {
		s.remove(it)
	}
	for e := s.order.Back(); e != nil && s.bytes > s.limit; {
		old := e.Value.(*item)
		e = e.Prev()
		if old.users == 0 {
			s.remove(old)
		}
	}
}

// remove needs mu.
func (s *Store) remove(it *item) {
	s.order.Remove(it.element)
	delete(s.items, it.session.id)
	s.bytes -= it.bytes
}
