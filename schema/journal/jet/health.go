package jet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"turnlog.dev/schema/journal"
)

const (
	// healthAge is how long an answer about health is good for.
	healthAge = time.Second
	// healthTimeout bounds the question to one stream.
	healthTimeout = 2 * time.Second
	// afterTrouble is how long an append without an answer speaks against the
	// log. After that, one may try: nothing else tells a full disk from a slow
	// one.
	afterTrouble = 3 * time.Second
	// reserve is the part of a stream's room that is kept for turns that were
	// admitted before it was nearly full: one in so many bytes.
	reserve = 64
)

type health struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// Health says whether an append is expected to succeed: nil, or an error that
// wraps journal.ErrUnavailable or journal.ErrFull. It asks the server at most
// once a second, so it may be called for every turn.
func (l *Log) Health(ctx context.Context) error {
	if !l.conn.nc.IsConnected() {
		return fmt.Errorf("%w: not connected to the log server", journal.ErrUnavailable)
	}
	if t := l.troubled.Load(); t != 0 && time.Since(time.Unix(0, t)) < afterTrouble {
		return fmt.Errorf("%w: the log server does not answer appends", journal.ErrUnavailable)
	}
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	if time.Since(l.health.at) < healthAge {
		return l.health.err
	}
	err := l.ask(ctx)
	if ctx.Err() != nil {
		return err // it says nothing about the log
	}
	l.health.at, l.health.err = time.Now(), err
	return err
}

func (l *Log) ask(ctx context.Context) error {
	var errs []error
	for _, s := range l.streams {
		ctx, cancel := context.WithTimeout(ctx, healthTimeout)
		info, err := s.handle.Info(ctx)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("stream %s: %w", s.name, unavailable(err)))
			continue
		}
		room, used := info.Config.MaxBytes, int64(info.State.Bytes)
		if keep := max(room/reserve, 2*int64(l.cfg.MaxEvent)); used > room-min(keep, room/2) {
			errs = append(errs, fmt.Errorf("%w: stream %s: %d of %d bytes in use", journal.ErrFull, s.name, used, room))
		}
	}
	return errors.Join(errs...)
}
