package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// wrapped is a log whose archived sessions are read as if they had stayed:
// ReadSession, Subscribe and End know of both. Groups follow the log itself: what
// they have not acknowledged was not archived.
type wrapped struct {
	journal.Journal
	archive *Archive
	log     Log
	stream  func(partition int) string
}

// Wrap returns j, one of the tenant's logs, together with what was archived of
// it. stream names the stream that a partition's positions count in now.
func (a *Archive) Wrap(j journal.Journal, l Log, stream func(partition int) string) journal.Journal {
	w := &wrapped{j, a, l, stream}
	if b, ok := j.(journal.Batcher); ok {
		return &batching{w, b}
	}
	return w
}

// batching is a wrapped log that takes batches, too.
type batching struct {
	*wrapped
	batcher journal.Batcher
}

// AppendAll implements journal.Batcher. Of sessions that have left the log it
// takes nothing.
func (b *batching) AppendAll(ctx context.Context, partition int, list []journal.Continuation) ([]journal.Tip, error) {
	for _, c := range list {
		if len(c.Events) == 0 {
			continue // the log says what is wrong with it
		}
		if err := b.begins(ctx, c.Events[0].GetSession(), c.Tip); err != nil {
			return nil, err
		}
	}
	return b.batcher.AppendAll(ctx, partition, list)
}

// Append implements journal.Journal. A session's trajectory goes on after it has
// left the log, since its turns may have at the last moment; of its turns
// themselves nothing comes after that.
func (w *wrapped) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if err := w.begins(ctx, ev.GetSession(), tip); err != nil {
		return journal.Tip{}, err
	}
	next, err := w.Journal.Append(ctx, tip, ev)
	if w.log != Trajectories || !errors.Is(err, journal.ErrTrimmed) {
		return next, err
	}
	if rerr := w.refresh(ctx); rerr != nil {
		return journal.Tip{}, rerr
	}
	end, rerr := w.archive.end(ctx, w.log, ev.GetSession())
	if rerr != nil {
		return journal.Tip{}, unavailable(ctx, rerr)
	}
	if end != tip {
		return journal.Tip{}, err
	}
	return w.Journal.Append(ctx, journal.Tip{Count: tip.Count, Chain: tip.Chain}, ev)
}

// begins fails with ErrConflict for the first event of a session that the archive
// is known to have: the log holds nothing of it, and would take the event.
func (w *wrapped) begins(ctx context.Context, session string, tip journal.Tip) error {
	if tip.Count > 0 {
		return nil
	}
	end, err := w.archive.end(ctx, w.log, session)
	if err == nil && end.Count > 0 {
		return fmt.Errorf("%w: session %s: %d events of it are in the archive", journal.ErrConflict, session, end.Count)
	}
	return unavailable(ctx, err)
}

// refresh takes note of what is new in the archive. Without it nobody knows what
// a log that holds nothing means, so whoever asks has to wait: also for a
// manifest that somebody has to repair.
func (w *wrapped) refresh(ctx context.Context) error {
	err := w.archive.Refresh(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
}

// unavailable marks what may pass, as a Journal has to.
func unavailable(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, journal.ErrUnavailable) || errors.Is(err, ErrDamaged) || errors.Is(err, journal.ErrGap) {
		return err
	}
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
}

