package manifest_test

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/sinktest"
)

const folder = "schema=traj.v1"

func key(file string) string { return folder + "/" + manifest.Folder + "/" + file }

// next returns the manifest after a state: it adds a file and settles a session
// that stands at the manifest's number.
func next(s *manifest.State) *manifest.Manifest {
	id := s.ID + 1
	return &manifest.Manifest{
		ID: id, Parent: s.ID, Op: manifest.Add, Schema: "turnlog.traj.v1", Time: time.Unix(id*60, 0).UTC(),
		Files: []manifest.File{{Path: fmt.Sprintf("part-%d.parquet", id), Profile: manifest.Traj, Rows: 2, RowGroups: []int64{2}}},
		Settled: []manifest.Group{{Run: "r", Group: fmt.Sprint("g", id), Outcome: manifest.Exported, Sessions: []manifest.Session{
			{Session: fmt.Sprint("s", id), Partition: 3, Through: uint64(id), Counts: true},
		}}},
		Cursor: manifest.Cursor{{Partition: 3, Stream: "x", After: uint64(id)}},
		Counts: manifest.Counts{Rows: 2, GroupsExported: 1, RowsLeftOut: map[string]int64{"grade": 1}},
	}
}

func publish(t *testing.T, log *manifest.Log, n int) *manifest.State {
	s := new(manifest.State)
	for range n {
		m := next(s)
		require.NoError(t, log.PutManifest(t.Context(), m))
		require.NoError(t, s.Apply(m))
		if m.ID%manifest.SnapshotEvery == 0 {
			require.NoError(t, log.PutSnapshot(t.Context(), s))
		}
	}
	return s
}

func TestLoadFoldsWhatWasPublished(t *testing.T) {
	store := sinktest.NewMemory()
	log := manifest.NewLog(store, folder)
	s, err := log.Load(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.ID)

	want := publish(t, log, manifest.SnapshotEvery+3)
	got, err := log.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, 2*got.ID, got.Totals.Rows)
	require.Equal(t, got.ID, got.Totals.RowsLeftOut["grade"])
	require.Len(t, got.Files, int(got.ID))

	// The snapshot stands for what was before it.
	require.NoError(t, store.Delete(t.Context(), key("m-000000000001.json")))
	again, err := log.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, again)

	pinned, err := log.LoadAt(t.Context(), manifest.SnapshotEvery+1)
	require.NoError(t, err)
	require.Len(t, pinned.Files, manifest.SnapshotEvery+1)
	_, err = log.LoadAt(t.Context(), manifest.SnapshotEvery+9)
	require.ErrorIs(t, err, manifest.ErrGap)
}

func TestAMissingManifestIsAGap(t *testing.T) {
	store := sinktest.NewMemory()
	log := manifest.NewLog(store, folder)
	publish(t, log, 3)
	require.NoError(t, store.Delete(t.Context(), key("m-000000000002.json")))
	_, err := log.Load(t.Context())
	require.ErrorIs(t, err, manifest.ErrGap)
}

func TestSettledGroupsAreForgottenBelowTheCursorAfterAWhile(t *testing.T) {
	s := new(manifest.State)
	for range 200 { // a minute each
		require.NoError(t, s.Apply(next(s)))
	}
	require.Len(t, s.Settled, int(manifest.Remember/time.Minute)+1)

	s = new(manifest.State)
	for range 200 {
		m := next(s)
		m.Cursor[0].After = 4 // something open holds it
		require.NoError(t, s.Apply(m))
	}
	require.Len(t, s.Settled, 196, "those above the cursor are all known")
}

func TestRemovedFilesAreNoLongerPartOfTheSet(t *testing.T) {
	s := new(manifest.State)
	require.NoError(t, s.Apply(next(s)))
	require.NoError(t, s.Apply(next(s)))
	m := next(s)
	m.Op, m.Removed = manifest.Replace, []string{"part-1.parquet", "part-2.parquet"}
	require.NoError(t, s.Apply(m))
	require.Len(t, s.Files, 1)
	require.Equal(t, "part-3.parquet", s.Files[0].Path)

	bad := next(s)
	bad.Removed = []string{"part-1.parquet"}
	require.ErrorIs(t, s.Apply(bad), manifest.ErrMalformed)
	require.EqualValues(t, 3, s.ID)
	skipping := next(s)
	skipping.ID++
	require.ErrorIs(t, s.Apply(skipping), manifest.ErrGap)
}

func TestLateRewardsMoveTheirSessionForward(t *testing.T) {
	s := new(manifest.State)
	require.NoError(t, s.Apply(next(s)))
	m := next(s)
	m.Cursor[0].After = 1
	m.Late = []manifest.Late{
		{Run: "r", Session: "s1", Partition: 3, After: 1, Through: 9},
		{Run: "r", Session: "unknown", Partition: 3, After: 1, Through: 8},
	}
	require.NoError(t, s.Apply(m))
	through := make(map[string]uint64)
	for _, g := range s.Settled {
		for _, x := range g.Sessions {
			through[x.Session] = x.Through
		}
	}
	require.Equal(t, map[string]uint64{"s1": 9, "s2": 2, "unknown": 8}, through)
}

func TestAPlanIsPublishedOnce(t *testing.T) {
	log := manifest.NewLog(sinktest.NewMemory(), folder)
	plan := &manifest.Plan{ID: 1, Op: manifest.Add, Config: manifest.Config{Schema: "turnlog.traj.v1"}}
	hash, err := log.PutPlan(t.Context(), plan)
	require.NoError(t, err)
	got, gotHash, err := log.Plan(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, plan, got)
	require.Equal(t, hash, gotHash)
	_, err = log.PutPlan(t.Context(), plan)
	require.ErrorIs(t, err, sink.ErrExists, "equal or not")
	_, _, err = log.Plan(t.Context(), 2)
	require.ErrorIs(t, err, sink.ErrNotFound)
}

