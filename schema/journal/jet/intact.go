package jet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrDamaged says that the log has lost events that it had acknowledged.
var ErrDamaged = errors.New("journal: the log is damaged")

// Intact looks for what a damaged disk leaves behind: events missing inside a
// stream, from which nothing is ever deleted, or before what was trimmed, and
// followers that are further than the stream's end. It costs one question to
// the server for each stream and follower: ask it at the start.
func (l *Log) Intact(ctx context.Context) error {
	var errs []error
	for _, s := range l.streams {
		// Followers first: others may append meanwhile, and what a follower has
		// seen by now is in an undamaged stream that is asked later.
		seen, follower := uint64(0), ""
		consumers := s.handle.ListConsumers(ctx)
		for c := range consumers.Info() {
			if c.Delivered.Stream > seen {
				seen, follower = c.Delivered.Stream, c.Name
			}
		}
		if err := consumers.Err(); err != nil {
			return fmt.Errorf("journal: stream %s: %w", s.name, unavailable(err))
		}
		info, err := s.handle.Info(ctx)
		if err != nil {
			return fmt.Errorf("journal: stream %s: %w", s.name, unavailable(err))
		}
		if n := info.State.NumDeleted; n > 0 {
			errs = append(errs, fmt.Errorf("%w: %d events are missing inside stream %s", ErrDamaged, n, s.name))
		}
		if first := info.State.FirstSeq; info.State.LastSeq > 0 && first > trimmed(info.Config)+1 {
			errs = append(errs, fmt.Errorf("%w: stream %s begins at %d, though it was trimmed to %d only",
				ErrDamaged, s.name, first, trimmed(info.Config)))
		}
		if seen > info.State.LastSeq {
			errs = append(errs, fmt.Errorf("%w: stream %s ends at %d, but %s has seen %d",
				ErrDamaged, s.name, info.State.LastSeq, follower, seen))
		}
	}
	return errors.Join(errs...)
}

// Now is the server's time, which events are stamped with.
func (l *Log) Now(ctx context.Context) (time.Time, error) {
	info, err := l.streams[0].handle.Info(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("journal: the server's time: %w", unavailable(err))
	}
	return info.TimeStamp, nil
}
