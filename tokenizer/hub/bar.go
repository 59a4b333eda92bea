package hub

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Bar draws downloads on a terminal, one line for each file.
type Bar struct {
	w    io.Writer
	file string
	last time.Time
}

// NewBar draws on w.
func NewBar(w io.Writer) *Bar { return &Bar{w: w} }

const barWidth = 30

// Draw is for Hub.Progress. It draws at most ten times a second.
func (b *Bar) Draw(p Progress) {
	done := p.Total > 0 && p.Done >= p.Total
	now := time.Now()
	if p.File == b.file && !done && now.Sub(b.last) < time.Second/10 {
		return
	}
	b.file, b.last = p.File, now
	filled := 0
	if p.Total > 0 {
		filled = int(min(p.Done, p.Total) * barWidth / p.Total)
	}
	fmt.Fprintf(b.w, "\r%-24s [%s%s] %6.1f of %.1f MB", p.File,
		strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), float64(p.Done)/1e6, float64(max(p.Total, 0))/1e6)
	if done {
		fmt.Fprintln(b.w)
		b.file = ""
	}
}
