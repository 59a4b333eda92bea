package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/parquet-go/parquet-go"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// row is one event in a segment. Rows of a session follow one another.
type row struct {
	Stream   string `parquet:"stream,dict"`
	Sequence uint64 `parquet:"sequence"`
	// Time is the log's, in nanoseconds since 1970.
	Time    int64  `parquet:"time,timestamp(nanosecond)"`
	Session string `parquet:"session,dict"`
	Event   string `parquet:"event_id"`
	Kind    string `parquet:"kind,dict"`
	// Count and Prev are the event's place in its session's chain.
	Count uint64 `parquet:"count"`
	Prev  []byte `parquet:"prev"`
	// Body travels as it does in the log: what the chain is over is unpacked.
	Encoding string `parquet:"encoding,dict"`
	Body     []byte `parquet:"body"`
}

// Bodies are packed already; Snappy is for the rest.
var compression = parquet.Compression(&parquet.Snappy)

// groupBytes is how many bytes of bodies a row group of a segment has, pageBytes
// how many a page: what reading one session costs at least.
const (
	groupBytes = 8 << 20
	pageBytes  = 256 << 10
)

func rowOf(e journal.Entry, prev event.Hash) row {
	body, encoding := event.Pack(e.Body)
	return row{
		Stream: e.Stream, Sequence: e.Tip.Position, Time: e.Time.UnixNano(), Session: e.Event.GetSession(),
		Event: e.Event.GetId(), Kind: string(e.Event.Kind()), Count: e.Tip.Count, Prev: prev[:],
		Encoding: string(encoding), Body: body,
	}
}

// entry is the event as it stood in the log, after the events up to at. The
// error wraps ErrDamaged.
func (r row) entry(session string, at journal.Tip) (journal.Entry, error) {
	fault := func(format string, args ...any) (journal.Entry, error) {
		return journal.Entry{}, fmt.Errorf("%w: session %s, event %d: "+format, append([]any{ErrDamaged, session, at.Count}, args...)...)
	}
	if r.Session != session || r.Count != at.Count+1 || !bytes.Equal(r.Prev, at.Chain[:]) {
		return fault("event %d of session %s, after another history, is in its place", r.Count, r.Session)
	}
	body, err := event.Unpack(r.Body, event.Encoding(r.Encoding))
	if err != nil {
		return fault("%w", err)
	}
	ev, err := event.Decode(body)
	if err != nil {
		return fault("%w", err)
	}
	if ev.GetSession() != session || ev.GetId() != r.Event || string(ev.Kind()) != r.Kind {
		return fault("its columns say %s %s, its body %s %s of session %s", r.Kind, r.Event, ev.Kind(), ev.GetId(), ev.GetSession())
	}
	return journal.Entry{
		Event: ev, Body: body, Tip: at.Next(r.Sequence, body), Time: time.Unix(0, r.Time).UTC(), Stream: r.Stream,
	}, nil
}

// encode makes the file of a segment: the same rows, the same bytes.
func encode(rows []row) ([]byte, error) {
	var out bytes.Buffer
	w := parquet.NewGenericWriter[row](&out, compression, parquet.PageBufferSize(pageBytes))
	for begin := 0; begin < len(rows); {
		end, size := begin, 0
		for end < len(rows) && (end == begin || size < groupBytes) {
			size += len(rows[end].Body)
			end++
		}
		if _, err := w.Write(rows[begin:end]); err != nil {
			return nil, fmt.Errorf("archive: encode: %w", err)
		}
		if err := w.Flush(); err != nil {
			return nil, fmt.Errorf("archive: encode: %w", err)
		}
		begin = end
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archive: encode: %w", err)
	}
	return out.Bytes(), nil
}

// publish writes a segment under a name that follows from its content.
func publish(ctx context.Context, s Store, number int64, l Log, rows []row) (Segment, error) {
	raw, err := encode(rows)
	if err != nil {
		return Segment{}, err
	}
	sum := sha256.Sum256(raw)
	seg := Segment{
		Log: l, Bytes: int64(len(raw)), SHA256: hex.EncodeToString(sum[:]), Events: int64(len(rows)),
		Key: fmt.Sprintf("%s%012d-%s-%x.parquet", segments, number, l, sum[:8]),
	}
	at := map[string]int{}
	for _, r := range rows {
		i, ok := at[r.Stream]
		if !ok {
			i = len(seg.Streams)
			at[r.Stream] = i
			seg.Streams = append(seg.Streams, Range{Stream: r.Stream, First: r.Sequence})
		}
		of := &seg.Streams[i]
		of.First, of.Last, of.Events = min(of.First, r.Sequence), max(of.Last, r.Sequence), of.Events+1
	}
	// Who was here before wrote the same, or it is found out by reading it.
	err = s.PutExclusive(ctx, seg.Key, bytes.NewReader(raw), seg.Bytes)
	if err != nil && !errors.Is(err, ErrExists) {
		return Segment{}, fmt.Errorf("archive: publish %s: %w", seg.Key, err)
	}
	return seg, nil
}

