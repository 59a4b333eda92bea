package parquet

import (
	"fmt"
	"io"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// Version names what the bytes of a file depend on besides its rows: a change
// of a library or an encoding changes it.
const Version = "turnlog version 1.0.0 (build arrow-go-v18.8.0-zstd3)"

const pageSize = 4 << 20

// Compression of a file's pages.
type Compression string

// The compressions. None is for those who would rather pay for disks, and for
// measuring; every reader reads both.
const (
	Zstd Compression = "zstd"
	None Compression = "none"
)

// Pair is one entry of a file's key-value metadata.
type Pair struct{ Key, Value string }

// Writer writes one file of rows T. The same row groups and pairs give the same
// bytes. It is not safe for concurrent use.
type Writer[T any] struct {
	columns []column
	builder *array.RecordBuilder
	file    *pqarrow.FileWriter
	digest  *digester
	groups  []int64
	size    countingWriter
}

// NewWriter begins a file.
func NewWriter[T any](w io.Writer, compression Compression) (*Writer[T], error) {
	cols := columns(reflect.TypeFor[T]())
	schema := schemaOf(cols)
	out := &Writer[T]{
		columns: cols,
		builder: array.NewRecordBuilder(memory.NewGoAllocator(), schema),
		digest:  newDigester(schema),
		size:    countingWriter{w: w},
	}
	var err error
	out.file, err = pqarrow.NewFileWriter(schema, &out.size, properties(schema, compression),
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, fmt.Errorf("parquet: begin a file: %w", err)
	}
	return out, nil
}

func properties(schema *arrow.Schema, compression Compression) *parquet.WriterProperties {
	options := []parquet.WriterProperty{
		parquet.WithCreatedBy(Version),
		parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithDataPageSize(pageSize),
		parquet.WithMaxRowGroupLength(1 << 30), // a record is a row group
		parquet.WithDictionaryDefault(false),
		parquet.WithEncoding(parquet.Encodings.Plain),
		parquet.WithStats(false),
	}
	if compression == Zstd {
		options = append(options, parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(3))
	}
	for _, l := range leaves("", schema.Fields()) {
		switch {
		case l.path == "logprobs.list.element":
			options = append(options, parquet.WithEncodingFor(l.path, parquet.Encodings.ByteStreamSplit))
		case !l.list && !isText(l.path):
			options = append(options, parquet.WithStatsFor(l.path, true))
		}
	}
	return parquet.NewWriterProperties(options...)
}

// isText reports columns whose least and greatest value say nothing.
func isText(path string) bool {
	n := len(path)
	return n > 5 && path[n-5:] == "_json" || path == "sampling"
}

// Write adds rows as one row group.
func (w *Writer[T]) Write(rows []*T) error {
	w.reserve(rows)
	for _, row := range rows {
		v := reflect.ValueOf(row).Elem()
		for i, c := range w.columns {
			appendValue(w.builder.Field(i), v.Field(c.index), c.null)
		}
		w.digest.row(v, w.columns)
	}
	record := w.builder.NewRecordBatch()
	defer record.Release()
	if err := w.file.Write(record); err != nil {
		return fmt.Errorf("parquet: write a row group: %w", err)
	}
	w.groups = append(w.groups, int64(len(rows)))
	return nil
}

// reserve makes room for the elements of lists, which would otherwise be moved
// each time that it runs out.
func (w *Writer[T]) reserve(rows []*T) {
	for i, c := range w.columns {
		b, ok := w.builder.Field(i).(*array.ListBuilder)
		if !ok {
			continue
		}
		n := 0
		for _, row := range rows {
			n += reflect.ValueOf(row).Elem().Field(c.index).Len()
		}
		b.ValueBuilder().Reserve(n)
	}
}

// Size is the number of bytes that left the writer.
func (w *Writer[T]) Size() int64 { return w.size.n }

// Close ends the file with the pairs as its metadata. What w.Write was given is
// on its way to the io.Writer, which stays open.
func (w *Writer[T]) Close(metadata ...Pair) (Digest, error) {
	defer w.builder.Release()
	for _, p := range metadata {
		if err := w.file.AppendKeyValueMetadata(p.Key, p.Value); err != nil {
			return Digest{}, fmt.Errorf("parquet: end a file: %w", err)
		}
	}
	if err := w.file.Close(); err != nil {
		return Digest{}, fmt.Errorf("parquet: end a file: %w", err)
	}
	d := w.digest.sum()
	d.RowGroups = w.groups
	return d, nil
}

// countingWriter hides that the file could be closed: pqarrow closes what it
// can.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
