package archive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/archive"
	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/recorder/fold"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/journal/mem"
)

// The packer has channels: made in a bubble, it would be of no use in the next.
func TestMain(m *testing.M) {
	body := make([]byte, 2*event.CompressAbove)
	packed, encoding := event.Pack(body)
	if _, err := event.Unpack(packed, encoding); err != nil {
		panic(err)
	}
	m.Run()
}

// store is a Store in memory. Readers of it can be read anywhere, or not.
type store struct {
	mu     sync.Mutex
	values map[string][]byte
	whole  bool
	damage func(key string, raw []byte) []byte
}

func newStore() *store { return &store{values: map[string][]byte{}} }

func (s *store) PutExclusive(_ context.Context, key string, body io.Reader, size int64) error {
	raw, err := io.ReadAll(body)
	if err != nil || int64(len(raw)) != size || size == 0 {
		return fmt.Errorf("put %s: %d bytes, %d read: %w", key, size, len(raw), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.values[key]; ok {
		return archive.ErrExists
	}
	if s.damage != nil {
		raw = s.damage(key, raw)
	}
	s.values[key] = raw
	return nil
}

type reader struct{ *bytes.Reader }

func (reader) Close() error { return nil }

func (s *store) Open(_ context.Context, key string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, ok := s.values[key]
	if !ok {
		return nil, archive.ErrNotFound
	}
	if s.whole {
		return io.NopCloser(io.MultiReader(bytes.NewReader(raw))), nil
	}
	return reader{bytes.NewReader(raw)}, nil
}

func (s *store) List(_ context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, key := range s.keys(prefix) {
			if !yield(key, nil) {
				return
			}
		}
	}
}

func (s *store) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, key)
	return nil
}

func (s *store) keys(prefix string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if strings.HasPrefix(key, prefix) {
			list = append(list, key)
		}
	}
	return list
}

const window = time.Hour

// world is a tenant's logs and what works on them, in memory. It must be made in
// a synctest bubble.
type world struct {
	t                   *testing.T
	turns, trajectories *mem.Journal
	letters             *mem.Journal
	registry            *registry.Memory
	store               *store
	held                map[string]bool // sessions that no exporter has exported
	tips                map[string]journal.Tip
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, turns: mem.New(mem.Options{}), trajectories: mem.New(mem.Options{}), letters: mem.New(mem.Options{}),
		registry: registry.NewMemory(), store: newStore(), held: map[string]bool{}, tips: map[string]journal.Tip{},
	}
}

func stream(int) string { return mem.Stream }

// process is one process's view: the archive as it is found, and both logs with
// it.
type process struct {
	archive             *archive.Archive
	turns, trajectories journal.Journal
}

func (w *world) process() process {
	a := archive.New(w.store)
	return process{a, a.Wrap(w.turns, archive.Turns, stream), a.Wrap(w.trajectories, archive.Trajectories, stream)}
}

func (w *world) archiver(change func(*archive.Config, *archive.Deps)) *archive.Archiver {
	p := w.process()
	cfg := archive.DefaultConfig()
	cfg.After, cfg.SegmentSessions = window, 4
	d := archive.Deps{
		Archive: p.archive, Turns: p.turns, Trajectories: p.trajectories, Registry: w.registry,
		Exported: func(context.Context) (archive.Exported, error) {
			return func(session string, _ int, _ string, _ uint64) bool { return !w.held[session] }, nil
		},
	}
	if change != nil {
		change(&cfg, &d)
	}
	a, err := archive.NewArchiver(cfg, d)
	require.NoError(w.t, err)
	return a
}

// say appends events of sessions, one of each in turn.
func (w *world) say(sessions ...*sessiontest.Session) {
	w.t.Helper()
	for more := true; more; {
		more = false
		for _, s := range sessions {
			if n := int(w.tips[s.ID].Count); n < len(s.Events) {
				w.append(s.Events[n])
				more = true
			}
		}
	}
}

