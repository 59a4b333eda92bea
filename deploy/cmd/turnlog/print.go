package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table aligns columns for people.
func table(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// count writes 1234567 as 1,234,567.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// several writes 1 turn, 2 turns.
func several(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return count(int64(n)) + " " + what
}

// size writes bytes for people.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
}

func number(v *float32) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%g", *v)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// reasons lists counts, the largest first.
func reasons(of map[string]int64) string {
	keys := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		if of[a] != of[b] {
			return int(of[b] - of[a])
		}
		return strings.Compare(a, b)
	})
	for i, k := range keys {
		keys[i] = k + " " + count(of[k])
	}
	return strings.Join(keys, ", ")
}

const barWidth = 24

// bar shows a share, from 0 to 1, of something that goes on.
func bar(share float64) string {
	full := min(max(int(barWidth*share), 0), barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "]"
}

// progressLine returns what shows a line on a terminal, at most ten times a
// second, and what removes it.
func progressLine(out io.Writer) (show func(string), done func()) {
	if !isTerminal(out) {
		return func(string) {}, func() {}
	}
	var last time.Time
	return func(line string) {
			if now := time.Now(); now.Sub(last) >= 100*time.Millisecond {
				last = now
				fmt.Fprint(out, "\r\x1b[K", line)
			}
		}, func() {
			if !last.IsZero() {
				fmt.Fprint(out, "\r\x1b[K")
				last = time.Time{}
			}
		}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
