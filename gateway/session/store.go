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
	existed func(ctx context.Context, id string) (bool, error)

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
// existed says whether a session of which the log holds nothing was there once:
// it is asked about such only. Nil knows of none.
func NewStore(j journal.Journal, limit int, existed func(ctx context.Context, id string) (bool, error)) *Store {
	if existed == nil {
		existed = func(context.Context, string) (bool, error) { return false, nil }
	}
	return &Store{journal: j, limit: limit, existed: existed, items: map[string]*item{}, order: list.New()}
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
// The error is ErrUnknown for a session that was never opened, journal.ErrTrimmed
// for one whose events have left the log, ErrDamaged, the journal's, or fn's.
func (s *Store) Use(ctx context.Context, id string, fn func(*Session) error) error {
	if !journal.ValidSession(id) || journal.IsRunSession(id) {
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	it := s.acquire(id)
	defer s.release(it)
	opened, err := it.session.load(ctx)
	if err == nil && !opened {
		if err = s.unused(ctx, id); err == nil {
			err = fmt.Errorf("%w: %q", ErrUnknown, id)
		}
	}
	if err != nil {
		return err
	}
	return fn(it.session)
}

// unused fails if a session of which the log holds nothing was there once.
func (s *Store) unused(ctx context.Context, id string) error {
	was, err := s.existed(ctx, id)
	if err == nil && was {
		err = journal.ErrTrimmed
	}
	if err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	return nil
}

// Open appends the first event of a session, unless the session exists, and
// runs fn with it. created says which of the two it was. It fails with
// journal.ErrTrimmed for a session that was there once: nothing begins again
// under its id. fresh says that the id is new for sure.
func (s *Store) Open(ctx context.Context, ev *event.Event, fresh bool, fn func(sess *Session, created bool) error) error {
	it := s.acquire(ev.GetSession())
	defer s.release(it)
	if !fresh {
		err := patiently(ctx, func() error {
			opened, err := it.session.load(ctx)
			if err == nil && !opened {
				err = s.unused(ctx, ev.GetSession())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
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

// load reads the session's events the first time, and says whether there are
// any.
func (s *Session) load(ctx context.Context) (opened bool, err error) {
	if opened, err := s.opened(); opened || err != nil {
		return opened, err
	}
	if err := s.CatchUp(ctx); err != nil {
		return false, err
	}
	return s.opened()
}

func (s *Session) opened() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.Opened != nil, s.damaged
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