func (w *world) append(ev *event.Event) {
	w.t.Helper()
	tip, err := w.turns.Append(w.t.Context(), w.tips[ev.GetSession()], ev)
	require.NoError(w.t, err)
	w.tips[ev.GetSession()] = tip
}

// record lets a recorder come to the end of the log.
func (w *world) record() {
	w.t.Helper()
	p := w.process()
	wk, err := worker.New(worker.DefaultConfig(), worker.Deps{
		Turns: p.turns, Trajectories: p.trajectories, DeadLetters: deadletter.New(w.letters), Registry: w.registry,
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- wk.Run(ctx) }()
	synctest.Wait()
	cancel()
	require.NoError(w.t, <-done)
}

func (w *world) once(a *archive.Archiver) archive.Report {
	w.t.Helper()
	r, err := a.Once(w.t.Context())
	require.NoError(w.t, err)
	return r
}

func (w *world) read(j journal.Journal, session string) (list []journal.Entry) {
	w.t.Helper()
	for e, err := range j.ReadSession(w.t.Context(), session, journal.Tip{}) {
		require.NoError(w.t, err)
		list = append(list, e)
	}
	return list
}

// follow returns all of a partition after a position.
func (w *world) follow(j journal.Journal, partition int, after uint64) (list []journal.Delivery) {
	w.t.Helper()
	end, err := j.End(w.t.Context(), partition)
	require.NoError(w.t, err)
	s, err := j.Subscribe(w.t.Context(), partition, journal.SubscribeOptions{After: after})
	require.NoError(w.t, err)
	defer s.Close()
	for at := after; at < end; {
		batch, err := s.Fetch(w.t.Context(), 3)
		require.NoError(w.t, err)
		for _, d := range batch {
			require.Greater(w.t, d.Tip.Position, at, "in order")
			at = d.Tip.Position
			d.Attempt = 0
			list = append(list, d)
		}
	}
	return list
}

// view is all that can be read of both logs.
type view struct {
	sessions map[string][2][]journal.Entry
	followed [2][journal.Partitions][]journal.Delivery
}

func (w *world) view(p process, ids ...string) (v view) {
	w.t.Helper()
	v.sessions = map[string][2][]journal.Entry{}
	for _, id := range ids {
		v.sessions[id] = [2][]journal.Entry{w.read(p.turns, id), w.read(p.trajectories, id)}
	}
	for partition := range journal.Partitions {
		v.followed[0][partition] = w.follow(p.turns, partition, 0)
		v.followed[1][partition] = w.follow(p.trajectories, partition, 0)
	}
	return v
}

// requireView requires the same entries, byte for byte, with the same places and
// times.
func requireView(t *testing.T, want, got view) {
	t.Helper()
	same := func(a, b journal.Entry) {
		require.Equal(t, a.Body, b.Body)
		require.Equal(t, a.Tip, b.Tip)
		require.True(t, a.Time.Equal(b.Time), "%s %s", a.Time, b.Time)
		require.Equal(t, a.Stream, b.Stream)
		require.Equal(t, a.Event.String(), b.Event.String())
	}
	require.Len(t, got.sessions, len(want.sessions))
	for id, logs := range want.sessions {
		for l := range logs {
			require.Len(t, got.sessions[id][l], len(logs[l]), id)
			for i := range logs[l] {
				same(logs[l][i], got.sessions[id][l][i])
			}
		}
	}
	for l := range want.followed {
		for p := range want.followed[l] {
			require.Len(t, got.followed[l][p], len(want.followed[l][p]), "log %d, partition %d", l, p)
			for i, d := range want.followed[l][p] {
				same(d.Entry, got.followed[l][p][i].Entry)
				require.Equal(t, d.Session, got.followed[l][p][i].Session)
				require.Equal(t, d.Prev, got.followed[l][p][i].Prev)
			}
		}
	}
}

// sessions are random, and over.
func sessions(n int) (list []*sessiontest.Session, ids []string) {
	for i := 0; len(list) < n; i++ {
		s := sessiontest.Random(fmt.Sprintf("s%d", i), uint64(i))
		if !slices.ContainsFunc(s.Events, func(ev *event.Event) bool { return ev.GetSessionClosed() != nil }) {
			s.Close("completed")
		}
		list, ids = append(list, s), append(ids, s.ID)
	}
	return list, ids
}

func TestWhatIsArchivedReadsAsIfItHadStayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, whole := range []bool{false, true} {
			w := newWorld(t)
			w.store.whole = whole
			list, ids := sessions(30)
			open := sessiontest.New("front") // and stays open
			w.say(open)
			open.Commit(sessiontest.Step{ID: "t", New: []uint32{1}, Out: []uint32{2}})
			w.say(append(list, open)...)
			w.record()
			ids = append(ids, open.ID)
			before := w.view(w.process(), ids...)
			var replayed [2]*mem.Journal
			for i := range replayed {
				if i == 1 {
					time.Sleep(window)
					report := w.once(w.archiver(nil))
					require.Positive(t, report.Sessions)
					require.Equal(t, 30, report.Sessions+report.Kept[archive.Parked], report.Kept)
					require.Zero(t, report.Moved)
				}
				p := w.process()
				replayed[i] = mem.New(mem.Options{})
				report, err := replay.Run(t.Context(), p.turns, replay.Logged(t.Context(), p.turns, replay.Range{}), replay.Options{
					Policy: fold.DefaultPolicy(), Into: replayed[i], Against: p.trajectories,
				})
				require.NoError(t, err)
				require.Zero(t, report.Changed)
				require.EqualValues(t, 31, report.Sessions)
				// In one pass, into the same stream: it finds its own work.
				report, err = replay.RunRange(t.Context(), p.turns, replay.Range{}, replay.Options{
					Policy: fold.DefaultPolicy(), Into: replayed[i], Against: p.trajectories,
				})
				require.NoError(t, err)
				require.Empty(t, report.Failures)
				require.Zero(t, report.Changed)
				require.EqualValues(t, 31, report.Sessions)
				found, err := verify.Run(t.Context(), p.turns, p.trajectories, replay.These(ids...), verify.Options{})
				require.NoError(t, err)
				require.Empty(t, found.Findings)
				require.EqualValues(t, 31, found.Sessions)
			}
			left := 0
			for _, id := range ids {
				require.Equal(t, bodies(w, replayed[0], id), bodies(w, replayed[1], id), "replay of %s", id)
				row, _, err := w.registry.Get(t.Context(), id)
				require.NoError(t, err)
				if row.State != registry.Trimmed {
					left++
					continue
				}
				require.Positive(t, row.Archive)
				require.Empty(t, w.read(w.turns, id))
				require.Empty(t, w.read(w.trajectories, id))
			}
			require.Less(t, left, 15)
			requireView(t, before, w.view(w.process(), ids...))
			// From a position in the middle as from the start.
			p := w.process()
			for partition, all := range before.followed[0] {
				for i, d := range all {
					rest := w.follow(p.turns, partition, d.Tip.Position)
					require.Len(t, rest, len(all)-i-1)
				}
			}
			require.Zero(t, w.once(w.archiver(nil)).Sessions, "nothing is left to do")
			requireView(t, before, w.view(w.process(), ids...))
		}
	})
}

