package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Format is the first field of a manifest. A reader refuses others.
const Format = "turnlog.archive.v1"

// Manifest says which sessions are in the segments of its number. Manifests are
// numbered from 1, without gaps.
type Manifest struct {
	Format   string    `json:"format"`
	Number   int64     `json:"number"`
	Time     time.Time `json:"time"`
	Segments []Segment `json:"segments"`
	Sessions []Session `json:"sessions"`
}

// Segment is one Parquet file: events of one log, session by session.
type Segment struct {
	Log    Log    `json:"log"`
	Key    string `json:"key"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Events int64  `json:"events"`
	// Streams are where the events stood.
	Streams []Range `json:"streams"`
}

// Range sums what a segment has of one stream.
type Range struct {
	// Stream is its name and epoch.
	Stream string `json:"stream"`
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	Events int64  `json:"events"`
}

// Session is what the segments have of one session.
type Session struct {
	// Row is that of the registry: the session's tombstone, but for its state.
	Row registry.Session `json:"row"`
	// Turns and Trajectories are nil where the segments have nothing of the log.
	Turns        *Part `json:"turns,omitempty"`
	Trajectories *Part `json:"trajectories,omitempty"`
}

// Part is an unbroken piece of a session's log: whole, unless an event came
// after the session was archived for the first time.
type Part struct {
	Stream string `json:"stream"`
	// Row is where it begins in the segment, Events its length, Bytes what its
	// bodies take there before compression.
	Row    int64 `json:"row"`
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
	// First is the position of its first event.
	First uint64 `json:"first"`
	// From is where the session's log ended before it, Through where with it.
	From    Tip `json:"from"`
	Through Tip `json:"through"`
}

// Tip is a journal.Tip as JSON.
type Tip struct {
	Position uint64 `json:"position"`
	Count    uint64 `json:"count"`
	// Chain is in hex.
	Chain string `json:"chain"`
}

func tipOf(t journal.Tip) Tip { return Tip{t.Position, t.Count, t.Chain.String()} }

// in is the tip as a journal has it. Manifests are checked when they are read.
func (t Tip) in() journal.Tip {
	chain, _ := event.ParseHash(t.Chain)
	return journal.Tip{Position: t.Position, Count: t.Count, Chain: chain}
}

func (s *Session) part(l Log) *Part {
	if l == Turns {
		return s.Turns
	}
	return s.Trajectories
}

func (m *Manifest) segment(l Log) *Segment {
	for i := range m.Segments {
		if m.Segments[i].Log == l {
			return &m.Segments[i]
		}
	}
	return nil
}

// parse reads a manifest and checks that it makes sense. The error wraps
// ErrDamaged.
func parse(raw []byte, number int64) (*Manifest, error) {
	fault := func(format string, args ...any) (*Manifest, error) {
		return nil, fmt.Errorf("%w: manifest %d: "+format, append([]any{ErrDamaged, number}, args...)...)
	}
	m := new(Manifest)
	if err := json.Unmarshal(raw, m); err != nil {
		return fault("%w", err)
	}
	if m.Format != Format || m.Number != number {
		return fault("its format is %q and its number %d; this program reads %s", m.Format, m.Number, Format)
	}
	for _, l := range []Log{Turns, Trajectories} {
		rows := int64(0)
		for i := range m.Sessions {
			p := m.Sessions[i].part(l)
			if p == nil {
				continue
			}
			_, err1 := event.ParseHash(p.From.Chain)
			_, err2 := event.ParseHash(p.Through.Chain)
			if err := errors.Join(err1, err2); err != nil {
				return fault("session %s: %w", m.Sessions[i].Row.ID, err)
			}
			if p.Row != rows || p.Events <= 0 || p.From.Count+uint64(p.Events) != p.Through.Count {
				return fault("session %s: %d %s from row %d, %d to %d", m.Sessions[i].Row.ID, p.Events, l, p.Row, p.From.Count, p.Through.Count)
			}
			rows += p.Events
		}
		if s := m.segment(l); s == nil && rows > 0 || s != nil && s.Events != rows {
			return fault("%d events of %s are in no segment of so many", rows, l)
		}
	}
	return m, nil
}

// put publishes a manifest. It fails with ErrExists if another has the number.
func put(ctx context.Context, s Store, m *Manifest) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("archive: manifest %d: %w", m.Number, err)
	}
	if _, err := parse(raw, m.Number); err != nil {
		return err
	}
	key := manifestKey(m.Number)
	err = s.PutExclusive(ctx, key, bytes.NewReader(raw), int64(len(raw)))
	if errors.Is(err, ErrExists) {
		// Ours, perhaps, of a try that had no answer.
		if there, rerr := read(ctx, s, key); rerr == nil && bytes.Equal(there, raw) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("archive: publish manifest %d: %w", m.Number, err)
	}
	return nil
}
