package journal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/journaltest"
)

func TestANamedTrajectoryStreamIsApartFromAllOthersAndCanBeRemoved(t *testing.T) {
	conn, err := jet.Dial(jet.Options{InProcess: natsdtest.Serve(t, natsd.Config{})})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	open := func(tenant string, kind jet.Kind, streams int) *jet.Log {
		t.Helper()
		cfg := jet.DefaultConfig(tenant, kind)
		cfg.MaxBytes, cfg.Streams = 64<<20, streams
		log, err := conn.Open(t.Context(), cfg)
		require.NoError(t, err)
		return log
	}
	// Names that look like parts of others.
	logs := map[string]*jet.Log{
		"own": open("a", jet.Trajectories, 1), "x": open("a", jet.Named("x"), 1), "ev": open("a", jet.Named("ev"), 2),
		"x-00": open("a", jet.Named("x-00"), 1), "another's": open("a-ev", jet.Named("x"), 1), "another's own": open("a-ev", jet.Trajectories, 1),
	}
	for name, log := range logs {
		_, err := log.Append(t.Context(), journal.Tip{}, journaltest.Annotation("s", "e", `"`+name+`"`))
		require.NoError(t, err)
	}
	for name, log := range logs {
		list, err := journaltest.Read(t.Context(), log, "s", journal.Tip{})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.JSONEq(t, `"`+name+`"`, string(list[0].Event.GetAnnotated().GetValue()))
	}
	named := func(tenant string) (all []string) {
		list, err := conn.ListNamed(t.Context(), tenant)
		require.NoError(t, err)
		for _, n := range list {
			require.EqualValues(t, 1, n.Events)
			all = append(all, n.Name)
		}
		return all
	}
	require.Equal(t, []string{"ev", "x", "x-00"}, named("a"))
	require.Equal(t, []string{"x"}, named("a-ev"))

	require.NoError(t, conn.RemoveNamed(t.Context(), "a", "x"))
	require.NoError(t, conn.RemoveNamed(t.Context(), "a", "ev"))
	require.ErrorIs(t, conn.RemoveNamed(t.Context(), "a", "x"), jet.ErrNoLog)
	require.Equal(t, []string{"x-00"}, named("a"))
	require.Equal(t, []string{"x"}, named("a-ev"))
	for _, name := range []string{"own", "x-00", "another's", "another's own"} {
		list, err := journaltest.Read(t.Context(), logs[name], "s", journal.Tip{})
		require.NoError(t, err)
		require.Len(t, list, 1, name)
	}

	for _, name := range []string{"", "a.b", "*", "a b"} {
		_, err := conn.Open(t.Context(), jet.DefaultConfig("a", jet.Named(name)))
		require.ErrorContains(t, err, "kind")
	}
	large := jet.DefaultConfig("a", jet.Named("large"))
	large.MaxBytes = 1 << 50
	_, err = conn.Open(t.Context(), large)
	require.ErrorIs(t, err, jet.ErrNoRoom)
}