func bodies(w *world, j journal.Journal, session string) (list []string) {
	for _, e := range w.read(j, session) {
		list = append(list, string(e.Body))
	}
	return list
}

// dead is what a process that was killed says.
type dead struct{}

// killed runs a round that dies at the nth fault point, and reports whether it
// came so far.
func (w *world) killed(n int) (was bool) {
	w.t.Helper()
	defer func() {
		if p := recover(); p != nil {
			require.Equal(w.t, dead{}, p)
			was = true
		}
	}()
	a := w.archiver(func(_ *archive.Config, d *archive.Deps) {
		d.Fault = func(archive.Point) {
			if n--; n < 0 {
				panic(dead{})
			}
		}
	})
	w.once(a)
	return false
}

// TestAnArchiverThatDiesAnywhereIsTakenUp kills a round at every point that it
// passes, and the ones that go on in their turn.
func TestAnArchiverThatDiesAnywhereIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed := false
		for n := 0; !passed; n++ {
			w := newWorld(t)
			list, ids := sessions(9)
			w.say(list...)
			w.record()
			time.Sleep(window)
			before := w.view(w.process(), ids...)
			passed = !w.killed(n)
			requireView(t, before, w.view(w.process(), ids...))
			for again := range 3 {
				w.killed(again + 1)
				requireView(t, before, w.view(w.process(), ids...))
			}
			w.once(w.archiver(nil))
			requireView(t, before, w.view(w.process(), ids...))
			w.requireTidy(ids...)
		}
	})
}