func TestAnotherManifestOfTheSameNumberIsAFault(t *testing.T) {
	log := manifest.NewLog(sinktest.NewMemory(), folder)
	m := next(new(manifest.State))
	require.NoError(t, log.PutManifest(t.Context(), m))
	require.NoError(t, log.PutManifest(t.Context(), m), "the same one is none")
	m.Counts.Rows++
	require.ErrorIs(t, log.PutManifest(t.Context(), m), manifest.ErrMalformed)
}

func TestWhatThisProgramDoesNotReadIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    error
	}{
		"a newer format":  {`{"format":"turnlog.manifest.v2","id":1}`, manifest.ErrFormat},
		"no format":       {`{"id":1}`, manifest.ErrFormat},
		"no JSON":         {`{"format":`, manifest.ErrMalformed},
		"another number":  {`{"format":"turnlog.manifest.v1","id":7}`, manifest.ErrMalformed},
		"a wrong type":    {`{"format":"turnlog.manifest.v1","id":"1"}`, manifest.ErrMalformed},
		"an empty object": {`{}`, manifest.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			store := sinktest.NewMemory()
			require.NoError(t, store.Put(t.Context(), key("m-000000000001.json"), strings.NewReader(c.content), int64(len(c.content))))
			_, err := manifest.NewLog(store, folder).Load(t.Context())
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestOrphansAreOldDataFilesThatNoManifestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := sinktest.NewMemory()
		log := manifest.NewLog(store, folder)
		m := next(new(manifest.State))
		m.Files[0].Path = folder + "/run=r/listed.parquet"
		require.NoError(t, log.PutManifest(t.Context(), m))
		put := func(k string) {
			require.NoError(t, store.Put(t.Context(), k, strings.NewReader("x"), 1))
		}
		put(m.Files[0].Path)
		put(folder + "/run=r/orphan.parquet")
		put(folder + "/run=r/part-000000000001-002-aabbccdd.parquet")
		put(folder + "/run=r/part-000000000002-001-aabbccdd.parquet") // its plan will be executed
		put(folder + "/run=r/_SUCCESS")
		time.Sleep(time.Hour)
		put(folder + "/run=r/young.parquet")
		orphans, err := log.Orphans(t.Context(), []string{folder}, time.Now().Add(-time.Minute))
		require.NoError(t, err)
		require.Equal(t, []string{"orphan.parquet", "part-000000000001-002-aabbccdd.parquet"}, keys(orphans))
	})
}

func keys(list []sink.Info) (names []string) {
	for _, info := range list {
		names = append(names, path.Base(info.Key))
	}
	return names
}

// What counts is how long ago it was removed, not how old it is.
func TestAFileIsKeptForThoseWhoPinnedAManifestThatHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := sinktest.NewMemory()
		log := manifest.NewLog(store, folder)
		const keep = 24 * time.Hour
		orphans := func() []string {
			list, err := log.Orphans(t.Context(), []string{folder}, time.Now().Add(-keep))
			require.NoError(t, err)
			return keys(list)
		}
		m := next(new(manifest.State))
		m.Files[0].Path = folder + "/run=r/part-000000000001-001-aa.parquet"
		require.NoError(t, store.Put(t.Context(), m.Files[0].Path, strings.NewReader("x"), 1))
		require.NoError(t, log.PutManifest(t.Context(), m))
		s := new(manifest.State)
		require.NoError(t, s.Apply(m))

		time.Sleep(30 * 24 * time.Hour)
		for range 2 * manifest.SnapshotEvery {
			n := next(s)
			n.Files[0].Path = fmt.Sprintf("%s/run=r/part-%012d-001-aa.parquet", folder, n.ID)
			n.Removed = []string{s.Files[0].Path}
			require.NoError(t, log.PutManifest(t.Context(), n))
			require.NoError(t, s.Apply(n))
			if n.ID%manifest.SnapshotEvery == 0 {
				require.NoError(t, log.PutSnapshot(t.Context(), s))
			}
			time.Sleep(time.Minute)
			require.Empty(t, orphans(), "manifest %d", n.ID)
		}
		time.Sleep(keep - 2*manifest.SnapshotEvery*time.Minute)
		require.Empty(t, orphans())
		time.Sleep(time.Second)
		require.Equal(t, []string{"part-000000000001-001-aa.parquet"}, orphans())
	})
}

// The format is frozen: what is written today is what was written in the first
// version.
func TestTheFormatIsWhatIsDocumented(t *testing.T) {
	b, err := json.MarshalIndent(next(new(manifest.State)), "", " ")
	require.NoError(t, err)
	require.JSONEq(t, `{
		"format": "", "id": 1, "parent": 0, "op": "add", "schema": "turnlog.traj.v1", "time": "1970-01-01T00:01:00Z",
		"plan_sha256": "", "config_hash": "",
		"files": [{"path": "part-1.parquet", "profile": "traj", "run": "", "bytes": 0, "sha256": "", "rows": 2, "row_groups": [2]}],
		"settled": [{"run": "r", "group": "g1", "outcome": "exported",
			"sessions": [{"session": "s1", "partition": 3, "through": 1, "counts": true}]}],
		"cursor": [{"partition": 3, "stream": "x", "after": 1}],
		"counts": {"groups_exported": 1, "rows": 2, "rows_left_out": {"grade": 1}}}`, string(b))
}
