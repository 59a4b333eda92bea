package jet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrDamaged says that the log has lost events that it had acknowledged.
var ErrDamaged = errors.New("journal: the log is damaged")

// Intact looks for what a damaged disk leaves behind: more events missing in a
// stream than were trimmed, and followers that are further than the stream's
// end. It costs a few questions to the server for each stream and one for each
// follower: ask it at the start.
func (l *Log) Intact(ctx context.Context) error {
	var errs []error
	for _, s := range l.streams {
		// Followers first: others may append meanwhile, and what a follower has
		// seen by now is in an undamaged stream that is asked later.
		seen, follower := uint64(0), ""
		consumers := s.handle.ListConsumers(ctx)
		for c := range consumers.Info() {
			// Who begins behind the end, after an older log's last entry, has
			// seen nothing there.
			if c.Delivered.Consumer > 0 && c.Delivered.Stream > seen {
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
		// Asked last: what goes on purpose is written down first.
		record, _, err := l.trims(ctx, s)
		if err != nil {
			return err
		}
		if missing, most := info.State.LastSeq-info.State.Msgs, record.most(); missing > most {
			errs = append(errs, fmt.Errorf("%w: %d events are missing in stream %s, and at most %d were trimmed",
				ErrDamaged, missing, s.name, most))
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