// requireTidy requires each archived event to be in one segment, and those in no
// log; and nothing else in the store.
func (w *world) requireTidy(ids ...string) {
	w.t.Helper()
	a := archive.New(w.store)
	require.NoError(w.t, a.Refresh(w.t.Context()))
	named, count := map[string]bool{}, map[string]uint64{}
	for n := int64(1); n <= a.Last(); n++ {
		m, err := a.Manifest(w.t.Context(), n)
		require.NoError(w.t, err)
		for _, s := range m.Segments {
			require.False(w.t, named[s.Key])
			named[s.Key] = true
		}
		for _, s := range m.Sessions {
			for l, p := range map[archive.Log]*archive.Part{archive.Turns: s.Turns, archive.Trajectories: s.Trajectories} {
				if p != nil {
					require.Equal(w.t, count[s.Row.ID+string(l)], p.From.Count, "a piece begins where the last one ended")
					count[s.Row.ID+string(l)] = p.Through.Count
				}
			}
		}
	}
	require.Len(w.t, w.store.keys("segments/"), len(named), "no other segment is there")
	require.Len(w.t, w.store.keys("trimmed/"), int(a.Last()))
	p := w.process()
	for _, id := range ids {
		row, _, err := w.registry.Get(w.t.Context(), id)
		require.NoError(w.t, err)
		if row.State == registry.Parked {
			continue
		}
		require.Equal(w.t, registry.Trimmed, row.State, id)
		require.EqualValues(w.t, len(w.read(p.turns, id)), count[id+"turns"])
		require.EqualValues(w.t, len(w.read(p.trajectories, id)), count[id+"trajectories"])
		require.Empty(w.t, w.read(w.turns, id))
		require.Empty(w.t, w.read(w.trajectories, id))
	}
}

// TestARewardThatComesAnyTimeIsRefusedOrKept rewards a session at every point of
// a round: it is in both logs afterwards, or was never taken.
func TestARewardThatComesAnyTimeIsRefusedOrKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken []archive.Point
		for _, point := range archive.Points {
			w := newWorld(t)
			s := sessiontest.New("s")
			s.Commit(sessiontest.Step{ID: "t", New: []uint32{1}, Out: []uint32{2}})
			s.Close("completed")
			w.say(s)
			w.record()
			time.Sleep(window)
			said := false
			report := w.once(w.archiver(func(_ *archive.Config, d *archive.Deps) {
				d.Fault = func(p archive.Point) {
					if p != point || said {
						return
					}
					said = true
					_, err := w.turns.Append(t.Context(), w.tips["s"], s.Reward(1, 1))
					if err == nil {
						taken = append(taken, point)
						w.record()
					}
				}
			}))
			require.True(t, said)
			require.Equal(t, 1, report.Sessions)
			if slices.Contains(archive.Points[:3], point) { // before the last look
				require.Equal(t, 1, report.Moved)
				require.Len(t, w.read(w.turns, "s"), 4, "it stays whole")
			} else {
				require.Zero(t, report.Moved)
			}
			for range 2 {
				p := w.process()
				turns := w.read(p.turns, "s")
				require.Len(t, w.read(p.trajectories, "s"), len(turns))
				if slices.Contains(taken, point) {
					require.Len(t, turns, 4)
				} else {
					require.Len(t, turns, 3)
				}
				time.Sleep(window)
				w.once(w.archiver(nil))
			}
			w.requireTidy("s")
			letters, err := deadletter.New(w.letters).Read(t.Context(), "s")
			require.NoError(t, err)
			require.Empty(t, letters)
		}
		require.Equal(t, []archive.Point{archive.PointSegment, archive.PointVerified, archive.PointManifest}, taken[:3])
		require.NotContains(t, taken, archive.PointTurns)
		require.NotContains(t, taken, archive.PointTrajectories)
		require.NotContains(t, taken, archive.PointDone)
	})
}