// verify reads the segments of a manifest back, whole, and follows the chain of
// every session through them. The error wraps ErrDamaged, if it is not that of
// the store.
func verify(ctx context.Context, s Store, m *Manifest) error {
	for _, seg := range m.Segments {
		raw, err := read(ctx, s, seg.Key)
		if err != nil {
			return fmt.Errorf("archive: verify %s: %w", seg.Key, err)
		}
		if sum := sha256.Sum256(raw); int64(len(raw)) != seg.Bytes || hex.EncodeToString(sum[:]) != seg.SHA256 {
			return fmt.Errorf("%w: %s has %d bytes with sha256 %x, and not %d with %s", ErrDamaged, seg.Key, len(raw), sum, seg.Bytes, seg.SHA256)
		}
		for i := range m.Sessions {
			p := m.Sessions[i].part(seg.Log)
			if p == nil {
				continue
			}
			for _, err := range entries(bytes.NewReader(raw), seg, m.Sessions[i].Row.ID, p) {
				if err != nil {
					return fmt.Errorf("archive: verify %s: %w", seg.Key, err)
				}
			}
		}
	}
	return nil
}

// entries yields a part, checked to its end. The error wraps ErrDamaged.
func entries(r io.ReaderAt, seg Segment, session string, p *Part) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		at := p.From.in()
		for r, err := range rowsOf(r, seg, p.Row, p.Events) {
			var e journal.Entry
			if err == nil {
				e, err = r.entry(session, at)
			}
			if err != nil {
				yield(journal.Entry{}, err)
				return
			}
			if at = e.Tip; !yield(e, nil) {
				return
			}
		}
		if at != p.Through.in() {
			yield(journal.Entry{}, fmt.Errorf("%w: session %s ends at event %d with another history", ErrDamaged, session, at.Count))
		}
	}
}

// rowsAtOnce is how many rows are decoded at a time.
const rowsAtOnce = 16

// rowsOf decodes rows of a segment. The error wraps ErrDamaged.
func rowsOf(in io.ReaderAt, seg Segment, first, n int64) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		r, err := openRows(in, seg, first)
		if err != nil {
			yield(row{}, err)
			return
		}
		defer r.Close()
		for n > 0 {
			list := make([]row, min(n, rowsAtOnce))
			got, err := decode(r, list)
			for _, r := range list[:got] {
				if !yield(r, nil) {
					return
				}
			}
			if n -= int64(got); n > 0 && (err != nil || got == 0) {
				yield(row{}, fmt.Errorf("%w: %s: %d rows are missing: %w", ErrDamaged, seg.Key, n, errors.Join(err, io.ErrUnexpectedEOF)))
				return
			}
		}
	}
}

// The library panics on some damaged input.
func damage(seg string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %s: %v", ErrDamaged, seg, p)
	}
}

func openRows(in io.ReaderAt, seg Segment, first int64) (r *parquet.GenericReader[row], err error) {
	defer damage(seg.Key, &err)
	f, err := parquet.OpenFile(in, seg.Bytes, parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, seg.Key, err)
	}
	if f.NumRows() != seg.Events {
		return nil, fmt.Errorf("%w: %s has %d rows, not %d", ErrDamaged, seg.Key, f.NumRows(), seg.Events)
	}
	r = parquet.NewGenericReader[row](f)
	if err := r.SeekToRow(first); err != nil {
		return nil, fmt.Errorf("%w: %s: row %d: %w", ErrDamaged, seg.Key, first, errors.Join(err, r.Close()))
	}
	return r, nil
}

func decode(r *parquet.GenericReader[row], into []row) (n int, err error) {
	defer damage("rows", &err)
	return r.Read(into)
}

// open returns a segment to read from, and what ends that.
func open(ctx context.Context, s Store, seg Segment) (io.ReaderAt, func() error, error) {
	r, err := s.Open(ctx, seg.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("archive: open %s: %w", seg.Key, err)
	}
	if at, ok := r.(io.ReaderAt); ok {
		return at, r.Close, nil
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, fmt.Errorf("archive: read %s: %w", seg.Key, err)
	}
	return bytes.NewReader(raw), func() error { return nil }, nil
}
