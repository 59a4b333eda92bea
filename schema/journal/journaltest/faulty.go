package journaltest

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Faults are the chances, from 0 to 1, of what goes wrong with a real log. The
// same seed gives the same faults to the same calls, whatever goroutine makes
// them: a chance is drawn from the seed, the call's subject (session and event,
// or partition and group) and how often it was tried.
type Faults struct {
	Seed uint64
	// Drop loses an append on its way: nothing is stored, and the outcome is
	// unknown.
	Drop float64
	// LoseAck stores an event and loses the acknowledgement: the outcome is
	// unknown too.
	LoseAck float64
	// Duplicate appends an event twice, or delivers an entry twice in a row.
	Duplicate float64
	// Delay lets an append, a read or a fetch wait up to MaxDelay.
	Delay    float64
	MaxDelay time.Duration
	// Reorder interleaves the sessions of one fetch otherwise than the log
	// does; each session stays in order.
	Reorder float64
	// Unavailable fails an append, read or fetch before it reaches the log.
	Unavailable float64
}

// Faulty is a journal between its caller and another, which breaks what a
// network and a server may break and keeps every promise of journal.Journal.
type Faulty struct {
	inner  journal.Journal
	faults Faults

	mu       sync.Mutex
	tries    map[string]uint64
	injected int
}

var _ journal.Journal = (*Faulty)(nil)

// NewFaulty returns inner with faults.
func NewFaulty(inner journal.Journal, faults Faults) *Faulty {
	return &Faulty{inner: inner, faults: faults, tries: map[string]uint64{}}
}

// Injected is the number of faults so far.
func (f *Faulty) Injected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.injected
}

// Append implements journal.Journal.
func (f *Faulty) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	if ctx.Err() != nil || journal.Check(ev) != nil {
		return f.inner.Append(ctx, tip, ev)
	}
	luck := f.luck("append", ev.GetSession(), ev.GetId())
	if luck.strikes(f.faults.Unavailable) || luck.strikes(f.faults.Drop) {
		return journal.Tip{}, fmt.Errorf("%w: dropped on purpose", journal.ErrUnavailable)
	}
	if err := luck.delay(ctx); err != nil {
		return journal.Tip{}, err
	}
	if luck.strikes(f.faults.Duplicate) {
		// Whatever became of the first copy is what the second will find.
		_, _ = f.inner.Append(ctx, tip, ev)
	}
	next, err := f.inner.Append(ctx, tip, ev)
	if err == nil && luck.strikes(f.faults.LoseAck) {
		return journal.Tip{}, fmt.Errorf("%w: acknowledgement lost on purpose", journal.ErrUnavailable)
	}
	return next, err
}

// AppendAll implements journal.Batcher, if the inner journal does.
func (f *Faulty) AppendAll(ctx context.Context, partition int, list []journal.Continuation) ([]journal.Tip, error) {
	inner, ok := f.inner.(journal.Batcher)
	if !ok {
		return nil, fmt.Errorf("%w: no batches here", journal.ErrUnavailable)
	}
	if ctx.Err() != nil || journal.CheckBatch(partition, list) != nil || len(list) == 0 {
		return inner.AppendAll(ctx, partition, list)
	}
	luck := f.luck("append all", list[0].Events[0].GetSession(), list[0].Events[0].GetId())
	if luck.strikes(f.faults.Unavailable) || luck.strikes(f.faults.Drop) {
		return nil, fmt.Errorf("%w: dropped on purpose", journal.ErrUnavailable)
	}
	if err := luck.delay(ctx); err != nil {
		return nil, err
	}
	if luck.strikes(f.faults.Duplicate) {
		_, _ = inner.AppendAll(ctx, partition, list)
	}
	tips, err := inner.AppendAll(ctx, partition, list)
	if err == nil && luck.strikes(f.faults.LoseAck) {
		return nil, fmt.Errorf("%w: acknowledgement lost on purpose", journal.ErrUnavailable)
	}
	return tips, err
}

// ReadSession implements journal.Journal.
func (f *Faulty) ReadSession(ctx context.Context, session string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		luck := f.luck("read", session, "")
		if ctx.Err() == nil && luck.strikes(f.faults.Unavailable) {
			yield(journal.Entry{}, fmt.Errorf("%w: on purpose", journal.ErrUnavailable))
			return
		}
		if err := luck.delay(ctx); err != nil {
			yield(journal.Entry{}, err)
			return
		}
		for e, err := range f.inner.ReadSession(ctx, session, from) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// Subscribe implements journal.Journal.
func (f *Faulty) Subscribe(ctx context.Context, partition int, options journal.SubscribeOptions) (journal.Subscription, error) {
	inner, err := f.inner.Subscribe(ctx, partition, options)
	if err != nil {
		return nil, err
	}
	return &faultySubscription{Subscription: inner, faulty: f, partition: partition, group: options.Group}, nil
}

// End implements journal.Journal.
func (f *Faulty) End(ctx context.Context, partition int) (uint64, error) {
	if f.luck("end", strconv.Itoa(partition), "").strikes(f.faults.Unavailable) {
		return 0, fmt.Errorf("%w: on purpose", journal.ErrUnavailable)
	}
	return f.inner.End(ctx, partition)
}

// Pending implements journal.Journal.
func (f *Faulty) Pending(ctx context.Context, partition int, group string) (uint64, error) {
	if f.luck("pending", strconv.Itoa(partition), group).strikes(f.faults.Unavailable) {
		return 0, fmt.Errorf("%w: on purpose", journal.ErrUnavailable)
	}
	return f.inner.Pending(ctx, partition, group)
}

// Floor implements journal.Journal.
func (f *Faulty) Floor(ctx context.Context, partition int) (uint64, error) {
	if f.luck("floor", strconv.Itoa(partition), "").strikes(f.faults.Unavailable) {
		return 0, fmt.Errorf("%w: on purpose", journal.ErrUnavailable)
	}
	return f.inner.Floor(ctx, partition)
}

// Trim implements journal.Journal.
func (f *Faulty) Trim(ctx context.Context, through map[string]journal.Tip) error {
	return f.inner.Trim(ctx, through)
}

// luck is what happens to one call.
type luck struct {
	faulty *Faulty
	rand   *rand.Rand
}

func (f *Faulty) luck(call, subject, detail string) luck {
	key := call + "/" + subject + "/" + detail
	f.mu.Lock()
	try := f.tries[key]
	f.tries[key]++
	f.mu.Unlock()
	h := fnv.New64a()
	h.Write([]byte(key))
	return luck{f, rand.New(rand.NewPCG(f.faults.Seed, h.Sum64()+try))}
}

func (l luck) strikes(chance float64) bool {
	if l.rand.Float64() >= chance {
		return false
	}
	l.faulty.mu.Lock()
	defer l.faulty.mu.Unlock()
	l.faulty.injected++
	return true
}

func (l luck) delay(ctx context.Context) error {
	if l.faulty.faults.MaxDelay <= 0 || !l.strikes(l.faulty.faults.Delay) {
		return nil
	}
	timer := time.NewTimer(time.Duration(l.rand.Int64N(int64(l.faulty.faults.MaxDelay))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("journal: delayed on purpose: %w", ctx.Err())
	}
}