// TestWhatADeadArchiverWroteForNothingIsRemoved has more to archive by the time
// the next one comes, so that its segments are others.
func TestWhatADeadArchiverWroteForNothingIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list, ids := sessions(3)
		w.say(list[:2]...)
		w.record()
		time.Sleep(window)
		require.True(t, w.killed(1))
		require.Len(t, w.store.keys("segments/"), 2)
		w.say(list[2])
		w.record()
		time.Sleep(window)
		w.once(w.archiver(nil))
		require.Len(t, w.store.keys("segments/"), 4)
		w.once(w.archiver(nil))
		w.requireTidy(ids...)
	})
}

func TestWhatSomebodyNeedsStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		session := func(id string) *sessiontest.Session {
			s := sessiontest.New(id)
			s.Commit(sessiontest.Step{ID: "t", New: []uint32{1}, Out: []uint32{2}})
			return s
		}
		open, over, held := session("open"), session("over"), session("held")
		run := &event.Event{
			Id: "open", Run: "run1", Session: journal.RunSession("run1"),
			Body: &event.Event_RunOpened{RunOpened: &event.RunOpened{}},
		}
		w.append(run)
		w.say(open)
		over.Close("completed")
		held.Close("completed")
		w.held["held"] = true
		w.say(over, held)
		w.record()
		time.Sleep(window)
		young := session("young")
		young.Close("completed")
		w.say(young)
		w.record()

		a := w.archiver(nil)
		dry, err := a.DryRun(t.Context())
		require.NoError(t, err)
		require.Empty(t, w.store.keys(""))
		report := w.once(a)
		require.Equal(t, map[archive.Reason]int{archive.NotExported: 1, archive.Recent: 1}, report.Kept)
		require.Equal(t, 1, report.Sessions)
		require.Equal(t, dry.Sessions, report.Sessions)
		require.Equal(t, dry.Events, report.Events)
		require.Equal(t, dry.Kept, report.Kept)
		require.Empty(t, w.read(w.turns, "over"))
		for _, id := range []string{"open", "held", "young", journal.RunSession("run1")} {
			require.NotEmpty(t, w.read(w.turns, id), id)
		}
		// Another group that has not read on holds its partition.
		sub, err := w.turns.Subscribe(t.Context(), journal.PartitionOf("held"), journal.SubscribeOptions{Group: "slow"})
		require.NoError(t, err)
		w.held["held"] = false
		require.Equal(t, 1, w.once(a).Kept[archive.NotAcknowledged])
		list, err := sub.Fetch(t.Context(), 100)
		require.NoError(t, err)
		require.NoError(t, sub.Ack(t.Context(), list[len(list)-1]))
		require.NoError(t, sub.Close())
		require.Equal(t, 1, w.once(a).Sessions)
		require.Empty(t, w.read(w.turns, "held"))
		require.EqualValues(t, 2, a.Stats().Trimmed)
		require.False(t, a.Stats().Oldest.IsZero())
	})
}

func TestADamagedSegmentTrimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := 0
		for at := 4; at < 6000; at = at*5/4 + 1 {
			w := newWorld(t)
			list, ids := sessions(4)
			w.say(list...)
			w.record()
			time.Sleep(window)
			before := w.view(w.process(), ids...)
			w.store.damage = func(key string, raw []byte) []byte {
				if strings.HasPrefix(key, "segments/") && at < len(raw) {
					seen++
					raw = bytes.Clone(raw)
					raw[at] ^= 0x10
				}
				return raw
			}
			_, err := w.archiver(nil).Once(t.Context())
			require.ErrorIs(t, err, archive.ErrDamaged)
			require.Empty(t, w.store.keys("manifests/"))
			v := w.view(process{archive.New(newStore()), w.turns, w.trajectories}, ids...)
			requireView(t, before, v)
		}
		require.Greater(t, seen, 10)
	})
}

// TestASegmentThatIsDamagedLaterIsFoundOut damages it after the manifest: the
// round that takes it up trims nothing, and whoever reads it is told.
func TestASegmentThatIsDamagedLaterIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list, ids := sessions(4)
		w.say(list...)
		w.record()
		time.Sleep(window)
		require.True(t, w.killed(3), "it dies with the manifest")
		require.Len(t, w.store.keys("manifests/"), 1)
		whole := w.process()
		before := w.view(whole, ids...)
		for key, raw := range w.store.values {
			if strings.HasPrefix(key, "segments/") {
				w.store.values[key] = raw[:len(raw)-1]
			}
		}
		_, err := w.archiver(nil).Once(t.Context())
		require.ErrorIs(t, err, archive.ErrDamaged)
		requireView(t, before, w.view(process{archive.New(newStore()), w.turns, w.trajectories}, ids...))
	})
}

// TestAnArchiveThatCannotBeReadIsWaitedFor has a manifest that nobody can read: a
// session of which the log holds nothing may be in it.
func TestAnArchiveThatCannotBeReadIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list, _ := sessions(1)
		w.say(list...)
		p := w.process()
		w.store.values["manifests/000000000001.json"] = []byte("{}")
		n := 0
		for _, err := range p.turns.ReadSession(t.Context(), "other", journal.Tip{}) {
			require.ErrorIs(t, err, journal.ErrUnavailable)
			require.ErrorIs(t, err, archive.ErrDamaged)
			n++
		}
		require.Equal(t, 1, n)
		_, err := p.turns.End(t.Context(), 0)
		require.ErrorIs(t, err, journal.ErrUnavailable)
		require.Len(t, w.read(p.turns, list[0].ID), len(list[0].Events), "what the log holds needs no archive")
		_, err = w.archiver(nil).Once(t.Context())
		require.ErrorIs(t, err, archive.ErrDamaged)
		delete(w.store.values, "manifests/000000000001.json")
		require.Empty(t, w.read(p.turns, "other"))
	})
}

func TestAnyNumberOfArchiversDoTheWorkOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list, ids := sessions(20)
		w.say(list...)
		w.record()
		time.Sleep(window)
		before := w.view(w.process(), ids...)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				a := w.archiver(func(_ *archive.Config, d *archive.Deps) {
					d.Fault = func(archive.Point) { time.Sleep(time.Millisecond) }
				})
				for range 20 { // of several that race for a number all but one give up
					_, _ = a.Once(t.Context())
				}
			})
		}
		all.Wait()
		w.once(w.archiver(nil))
		requireView(t, before, w.view(w.process(), ids...))
		w.requireTidy(ids...)
	})
}

// TestTombstonesCanBeHadAgain loses the registry.
func TestTombstonesCanBeHadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list, _ := sessions(5)
		w.say(list...)
		w.record()
		time.Sleep(window)
		n := w.once(w.archiver(nil)).Sessions
		a := archive.New(w.store)
		lost := registry.NewMemory()
		for row, err := range a.Tombstones(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, registry.Trimmed, row.State)
			was, _, err := w.registry.Get(t.Context(), row.ID)
			require.NoError(t, err)
			require.Equal(t, asJSON(t, was), asJSON(t, row))
			require.NoError(t, lost.Put(t.Context(), row))
			row.State = registry.Closed
			require.NoError(t, lost.Put(t.Context(), row))
			is, _, _ := lost.Get(t.Context(), row.ID)
			require.Equal(t, registry.Trimmed, is.State, "what was known before does not undo it")
			held, err := a.Holds(t.Context(), row.ID)
			require.NoError(t, err)
			require.True(t, held)
			n--
		}
		require.Zero(t, n)
		held, err := a.Holds(t.Context(), "never")
		require.NoError(t, err)
		require.False(t, held)
	})
}

