// Package e2e runs the built binary as a user would and kills it as nobody
// should.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// binary is turnlog built with the crash points of -tags fault.
var binary string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "turnlog-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "turnlog")
	build := exec.Command("go", "build", "-tags", "fault", "-o", binary, "turnlog.dev/deploy/cmd/turnlog")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// process is a running turnlog.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	mu     sync.Mutex
	output strings.Builder // stdout and stderr
}

// start runs the binary and waits until a line of its output matches, whose
// first group is returned.
func start(t *testing.T, ready string, env []string, args ...string) (*process, string) {
	t.Helper()
	p, found := spawn(t, ready, env, args...)
	select {
	case s, ok := <-found:
		require.True(t, ok, "turnlog %s ended before it was ready:\n%s", args[0], p.text())
		return p, s
	case <-time.After(time.Minute):
		require.Fail(t, "not ready", "turnlog %s:\n%s", args[0], p.text())
		return nil, ""
	}
}

// spawn is start without the wait: found gets the match, or is closed when the
// process has ended without it.
func spawn(t *testing.T, ready string, env []string, args ...string) (p *process, found <-chan string) {
	t.Helper()
	p = &process{cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Stdout, p.cmd.Stderr = w, w
	require.NoError(t, p.cmd.Start())
	w.Close()
	match := make(chan string, 1)
	go func() {
		defer close(match)
		re, sent := regexp.MustCompile(ready), false
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.mu.Lock()
			p.output.WriteString(s.Text() + "\n")
			p.mu.Unlock()
			if m := re.FindStringSubmatch(s.Text()); m != nil && !sent {
				match <- m[1]
				sent = true
			}
		}
		_, _ = io.Copy(io.Discard, r)
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() { p.kill(); <-p.exited })
	return p, match
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func (p *process) kill() { _ = p.cmd.Process.Signal(syscall.SIGKILL) }

// stop ends the process as Ctrl-C does, and requires a clean end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		require.Fail(t, "did not stop", "%s", p.text())
	}
	require.Zero(t, p.cmd.ProcessState.ExitCode(), "%s", p.text())
}

// freePort is a port of this machine that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, within time.Duration, what string, ask func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ask(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Fail(t, "it never came to be", what)
		}
	}
}

// Lines that the programs print when they are ready.
const (
	gatewayReady = `^  gateway +(http://\S+)$`
	engineReady  = `^mock engine +(http://\S+)$`
)

// lines yields the complete lines of a text: what a crash cut off is no line.
func lines(raw []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(raw) {
			if bytes.HasSuffix(line, []byte("\n")) && !yield(line) {
				return
			}
		}
	}
}
