package journal_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

// The test binary is also the server that is killed, when these are set.
const (
	childEnv  = "TURNLOG_JOURNAL_CHILD"        // the data folder
	listenEnv = "TURNLOG_JOURNAL_CHILD_LISTEN" // the address
)

// child serves until it is killed.
func child(dir string) {
	s, err := natsd.New(natsd.Config{Mode: natsd.Dev, Dir: dir, Listen: os.Getenv(listenEnv), MaxBytes: 8 << 30}, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	go func() {
		if s.Ready(context.Background()) == nil {
			fmt.Println("ready")
		}
	}()
	panic(s.Run(context.Background()))
}

// startChild starts the server and waits until it is ready.
func startChild(t *testing.T, dir, listen string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, listenEnv+"="+listen)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return cmd
}

func TestAKilledServerLosesNothingAcknowledgedAndDoublesNothing(t *testing.T) {
	const sessions, kills, between = 8, 5, 1500
	dir := t.TempDir()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listen := free.Addr().String()
	require.NoError(t, free.Close())

	server := startChild(t, dir, listen)
	conn, err := jet.Dial(jet.Options{URL: "nats://" + listen})
	require.NoError(t, err)
	defer conn.Close()
	log, err := conn.Open(t.Context(), config())
	require.NoError(t, err)

	// Writers append until they are told to stop; an append that a kill
	// interrupts goes on when the server is back.
	var acked atomic.Int64
	var stop atomic.Bool
	tips := make([]journal.Tip, sessions)
	errs := make([]error, sessions)
	var writers sync.WaitGroup
	for w := range sessions {
		writers.Go(func() {
			for n := 0; !stop.Load() && errs[w] == nil; n++ {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				var next journal.Tip
				next, errs[w] = log.Append(ctx, tips[w], annotation(fmt.Sprint("s", w), strconv.Itoa(n), "x"))
				cancel()
				if errs[w] == nil {
					tips[w] = next
					acked.Add(1)
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range kills {
		until := acked.Load() + between/2 + r.Int64N(between)
		require.Eventually(t, func() bool { return acked.Load() >= until }, patience, tick)
		require.NoError(t, server.Process.Kill())
		_ = server.Wait()
		server = startChild(t, dir, listen)
	}
	stop.Store(true)
	writers.Wait()
	for w := range sessions {
		require.NoError(t, errs[w])
		list := read(t, log, fmt.Sprint("s", w))
		require.Len(t, list, int(tips[w].Count))
		require.Equal(t, tips[w], list[len(list)-1].Tip)
		for n, e := range list {
			require.Equal(t, strconv.Itoa(n), e.Event.GetId())
		}
	}
	require.NoError(t, server.Process.Kill())
	_ = server.Wait()
}