func asJSON(t *testing.T, row registry.Session) string {
	raw, err := json.Marshal(row)
	require.NoError(t, err)
	return string(raw)
}

// small is a registry with room for a few rows.
type small struct {
	*registry.Memory
	rows    int64
	removed []string
}

func (s *small) Used(context.Context) (bytes, room int64, err error) {
	return s.rows - int64(len(s.removed)), 4, nil
}

func (s *small) Remove(_ context.Context, id string) error {
	s.removed = append(s.removed, id)
	return nil
}

func TestTheOldestTombstonesMakeRoomInTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list, ids := sessions(4)
		for _, s := range list {
			w.say(s)
			w.record()
			time.Sleep(time.Minute)
		}
		time.Sleep(window)
		rows := &small{Memory: w.registry}
		a := w.archiver(func(_ *archive.Config, d *archive.Deps) { d.Registry = rows })
		w.once(a)
		require.Empty(t, rows.removed, "there is room")
		rows.rows = 3
		w.once(a)
		var stones []string
		for _, id := range ids {
			if row, _, _ := w.registry.Get(t.Context(), id); row.State == registry.Trimmed {
				stones = append(stones, id)
			}
		}
		require.Equal(t, stones[:(len(stones)+1)/2], rows.removed)
		w.once(a)
		require.Len(t, rows.removed, (len(stones)+1)/2, "there is room again")
		for _, id := range rows.removed {
			held, err := archive.New(w.store).Holds(t.Context(), id)
			require.NoError(t, err)
			require.True(t, held)
		}
	})
}

// TestAFollowerMissesNothingWhileSessionsAreArchived follows both logs while
// they are written, recorded and archived.
func TestAFollowerMissesNothingWhileSessionsAreArchived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list, ids := sessions(24)
		seen := make([]map[uint64]bool, journal.Partitions)
		ctx, cancel := context.WithCancel(t.Context())
		p := w.process()
		var all sync.WaitGroup
		for partition := range journal.Partitions {
			seen[partition] = map[uint64]bool{}
			all.Go(func() {
				s, err := p.turns.Subscribe(ctx, partition, journal.SubscribeOptions{})
				require.NoError(t, err)
				defer s.Close()
				time.Sleep(time.Duration(partition) * window / 16) // some begin to fetch late
				for {
					batch, err := s.Fetch(ctx, 2)
					if err != nil {
						return
					}
					for _, d := range batch {
						seen[partition][d.Tip.Position] = true
					}
					time.Sleep(window / 64)
				}
			})
		}
		for some := range slices.Chunk(list, 4) {
			w.say(some...)
			w.record()
			time.Sleep(window)
			w.once(w.archiver(nil))
		}
		time.Sleep(20 * window)
		cancel()
		all.Wait()
		v := w.view(w.process(), ids...)
		for partition, want := range v.followed[0] {
			require.Len(t, seen[partition], len(want), partition)
		}
	})
}

func TestAWrappedJournalKeepsItsPromises(t *testing.T) {
	journaltest.Run(t,
		func(*testing.T) journal.Journal {
			return archive.New(newStore()).Wrap(mem.New(mem.Options{MaxEvent: 1 << 20}), archive.Turns, stream)
		},
		journaltest.Features{MaxEvent: 1 << 20, Small: func(*testing.T) journal.Journal {
			return archive.New(newStore()).Wrap(mem.New(mem.Options{MaxBytes: 16 << 10}), archive.Turns, stream)
		}})
}