// ReadSession implements journal.Journal. The log comes first, as nearly always
// all is there; what is missing in it is looked for in the archive, after which
// the log goes on.
func (w *wrapped) ReadSession(ctx context.Context, session string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	if journal.IsRunSession(session) { // they stay
		return w.Journal.ReadSession(ctx, session, from)
	}
	return func(yield func(journal.Entry, error) bool) {
		at := from
		for {
			var missing error
			for e, err := range w.Journal.ReadSession(ctx, session, at) {
				if errors.Is(err, journal.ErrTrimmed) {
					missing = err
					break
				}
				if err == nil {
					at = e.Tip
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
			if missing == nil && at.Count > 0 {
				return
			}
			// Trimmed; or nothing is there, which is how all that was trimmed looks.
			before := at
			err := w.refresh(ctx)
			if err == nil {
				for e, aerr := range w.archive.session(ctx, w.log, session, at) {
					if err = aerr; err != nil {
						break
					}
					if at = e.Tip; !yield(e, nil) {
						return
					}
				}
			}
			if err == nil && missing != nil && at == before {
				var end journal.Tip
				if end, err = w.archive.end(ctx, w.log, session); err == nil && (at.Count == 0 || end != at) {
					err = missing
				}
			}
			if err != nil {
				yield(journal.Entry{}, unavailable(ctx, fmt.Errorf("archive: read session %s: %w", session, err)))
				return
			}
			if at == before {
				return // all of it is in the archive, and known; or nothing is anywhere
			}
		}
	}
}

// End implements journal.Journal.
func (w *wrapped) End(ctx context.Context, partition int) (uint64, error) {
	end, err := w.Journal.End(ctx, partition)
	if err == nil {
		err = w.refresh(ctx)
	}
	if err != nil {
		return 0, err
	}
	return max(end, w.archive.lastOf(w.log, partition, w.stream(partition))), nil
}

// Subscribe implements journal.Journal.
func (w *wrapped) Subscribe(ctx context.Context, partition int, o journal.SubscribeOptions) (journal.Subscription, error) {
	if o.Group != "" || partition < 0 || partition >= journal.Partitions {
		return w.Journal.Subscribe(ctx, partition, o)
	}
	// The log first: what leaves it after that is found missing, see look.
	live, err := w.Journal.Subscribe(ctx, partition, o)
	if errors.Is(err, journal.ErrGap) {
		if rerr := w.refresh(ctx); rerr != nil {
			return nil, rerr
		}
		if w.archive.lastOf(w.log, partition, w.stream(partition)) > o.After {
			o.Remaining = true
			live, err = w.Journal.Subscribe(ctx, partition, o)
		}
	}
	if err != nil {
		return nil, err
	}
	s := &merged{Subscription: live, log: w, partition: partition, delivered: o.After, seen: o.After, known: map[position]bool{}}
	if err := s.look(ctx); err != nil {
		return nil, errors.Join(err, live.Close())
	}
	return s, nil
}

// merged follows a partition from the archive and the log, in the order of the
// positions that the entries had. It is fetched from by one caller at a time.
type merged struct {
	journal.Subscription // the log's
	log                  *wrapped
	partition            int

	delivered uint64 // the highest position that was given out
	// live are entries of the log that were fetched, seen the position of the
	// last one, end where the log ended when it was looked at.
	live      []journal.Delivery
	seen, end uint64
	// time is the log's of the last entry that was given out. unsure says that
	// between it and live something may have left the log.
	time   time.Time
	unsure bool
	// archived are pieces that reach beyond delivered, by the position that
	// each goes on at; known are all that were ever among them.
	archived []*reader
	known    map[position]bool
}

type position struct {
	session string
	first   uint64
}

// reader is a piece and what is left of it, once it was read.
type reader struct {
	piece   piece
	next    uint64
	entries []journal.Delivery
}

// lookAfter is how long an entry that should be in the log may not come before
// it is looked for in the archive.
const lookAfter = time.Second

// look takes note of what is in the archive and where the log ends.
func (s *merged) look(ctx context.Context) error {
	end, err := s.log.Journal.End(ctx, s.partition)
	if err == nil {
		err = s.log.refresh(ctx)
	}
	var list []piece
	if err == nil {
		list, err = s.log.archive.after(ctx, s.log.log, s.partition, s.log.stream(s.partition), s.delivered)
	}
	if err != nil {
		return unavailable(ctx, fmt.Errorf("archive: partition %02d: %w", s.partition, err))
	}
	s.end = end
	for _, p := range list {
		if is := (position{p.session, p.part.First}); !s.known[is] {
			s.known[is] = true
			s.archived = append(s.archived, &reader{piece: p, next: max(p.part.First, s.delivered+1)})
		}
	}
	s.order()
	return nil
}

func (s *merged) order() {
	slices.SortFunc(s.archived, func(a, b *reader) int { return cmp.Compare(a.next, b.next) })
}

// Fetch implements journal.Subscription.
func (s *merged) Fetch(ctx context.Context, most int) ([]journal.Delivery, error) {
	for {
		if len(s.live) == 0 && (s.seen < s.end || len(s.archived) == 0) {
			if err := s.fetch(ctx, most); err != nil {
				return nil, err
			}
		}
		if s.unsure {
			if err := s.look(ctx); err != nil {
				return nil, err
			}
			s.unsure = false
		}
		var out []journal.Delivery
		for len(out) < most {
			d, ok, err := s.next(ctx)
			if err != nil && len(out) == 0 {
				return nil, err
			}
			if err != nil || !ok {
				break
			}
			s.delivered, s.time = max(s.delivered, d.Tip.Position), d.Time
			out = append(out, d)
		}
		if len(out) > 0 {
			return out, nil
		}
	}
}

// fetch takes from the log. What does not come may have left it.
func (s *merged) fetch(ctx context.Context, most int) error {
	patience := MinAfter / 2
	if s.seen < s.end {
		patience = lookAfter
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := s.Subscription.Fetch(wait, most)
	if len(list) > 0 {
		s.live = list
		for _, d := range list {
			s.seen = max(s.seen, d.Tip.Position)
		}
		// What is younger than half a window has not gone, by any clock.
		s.unsure = time.Since(s.time) > MinAfter/2
		return nil
	}
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return s.look(ctx)
	}
	return err
}

// next takes the entry with the lowest position, if it is known which.
func (s *merged) next(ctx context.Context) (d journal.Delivery, ok bool, err error) {
	if len(s.live) == 0 && s.seen < s.end {
		return d, false, nil
	}
	if len(s.archived) > 0 && (len(s.live) == 0 || s.archived[0].next <= s.live[0].Tip.Position) {
		return s.nextArchived(ctx)
	}
	if len(s.live) == 0 {
		return d, false, nil
	}
	d, s.live = s.live[0], s.live[1:]
	return d, true, nil
}

func (s *merged) nextArchived(ctx context.Context) (d journal.Delivery, ok bool, err error) {
	r := s.archived[0]
	if r.entries == nil {
		var list []journal.Delivery
		prev := r.piece.part.From.in().Chain
		for e, err := range s.log.archive.piece(ctx, r.piece) {
			if err != nil {
				return d, false, unavailable(ctx, fmt.Errorf("archive: partition %02d: %w", s.partition, err))
			}
			if e.Tip.Position > s.delivered {
				list = append(list, journal.Delivery{Entry: e, Session: r.piece.session, Prev: prev, Attempt: 1})
			}
			prev = e.Tip.Chain
		}
		r.entries = list
	} else {
		d, ok = r.entries[0], true
		r.entries = r.entries[1:]
		if len(s.live) > 0 && s.live[0].Tip.Position == d.Tip.Position {
			s.live = s.live[1:] // archived and not trimmed yet
		}
	}
	if len(r.entries) == 0 {
		s.archived = s.archived[1:]
	} else {
		r.next = r.entries[0].Tip.Position
		s.order()
	}
	if !ok {
		return s.next(ctx)
	}
	return d, true, nil
}
