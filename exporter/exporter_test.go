package exporter_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/rows/rowstest"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/sinktest"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/journal/mem"
)

// world is a log and a sink that exporters come and go on. It lives in a
// synctest bubble: time passes when everybody waits.
type world struct {
	t    *testing.T
	log  journal.Journal
	sink sink.Sink
	tips map[string]journal.Tip
	cfg  exporter.Config
	now  func() time.Time // nil is the bubble's time
}

func newWorld(t *testing.T) *world {
	cfg := exporter.DefaultConfig()
	cfg.Temp = t.TempDir()
	// The pools of the zstd libraries cannot be shared between bubbles.
	cfg.Compression = "none"
	return &world{t: t, log: mem.New(mem.Options{}), sink: sinktest.NewMemory(), tips: make(map[string]journal.Tip), cfg: cfg}
}

func (w *world) append(events ...*event.Event) {
	for _, ev := range events {
		tip, err := w.log.Append(w.t.Context(), w.tips[ev.Session], ev)
		require.NoError(w.t, err)
		w.tips[ev.Session] = tip
	}
}

func (w *world) exporter(fault func(string)) *exporter.Exporter {
	e, err := exporter.New(w.cfg, exporter.Deps{
		Journal: w.log, Sink: w.sink, Fault: fault, Now: w.now,
		Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(w.t, err)
	return e
}

func (w *world) once() exporter.Summary {
	s, err := w.exporter(nil).Once(w.t.Context())
	require.NoError(w.t, err)
	return s
}

// follow runs an exporter until the returned function is called.
func (w *world) follow() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	e := w.exporter(nil)
	go func() { done <- e.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(w.t, <-done)
	}
}

func (w *world) state() *manifest.State {
	s, err := exporter.Manifests(w.sink).Load(w.t.Context())
	require.NoError(w.t, err)
	return s
}

// rows returns all rows of the current files, by id; none stands twice.
func (w *world) rows() map[string]*rows.Row {
	all := make(map[string]*rows.Row)
	for r := range read[rows.Row](w, manifest.Traj) {
		require.NotContains(w.t, all, r.RowID, "a row stands twice")
		all[r.RowID] = r
	}
	return all
}

// sessions returns the sessions that have rows.
func (w *world) sessions() []string {
	set := make(map[string]bool)
	for _, r := range w.rows() {
		set[r.SessionID] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func read[T any](w *world, profile manifest.Profile) func(func(*T) bool) {
	return func(yield func(*T) bool) {
		for _, f := range w.state().Files {
			if f.Profile != profile {
				continue
			}
			for r := range readAs[T](w, f) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func readFile(w *world, f manifest.File) func(func(*rows.Row) bool) { return readAs[rows.Row](w, f) }

func readAs[T any](w *world, f manifest.File) func(func(*T) bool) {
	return func(yield func(*T) bool) {
		b, err := sink.ReadAll(w.t.Context(), w.sink, f.Path)
		require.NoError(w.t, err)
		require.Len(w.t, b, int(f.Bytes))
		require.Equal(w.t, f.SHA256, event.Sum(b).String())
		for group, err := range parquet.Read[T](w.t.Context(), bytes.NewReader(b)) {
			require.NoError(w.t, err)
			for _, r := range group {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// contents maps every key of the sink to the hash of its value.
func (w *world) contents() map[string]string {
	all := make(map[string]string)
	for info, err := range w.sink.List(w.t.Context(), "") {
		require.NoError(w.t, err)
		b, err := sink.ReadAll(w.t.Context(), w.sink, info.Key)
		require.NoError(w.t, err)
		all[info.Key] = event.Sum(b).String()
	}
	return all
}

func session(id, group string, index, size int32) *rowstest.Session {
	s := rowstest.New(id)
	s.Group, s.Index, s.GroupSize = group, index, size
	a := s.Turn("a", "", 0, []uint32{1, 2, 3}, []uint32{10, 11})
	s.Turn("b", "a", a.Total(), []uint32{4}, []uint32{12, 13, uint32(100 + index)})
	s.Reward("", float64(index))
	s.Seal("main", "a", "b")
	return s
}

func bubble(t *testing.T, name string, test func(w *world)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
	})
}

func TestAGroupIsExportedOnceItIsSealedRewardedAndComplete(t *testing.T) {
	bubble(t, "within the flush time after the last of it", func(w *world) {
		stop := w.follow()
		defer stop()
		w.append(session("s0", "g", 0, 2).Events()...)
		late := session("s1", "g", 1, 2)
		late.NoReward = true
		w.append(late.Events()...)
		time.Sleep(time.Minute)
		require.Zero(w.t, w.state().ID, "it waits for a reward")

		w.append(late.RewardEvents()...)
		time.Sleep(w.cfg.Flush + time.Second)
		require.Equal(w.t, []string{"s0", "s1"}, w.sessions())
		require.EqualValues(w.t, 1, w.state().ID)
		for _, r := range w.rows() {
			require.Equal(w.t, float32(r.RolloutIndex), *r.Reward)
		}
	})
	bubble(t, "at once when it is large", func(w *world) {
		w.cfg.FlushTokens, w.cfg.Flush = 1, time.Hour
		stop := w.follow()
		defer stop()
		w.append(session("s0", "", 0, 0).Events()...)
		synctest.Wait()
		require.Equal(w.t, []string{"s0"}, w.sessions())
	})
}

func TestWhatIsMissingAtTheDeadline(t *testing.T) {
	bubble(t, "a reward: the row goes without", func(w *world) {
		s := session("s0", "", 0, 0)
		s.NoReward = true
		w.append(s.Events()...)
		time.Sleep(w.cfg.RewardDeadline - 5*time.Second)
		require.Zero(w.t, w.once().Written)
		time.Sleep(10 * time.Second)
		require.Equal(w.t, 1, w.once().Written)
		for _, r := range w.rows() {
			require.Nil(w.t, r.Reward)
		}
	})
	bubble(t, "a session: the group is dropped", func(w *world) {
		w.append(session("s0", "g", 0, 2).Events()...)
		require.Equal(w.t, 1, w.once().Held.Groups())
		time.Sleep(w.cfg.GroupDeadline)
		sum := w.once()
		require.EqualValues(w.t, 1, sum.Counts.GroupsDropped)
		require.Empty(w.t, w.rows())

		// It stays dropped when the session comes after all.
		w.append(session("s1", "g", 1, 2).Events()...)
		require.Zero(w.t, w.once().Written)
		time.Sleep(2 * w.cfg.GroupDeadline)
		require.Zero(w.t, w.once().Written)
	})
	bubble(t, "a session, and partial groups are wanted", func(w *world) {
		w.cfg.Partial = exporter.PartialExport
		w.append(session("s0", "g", 0, 2).Events()...)
		time.Sleep(w.cfg.GroupDeadline)
		sum := w.once()
		require.EqualValues(w.t, 1, sum.Counts.GroupsPartial)
		require.Equal(w.t, []string{"s0"}, w.sessions())
	})
	bubble(t, "nothing: the group's size was never said", func(w *world) {
		w.append(session("s0", "g", 0, 0).Events()...)
		w.append(session("s1", "g", 1, 0).Events()...)
		require.Zero(w.t, w.once().Written)
		time.Sleep(w.cfg.GroupDeadline)
		require.Equal(w.t, 1, w.once().Written)
		require.Equal(w.t, []string{"s0", "s1"}, w.sessions())
	})
}

func TestTheLatestAttemptThatIsNotVoidCounts(t *testing.T) {
	bubble(t, "", func(w *world) {
		attempt := func(id string, n int32, status, reason string, reward bool) {
			s := session(id, "g", 0, 2)
			s.Attempt, s.Status, s.Reason, s.NoReward = n, status, reason, !reward
			w.append(s.Events()...)
		}
		attempt("first", 0, "completed", "completed", true)
		attempt("second", 1, "completed", "completed", true)
		attempt("crashed", 2, "failed", "failed", false)
		attempt("deleted", 3, "completed", "deleted", true)
		w.append(session("other", "g", 1, 2).Events()...)
		open := session("running", "g", 0, 2)
		open.Attempt = 4
		w.append(open.Events()[:2]...)

		w.once()
		require.Equal(w.t, []string{"other", "second"}, w.sessions())
		require.Len(w.t, w.state().Settled[0].Sessions, 6, "the others are settled with the group")

		w.append(open.Events()[2:]...)
		require.Zero(w.t, w.once().Written)
	})
	bubble(t, "a failed session counts when it is rewarded", func(w *world) {
		s := session("s0", "", 0, 0)
		s.Status, s.Reason = "failed", "failed"
		w.append(s.Events()...)
		w.once()
		require.Equal(w.t, []string{"s0"}, w.sessions())
	})
}

func TestGradesOutsideTheFilterAreNotExported(t *testing.T) {
	bubble(t, "", func(w *world) {
		for i, grade := range []event.Grade{event.Grade_GRADE_A, event.Grade_GRADE_C, event.Grade_GRADE_D, event.Grade_GRADE_X} {
			s := rowstest.New(fmt.Sprintf("s%d", i))
			s.Turn("a", "", 0, []uint32{1}, []uint32{2})
			s.Reward("", 1)
			s.Seal("main", "a").Grade = grade
			w.append(s.Events()...)
		}
		broken := session("s4", "", 0, 0)
		broken.Spans("b").Keep = 99
		w.append(broken.Events()...)
		sum := w.once()
		require.Equal(w.t, []string{"s0", "s1"}, w.sessions())
		require.EqualValues(w.t, 2, sum.Counts.RowsLeftOut[rows.ByGrade])
		require.EqualValues(w.t, 1, sum.Counts.SessionsMalformed)
		require.EqualValues(w.t, 3, sum.Counts.GroupsDropped)
	})
	bubble(t, "a group that loses a session to it is dropped whole", func(w *world) {
		bad := session("s1", "g", 1, 2)
		bad.Seal("side", "a").Grade = event.Grade_GRADE_D
		worse := rowstest.New("s2")
		worse.Group, worse.Index, worse.GroupSize = "h", 1, 2
		worse.Turn("a", "", 0, []uint32{1}, []uint32{2})
		worse.Reward("", 1)
		worse.Seal("main", "a").Grade = event.Grade_GRADE_D
		w.append(slices.Concat(session("s0", "g", 0, 2).Events(), bad.Events(),
			session("s3", "h", 0, 2).Events(), worse.Events())...)
		sum := w.once()
		require.Equal(w.t, []string{"s0", "s1"}, w.sessions())
		require.EqualValues(w.t, 1, sum.Counts.RowsLeftOut["group"])
		require.Equal(w.t, manifest.Filtered, w.state().Settled[1].Reason)
	})
}

func TestLateRewardsAreSmallFilesOfTheirOwn(t *testing.T) {
	bubble(t, "", func(w *world) {
		s := session("s0", "", 0, 0)
		w.append(s.Events()...)
		w.once()
		s.Reward("", 0.75).Revision = 1
		s.Reward("b", 0.25)
		w.append(s.RewardEvents()[1:]...)
		require.EqualValues(w.t, 2, w.once().Counts.LateRewards)
		require.Zero(w.t, w.once().Written, "once")

		var row *rows.Row
		for _, r := range w.rows() {
			row = r
		}
		require.Equal(w.t, float32(0), *row.Reward, "rows are never rewritten")
		got := slices.Collect(read[rows.RewardRow](w, manifest.Rewards))
		require.Len(w.t, got, 2)
		require.Equal(w.t, row.RowID, got[0].RowID)
		require.Equal(w.t, []float32{0.75, 0.25}, []float32{got[0].Reward, got[1].Reward})
		require.Equal(w.t, []int32{-1, 1}, []int32{got[0].TurnIndex, got[1].TurnIndex})

		// Long after, when nothing of the session is remembered.
		time.Sleep(3 * manifest.Remember)
		w.append(session("s1", "", 0, 0).Events()...)
		w.once()
		s.Reward("", 0.5).Revision = 2
		w.append(s.RewardEvents()[3:]...)
		require.EqualValues(w.t, 1, w.once().Counts.LateRewards)
		require.Zero(w.t, w.once().Written)
	})
}

func TestLateAnnotationsAndThoseWithoutAColumnStandBesideTheRows(t *testing.T) {
	bubble(t, "", func(w *world) {
		s := session("s0", "", 0, 0)
		s.Annotate("advantage", "0.5")
		s.Annotate("judge", `{"score":3}`)
		s.Annotate("entropy", "[0.1,0.2]").Turn = "b"
		w.append(s.Events()...)
		require.EqualValues(w.t, 2, w.once().Counts.Annotations)
		var row *rows.Row
		for _, r := range w.rows() {
			row = r
		}
		require.Equal(w.t, float32(0.5), *row.Advantage)

		s.Annotate("advantage", "-1").Revision = 1
		s.Annotate("judge", `{"score":4}`).Revision = 1
		s.Annotate("of another branch", "1").Branch = "b9"
		w.append(s.AnnotationEvents()[3:]...)
		sum := w.once()
		require.EqualValues(w.t, 2, sum.Counts.Annotations)
		require.Zero(w.t, sum.Counts.LateRewards)
		require.Zero(w.t, w.once().Written, "once")

		type note struct {
			name, value string
			turn        int32
			revision    int64
		}
		var got []note
		for a := range read[rows.AnnotationRow](w, manifest.Annotations) {
			require.Equal(w.t, row.RowID, a.RowID)
			got = append(got, note{a.Name, a.ValueJSON, a.TurnIndex, a.Revision})
		}
		require.Equal(w.t, []note{
			{"judge", `{"score":3}`, -1, 0},
			{"entropy", "[0.1,0.2]", 1, 0},
			{"advantage", "-1", -1, 1},
			{"judge", `{"score":4}`, -1, 1},
		}, got)
		for _, f := range w.state().Files[1:] {
			require.True(w.t, strings.HasPrefix(f.Path, exporter.AnnotationsFolder+"/run=r/dt="), f.Path)
		}
		report, err := exporter.Check(w.t.Context(), w.sink, 0, nil)
		require.NoError(w.t, err)
		require.Empty(w.t, report.Faults)
	})
}

func TestBlobsOfATurnAreReferredToByTokenAndAbsentOnesAreAbsent(t *testing.T) {
	bubble(t, "", func(w *world) {
		s := session("s0", "", 0, 0)
		// Five tokens are known when turn b is sampled: 4 more than stand in the
		// row belong to nothing.
		s.Spans("b").Blobs = []*event.Blob{{
			Kind: "routed_experts", Sha256: []byte{0xab}, Size: 77, Codec: "zstd", Uri: "s3://blobs/ab",
			Dtype: "uint8", Shape: []int64{8, 48, 4}, Start: 5,
		}}
		w.append(s.Events()...)
		w.append(session("s1", "", 0, 0).Events()...)
		require.EqualValues(w.t, 1, w.once().Counts.Blobs)
		for _, r := range w.rows() {
			if r.SessionID == "s0" {
				require.Equal(w.t, []*rows.BlobRow{{
					RowID: r.RowID, RunID: "r", SessionID: "s0", GroupID: "s0", TurnIndex: 1, Kind: "routed_experts",
					TokenStart: 5, TokenCount: r.Length - 5, DType: "uint8", Shape: []int64{8, 48, 4},
					URI: "s3://blobs/ab", Codec: "zstd", Bytes: 77, SHA256: "ab",
				}}, slices.Collect(read[rows.BlobRow](w, manifest.Blobs)))
			}
		}
	})
}

func TestAnExporterGoesOnWhereTheLastOneWas(t *testing.T) {
	bubble(t, "", func(w *world) {
		open := session("open", "", 0, 0)
		w.append(open.Events()[0]) // holds the cursor back
		var want []string
		for i := range 5 {
			id := fmt.Sprintf("s%d", i)
			w.append(session(id, "", 0, 0).Events()...)
			want = append(want, id)
			require.Equal(w.t, 1, w.once().Written)
			require.Equal(w.t, want, w.sessions())
			require.Zero(w.t, w.once().Written)
		}
		w.append(open.Events()[1:]...)
		w.once()
		require.Equal(w.t, append([]string{"open"}, want...), w.sessions())
	})
}

func TestAnotherLogIsRefused(t *testing.T) {
	bubble(t, "", func(w *world) {
		w.append(session("s0", "", 0, 0).Events()...)
		w.once()
		w.log = renamed{w.log}
		w.append(session("s0x", "", 0, 0).Events()...)
		for i := range 200 { // one comes to the same partition
			w.append(session(fmt.Sprintf("t%d", i), "", 0, 0).Events()...)
		}
		_, err := w.exporter(nil).Once(w.t.Context())
		require.ErrorIs(w.t, err, exporter.ErrForeignLog)
	})
}

func TestALogThatEndsBeforeWhatWasExportedIsRefused(t *testing.T) {
	bubble(t, "", func(w *world) {
		events := session("s0", "", 0, 0).Events()
		w.append(events...)
		w.once()
		w.log, w.tips = mem.New(mem.Options{}), make(map[string]journal.Tip)
		w.append(events[0])
		_, err := w.exporter(nil).Once(w.t.Context())
		require.ErrorIs(w.t, err, exporter.ErrForeignLog)
		require.ErrorIs(w.t, w.exporter(nil).Run(w.t.Context()), exporter.ErrForeignLog)
	})
}

// renamed is a log whose stream has another name.
type renamed struct{ journal.Journal }

func (r renamed) Subscribe(ctx context.Context, partition int, o journal.SubscribeOptions) (journal.Subscription, error) {
	s, err := r.Journal.Subscribe(ctx, partition, o)
	return renamedSubscription{s}, err
}

type renamedSubscription struct{ journal.Subscription }

func (r renamedSubscription) Fetch(ctx context.Context, n int) ([]journal.Delivery, error) {
	list, err := r.Subscription.Fetch(ctx, n)
	for i := range list {
		list[i].Stream = "other"
	}
	return list, err
}

// crash is what the fault hook panics with: the exporter is gone.
type crash struct{ step string }

// onceUntil runs an exporter that dies at its n-th step, and returns the step;
// nothing when it got to the end.
func (w *world) onceUntil(n int) (died string) {
	defer func() {
		if c, ok := recover().(crash); ok {
			died = c.step
		}
	}()
	at := 0
	_, err := w.exporter(func(step string) {
		if at++; at == n {
			panic(crash{step})
		}
	}).Once(w.t.Context())
	require.NoError(w.t, err)
	return ""
}

// However often and wherever an exporter dies, the files in the end are those
// of an undisturbed one, byte for byte.
func TestACrashAtAnyStepLeavesTheSameBytes(t *testing.T) {
	prepare := func(w *world) {
		w.cfg.FileTokens = 30
		start := time.Now()
		w.now = func() time.Time { return start }
		for g := range 6 {
			for i := range 2 {
				w.append(session(fmt.Sprintf("s%d-%d", g, i), fmt.Sprintf("g%d", g), int32(i), 2).Events()...)
			}
		}
		half := session("half", "h", 0, 2)
		w.append(half.Events()...)
	}
	var want map[string]string
	bubble(t, "undisturbed", func(w *world) {
		prepare(w)
		w.once()
		want = w.contents()
		require.Len(w.t, w.rows(), 12)
		require.Greater(w.t, len(want), 4)
	})
	steps := make(map[string]bool)
	for n := 1; ; n++ {
		var died string
		bubble(t, fmt.Sprintf("step %d", n), func(w *world) {
			prepare(w)
			died = w.onceUntil(n)
			w.onceUntil(n + 1) // the next one gets a little further
			w.once()
			require.Equal(w.t, want, w.contents(), "died at %s", died)
			require.EqualValues(w.t, 1, w.state().ID)
			require.Len(w.t, w.rows(), 12)
		})
		if died == "" {
			break
		}
		steps[died] = true
	}
	require.Equal(t, []string{"committed", "manifest", "plan", "planned", "published", "staged", "verified"},
		slices.Sorted(maps.Keys(steps)))
}

func TestExportersOnOneSinkShareTheWork(t *testing.T) {
	bubble(t, "", func(w *world) {
		var stops []func()
		for range 3 {
			stops = append(stops, w.follow())
		}
		var want []string
		for i := range 40 {
			id := fmt.Sprintf("s%02d", i)
			want = append(want, id)
			w.append(session(id, "", 0, 0).Events()...)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		for _, stop := range stops {
			stop()
		}
		require.Equal(w.t, want, w.sessions())
		require.Zero(w.t, w.once().Written)
	})
}

// Whatever happens in whatever order, every group is settled once: complete
// ones are exported with each session's rows, and nothing else is.
func TestRandomHistoriesAreExportedExactlyOnce(t *testing.T) {
	for seed := range uint64(15) {
		bubble(t, fmt.Sprintf("seed %d", seed), func(w *world) { simulate(w, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func simulate(w *world, rng *rand.Rand) {
	healthy := w.log
	if rng.IntN(2) == 0 { // the exporters' side of the log is faulty
		w.log = journaltest.NewFaulty(healthy, journaltest.Faults{
			Seed: rng.Uint64(), Duplicate: 0.2, Reorder: 0.5, Unavailable: 0.05,
			Delay: 0.1, MaxDelay: time.Second,
		})
	}
	w.cfg.FlushTokens = int64(50 + rng.IntN(2000))
	w.cfg.FileTokens = int64(20 + rng.IntN(500))
	var streams [][]*event.Event // of sessions, interleaved below
	want := make(map[string]bool)
	for g := range 12 {
		size := int32(1 + rng.IntN(4))
		missing := rng.IntN(4) == 0 && size > 1
		for i := range size {
			s := rowstest.Random(fmt.Sprintf("g%d-s%d", g, i), rng)
			s.Group, s.Index, s.GroupSize = fmt.Sprintf("g%d", g), i, size
			// Every session gives a row.
			extra := s.Turn("z", "", 0, []uint32{1}, []uint32{uint32(1000 + g)})
			s.Seal("main", extra.Turn)
			if missing && i == 0 {
				continue
			}
			want[s.ID] = !missing
			streams = append(streams, s.Events())
		}
	}
	var stop func()
	for len(streams) > 0 {
		i := rng.IntN(len(streams))
		ev := streams[i][0]
		tip, err := healthy.Append(w.t.Context(), w.tips[ev.Session], ev)
		require.NoError(w.t, err)
		w.tips[ev.Session] = tip
		if streams[i] = streams[i][1:]; len(streams[i]) == 0 {
			streams = slices.Delete(streams, i, i+1)
		}
		switch rng.IntN(12) {
		case 0:
			if stop == nil {
				stop = w.follow()
			} else {
				stop()
				stop = nil
			}
		case 1:
			time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
		case 2:
			w.onceUntil(1 + rng.IntN(12))
		}
	}
	if stop != nil {
		stop()
	}
	w.once()
	time.Sleep(w.cfg.GroupDeadline)
	w.once()
	var sessions []string
	for id, exported := range want {
		if exported {
			sessions = append(sessions, id)
		}
	}
	slices.Sort(sessions)
	require.Equal(w.t, sessions, w.sessions())
	require.Zero(w.t, w.once().Written)
}

func TestDryRunSaysWhatOnceWouldWriteAndWhatIsHeldBack(t *testing.T) {
	bubble(t, "", func(w *world) {
		sum, err := w.exporter(nil).DryRun(w.t.Context())
		require.NoError(w.t, err)
		require.Empty(w.t, sum.Files)
		w.append(session("s0", "g", 0, 1).Events()...)
		bad := rowstest.New("s1")
		bad.Turn("a", "", 0, []uint32{1}, []uint32{2})
		bad.Reward("", 1)
		bad.Seal("main", "a").Grade = event.Grade_GRADE_D
		unrewarded := session("s2", "", 0, 0)
		unrewarded.NoReward = true
		sealed := time.Now()
		w.append(slices.Concat(bad.Events(), unrewarded.Events(), session("s3", "h", 0, 2).Events())...)
		w.append(session("s4", "", 0, 0).Events()[:2]...)

		sum, err = w.exporter(nil).DryRun(w.t.Context())
		require.NoError(w.t, err)
		require.Empty(w.t, w.contents(), "nothing is written")
		require.Equal(w.t, exporter.Held{Reward: 1, Sessions: 1, Open: 1, Until: sealed.Add(time.Hour)}, sum.Held)
		require.EqualValues(w.t, 1, sum.Counts.RowsLeftOut[rows.ByGrade])
		require.EqualValues(w.t, 1, sum.Counts.GroupsDropped)
		require.Len(w.t, sum.Files, 1)

		// What was foretold comes true, to the byte.
		at := time.Now()
		w.now = func() time.Time { return at }
		sum, err = w.exporter(nil).DryRun(w.t.Context())
		require.NoError(w.t, err)
		done := w.once()
		require.Equal(w.t, sum.Files, done.Files)
		require.Equal(w.t, sum.Counts, done.Counts)
		require.Equal(w.t, sum.Held, done.Held)

		res, err := w.exporter(nil).Preview(w.t.Context(), "s0")
		require.NoError(w.t, err)
		require.Len(w.t, res.Rows, 1)
		_, err = w.exporter(nil).Preview(w.t.Context(), "none")
		require.ErrorIs(w.t, err, journal.ErrGap)
	})
}

func TestOrphansAreCollectedWhenOld(t *testing.T) {
	bubble(t, "", func(w *world) {
		w.append(session("s0", "", 0, 0).Events()...)
		w.once()
		orphan := exporter.TrajFolder + "/run=r/dt=2026-01-01/part-000000000001-009-aabbccdd.parquet"
		require.NoError(w.t, w.sink.PutExclusive(w.t.Context(), orphan, strings.NewReader("x"), 1))
		e := w.exporter(nil)
		require.NoError(w.t, e.Collect(w.t.Context()))
		require.Contains(w.t, w.contents(), orphan)

		w.cfg.CollectAfter = time.Nanosecond
		future := exporter.Deps{
			Journal: w.log, Sink: w.sink, Log: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return time.Now().Add(time.Second) },
		}
		e, err := exporter.New(w.cfg, future)
		require.NoError(w.t, err)
		require.NoError(w.t, e.Collect(w.t.Context()))
		require.NotContains(w.t, w.contents(), orphan)
		require.Equal(w.t, []string{"s0"}, w.sessions())
	})
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	require.NoError(t, exporter.DefaultConfig().Validate())
	least, most := 1.0, 0.0
	err := exporter.Config{
		Partial: "maybe", Grades: []string{"A", "X"}, MinTokens: 9, MaxTokens: 3,
		MinReward: &least, MaxReward: &most, RewardDeadline: -1, GroupDeadline: -1, CompactEvery: -1, CollectAfter: -1,
	}.Validate()
	for _, key := range []string{
		"tenant", "flush", "flush_tokens", "reward_deadline", "group_deadline", "compact_every", "compact_files", "partial",
		"grades", "compression", "min_tokens", "min_reward", "file_tokens", "collect_after",
	} {
		require.ErrorContains(t, err, key)
	}
	_, err = exporter.New(exporter.DefaultConfig(), exporter.Deps{})
	require.Error(t, err)
}
