package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	pq "github.com/parquet-go/parquet-go"
)

// ErrCorrupt says that a file does not hold what was written to it.
var ErrCorrupt = errors.New("parquet: the file does not hold what was written")

// Verify reads a file with another decoder than the one that belongs to the
// writer and compares all of it. The error wraps ErrCorrupt and names the first
// column that differs.
func Verify(r io.ReaderAt, size int64, want Digest) (err error) {
	// The decoder panics on some damaged input.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	got, err := Sum(r, size)
	if err != nil {
		return err
	}
	if got.Rows != want.Rows || !slices.Equal(got.RowGroups, want.RowGroups) {
		return fmt.Errorf("%w: %d rows in groups of %d, written were %d in %d",
			ErrCorrupt, got.Rows, got.RowGroups, want.Rows, want.RowGroups)
	}
	if len(got.Columns) != len(want.Columns) {
		return fmt.Errorf("%w: %d columns, written were %d", ErrCorrupt, len(got.Columns), len(want.Columns))
	}
	for i, g := range got.Columns {
		if w := want.Columns[i]; g != w {
			return fmt.Errorf("%w: column %s comes to %x/%x/%d, written was %s with %x/%x/%d", ErrCorrupt,
				g.Path, g.Values, g.Shape, g.Count, w.Path, w.Values, w.Shape, w.Count)
		}
	}
	return nil
}

// Sum decodes a file and returns its digest. The error wraps ErrCorrupt.
func Sum(r io.ReaderAt, size int64) (Digest, error) {
	f, err := pq.OpenFile(r, size, pq.SkipPageIndex(true), pq.SkipBloomFilters(true))
	if err != nil {
		return Digest{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	d := Digest{Rows: f.NumRows()}
	for _, path := range f.Schema().Columns() {
		name := path[0]
		for _, p := range path[1:] {
			name += "." + p
		}
		d.Columns = append(d.Columns, ColumnDigest{Path: name})
	}
	for _, group := range f.RowGroups() {
		d.RowGroups = append(d.RowGroups, group.NumRows())
		for i, chunk := range group.ColumnChunks() {
			leaf, _ := f.Schema().Lookup(f.Schema().Columns()[i]...)
			s := summer{c: &d.Columns[i], optional: isOptional(f, i), repeated: leaf.MaxRepetitionLevel > 0}
			if err := s.chunk(chunk); err != nil {
				return Digest{}, fmt.Errorf("%w: column %s: %w", ErrCorrupt, d.Columns[i].Path, err)
			}
			if s.c.rows != uint64(sum(d.RowGroups)) {
				return Digest{}, fmt.Errorf("%w: column %s has %d rows of %d", ErrCorrupt, s.c.Path, s.c.rows, sum(d.RowGroups))
			}
		}
	}
	return d, nil
}

func sum(list []int64) (n int64) {
	for _, x := range list {
		n += x
	}
	return n
}

// isOptional reports whether the top-level column above a leaf is nullable.
func isOptional(f *pq.File, leaf int) bool {
	name := f.Schema().Columns()[leaf][0]
	for _, c := range f.Schema().Fields() {
		if c.Name() == name {
			return c.Optional()
		}
	}
	return false
}

// summer sums one column chunk.
type summer struct {
	c                  *ColumnDigest
	optional, repeated bool

	open  bool // a row has begun
	began uint64
	null  bool
	buf   [256]pq.Value
}

func (s *summer) chunk(chunk pq.ColumnChunk) (err error) {
	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			s.end()
			return nil
		} else if err != nil {
			return err
		}
		err = s.page(page)
		pq.Release(page)
		if err != nil {
			return err
		}
	}
}

func (s *summer) begin(null bool) {
	s.end()
	s.open, s.began, s.null = true, s.c.Count, null
}

func (s *summer) end() {
	if s.open {
		s.c.row(s.began, s.null)
	}
	s.open = false
}

func (s *summer) page(page pq.Page) error {
	if s.repeated {
		data := page.Data()
		switch page.Type().Kind() {
		case pq.Int32:
			return numbers(s, page, data.Int32(), addInts[int32])
		case pq.Int64:
			return numbers(s, page, data.Int64(), addLongs)
		case pq.Float:
			return numbers(s, page, data.Float(), addFloats)
		}
	}
	values := page.Values()
	for {
		n, err := values.ReadValues(s.buf[:])
		for _, v := range s.buf[:n] {
			if v.RepetitionLevel() == 0 {
				s.begin(s.optional && v.DefinitionLevel() == 0)
			}
			if !v.IsNull() {
				s.c.value(bits(v))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// numbers sums a page of lists without making a value of each element: values
// holds those that are there, the levels say where. It goes row by row.
func numbers[T any](s *summer, page pq.Page, values []T, add func(*ColumnDigest, []T)) error {
	rep, def := page.RepetitionLevels(), page.DefinitionLevels()
	if len(rep) != len(def) {
		return fmt.Errorf("%d repetition levels for %d definition levels", len(rep), len(def))
	}
	top := byte(1) // the definition level of an element
	if s.optional {
		top = 2
	}
	for len(rep) > 0 {
		if rep[0] == 0 { // else the page begins within a row
			s.begin(s.optional && def[0] == 0)
		}
		n := 1 + bytes.IndexByte(rep[1:], 0)
		if n == 0 {
			n = len(rep)
		}
		there := bytes.Count(def[:n], []byte{top})
		if there > len(values) {
			return fmt.Errorf("levels for %d values, %d are left", there, len(values))
		}
		add(s.c, values[:there])
		rep, def, values = rep[n:], def[n:], values[there:]
	}
	if len(values) > 0 {
		return fmt.Errorf("%d values without levels", len(values))
	}
	return nil
}

func bits(v pq.Value) uint64 {
	switch v.Kind() {
	case pq.Boolean:
		if v.Boolean() {
			return 1
		}
		return 0
	case pq.Int32:
		return uint64(v.Uint32())
	case pq.Int64:
		return v.Uint64()
	case pq.Float:
		return uint64(math.Float32bits(v.Float()))
	case pq.Double:
		return math.Float64bits(v.Double())
	default:
		return textBits(v.ByteArray())
	}
}
