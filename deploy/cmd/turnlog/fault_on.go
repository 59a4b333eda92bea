//go:build fault

package main

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// faults makes the process kill itself, as kill -9 does, at the n-th passing of
// a point: TURNLOG_FAULT=POINT:N.
func faults() func(string) {
	point, n, ok := strings.Cut(os.Getenv("TURNLOG_FAULT"), ":")
	at, err := strconv.ParseInt(n, 10, 64)
	if !ok || err != nil {
		return nil
	}
	var passed atomic.Int64
	return func(p string) {
		if p == point && passed.Add(1) == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}
