package verify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"turnlog.dev/recorder/sessiontest"
	"turnlog.dev/recorder/verify"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

func TestWhatStandsBesideARowIsWhatTheLogSays(t *testing.T) {
	blob := func() *event.Blob {
		return &event.Blob{Kind: "routed_experts", Sha256: []byte{1}, Size: 8, Codec: "zstd", Uri: "file:x", Dtype: "<i4", Shape: []int64{2, 1}, Start: 3}
	}
	s := sessiontest.New("s1")
	s.Commit(sessiontest.Step{ID: "a", New: []uint32{1}, Out: []uint32{2}, Edit: func(c *event.TurnCommitted) {
		c.Generation.Blobs = []*event.Blob{blob()}
	}})
	reward := s.Reward(0.5, 1).GetRewardAssigned()
	reward.Turn = "a"
	note := s.Annotate("judge", 2).GetAnnotated()
	note.Branch = "b1"
	s.Close("completed")
	turns, _ := recorded(t, s, nil)
	at := map[event.Kind]journal.Entry{}
	for e, err := range turns.ReadSession(t.Context(), "s1", journal.Tip{}) {
		require.NoError(t, err)
		at[e.Event.Kind()] = e
	}
	turn := at[event.KindTurnCommitted].Tip.Position
	when := func(k event.Kind) time.Time { return at[k].Time.Truncate(time.Microsecond) }
	notes := func() []verify.Note {
		return []verify.Note{
			{Row: "r", Branch: "b1", Turn: turn, Blob: blob()},
			{Row: "r", Branch: "b1", Turn: turn, At: when(event.KindRewardAssigned), Reward: proto.CloneOf(reward)},
			{Row: "r", Branch: "b1", At: when(event.KindAnnotated), Annotation: proto.CloneOf(note)},
		}
	}
	found, err := verify.Beside(t.Context(), turns, "s1", notes())
	require.NoError(t, err)
	require.Empty(t, found)

	for name, spoil := range map[string]func(blob, reward, note *verify.Note){
		"another kind":             func(b, _, _ *verify.Note) { b.Blob.Kind = "x" },
		"another hash":             func(b, _, _ *verify.Note) { b.Blob.Sha256[0]++ },
		"another size":             func(b, _, _ *verify.Note) { b.Blob.Size++ },
		"another codec":            func(b, _, _ *verify.Note) { b.Blob.Codec = "" },
		"another place":            func(b, _, _ *verify.Note) { b.Blob.Uri = "file:y" },
		"another type":             func(b, _, _ *verify.Note) { b.Blob.Dtype = "<i8" },
		"another shape":            func(b, _, _ *verify.Note) { b.Blob.Shape[1]++ },
		"another start":            func(b, _, _ *verify.Note) { b.Blob.Start-- },
		"no turn of the log":       func(b, _, _ *verify.Note) { b.Turn++ },
		"another reward":           func(_, r, _ *verify.Note) { r.Reward.Reward = 0.25 },
		"components":               func(_, r, _ *verify.Note) { r.Reward.Components = []byte("{}") },
		"another revision":         func(_, r, _ *verify.Note) { r.Reward.Revision++ },
		"another source":           func(_, r, _ *verify.Note) { r.Reward.Source = "x" },
		"of no turn":               func(_, r, _ *verify.Note) { r.Turn = 0 },
		"another time":             func(_, r, _ *verify.Note) { r.At = r.At.Add(time.Microsecond) },
		"another name":             func(_, _, a *verify.Note) { a.Annotation.Name = "x" },
		"another value":            func(_, _, a *verify.Note) { a.Annotation.Value = []byte("2") },
		"another branch":           func(_, _, a *verify.Note) { a.Branch = "b2" },
		"of a turn":                func(_, _, a *verify.Note) { a.Turn = turn },
		"a revision of that":       func(_, _, a *verify.Note) { a.Annotation.Revision++ },
		"a source of that":         func(_, _, a *verify.Note) { a.Annotation.Source = "x" },
		"a reward that was a note": func(_, _, a *verify.Note) { a.Annotation, a.Reward = nil, &event.RewardAssigned{} },
	} {
		t.Run(name, func(t *testing.T) {
			list := notes()
			spoil(&list[0], &list[1], &list[2])
			found, err := verify.Beside(t.Context(), turns, "s1", list)
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, verify.Exported, found[0].Promise)
		})
	}
}
