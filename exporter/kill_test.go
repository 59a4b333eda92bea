package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows/rowstest"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

// The test binary runs itself as an exporter that is killed: killFolder is its
// sink, killStep the step at which it kills itself.
const (
	killFolder = "TURNLOG_TEST_KILL_FOLDER"
	killStep   = "TURNLOG_TEST_KILL_STEP"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(killFolder); folder != "" {
		step, _ := strconv.Atoi(os.Getenv(killStep))
		if err := exportAndDie(context.Background(), folder, step); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// exportAndDie exports the same log at the same instant, whoever runs it.
func exportAndDie(ctx context.Context, folder string, step int) error {
	log, rng := mem.New(mem.Options{}), rand.New(rand.NewPCG(4, 2))
	for g := range 12 {
		for i := range int32(3) {
			s := rowstest.Random(fmt.Sprintf("g%d-s%d", g, i), rng)
			s.Group, s.Index, s.GroupSize = fmt.Sprintf("g%d", g), i, 3
			s.Seal("main", s.Turn("z", "", 0, []uint32{1}, []uint32{2}).Turn)
			var tip journal.Tip
			for _, ev := range s.Events() {
				var err error
				if tip, err = log.Append(ctx, tip, ev); err != nil {
					return err
				}
			}
		}
	}
	store, err := local.New(folder)
	if err != nil {
		return err
	}
	cfg := exporter.DefaultConfig()
	cfg.FileTokens = 200
	now := time.Now().Add(time.Hour).Truncate(24 * time.Hour)
	e, err := exporter.New(cfg, exporter.Deps{
		Journal: log, Sink: store, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		Fault: func(string) {
			if step--; step == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		return err
	}
	_, err = e.Once(ctx)
	return err
}

// export runs a process; killed says that it did not get to the end.
func export(t *testing.T, folder string, step int) (killed bool) {
	killed, err := run(t, folder, step)
	require.NoError(t, err)
	return killed
}

func run(t *testing.T, folder string, step int) (killed bool, err error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killFolder+"="+folder, killStep+"="+strconv.Itoa(step))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true, nil
	} else if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return false, err
}

func hashes(t *testing.T, folder string) map[string]string {
	all := make(map[string]string)
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(folder, path)
		all[rel] = event.Sum(b).String()
		return err
	}))
	return all
}

// After SIGKILL at each step of the commit, and with two processes at once, the
// folder holds the same bytes under the same names, and no more.
func TestKilledProcessesLeaveTheSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some fifty processes")
	}
	whole := t.TempDir()
	require.False(t, export(t, whole, 0))
	want := hashes(t, whole)
	require.Greater(t, len(want), 4)

	steps := 0
	for n := 1; ; n++ {
		folder := t.TempDir()
		if !export(t, folder, n) {
			break
		}
		steps++
		// Two go on at once, of which one may be killed somewhere else.
		var two sync.WaitGroup
		var errs [2]error
		for i, step := range []int{n/2 + 1, 0} {
			two.Go(func() { _, errs[i] = run(t, folder, step) })
		}
		two.Wait()
		require.NoError(t, errors.Join(errs[:]...), "killed at step %d", n)
		got := hashes(t, folder)
		for path := range got {
			require.Contains(t, want, path, "killed at step %d", n)
		}
		require.Equal(t, want, got, "killed at step %d", n)
	}
	require.Greater(t, steps, 10)

	both := t.TempDir()
	var two sync.WaitGroup
	var errs [2]error
	for i := range errs {
		two.Go(func() { _, errs[i] = run(t, both, 0) })
	}
	two.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	require.Equal(t, want, hashes(t, both))

	store, err := local.New(both)
	require.NoError(t, err)
	report, err := exporter.Check(t.Context(), store, 0, nil)
	require.NoError(t, err)
	require.Empty(t, report.Faults)
	log := manifest.NewLog(store, exporter.TrajFolder)
	orphans, err := log.Orphans(t.Context(), []string{exporter.TrajFolder}, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, orphans)
}
